"""Ledgers' servers, and SQL stores of evidence, whose answers no database gives: one line each, soon, and no
password without TLS."""

import itertools
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from support.replaying import Replaying
from support.servers.hostile import Behaviour, Server, certificate, endless, hearing
from support.servers.hostile_sql import (
    LARGE,
    LIST,
    NUMBER,
    TEXT,
    WORD,
    Says,
    described,
    done,
    failed,
    greeting,
    message,
    mysql,
    mysql_rows,
    packet,
    postgresql,
    row,
    rows,
)
from support.waiting import SOON

from dlq.archive.storage.store import LocalStore
from dlq.connectors import deadline
from dlq.connectors.external_stores import sql_patience, stores
from dlq.core.errors import ArchiveError, BrokerError, DlqError, LedgerUnreachable
from dlq.core.runtime import patience
from dlq.core.settings import Evidence
from dlq.core.settings import Ledger as Settings
from dlq.replay import ledger, status
from dlq.replay.ledger.sql import SqlLedger
from dlq.replay.plans import planfile
from dlq.replay.states import MAY_SEND_AGAIN

STEERING = b"\x1b[2J" + b"x" * 2**20
KNOWN, COUNTED, CLOCK, PAGED = r"key.*IN \(", "count", "clock_timestamp", "replays.*ORDER BY"
TEXTS = [TEXT] * 4
REPLAY = [TEXT, TEXT, TEXT, NUMBER]
ENTRY = [TEXT, TEXT, NUMBER, *TEXTS, NUMBER, TEXT]
ALL = [TEXT, TEXT, NUMBER, TEXT, TEXT, NUMBER, TEXT, TEXT, NUMBER, NUMBER, NUMBER, TEXT]
SENT = [b"k", b"p", b"1", b"r", b"t", b"0", b"confirmed", b"o", b"1", b"1", b"1", None]
SERVERS = {"postgresql": postgresql, "mysql": mysql}
Use = Callable[[Any], object]


def states(book: SqlLedger) -> object:
    return book.states(["k"])


def counts(book: SqlLedger) -> object:
    return book.counts("p")


def pages(book: SqlLedger) -> object:
    return [*zip(range(9), book.all_rows(), strict=False)]


def entries(book: SqlLedger) -> object:
    return book.entries("p", "in_doubt")


CHANGES: Mapping[str, Use] = {
    "^UPDATE": lambda book: book.resolve(["k"], "confirmed", "why"),
    "^INSERT": lambda book: book.adopt([("k", "p", 1, "r", "t", 0, "confirmed", "o", 1, 1, 1, None)]),
    "^DELETE": lambda book: book.forget(["k"]),
}


def settled(*cells: bytes) -> bytes:
    """What is known of a key: its state and plan, and since when."""
    return rows(REPLAY[: len(cells)], cells)


def clock(kind: int, cell: bytes | None) -> bytes:
    return rows([kind], [cell])


ODD = "cannot be understood"
CUT_OFF = described(TEXT, NUMBER) + b"D" + bytes((64, 0, 0, 0)) + b"\0\1"
"""A row of a gigabyte that says that it has fewer cells than were described."""
MANY = packet(1, b"\0\xfe" + b"\xff" * 8 + b"\0\x02\0\0\0")
"""2^64 - 1 rows."""
Odd = tuple[str, str, Says, Use, str]
LEDGERS: list[Odd] = [
    ("postgresql", KNOWN, rows([LIST, *REPLAY[1:]], [b"{a}", b"sending", b"p", b"1"]), states, ODD),
    ("postgresql", KNOWN, settled(b"k", b"\x1b[2J", b"p", b"1"), states, ODD),
    ("postgresql", KNOWN, settled(b"k"), states, ODD),
    ("postgresql", KNOWN, settled(b"\xff", b"sending", b"p", b"1"), states, ODD),
    ("postgresql", KNOWN, settled(b"k" * 2**24, b"sending", b"p", b"1"), states, ODD),
    ("postgresql", COUNTED, endless(CUT_OFF, bytes(2**20), b""), counts, "failed"),
    ("postgresql", COUNTED, rows([TEXT, TEXT], [b"sending", b"many"]), counts, ODD),
    ("postgresql", COUNTED, rows([TEXT, NUMBER], [b"sending", b"-1"]), counts, ODD),
    ("postgresql", COUNTED, failed(STEERING), counts, "failed"),
    ("postgresql", COUNTED, failed(b""), counts, "failed"),
    ("postgresql", COUNTED, message(b"H", b"\0\0\0"), counts, "cannot be reached"),  # a copy
    ("postgresql", CLOCK, clock(TEXT, b"x"), SqlLedger.expire, ODD),
    ("postgresql", CLOCK, clock(NUMBER, None), SqlLedger.expire, ODD),
    ("postgresql", CLOCK, clock(NUMBER, b"9" * 18), SqlLedger.expire, ODD),  # beyond the calendar
    ("postgresql", PAGED, rows(ENTRY, [b"k", *[None] * 8]), entries, ODD),
    ("postgresql", PAGED, rows(ALL, SENT), pages, "for ever"),  # the same page
    ("postgresql", PAGED, rows([TEXT] * 12, [b"k"] * 12), lambda book: next(book.rows()), "understood"),
    ("postgresql", "events", rows([NUMBER], [b"5"]), SqlLedger.events, ODD),
    ("postgresql", r"pg_catalog\.version", rows([TEXT], [b"x"]), counts, ODD),
    ("postgresql", "^UPDATE", done(b"UPDATE"), CHANGES["^UPDATE"], ODD),
    *(
        ("postgresql", sql, done(tag), CHANGES[sql], ODD)  # more rows than were named
        for sql, tag in (("^UPDATE", b"UPDATE 2"), ("^INSERT", b"INSERT 0 2"), ("^DELETE", b"DELETE 2"))
    ),
    ("mysql", COUNTED, packet(1, b"\xfb/etc/passwd"), counts, ODD),  # a file of ours
    ("mysql", COUNTED, packet(1, b""), counts, ODD),
    ("mysql", COUNTED, packet(1, b"\x02") + packet(2, b"\x03d"), counts, ODD),  # half a column
    ("mysql", COUNTED, packet(1, b"\xff"), counts, ODD),  # half an error
    ("mysql", COUNTED, packet(1, b"\xff\x01\x01#HY000" + STEERING), counts, "failed"),
    ("mysql", COUNTED, mysql_rows([WORD, LARGE], [b"\x1b[2J", b"1"]), counts, ODD),
    ("mysql", "unix_timestamp", mysql_rows([LARGE], [b"x"]), SqlLedger.expire, "failed"),
    ("mysql", "VERSION", mysql_rows([WORD], [b"x"]), counts, ODD),
    *(("mysql", sql, MANY, use, ODD) for sql, use in CHANGES.items()),
]


@pytest.mark.parametrize("odd", LEDGERS, ids=map(str, range(len(LEDGERS))))
def test_what_no_ledger_holds_is_said_in_a_line(
    odd: Odd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(patience, "AWAY", 1.0)
    kind, sql, says, use, words = odd
    with Server(SERVERS[kind]({sql: says})) as server:
        settings = Settings(url=f"{kind}://u@{server.address}/d")
        with pytest.raises(ArchiveError) as refused, opened(settings, tmp_path) as book:
            use(book)
    check(str(refused.value), words)
    assert "Traceback" not in capfd.readouterr().err


def opened(settings: Settings, folder: Path) -> AbstractContextManager[Any]:
    return ledger.opened(settings, LocalStore(str(folder)))


def check(said: str, words: str) -> None:
    assert words in said
    assert "\n" not in said
    assert len(said) < 1000


silent = hearing(bytearray())


def dripping(peer: socket.socket) -> None:
    peer.sendall(described(TEXT, NUMBER))
    while True:
        peer.sendall(b"D")
        time.sleep(0.05)
        peer.sendall(row(b"sending", b"1")[1:])


LONG = b"x" * 10_000
"""So that memory grows soon, also that of a process which has much of it free."""


def endless_of_mysql(
    peer: socket.socket,
    text: bytes = b"\xfc%b%b" % (len(LONG).to_bytes(2, "little"), LONG),
    pause: float = 0.0,
) -> None:
    peer.sendall(mysql_rows([WORD, LARGE])[:-9])
    for first in itertools.count(5, 100):
        peer.sendall(b"".join(packet(n % 256, text + b"\x011") for n in range(first, first + 100)))
        time.sleep(pause)


def dripping_of_mysql(peer: socket.socket) -> None:
    endless_of_mysql(peer, b"\x07sending", 0.05)


SLOW = "no whole answer came within|timed out|cannot be reached"
HUGE = "its answer takes more than"
WITHOUT_END: list[tuple[str, Behaviour, str]] = [
    *((kind, silent, SLOW) for kind in SERVERS),
    *((kind, says({sql: silent}), SLOW) for kind, says in SERVERS.items() for sql in (COUNTED, "COMMIT")),
    ("postgresql", postgresql({COUNTED: dripping}), SLOW),
    ("mysql", mysql({COUNTED: dripping_of_mysql}), SLOW),
    ("postgresql", postgresql({COUNTED: endless(described(TEXT, NUMBER), row(LONG, b"1") * 100, b"")}), HUGE),
    ("mysql", mysql({COUNTED: endless_of_mysql}), HUGE),
]


@pytest.mark.parametrize(("kind", "behave", "words"), WITHOUT_END, ids=map(str, range(len(WITHOUT_END))))
def test_who_says_nothing_or_goes_on_for_ever_is_left(
    kind: str, behave: Behaviour, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "AWAY", 0.0)
    monkeypatch.setattr(patience, "ANSWER", 60.0 if words == HUGE else 1.0)
    monkeypatch.setattr(patience, "SHORTLY", 2)
    monkeypatch.setattr(sql_patience, "LARGEST_ANSWER", 32 << 20)
    with Server(behave) as server:
        settings = Settings(url=f"{kind}://u@{server.address}/d", lease="1s")
        with pytest.raises(LedgerUnreachable, match=words) as refused, opened(settings, tmp_path) as book:
            counts(book)
    check(str(refused.value), "")


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("how", ["at once", "to a question"])
def test_a_store_of_evidence_that_says_nothing_is_left(
    kind: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "UNINDEXED", 1.0)
    monkeypatch.setattr(patience, "SHORTLY", 2)
    behave = silent if how == "at once" else SERVERS[kind]({"FETCH|dedup": silent})
    with Server(behave) as server:
        evidence = Evidence("e", "rocketmq-dedup", f"{kind}://u@{server.address}/d", ("*",))
        with pytest.raises(BrokerError, match="failed: "):
            list(stores.read(evidence))


LOOKED = "a look takes more than"
OF_TEXTS = [TEXT] * 5 + [NUMBER]
EVIDENCE = [
    ("postgresql", "FETCH", rows([TEXT] * 6, [b"a"] * 6), ODD),
    ("postgresql", "FETCH", rows(OF_TEXTS, *[[b"a"] * 5 + [b"1"]] * 5000), LOOKED),
    ("postgresql", "FETCH", rows(OF_TEXTS, [b"a" * 2**20] * 5 + [b"1"]), ODD),
    ("postgresql", "dedup", failed(b""), "failed"),
    ("mysql", "dedup", packet(1, b"\xfb/etc/passwd"), ODD),
    ("mysql", "dedup", packet(1, b"\x02") + packet(2, b"\x03d"), ODD),
    ("mysql", "dedup", packet(1, b"\xff\x01\x01#HY000" + STEERING), "failed"),
]


@pytest.mark.parametrize(("kind", "sql", "says", "words"), EVIDENCE, ids=map(str, range(len(EVIDENCE))))
def test_what_no_store_of_evidence_holds_is_said_in_a_line(
    kind: str, sql: str, says: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "LOOK", 1.0 if words == LOOKED else SOON)
    with Server(SERVERS[kind]({sql: says})) as server:
        evidence = Evidence("e", "rocketmq-dedup", f"{kind}://u@{server.address}/d", ("*",))
        with pytest.raises(BrokerError) as refused:
            deadline.with_deadline(lambda: [*stores.read(evidence)])()
    check(str(refused.value), words)


def test_counts_beyond_a_plan_s_letters_are_said_in_a_line_and_a_letter_may_change_meanwhile(
    replay: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = planfile.load(replay.store, replay.planned(3))
    for state in MAY_SEND_AGAIN:
        monkeypatch.setattr(replay.ledger, "counts", lambda _plan, state=state: {state: 10**18})
        with pytest.raises(ArchiveError, match="more replays of plan"):
            status.counts(replay.store, replay.ledger, header)
    monkeypatch.setattr(replay.ledger, "counts", lambda _plan: {"refused": 1, "confirmed": 1})
    monkeypatch.setattr(replay.ledger, "states", lambda keys, *_: dict.fromkeys(keys, "confirmed"))
    assert status.counts(replay.store, replay.ledger, header)["planned"] == 0


PASSWORD = "s3cret-of-the-ledger"
IN_CLEAR, CLEARLY = b"R\0\0\0\x08\0\0\0\x03", packet(2, b"\xfemysql_clear_password\0")
SECURE, CA = "postgresql://u@{}/d?sslmode=verify-full&sslrootcert={}", "mysql://u@{}/d?ssl_ca={}"


@pytest.mark.parametrize(("url", "length", "greets", "asks"), [
    (CA, 0, greeting(b"mysql_clear_password"), CLEARLY), (CA, 0, greeting(b"mysql_native_password"), CLEARLY),
    (CA.replace("mysql", "mariadb"), 0, greeting(b"caching_sha2_password"), CLEARLY),
    (SECURE, 8, b"N", IN_CLEAR), (SECURE, 8, b"S", IN_CLEAR),
    ("postgresql://u@{}/d?sslmode=require", 8, b"N", IN_CLEAR),
])  # fmt: skip
def test_a_server_without_tls_gets_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, length: int, greets: bytes, asks: bytes
) -> None:
    """PostgreSQL says what it is told to of a request for TLS, which has so many bytes."""
    monkeypatch.setenv("LEDGER", PASSWORD)
    heard = bytearray()

    def behave(peer: socket.socket) -> None:
        peer.recv(length)
        for said in (greets, asks):
            peer.sendall(said)
            heard.extend(peer.recv(2**16))

    with Server(behave) as server:
        address = url.format(server.address, certificate(tmp_path, "DNS:db"))
        settings = Settings(url=address, password_env="LEDGER")
        with pytest.raises(DlqError) as refused, opened(settings, tmp_path / "archive"):
            pass
        assert server.connections > 0
    assert PASSWORD.encode() not in heard
    assert PASSWORD not in str(refused.value)


def test_the_name_of_a_database_steers_no_terminal(tmp_path: Path) -> None:
    with Server(lambda peer: None) as server:
        settings = Settings(url=f"postgresql://u@{server.address}/d%1B[2J")
        with pytest.raises(LedgerUnreachable, match="be reached") as refused, opened(settings, tmp_path):
            pass
    assert str(refused.value).isprintable()
