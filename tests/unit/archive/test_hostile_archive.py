"""Whoever may write into an archive cannot make `dlq` read, write or delete anything outside of it."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from support.archives import letter, write_analysis, write_segment
from support.builders import Dlq
from support.rows import each_row

from dlq.archive import analyses, housekeeping, manifests
from dlq.archive.storage.folder import Folder, NotOrdinaryError
from dlq.archive.storage.store import LocalStore, Store, check_inside, open_store
from dlq.core.errors import ArchiveError
from dlq.core.runtime import bounded_json

OUTWARD = ["../victim", "/etc/passwd", "segments/../../victim", "./x", "a//b", "", "a/\0b", "a/\nb", ".."]
USES: dict[str, Callable[[Store, str], Any]] = {
    "get": lambda store, name: store.get(name), "get_many": lambda store, name: store.get_many([name]),
    "open": lambda store, name: store.open(name), "put": lambda store, name: store.put(name, b""),
    "delete": lambda store, name: store.delete(name), "url": lambda store, name: store.url(name),
    "parquet": lambda store, name: store.parquet(name), "list": lambda store, name: store.list(f"{name}/"),
    "lock": lambda store, name: store.lock(f"{name}").__enter__(),
}  # fmt: skip


@each_row("name", OUTWARD)
def test_a_name_leads_inside_or_is_none(name: str) -> None:
    with pytest.raises(ValueError, match="no name inside the archive"):
        check_inside(name)
    assert check_inside("segments/source=a/date=2026-11-21/..b.parquet")


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("location", ["archive", "s3://bucket/path"])
def test_no_store_follows_a_name_that_leads_outside(tmp_path: Path, location: str, use: str) -> None:
    (tmp_path / "archive").mkdir()
    place = location if "://" in location else str(tmp_path / location)
    for name in ("../../victim", "a/../../../victim"):
        with pytest.raises(ArchiveError, match="no name inside the archive"):
            USES[use](open_store(place), name)


def test_a_link_in_the_archive_does_not_lead_out_of_it(tmp_path: Path, store: LocalStore) -> None:
    store.put("a/b", b"")
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("precious")
    (tmp_path / "archive" / "out").symlink_to(victim)
    for use in ("get", "open", "put", "delete", "url"):
        with pytest.raises(ArchiveError, match="it is a link, or lies behind one"):
            USES[use](store, "out/file")
    assert (victim / "file").read_text() == "precious"


def poisoned(store: LocalStore, **fields: object) -> None:
    write_segment(store, "p-0", [letter(1)])
    document = json.loads(store.get("manifests/p-0.json"))
    store.put("manifests/p-0.json", json.dumps({**document, **fields}).encode())


@pytest.mark.parametrize("field", ["segment", "purged_ids", "stem"])
def test_retention_deletes_nothing_that_a_manifest_names_outside(
    dlq: Dlq, store: LocalStore, tmp_path: Path, field: str
) -> None:
    write_segment(store, "q-0", [letter(2)])
    poisoned(store, **{field: "../victim.parquet"}, settled=True)
    victim = tmp_path / "victim.parquet"
    victim.write_text("precious")
    code, _, said = dlq("retain", "--apply", "--compact")
    assert (code, victim.read_text()) == (3, "precious")
    assert "manifests/p-0.json in the archive is damaged" in said


def test_a_device_is_not_opened() -> None:
    with pytest.raises(NotOrdinaryError, match="it is no ordinary file"):
        Folder("/dev").open("zero")


@pytest.fixture
def victim(tmp_path: Path, store: LocalStore) -> Path:
    """A file that a lock of the archive is a second name of."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    store.put("locks/other", b"")
    os.link(victim, Path(store.location, "locks", "work"))
    return victim


def test_a_lock_with_a_second_name_is_not_written_to(victim: Path, store: LocalStore) -> None:
    with pytest.raises(ArchiveError, match="it has another name as well"), store.lock("work"):
        pass
    assert victim.read_text() == "precious"


def test_a_lock_with_a_second_name_tells_nothing_of_what_is_in_it(victim: Path, store: LocalStore) -> None:
    with victim.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ArchiveError, match="it has another name as well"):
            store.holder("work")


def test_who_takes_a_lock_is_told_which_folder_is_a_link(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    (tmp_path / "analyses").symlink_to(tmp_path)
    with pytest.raises(ArchiveError, match=r"cannot write analyses/ in .*: it is a link"), store.lock("work"):
        pass


def exchange(folder: Path, victim: Path) -> None:
    """Somebody puts a link where the folder was, once."""
    if not folder.is_symlink():
        folder.rename(folder.with_name("before"))
        folder.symlink_to(victim)


def test_retention_sweeps_no_folder_that_another_was_exchanged_for(
    dlq: Dlq, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segment(store, "p-0", [letter(1)])
    store.put("plans/x", b"")
    plans, precious = Path(store.location, "plans"), tmp_path / "victim" / ".tmp-precious"
    precious.mkdir(parents=True)
    os.utime(precious, (1, 1))
    sweep, scandir = housekeeping.sweep_temporaries, os.scandir
    looked_at: dict[int, list[os.DirEntry[str]]] = {}

    def exchanging(place: Any) -> Any:
        """After all looks at what is above the folder: each sees what the first one saw."""
        entries = looked_at.setdefault(os.stat(place).st_ino, list(scandir(place)))
        if "plans" in [entry.name for entry in entries]:
            exchange(plans, precious.parent)
        return nullcontext(entries)

    def sweeping(*arguments: Any) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(os, "scandir", exchanging)
            sweep(*arguments)

    monkeypatch.setattr(housekeeping, "sweep_temporaries", sweeping)
    assert dlq("retain", "--apply")[0] == 0
    assert (plans.is_symlink(), precious.exists()) == (True, True)


def test_retention_deletes_nothing_in_a_folder_that_another_was_exchanged_for(
    dlq: Dlq, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segment(store, "p-0", [letter(1)])
    for day in range(1, 9):
        write_analysis(store, f"2020010{day}T000000", [])
    folder, victim, do = Path(store.location, "analyses"), tmp_path / "victim", housekeeping.do
    shutil.copytree(folder, victim)
    (tmp_path / "dlq.toml").write_text("[retain]\nanalyses = 1\n")
    monkeypatch.setattr(housekeeping, "do", lambda *words: (exchange(folder, victim), do(*words))[1])
    there = sorted(victim.rglob("*"))
    code, _, said = dlq("retain", "--apply")
    assert (code, sorted(victim.rglob("*"))) == (3, there)
    assert "it is a link, or lies behind one" in said


@pytest.mark.parametrize("name", ["copy", "\udcff"])
def test_a_copy_of_a_manifest_counts_no_letter_twice(dlq: Dlq, store: LocalStore, name: str) -> None:
    write_segment(store, "p-0", [letter(1)])
    shutil.copy(f"{store.location}/manifests/p-0.json", f"{store.location}/manifests/{name}.json")
    for command in ("ls", "report", "verify"):
        code, out, said = dlq(command)
        assert code in (3, 6), command
        assert "a copy counts letters twice" in out + said


def test_a_hostile_analysis_is_named_as_damaged(dlq: Dlq, store: LocalStore) -> None:
    write_segment(store, "p-0", [letter(1)])
    write_analysis(store, "20260101T000000", [])
    name = analyses.name_of("20260101T000000")
    document = json.loads(store.get(name))
    document["tables"]["verdicts"] = ["../../etc/passwd"]
    store.put(name, json.dumps(document).encode())
    code, _, said = dlq("ls")
    assert (code, name in said) == (3, True)


def test_a_document_is_bounded_in_size(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_json, "LARGEST", 1 << 20)
    store.put("manifests/p-0.json", b'{"format": 1, "x": "' + b"x" * (2 << 20) + b'"}')
    with pytest.raises(ArchiveError, match=r"manifests/p-0.json .* larger than 1 MiB"):
        manifests.load(store, "manifests/p-0.json")
    assert len(store.get("manifests/p-0.json")) == (1 << 20) + 1
