"""What `dlq` writes stands there whole, for whom it is meant, and never where another user points."""

import os
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from support.archives import letter, write_analysis, write_segment
from support.builders import Dlq

from dlq.archive.storage import files, folder
from dlq.archive.storage.store import LocalStore
from dlq.archive.views import connect
from dlq.cli.app import run
from dlq.core.errors import ArchiveError, UsageError
from dlq.core.runtime import patience
from dlq.core.settings import Ledger
from dlq.replay.ledger import opened
from dlq.reports.formats.files import write_text

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder for everybody, as /tmp is one; pytest's own folders are root's alone."""
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o711)
        folder = Path(above, "shared")
        folder.mkdir()
        folder.chmod(0o1777)
        yield folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    file = tmp_path / "victim"
    file.write_text("precious")
    return file


def plant(link: Path, target: Path) -> None:
    """Another user makes a link in the shared folder."""
    subprocess.run(["/bin/ln", "-s", str(target), str(link)], user=NOBODY, check=True, cwd="/")


WRITERS: list[Callable[[Path], object]] = [
    lambda path: write_text(str(path), "text"),
    lambda path: run(["-c", str(path), "init", "--force"]),
]


@as_root
@pytest.mark.parametrize("write", WRITERS)
def test_a_link_of_another_user_is_replaced_and_not_followed(
    shared: Path, victim: Path, write: Callable[[Path], object]
) -> None:
    target = shared / "r.json"
    for name in ("r.json", f".r.json.{os.getpid()}"):
        plant(shared / name, victim)
    write(target)
    assert (victim.read_text(), target.is_file(), target.is_symlink()) == ("precious", True, False)


@as_root
def test_the_archive_follows_no_link_of_another_user(shared: Path, victim: Path) -> None:
    store = LocalStore(str(shared))
    plant(shared / f".tmp-{os.getpid()}-fresh", victim)
    store.put("fresh", b"text")
    plant(shared / "taken", victim)
    with pytest.raises(ArchiveError, match="it is a link"):
        store.get("taken")
    store.put("taken", b"text")
    assert (victim.read_text(), store.get("fresh"), store.get("taken")) == ("precious", b"text", b"text")


@as_root
def test_a_temporary_name_that_another_has_taken_is_not_written_to(
    shared: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "token_hex", lambda _bytes: "guessed")
    plant(shared / ".tmp-guessed", victim)
    with pytest.raises(FileExistsError), files.replacing(shared / "r"):
        pass
    assert victim.read_text() == "precious"


def test_temporary_names_cannot_be_guessed(tmp_path: Path) -> None:
    seen = set()
    for _ in range(2):
        with files.replacing(tmp_path / "r"):
            seen.update(path.name for path in tmp_path.iterdir() if path.name != "r")
    assert len(seen) == 2


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("old")
    with suppress(ZeroDivisionError), files.replacing(tmp_path / "r") as file:
        file.write(b"half")
        _ = 1 // 0
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("r", "old")]


@as_root
def test_a_pipe_of_the_users_own_and_a_device_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe, device = tmp_path / "pipe", tmp_path / "null"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        write_text(str(pipe), "text")
        assert reader.communicate()[0] == b"text"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    write_text(str(device), "text")
    assert stat.S_ISCHR(device.lstat().st_mode)


def test_a_pipe_that_nobody_reads_holds_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SHORTLY", 0.2)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="a pipe that nobody reads"):
        write_text(str(tmp_path / "pipe"), "text")
    reader, writer = os.pipe()  # as `>(false)` leaves it
    os.close(reader)
    with pytest.raises(UsageError, match="Broken pipe"):
        write_text(f"/dev/fd/{writer}", "text")
    os.close(writer)


def test_only_a_pipe_is_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as nobody:
        nobody.bind(str(tmp_path / "s"))
        with pytest.raises(OSError, match="No such device"):  # as of /dev/tty where there is no terminal
            files.open_at_once(tmp_path / "s", 0)


def test_what_a_pipe_was_exchanged_for_is_not_written(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "is_stream", lambda _path: True)
    (tmp_path / "link").symlink_to(victim)
    os.link(victim, tmp_path / "other")
    for name in ("link", "other"):
        with pytest.raises(UsageError, match="cannot write"):
            write_text(str(tmp_path / name), "text")
    assert victim.read_text() == "precious"


def test_a_folder_is_not_written() -> None:
    for place in (".", "/", ".."):
        with pytest.raises(UsageError, match=f"cannot write {place}: .*(directory|busy)"):
            write_text(place, "text")


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_that_was_there_keeps_its_rights(shared: Path) -> None:
    """What libraries write into the archive is its owner's alone, too."""
    store, umask = LocalStore(str(shared)), os.umask(0o022)
    store.put("manifests/a", b"")
    try:
        with store.lock("segments"), opened(Ledger(), store):
            pass
    finally:
        os.umask(umask)
    assert rights(shared) == 0o1777
    assert [rights(shared / name) for name in ("manifests", "analyses")] == [0o700] * 2
    assert [rights(shared / name) for name in ("manifests/a", "locks/segments", "ledger.db")] == [0o600] * 3


def test_a_folder_that_the_archive_makes_is_its_owners_alone(tmp_path: Path) -> None:
    LocalStore(str(tmp_path / "above" / "archive")).put("a/b/c", b"")
    made = [tmp_path / "above" / name for name in ("", "archive", "archive/a", "archive/a/b")]
    assert [rights(folder) for folder in made] == [0o700] * 4


def test_what_looking_spills_is_not_in_a_folder_that_others_read(shared: Path) -> None:
    """And goes when the look has ended: a server looks for weeks."""
    with closing(connect(LocalStore(str(shared)), memory="64MB")) as connection:
        spilled = Path(connection.sql("select current_setting('temp_directory')").fetchall()[0][0])
        assert rights(spilled.parent) == 0o700
        assert not spilled.exists()
        rows = connection.execute("select md5(range::text) from range(2000000) order by 1")
        rows.fetchone()
        assert list(spilled.iterdir())
    assert not spilled.exists()


@pytest.fixture
def dlq(dlq: Dlq, store: LocalStore) -> Iterator[Dlq]:
    write_segment(store, "p-0", [letter(1, body=b"x")])
    write_analysis(store, "20260101T000000", [{"record_id": letter(1).record_id, "cause": "expired"}])
    umask = os.umask(0o022)
    yield dlq
    os.umask(umask)


@pytest.mark.parametrize(("mask", "expected"), [((), 0o600), (("--mask",), 0o644)])
def test_what_holds_letters_is_the_users_alone_unless_masked(
    dlq: Dlq, tmp_path: Path, mask: tuple[str, ...], expected: int
) -> None:
    for words in (("report", "--out", "r.html"), ("export", "r.jsonl"), ("export", "r.jsonl.gz")):
        (tmp_path / words[-1]).touch(0o666)
        assert dlq(*words, *mask)[0] == 0
        assert rights(tmp_path / words[-1]) == expected


def test_a_report_into_a_folder_that_is_not_there_is_refused_unless_asked_for(
    dlq: Dlq, tmp_path: Path
) -> None:
    for place, why in (
        ("typo/r.md", "there is no folder typo; --parents makes it"),
        ("r.pdf", ".html, .json, .md, .markdown, .txt"),
    ):
        code, _, said = dlq("report", "--out", place)
        assert (code, why in said, [*tmp_path.glob("typo")], [*tmp_path.glob("r.*")]) == (2, True, [], [])
    assert dlq("report", "--parents", "--out", "typo/r.md")[0] == 0
    assert dlq("report", "--out", "r.2026-11-22")[0] == 0
