"""The ledger on real servers: two hosts share a plan, one dies, the server dies; nothing goes twice."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from support.replaying import QueueFile, brokers, fill, settings
from support.servers import ledger_host
from support.servers.ledger_host import LEASE, configured
from support.servers.ledgers import SERVERS, Server
from support.waiting import PATIENCE, SOON

from dlq.archive.store import LocalStore
from dlq.connectors.base import Target
from dlq.core.errors import Busy, ConfigError, UsageError
from dlq.core.failures import make_event
from dlq.core.settings import Ledger as LedgerSettings
from dlq.core.settings import Settings
from dlq.replay import planfile
from dlq.replay.apply import apply
from dlq.replay.ledger import as_arrow, move, open_ledger, opened, server
from dlq.replay.ledger.contract import Ledger, Result
from dlq.replay.ledger.server import server_url
from dlq.replay.ledger.sql import SqlLedger
from dlq.replay.letters import Letter
from dlq.replay.plan import make
from dlq.replay.reconcile import Decision, reconcile
from dlq.replay.wanted import Wanted


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

    hosts = [threading.Thread(target=speak, args=[who]) for who in told]
    for host in hosts:
        host.start()
    for host in hosts:
        host.join()
    with opened(config.ledger, store) as book:
        book.append(told["a"])
        found = [event for event in book.events() if event.subject == subject]
    assert {who: [one for one in found if one.actor == who] for who in told} == told


@pytest.mark.usefixtures("ledger")  # it is noted by then: threads cannot write one file of a store at once
def test_threads_that_race_for_the_same_letters_share_none(config: Settings, store: LocalStore) -> None:
    some = letters(1000)
    claimed: list[str] = []

    def race() -> None:
        with opened(config.ledger, store) as book:
            for start in range(0, 1000, 50):
                claimed.extend(book.claim("race", some[start : start + 50]))

    racers = [threading.Thread(target=race) for _ in range(3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert sorted(claimed) == sorted(keys(some))


def hosts_word(host: str, store: LocalStore, server: Server, plan: str, queue: QueueFile) -> list[str]:
    """The command of another host that applies this plan."""
    program = str(Path(ledger_host.__file__))
    return [sys.executable, program, host, store.location, server.url, plan, str(queue.path)]


def test_two_hosts_apply_a_plan_one_is_killed_and_the_server_restarts(
    store: LocalStore, ledger_server: Server, tmp_path: Path
) -> None:
    config = configured(tmp_path / "archive", ledger_server.url)
    fill(store, 1500, body=str(tmp_path).encode(), key=str(tmp_path))
    queue = QueueFile(tmp_path / "queue")
    with brokers(config, queue) as some:
        plan = make(store, config, Wanted(to=f"queue:{tmp_path}", again=True), some).plan
    words = {host: hosts_word(host, store, ledger_server, plan, queue) for host in ("north", "south")}
    words["north"] += ["written", "100", f"{int(signal.SIGKILL)}"]
    hosts = [subprocess.Popen(word, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for word in words.values()]
    begin_together(hosts)
    assert hosts[0].wait(timeout=PATIENCE) == -signal.SIGKILL
    hosts[0].communicate()
    wait_for(queue, 300)
    ledger_server.kill()
    time.sleep(0.3)
    ledger_server.start()
    assert int(hosts[1].communicate(timeout=PATIENCE)[0]) > 500
    time.sleep(LEASE)
    west = hosts_word("west", store, ledger_server, plan, queue)
    subprocess.run(west, input=b"\n", check=True, timeout=PATIENCE)
    wanted = {one.key for one in planfile.letters(store, plan)}
    arrived = queue.arrived()
    with opened(config.ledger, store) as book:
        states = book.states(sorted(wanted))
    confirmed = {key for key, state in states.items() if state == "confirmed"}
    doubtful = {key for key, state in states.items() if state == "in_doubt"}
    assert len(arrived) == len(set(arrived)), "something was sent twice"
    assert confirmed | doubtful == wanted, "something was forgotten"
    assert confirmed <= set(arrived)
    assert config.replay.window is not None
    assert 0 < len(doubtful) <= config.replay.window


@pytest.mark.parametrize("place", ["taken", "marked"])
@pytest.mark.parametrize("ledger_server", ["postgres", "mariadb"], indirect=True)
def test_a_host_that_was_stopped_sends_nothing_of_what_another_took_over(
    store: LocalStore, ledger_server: Server, tmp_path: Path, place: str
) -> None:
    """It is stopped between taking a letter and asking whether it may be written, or between two letters."""
    config = configured(tmp_path / "archive", ledger_server.url)
    fill(store, 300, body=str(tmp_path).encode(), key=str(tmp_path))
    queue = QueueFile(tmp_path / "queue")
    with brokers(config, queue) as some:
        plan = make(store, config, Wanted(to=f"queue:{tmp_path}", again=True), some).plan
    strike = [place, "50", f"{int(signal.SIGSTOP)}"]
    word = [*hosts_word("north", store, ledger_server, plan, queue), *strike]
    north = subprocess.Popen(word, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        begin_together([north])
        os.waitid(os.P_PID, north.pid, os.WSTOPPED | os.WNOWAIT)
        time.sleep(LEASE)
        queue.witnesses.append(plan)
        with brokers(config, queue) as some, opened(config.ledger, store) as book:
            assert reconcile(store, plan, some, book, Decision()).not_sent > 0
            apply(store, config, plan, some, book)
    finally:
        north.send_signal(signal.SIGCONT)
    north.communicate(timeout=PATIENCE)
    at_most_the_one_in_hand = 300 if place == "taken" else 301
    assert 300 <= len(queue.arrived()) <= at_most_the_one_in_hand
    assert set(queue.arrived()) == {one.key for one in planfile.letters(store, plan)}


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


def begin_together(hosts: list[subprocess.Popen[bytes]]) -> None:
    """One that is slow to start would find its work done, and leave nothing in doubt when it is killed."""
    for host in hosts:
        assert host.stdout is not None
        assert host.stdout.readline() == b"ready\n"
    for host in hosts:
        assert host.stdin is not None
        host.stdin.write(b"\n")
        host.stdin.flush()


def wait_for(queue: QueueFile, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(queue.arrived()) < count:
        assert time.monotonic() < deadline, "the hosts send nothing"
        time.sleep(0.01)


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


def test_a_ledger_that_is_sending_is_not_moved(config: Settings, store: LocalStore) -> None:
    store.put("here", b"")
    with opened(LedgerSettings(), store) as old:
        old.claim("busy", letters(1))
        with pytest.raises(Busy):
            move(config.ledger, store)


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    url = "postgresql://dlq@127.0.0.1:1/none"
    with pytest.raises(Exception, match="the ledger postgresql") as caught:
        open_ledger(LedgerSettings(url=url), LocalStore(str(tmp_path)))
    assert len(str(caught.value).splitlines()) == 1


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


@pytest.mark.parametrize(("url", "text"), [
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
