"""A ledger that came with somebody else's archive is looked at without touching anything, or refused."""

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.archives import letter, write_segment
from support.builders import Dlq
from support.rows import each_row

from dlq.archive.storage import scratch
from dlq.archive.storage.store import LocalStore
from dlq.connectors.base import Target
from dlq.core.errors import ArchiveError
from dlq.core.settings import Ledger
from dlq.replay import ledger as ledgers
from dlq.replay.ledger import as_arrow, opened
from dlq.replay.ledger.contract import Result
from dlq.replay.ledger.database import File
from dlq.replay.plans.letters import Letter

LOOKS = (
    ["ls"], ["verify"], ["report"], ["query", "select * from replays"], ["failures"], ["replay", "status"],
)  # fmt: skip
CHANGE = ["dismiss", f"{1:032x}", "--reason", "x"]
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
PAGE, SECTOR = 4096, 512


@pytest.fixture
def store(store: LocalStore) -> LocalStore:
    write_segment(store, "p-0", [letter(1)])
    with opened(Ledger(), store) as ledger:
        ledger.claim("plan", [replay(1)])
        ledger.record_results([Result(replay(1).key, "confirmed")])
    return store


def replay(number: int) -> Letter:
    key = f"{number:032x}"
    return Letter(number, key, key, 1, "shop", "p-0", 0, Target("queue", "orders"))


@pytest.fixture
def file(store: LocalStore) -> Path:
    return Path(store.location, "ledger.db")


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """Outside of the archive, and not to be touched."""
    victim = tmp_path / "precious"
    victim.write_bytes(b"precious")
    return victim


def forge_journal(file: Path, victim: Path) -> None:
    """A hot journal of no pages, whose super-journal is the victim (sqlite.org/fileformat2.html, pager.c)."""
    name, place = str(victim).encode(), 2**30 // PAGE + 1
    head, tail = (
        b"".join(n.to_bytes(4, "big") for n in numbers)
        for numbers in (
            (0, 1, file.stat().st_size // PAGE, SECTOR, PAGE),
            (len(name), sum(name) & 0xFFFFFFFF),
        )
    )
    start = (JOURNAL_MAGIC + head).ljust(SECTOR, b"\0") + place.to_bytes(4, "big")
    Path(f"{file}-journal").write_bytes(start + name + tail + JOURNAL_MAGIC)


def test_a_forged_journal_deletes_no_file(dlq: Dlq, file: Path, precious: Path) -> None:
    forge_journal(file, precious)
    for command in LOOKS:
        code, _, said = dlq(*command)
        assert (code, precious.exists(), "ledger.db-journal" in said) == (3, True, True), command
    with closing(sqlite3.connect(file)) as by_path:
        by_path.execute("SELECT * FROM replays").fetchall()
    assert not precious.exists(), "it does what it is feared for"


def put_link(file: Path, outside: Path) -> None:
    file.unlink()
    file.symlink_to(outside)


@pytest.mark.parametrize("put", [forge_journal, put_link])
def test_what_is_put_there_after_it_was_looked_at_changes_nothing_outside(
    dlq: Dlq, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path, Path], None]
) -> None:
    outside = tmp_path / "precious.db"
    shutil.copy(file, outside)
    before = outside.read_bytes()

    def exchanging(path: Path, alone: bool) -> File:
        if path == file:
            put(file, outside)
        return File(path, alone)

    monkeypatch.setattr(ledgers, "File", exchanging)
    code, _, said = dlq(*CHANGE)
    assert (code, said.count("\n")) == (3, 1), said
    assert outside.read_bytes() == before
    assert [path.name for path in tmp_path.glob("precious*")] == ["precious.db"]


def test_looking_changes_nothing_in_the_archive(dlq: Dlq, store: LocalStore) -> None:
    before = everything(store)
    for command in LOOKS:
        assert dlq(*command)[0] in (0, 6)
        assert everything(store) == before, command


def everything(store: LocalStore) -> dict[str, tuple[int, int]]:
    found = (path for path in Path(store.location).rglob("*"))
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in found}


def test_who_may_only_read_an_archive_sees_its_ledger(store: LocalStore, file: Path) -> None:
    for path in Path(store.location).rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o444)
    Path(store.location).chmod(0o555)
    assert rows_of(store) == 1


ODD: dict[str, Callable[[Path], None]] = {
    "a link": lambda path: path.symlink_to("/etc/passwd"),
    "a pipe": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
def test_what_is_no_ordinary_file_is_refused(dlq: Dlq, file: Path, end: str) -> None:
    place = Path(f"{file}{end}")
    for put in (lambda: place.symlink_to("/etc/passwd"), lambda: os.mkfifo(place), lambda: place.mkdir()):
        place.unlink(missing_ok=True)
        put()
        code, _, said = dlq("ls")
        assert (code, "ledger.db" in said, "unexpected" in said) == (3, True, False)


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_nothing_is_written_to_a_file_outside_by_another_name_of_it(
    dlq: Dlq, file: Path, precious: Path, end: str
) -> None:
    place = Path(f"{file}{end}")
    if not end:
        precious.write_bytes(file.read_bytes())
    place.unlink(missing_ok=True)
    os.link(precious, place)
    before = precious.read_bytes()
    code, _, said = dlq(*CHANGE)
    assert (code, "it has another name as well" in said, said.count("\n")) == (3, True, 1), said
    assert precious.read_bytes() == before
    assert dlq("ls")[0] == 0


SCHEMAS: dict[str, str | bytes] = {
    "a view": "ALTER TABLE replays RENAME TO x; CREATE VIEW replays AS SELECT * FROM x",
    "a trigger": "CREATE TRIGGER t AFTER UPDATE ON replays BEGIN DELETE FROM events; END",
    "an index on what a function says": "CREATE INDEX i ON replays (length(zeroblob(lap)))",
    "a virtual table": "CREATE VIRTUAL TABLE v USING fts4(x)",
    "another column": "ALTER TABLE replays ADD COLUMN extra GENERATED ALWAYS AS (lap * 2)",
    "nothing": b"",
    "no database": b"x" * 10_000,
    "no WAL mode": b"SQLite format 3\0" + b"\0" * 4080,
}


@pytest.mark.parametrize("what", SCHEMAS)
def test_a_schema_that_is_not_ours_is_refused(dlq: Dlq, file: Path, what: str) -> None:
    made = SCHEMAS[what]
    if isinstance(made, str):
        with closing(sqlite3.connect(file)) as forging:
            forging.executescript(made)
    else:
        for path in file.parent.glob("ledger.db*"):
            path.unlink()
        file.write_bytes(made)
    for command in (LOOKS[0], CHANGE):
        code, _, said = dlq(*command)
        assert (code, "no ledger of dlq" in said) == (3, True), command
        assert isinstance(made, str) or file.read_bytes() == made


_WRITER = """
import sys
from pathlib import Path
from dlq.connectors.base import Target
from dlq.replay.ledger.database import File
from dlq.replay.ledger.sql import SqlLedger
from dlq.replay.plans.letters import Letter
from dlq.replay.ledger.contract import Result
ledger = SqlLedger(File(Path(sys.argv[1])), 3600)
ledger.database.connection.execute("PRAGMA wal_autocheckpoint = 20")
for start in range(10, 10**9, 10):
    keys = [f"{n:032x}" for n in range(start, start + 10)]
    to = Target("queue", "q")
    ledger.claim("plan", [Letter(n, k, k, 1, "shop", "p", 0, to) for n, k in enumerate(keys)])
    print(start, flush=True)
"""


def rows_of(store: LocalStore) -> int:
    table = as_arrow(Ledger(), store)
    return 0 if table is None else table.num_rows


def test_a_ledger_that_another_process_writes_is_read_as_it_was_at_one_moment_also_when_it_was_killed(
    store: LocalStore, file: Path
) -> None:
    """Ten replays are claimed at a time: what is seen has all of them or none, and never less than before."""
    command = [sys.executable, "-c", _WRITER, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        seen = 0
        for _ in range(20):
            written = int(writer.stdout.readline())
            found = rows_of(store) - 1
            assert found % 10 == 0
            assert found >= max(seen, written)
            seen = found
        writer.kill()
    assert Path(f"{file}-wal").exists()
    assert rows_of(store) - 1 >= seen


def test_a_ledger_that_may_not_be_written_says_what_to_look_at(file: Path) -> None:
    with closing(File(file)) as ledger:
        ledger.connection.execute("PRAGMA query_only = true")
        with pytest.raises(ArchiveError, match="readonly database; check its rights"):
            ledger.run(lambda change: change.change("DELETE FROM replays", ()))


def test_looking_takes_no_lock_from_who_writes_in_the_same_process(store: LocalStore, file: Path) -> None:
    with opened(Ledger(), store) as ledger:
        ledger.claim("plan", [replay(2)])
        assert rows_of(store) == 2
        code = f"""
import fcntl, os
with open({str(file)!r}, "r+b") as f:
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000000 + 2)
"""
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "BlockingIOError" in other.stderr


def note(store: LocalStore, path: Path) -> None:
    """The archive says that its ledger lies there; the configuration names a new one."""
    said = {"format": 1, "host": socket.gethostname(), "path": str(path)}
    Path(store.location, "ledger.json").write_text(json.dumps(said))
    Path("dlq.toml").write_text(f'[ledger]\nurl = "sqlite:///{path.with_name("new.db")}"\n')


def test_a_note_does_not_make_a_move_write_outside_of_the_archive(
    dlq: Dlq, store: LocalStore, file: Path, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign.db"
    file.rename(foreign)
    note(store, foreign)
    content = foreign.read_bytes()
    code, _, said = dlq("ledger", "move")
    assert (code, f"dlq ledger move --from {foreign}" in said) == (2, True)
    assert (foreign.read_bytes(), list(tmp_path.glob("foreign*"))) == (content, [foreign])
    assert dlq("ledger", "move", "--from", str(foreign))[0] == 0
    assert [path.name for path in tmp_path.glob("foreign*")] == ["foreign.db.moved"]


def test_a_foreign_database_is_not_taken_for_a_ledger(
    dlq: Dlq, store: LocalStore, file: Path, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as other:
        other.executescript("PRAGMA journal_mode = WAL; CREATE TABLE mails (x)")
    content = foreign.read_bytes()
    file.unlink()
    note(store, foreign)
    code, _, said = dlq("ledger", "move", "--from", str(foreign))
    assert (code, "no ledger of dlq" in said) == (3, True)
    assert foreign.read_bytes() == content


ENDS = {
    "while it is made": "snapshot.prepare = lambda connection, path: os._exit(9)",
    "as soon as it has its name": "os.link = lambda *names, **how: (link(*names, **how), os._exit(9))",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_ledger_is_whole_from_its_first_moment_however_who_makes_it_ends(tmp_path: Path, end: str) -> None:
    """No empty file and no journal stays behind."""
    code = f"""
import os, sys
from dlq.archive.storage.store import LocalStore
from dlq.core.settings import Ledger
from dlq.replay.ledger import opened, snapshot
link = os.link
{ENDS[end]}
with opened(Ledger(), LocalStore(sys.argv[1])): pass
"""
    store = LocalStore(str(tmp_path / os.fsdecode(b"archive\xff")))
    done = subprocess.run([sys.executable, "-c", code, store.location], check=False)
    assert done.returncode == 9
    assert bool([*tmp_path.glob("*/ledger.db*")]) == (end != "while it is made")
    with opened(Ledger(), store) as ledger:
        ledger.claim("plan", [replay(1)])


def test_a_look_that_fails_leaves_no_copy(
    store: LocalStore, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server looks again and again."""
    monkeypatch.setattr(scratch, "kept", {})  # Spark of another test lives in the folder of this process
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in (f"{file}-wal", str(file)):
        with open(name, "ab") as grown:
            grown.truncate(shutil.disk_usage("/tmp").free + 2**40)
        with pytest.raises(ArchiveError, match="no room"):
            as_arrow(Ledger(), store)
    assert [*scratch.folder().iterdir()] == []


ROWS = {
    "key": (b"x",), "record_id": (b"\xff", "x" * 2_000_000), "target": (b"x",),
    "lap": ("x", 2**40, b"x", 1e300), "state": ("sent!", b"x"), "updated_at": ("x", 1e300),
    "number": ("x", b"x"), "owner": (b"x",), "lease_until": ("x", 1.5), "sent_at": ("x",), "plan": (b"x",),
    "detail": (b"x",),
}  # fmt: skip
UPDATES = [(f"UPDATE replays SET {name} = ?", odd) for name, values in ROWS.items() for odd in values]
EVENTS = ("", "{", "5", "null", "[]", "[1,2,3,4,5,6,7]", '["a",1e999,"c","d","note","",""]', 5, b"\xff")


@pytest.mark.parametrize(("sql", "odd"), [
    *UPDATES,
    ("UPDATE replays SET target = CAST(? AS TEXT)", b"\xff"),
    *(("INSERT INTO events (id, event) VALUES ('x', ?)", event) for event in EVENTS),
])  # fmt: skip
def test_an_odd_row_or_event_ends_no_command(dlq: Dlq, file: Path, sql: str, odd: object) -> None:
    spoil(file, sql, odd)
    for command in (LOOKS[0], LOOKS[4 if "events" in sql else 1]):
        code, _, said = dlq(*command)
        assert (code, "ledger" in said, "unexpected" in said) == (3, True, False), (command, said)


def spoil(file: Path, sql: str, odd: object) -> None:
    """By a copy without the checks of its columns, as anybody can make one."""
    with closing(sqlite3.connect(file)) as forging:
        forging.execute("PRAGMA ignore_check_constraints = ON")
        forging.execute(sql, [odd])
        forging.commit()


@pytest.mark.parametrize("end", ["", "-wal"])
def test_a_hole_in_a_ledger_is_not_written_out_to_look_at_it(
    store: LocalStore, file: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    with open(f"{file}{end}", "ab") as grown:
        grown.truncate(2**32)
    sent, send = [], os.sendfile
    monkeypatch.setattr(os, "sendfile", lambda *given: sent.append(send(*given)) or sent[-1])
    assert rows_of(store) == 1
    assert sum(sent) < 2**20


@each_row("owner", ["x", "//", "a/b/c/d", f"{socket.gethostname()}/{10**30}/x", ""])
def test_an_odd_owner_leaves_its_claim_to_its_lease(store: LocalStore, file: Path, owner: str) -> None:
    spoil(file, "UPDATE replays SET state = 'sending', lease_until = 1, owner = ?", owner)
    with opened(Ledger(), store) as ledger:
        assert ledger.expire() == 1
