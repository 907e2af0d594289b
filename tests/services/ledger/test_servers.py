"""The ledger on real servers: two hosts share a plan, one dies, the server dies; nothing goes twice."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from support.replaying import QueueFile, brokers, fill, settings
from support.rows import each_row
from support.servers import ledger_host
from support.servers.ledger_host import configured
from support.servers.ledgers import SERVERS, Server
from support.waiting import PATIENCE, SOON, eventually

from dlq.archive.storage.store import LocalStore
from dlq.connectors.base import Target
from dlq.core.errors import ArchiveError, Busy, ConfigError, UsageError
from dlq.core.failures import make_event
from dlq.core.settings import Ledger as LedgerSettings
from dlq.core.settings import Settings
from dlq.replay.ledger import as_arrow, move, open_ledger, opened, server
from dlq.replay.ledger.contract import Ledger, Result
from dlq.replay.ledger.server import server_url
from dlq.replay.ledger.sql import SqlLedger
from dlq.replay.plans import planfile
from dlq.replay.plans.letters import Letter
from dlq.replay.plans.plan import make
from dlq.replay.plans.wanted import Wanted
from dlq.replay.reconcile import Decision, reconcile
from dlq.replay.runs.apply import apply


@pytest.fixture(scope="session", params=list(SERVERS))
def ledger_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = SERVERS[request.param]()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def config(ledger_server: Server, tmp_path: Path) -> Settings:
    return settings(tmp_path / "archive", ledger={"url": ledger_server.url}, replay={"window": 40})


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "archive"))


@pytest.fixture
def ledger(config: Settings, store: LocalStore) -> Iterator[Ledger]:
    with opened(config.ledger, store) as book:
        yield book


_made = 0


def letters(count: int) -> list[Letter]:
    """Letters that no other test has: the servers are shared."""
    global _made
    _made += count
    place = Target("queue", "orders")
    return [
        Letter(n, f"record{n}", f"key{n:028}", 1, "shop", "seg", n, place)
        for n in range(_made - count, _made)
    ]


def keys(some: list[Letter]) -> set[str]:
    return {one.key for one in some}


def test_hosts_that_speak_of_one_failure_at_once_lose_nothing(config: Settings, store: LocalStore) -> None:
    """Each host has an archive and a connection of its own; the store is what they share."""
    subject = f"f{time.time_ns()}"
    told = {who: [make_event(n, who, subject, "note", "", f"{n} 日本 😀") for n in range(20)] for who in "ab"}

    def speak(who: str) -> None:
        with opened(config.ledger, LocalStore(f"{store.location}-{who}")) as book:
            for one in told[who]:
                book.append([one])

    with ThreadPoolExecutor() as hosts:
        list(hosts.map(speak, told))
    with opened(config.ledger, store) as book:
        book.append(told["a"])
        found = [event for event in book.events() if event.subject == subject]
    assert {who: [one for one in found if one.actor == who] for who in told} == told


@pytest.mark.usefixtures("ledger")  # it is noted by then: threads cannot write one file of a store at once
def test_threads_that_race_for_the_same_letters_share_none(config: Settings, store: LocalStore) -> None:
    some = letters(1000)

    def race(_racer: int) -> list[str]:
        with opened(config.ledger, store) as book:
            return [key for at in range(0, 1000, 50) for key in book.claim("race", some[at : at + 50])]

    with ThreadPoolExecutor() as racers:
        claimed = [key for won in racers.map(race, range(3)) for key in won]
    assert sorted(claimed) == sorted(keys(some))


class Hosts:
    """A plan, and hosts that apply it; the test is one of them, whose lease no busy machine outlasts."""

    def __init__(self, store: LocalStore, server: Server, folder: Path, count: int) -> None:
        self.config = configured(folder / "archive", server.url, PATIENCE)
        self.store, self.server, self.queue = store, server, QueueFile(folder / "queue")
        fill(store, count, body=str(folder).encode(), key=str(folder))
        with brokers(self.config, self.queue) as some:
            self.plan = make(store, self.config, Wanted(to=f"queue:{folder}", again=True), some).plan
        self.keys = {one.key for one in planfile.letters(store, self.plan)}

    def words(self, host: str, *strike: object, lease: float = PATIENCE) -> list[str]:
        """The command of another host; a strike of three words ends or stops it."""
        known = (self.store.location, self.server.url, lease, self.plan, self.queue.path)
        return [sys.executable, ledger_host.__file__, host, *map(str, (*known, *strike))]

    def begin(self, *words: list[str]) -> list[subprocess.Popen[bytes]]:
        """Together: one that is slow to start would find its work done, and leave nothing in doubt when it is
        killed."""
        hosts = [subprocess.Popen(one, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for one in words]
        for host in hosts:
            assert host.stdout is not None
            assert host.stdout.readline() == b"ready\n"
        for host in hosts:
            assert host.stdin is not None
            host.stdin.write(b"\n")
            host.stdin.flush()
        return hosts

    def end_leases(self) -> None:
        """As time does it."""
        replays = server.TABLE
        engine = sa.create_engine(server_url(self.config.ledger))
        with engine.begin() as on:
            on.execute(replays.update().where(replays.c.plan == self.plan).values(lease_until=0))
        engine.dispose()

    def is_taken_from(self, book: Ledger) -> bool:
        """Whether no letter is under way any more, as the ledger sees it."""
        book.expire()
        return "sending" not in book.counts(self.plan)


def test_two_hosts_apply_a_plan_one_is_killed_and_the_server_restarts(
    store: LocalStore, ledger_server: Server, tmp_path: Path
) -> None:
    here = Hosts(store, ledger_server, tmp_path, 1500)
    north, south = here.begin(here.words("north", "written", 100, int(signal.SIGKILL)), here.words("south"))
    assert north.wait(timeout=PATIENCE) == -signal.SIGKILL
    north.communicate()
    eventually(lambda: len(here.queue.arrived()) >= 300)
    ledger_server.kill()
    time.sleep(0.3)
    ledger_server.start()
    assert int(south.communicate(timeout=PATIENCE)[0]) > 500
    here.end_leases()
    subprocess.run(here.words("west"), input=b"\n", check=True, timeout=PATIENCE)
    arrived = here.queue.arrived()
    with opened(here.config.ledger, store) as book:
        states = book.states(sorted(here.keys))
    confirmed = {key for key, state in states.items() if state == "confirmed"}
    doubtful = {key for key, state in states.items() if state == "in_doubt"}
    assert len(arrived) == len(set(arrived)), "something was sent twice"
    assert confirmed | doubtful == here.keys, "something was forgotten"
    assert confirmed <= set(arrived)
    assert here.config.replay.window is not None
    assert 0 < len(doubtful) <= here.config.replay.window


@pytest.mark.parametrize("place", ["taken", "marked"])
@pytest.mark.parametrize("ledger_server", ["postgres", "mariadb"], indirect=True)
def test_a_host_that_was_stopped_sends_nothing_of_what_another_took_over(
    store: LocalStore, ledger_server: Server, tmp_path: Path, place: str
) -> None:
    """It is stopped between taking a letter and asking whether it may be written, or between two letters."""
    here = Hosts(store, ledger_server, tmp_path, 300)
    [north] = here.begin(here.words("north", place, 50, int(signal.SIGSTOP), lease=6.0))
    try:
        os.waitid(os.P_PID, north.pid, os.WSTOPPED | os.WNOWAIT)
        here.queue.witnesses.append(here.plan)
        with brokers(here.config, here.queue) as some, opened(here.config.ledger, store) as book:
            eventually(lambda: here.is_taken_from(book))
            assert reconcile(store, here.plan, some, book, Decision()).not_sent > 0
            apply(store, here.config, here.plan, some, book)
    finally:
        north.send_signal(signal.SIGCONT)
    north.communicate(timeout=PATIENCE)
    at_most_the_one_in_hand = 300 if place == "taken" else 301
    assert 300 <= len(here.queue.arrived()) <= at_most_the_one_in_hand
    assert set(here.queue.arrived()) == here.keys


@pytest.mark.parametrize("ours", [-5, 5])
def test_a_lease_ends_by_the_servers_clock(
    config: Settings, store: LocalStore, monkeypatch: pytest.MonkeyPatch, ours: int
) -> None:
    right = time.time_ns

    def shifted_by(hours: int) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: right() + hours * 3600 * 10**9)

    some = letters(2)
    shifted_by(ours)
    with opened(config.ledger, store) as book:
        book.owner = f"north/1/{ours}"
        assert book.claim("clocks", some) == keys(some)
        shifted_by(-ours)
        book.expire()
        assert set(book.states(sorted(keys(some))).values()) == {"sending"}
        assert book.renew(sorted(keys(some))) == keys(some)


def test_a_host_that_is_suspended_in_a_transaction_does_not_keep_the_others_waiting(
    config: Settings, store: LocalStore
) -> None:
    some = letters(2)
    with opened(config.ledger, store) as book:
        assert book.claim("suspended", some) == keys(some)
    suspended = server.Server(server_url(config.ledger), lease=1).engine.connect()
    suspended.execute(server.TABLE.update().values(detail="in hand"))
    began = time.monotonic()
    with opened(config.ledger, store) as book:
        book.expire()
        assert len(book.states(sorted(keys(some)))) == 2
    assert time.monotonic() - began < SOON
    suspended.invalidate()


def test_nothing_is_written_by_a_pipeline_in_which_a_suspended_host_would_pass_for_busy(
    config: Settings, store: LocalStore
) -> None:
    some = letters(20)
    many: list[bool] = []
    database = server.Server(server_url(config.ledger), lease=60)
    book = SqlLedger(database, lease=60)
    sa.event.listen(database.engine, "before_cursor_execute", lambda *told: many.append(told[-1]))
    assert book.claim("claimed", some) == keys(some)
    book.record_results([Result(one.key, "refused") for one in some])
    assert book.claim("claimed again", some) == keys(some)
    mine = [row for rows in book.all_rows() for row in rows if row[0] in keys(some)]
    moved = [(f"moved {key}", *rest) for key, *rest in mine]
    assert [book.adopt([*mine, *moved]), book.adopt(moved)] == [len(some), 0]
    said = [make_event(n, "ann", some[0].key, "note") for n in range(3)]
    book.append(said)
    book.append(said)
    assert [event for event in book.events() if event in said] == said
    book.close()
    assert many
    assert not any(many)


@pytest.mark.parametrize("ledger_server", ["postgres", "mariadb"], indirect=True)
def test_a_claim_whose_answer_was_lost_is_not_forgotten(
    config: Settings, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = letters(5)
    with opened(config.ledger, store) as book:
        assert isinstance(book, SqlLedger)
        assert isinstance(book.database, server.Server)
        engine = book.database.engine
        commit = engine.dialect.do_commit
        lost = iter([True])

        def answer_lost(connection: object) -> None:
            commit(connection)  # type: ignore[arg-type]
            if next(lost, False):
                raise engine.dialect.loaded_dbapi.OperationalError("the connection ended")

        monkeypatch.setattr(engine.dialect, "do_commit", answer_lost)
        assert book.claim("lost", some) == keys(some)


def test_a_ledger_moves_from_the_archive_to_a_server(
    config: Settings, ledger: Ledger, tmp_path: Path
) -> None:
    some = letters(5)
    ledger.claim("server", some[:1])
    file, store = LedgerSettings(), LocalStore(str(tmp_path / "another"))
    store.put("here", b"")
    with opened(file, store) as old:
        old.claim("moved", some)
        states = ("confirmed", "confirmed", "returned", "in_doubt", "planned")
        old.record_results([Result(one.key, state) for one, state in zip(some, states, strict=True)])
    with pytest.raises(UsageError, match="dlq ledger move"):
        open_ledger(config.ledger, store)
    assert move(config.ledger, store) == (5, 4)
    assert ledger.counts("moved") == {"confirmed": 1, "returned": 1, "in_doubt": 1, "planned": 1}
    assert ledger.states([some[0].key]) == {some[0].key: "sending"}
    with pytest.raises(UsageError, match="was moved"):
        as_arrow(file, store)
    with pytest.raises(UsageError, match=r"no ledger\.db"):
        move(config.ledger, store)


def test_an_archive_remembers_that_its_ledger_is_on_a_server(config: Settings, store: LocalStore) -> None:
    open_ledger(config.ledger, store).close()
    with pytest.raises(UsageError, match="on a server"):
        open_ledger(LedgerSettings(), store)
    open_ledger(config.ledger, store).close()


def test_a_server_that_has_forgotten_the_replays_of_an_archive_is_refused(
    config: Settings, store: LocalStore
) -> None:
    """As one that was restored without them, or a database that was named by mistake."""
    open_ledger(config.ledger, store).close()
    engine = sa.create_engine(server_url(config.ledger))
    with engine.begin() as on:
        on.exec_driver_sql("ALTER TABLE replays RENAME TO replays_of_before")
    try:
        for use in (open_ledger, as_arrow):
            with pytest.raises(UsageError, match="has no table of replays"):
                use(config.ledger, store)
    finally:
        with engine.begin() as on:
            on.exec_driver_sql("ALTER TABLE replays_of_before RENAME TO replays")
        engine.dispose()
    open_ledger(config.ledger, store).close()


def test_a_ledger_that_is_sending_is_not_moved(config: Settings, store: LocalStore) -> None:
    store.put("here", b"")
    with opened(LedgerSettings(), store) as old:
        old.claim("busy", letters(1))
        with pytest.raises(Busy):
            move(config.ledger, store)


def in_encoding(server: Server, encoding: str) -> LedgerSettings:
    """A database of its own on this server."""
    name = f"in_{encoding.lower()}"
    how = f"CHARACTER SET {encoding}"
    if server.kind == "postgres":
        how = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    say(LedgerSettings(url=server.url), f"CREATE DATABASE {name} {how}")
    return LedgerSettings(url=f"{server.url.rpartition('/')[0]}/{name}")


def say(settings: LedgerSettings, *statements: str) -> None:
    engine = sa.create_engine(server_url(settings), isolation_level="AUTOCOMMIT")
    with engine.connect() as on:
        for statement in statements:
            on.exec_driver_sql(statement)
    engine.dispose()


FULL = "очередь полна \N{SKULL}"
DOCS = Path(__file__).parents[3] / "docs/operations.md"
CONVERSION = re.findall(r"^ALTER TABLE .+(?=;)", DOCS.read_text(), re.MULTILINE)
WAY_OUT = r"cannot hold a text: .*; convert it to UTF-8 \(docs/operations.md, A ledger on a server\)"


def check_keeps_texts(book: Ledger) -> None:
    """Whatever their script, and a reason of any length as far as anybody reads it."""
    some = [one._replace(target=Target("queue", "заказы")) for one in letters(2)]
    said = make_event(1, "Łukasz", some[0].key, "note", "", FULL * 1000)
    assert book.claim("every text", some) == keys(some)
    book.record_results([Result(some[0].key, "refused", FULL), Result(some[1].key, "refused", FULL * 9000)])
    book.append([said])
    first, last = book.entries("every text", "refused")
    assert (first.target, first.detail) == ("queue:заказы", FULL)
    assert last.detail
    assert last.detail in FULL * 9000
    assert said in book.events()


@pytest.mark.parametrize(
    ("ledger_server", "encoding"),
    [("mariadb", "latin1"), ("mariadb", "utf8mb4"), ("postgres", "SQL_ASCII"), ("postgres", "UTF8")],
    indirect=["ledger_server"],
)
def test_a_ledger_keeps_every_text_whatever_the_encoding_of_its_database(
    ledger_server: Server, encoding: str, store: LocalStore
) -> None:
    with opened(in_encoding(ledger_server, encoding), store) as book:
        check_keeps_texts(book)


@pytest.mark.parametrize(
    ("ledger_server", "encoding"),
    [("mariadb", "latin2"), ("postgres", "LATIN1")],
    indirect=["ledger_server"],
)
def test_a_ledger_that_cannot_hold_a_text_refuses_what_was_not_sent_and_records_what_was(
    ledger_server: Server, encoding: str, store: LocalStore
) -> None:
    own, [known, odd] = in_encoding(ledger_server, encoding), letters(2)
    with opened(own, store):
        pass
    make_older(own, encoding)
    with opened(own, store) as book:
        assert book.claim("texts", [known]) == {known.key}
        book.record_results([Result(known.key, "refused", FULL)])
        [found] = book.entries("texts", "refused")
        assert found.detail == FULL.encode("ascii", "backslashreplace").decode()
        with pytest.raises(ArchiveError, match=WAY_OUT):
            book.claim("texts", [odd._replace(target=Target("queue", "заказы"))])
        assert book.states([odd.key]) == {}


def make_older(own: LedgerSettings, encoding: str) -> None:
    """Make the tables as an older dlq did; PostgreSQL's are the same."""
    if own.url.startswith("mysql"):
        assert CONVERSION
        say(own, *(one.replace("utf8mb4", encoding).replace("MEDIUMTEXT", "TEXT") for one in CONVERSION))


@pytest.mark.parametrize("ledger_server", ["mariadb"], indirect=True)
def test_an_older_ledger_on_a_server_that_is_not_strict_cuts_no_text_and_can_be_converted(
    ledger_server: Server, store: LocalStore
) -> None:
    own = in_encoding(ledger_server, "latin5")
    with opened(own, store):
        pass
    make_older(own, "latin5")
    say(own, "SET GLOBAL sql_mode = ''")
    try:
        with opened(own, store) as book:
            with pytest.raises(ArchiveError, match=WAY_OUT):
                book.append([make_event(1, "ann", "f", "note", "", "а" * 11_000)])
            assert book.events() == []
        say(own, *CONVERSION)
        with opened(own, store) as book:
            check_keeps_texts(book)
    finally:
        say(own, "SET GLOBAL sql_mode = DEFAULT")


@pytest.mark.parametrize("ledger_server", ["mariadb"], indirect=True)
def test_a_token_that_has_run_out_is_asked_for_again(ledger_server: Server, tmp_path: Path) -> None:
    """By the next connection of a ledger that is open."""
    root = sa.create_engine(ledger_server.url.replace("mysql:", "mysql+pymysql:"))

    def give(token: str) -> None:
        (tmp_path / "token").write_text(token)
        with root.begin() as connection:
            connection.exec_driver_sql(f"CREATE OR REPLACE USER keeper@localhost IDENTIFIED BY '{token}'")
            connection.exec_driver_sql("GRANT ALL ON test.* TO keeper@localhost")

    give("first")
    command = ("cat", str(tmp_path / "token"))
    own = LedgerSettings(ledger_server.url.replace("root@", "keeper@"), password_command=command)
    with opened(own, LocalStore(str(tmp_path / "archive"))) as book:
        give("second")
        assert isinstance(book, SqlLedger)
        book.database.close()
        assert book.counts("none") is not None
    root.dispose()


@each_row(("url", "text"), [
    ("oracle://x/y", "unknown"),
    ("postgresql://u:secret@h/d", "password"),
    ("nonsense", "no URL"),
    ("redis://h/0", "may lose records that it acknowledged"),
    ("rediss://h/0", "may lose records that it acknowledged"),
])  # fmt: skip
def test_a_wrong_ledger_url_is_a_configuration_error(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        server_url(LedgerSettings(url=url))
    assert "secret" not in str(caught.value)
