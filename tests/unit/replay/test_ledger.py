"""The ledger in SQLite keeps the contract, its files are durable, and looking makes none. What an apply
holds is written only while its lease lasts."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.ledger_contract import LEASE, LedgerContract, MovingClock, Opening, letters

from dlq.archive.storage.store import LocalStore
from dlq.connectors.base import Sent
from dlq.core.errors import ArchiveError, Busy, ConfigError, ConnectionLost, SendingEnded, UsageError
from dlq.core.failures import make_event
from dlq.core.settings import Ledger as LedgerSettings
from dlq.core.settings import Settings
from dlq.replay.ledger import as_arrow, move, open_ledger, opened, opened_if_any
from dlq.replay.ledger import claims as module
from dlq.replay.ledger.claims import Claims
from dlq.replay.ledger.contract import Result
from dlq.replay.ledger.database import File
from dlq.replay.ledger.server import server_url
from dlq.replay.ledger.sql import SqlLedger
from dlq.replay.plans.plan import make
from dlq.replay.plans.wanted import Wanted
from dlq.replay.runs.brokers import Brokers
from dlq.replay.runs.marks import Mark
from dlq.replay.verify import verify


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[SqlLedger]:
    book = SqlLedger(File(path), LEASE)
    yield book
    book.close()


class TestSqlite(LedgerContract):
    """The suite, on a file."""

    @pytest.fixture
    def opening(self, path: Path) -> Opening:
        return lambda clock: SqlLedger(File(path), LEASE, clock)


def racing(path: Path, code: str) -> "subprocess.Popen[str]":
    """Another process with the ledger."""
    script = """
import os, sys
from pathlib import Path
sys.path[:0] = [sys.argv[2]]
from support.ledger_contract import letters
from dlq.replay.ledger.database import File
from dlq.replay.ledger.sql import SqlLedger
ledger = SqlLedger(File(Path(sys.argv[1])), 3600)
"""
    command = [sys.executable, "-c", script + code, str(path), str(Path(__file__).parents[2])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_dead_owner_on_this_host_is_seen_at_once(path: Path, ledger: SqlLedger) -> None:
    assert racing(path, "ledger.claim('plan', letters(1)); os._exit(9)").wait() == 9
    assert ledger.states(["key1"]) == {"key1": "sending"}
    assert ledger.expire() == 1
    [entry] = ledger.entries("plan", "in_doubt")
    assert entry.detail == "its sender died before the answer came"


def test_processes_that_race_for_the_same_keys_share_none(path: Path) -> None:
    claim = "print(*ledger.claim('plan', letters(*range(start, start + 50))))"
    racers = [racing(path, f"for start in range(0, 1000, 50): {claim}") for _ in range(2)]
    claimed = [key for racer in racers for key in racer.communicate()[0].split()]
    assert sorted(claimed) == sorted(f"key{n}" for n in range(1000))


def test_a_claim_is_on_the_disk_before_anything_is_sent(ledger: SqlLedger) -> None:
    assert isinstance(ledger.database, File)
    ask = ledger.database.connection.execute
    settings = [ask(f"PRAGMA {name}").fetchone() for name in ("journal_mode", "synchronous")]
    assert settings == [("wal",), (2,)]
    with pytest.raises(ArchiveError, match="unable to open"):
        SqlLedger(File(Path("missing/ledger.db")), LEASE)


def test_a_ledger_moves_once_with_all_of_it(config: Settings, store: LocalStore, tmp_path: Path) -> None:
    store.put("here", b"")
    told = make_event(1, "ann@a", "f1", "note", "", "seen")
    with opened(config.ledger, store) as own:
        own.claim("plan", letters(1))
        own.record_results([Result("key1", "confirmed")])
        own.append([told])
    elsewhere = LedgerSettings(url=f"sqlite:///{tmp_path}/elsewhere.db")
    with pytest.raises(UsageError, match="dlq ledger move"):
        open_ledger(elsewhere, store)
    assert move(elsewhere, store) == (1, 1)
    with opened(elsewhere, store) as book:
        assert (book.states(["key1"]), book.events()) == ({"key1": "confirmed"}, [told])
    for look_or_send in (as_arrow, open_ledger):
        with pytest.raises(UsageError, match=r"was moved: set \[ledger\] url"):
            look_or_send(config.ledger, store)
    assert store.list("ledger") == ["ledger.db.moved", "ledger.json"]


def test_a_ledger_that_somebody_has_open_is_not_moved(
    config: Settings, store: LocalStore, tmp_path: Path
) -> None:
    """As a ramp that waits: nothing is being sent, and the next letter would be claimed in the old file."""
    store.put("here", b"")
    elsewhere = LedgerSettings(url=f"sqlite:///{tmp_path}/elsewhere.db")
    with opened(config.ledger, store) as own:
        own.claim("plan", letters(1))
        own.record_results([Result("key1", "confirmed")])
        with pytest.raises(Busy, match="is in use"):
            move(elsewhere, store)
        own.claim("plan", letters(2))
        own.record_results([Result("key2", "confirmed")])
    assert move(elsewhere, store) == (2, 2)


def test_of_letters_that_are_named_no_other_replays_are_read(config: Settings, store: LocalStore) -> None:
    some = letters(1, 2)
    with opened(config.ledger, store) as book:
        book.claim("plan", some)
    found = as_arrow(config.ledger, store, [some[1].record_id])
    assert found is not None
    assert found["key"].to_pylist() == [some[1].key]


def test_looking_makes_no_ledger_and_a_relative_place_is_refused(
    config: Settings, store: LocalStore, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere.db"
    for where in (config.ledger, LedgerSettings(url=f"sqlite:///{elsewhere}")):
        assert as_arrow(where, store) is None
        with opened_if_any(where, store) as book:
            assert book is None
    assert (store.list("ledger"), elsewhere.exists()) == ([], False)
    with pytest.raises(ConfigError, match="whole path"):
        open_ledger(LedgerSettings(url="sqlite:///ledger.db"), store)


def test_a_ledger_that_is_gone_stops_replays(config: Settings, store: LocalStore) -> None:
    store.put("here", b"")
    with opened(config.ledger, store) as own:
        own.claim("plan", letters(1))
    Path(store.url("ledger.db")).unlink()
    with Brokers(config) as brokers:
        for use in (
            lambda: open_ledger(config.ledger, store),
            lambda: verify(store, config),
            lambda: make(store, config, Wanted(), brokers),
        ):
            with pytest.raises(UsageError, match=r"is ledger\.db, which is gone"):
                use()
    with pytest.raises(UsageError, match=r"has no ledger\.db"):
        move(LedgerSettings(url="postgresql://localhost"), store)
    assert store.list("ledger") == ["ledger.json"]
    store.delete("ledger.json")
    assert verify(store, config) == []
    with opened(config.ledger, store) as own:
        assert own.states(["key1"]) == {}


def test_without_the_server_that_knows_the_replays_none_is_made(config: Settings, store: LocalStore) -> None:
    store.put("ledger.json", b'{"format": 1, "server": "postgresql"}')
    with pytest.raises(UsageError, match=r"on a server \(postgresql\).* name it in \[ledger\] url"):
        open_ledger(config.ledger, store)
    assert store.list("ledger") == ["ledger.json"]
    settings = LedgerSettings(url="postgresql://dlq@host/db", password_command=("printf", "geheim"))
    assert server_url(settings).password == "geheim"


def test_a_file_elsewhere_is_not_forgotten(
    config: Settings, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("here", b"")
    elsewhere = LedgerSettings(url=f"sqlite:///{tmp_path}/elsewhere.db")
    with opened(elsewhere, store) as book:
        book.claim("plan", letters(1))
    monkeypatch.setattr("socket.gethostname", lambda: "a-new-container")
    with pytest.raises(UsageError, match=r"elsewhere\.db, unknown to the one in \[ledger\] url"):
        open_ledger(config.ledger, store)
    with opened(elsewhere, store) as book:
        assert book.states(["key1"]) == {"key1": "sending"}
    (tmp_path / "elsewhere.db").unlink()
    with pytest.raises(UsageError, match=r"elsewhere\.db on a-new-container, which is gone"):
        open_ledger(elsewhere, store)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="on a-new-container: replay from there"):
        open_ledger(elsewhere, store)


class Host:
    """A ledger and an apply's claims, and a clock that a test moves for both."""

    def __init__(self, folder: Path) -> None:
        self.clock = MovingClock()
        self.ledger = SqlLedger(File(folder / "ledger.db"), LEASE, self.clock)
        self.ledger.owner = "north/1/x"
        mark = Mark(LocalStore(str(folder)), "plan", "north/1/x", 9)
        self.claims = Claims("plan", self.ledger, LEASE, mark, made=0)

    def uptime(self) -> float:
        return self.clock.moment / 1_000_000

    def hold(self, *numbers: int) -> None:
        self.claims.ask(letters(*numbers))
        found = self.claims.take_claimed()
        assert found is not None
        assert all(self.claims.take(letter) for letter in found[1])


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    made = Host(tmp_path)
    monkeypatch.setattr(module, "uptime", made.uptime)
    with closing(made.ledger):
        yield made


def test_a_lease_that_ended_unseen_is_taken_up_again_and_what_was_answered_needs_none(host: Host) -> None:
    host.hold(1, 2)
    host.clock.forward(3 * LEASE)
    host.claims.note_writing([1, 2])
    assert host.ledger.expire() == 0
    for number in (1, 2):
        host.claims.take_answer(Sent(number, "confirmed"))
    host.clock.forward(2 * LEASE)
    host.claims.note_writing([])


def test_nothing_is_written_when_it_took_too_long(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.hold(1)
    renew = host.ledger.renew

    def slow(keys: list[str]) -> set[str]:
        found = renew(keys)
        host.clock.forward(LEASE)
        return found

    monkeypatch.setattr(host.ledger, "renew", slow)
    host.clock.forward(LEASE / 2)
    with pytest.raises(ConnectionLost, match="lease ended"):
        host.claims.note_writing([1])


def test_who_was_told_once_that_nothing_more_is_sent_sends_nothing_more(host: Host) -> None:
    """Also where what another has taken over is answered, and the rest is still its own."""
    host.hold(1, 2)
    host.claims.note_writing([1])
    host.clock.forward(2 * LEASE)
    assert host.ledger.expire() == 2
    for numbers in ([2], []):
        with pytest.raises(SendingEnded, match="another run has taken over"):
            host.claims.note_writing(numbers)
    for number in (1, 2):
        host.claims.take_answer(Sent(number, "refused"))
    with pytest.raises(SendingEnded):
        host.claims.note_writing([])


def test_newer_claims_do_not_put_off_the_end_of_older_ones(host: Host) -> None:
    host.hold(1)
    host.clock.forward(LEASE / 4)
    host.hold(2)
    host.clock.forward(LEASE / 4)
    host.claims.note_writing([1])
    host.clock.forward(LEASE * 0.6)
    assert host.ledger.expire() == 0, "both were renewed when the older one wanted it"
