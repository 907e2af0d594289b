"""Ledgers' servers, and SQL stores of evidence, whose answers no database gives: one line each, soon."""

import itertools
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.replaying import Replaying, fill
from support.servers.hostile import Behaviour, Server
from support.servers.hostile_sql import (
    LARGE,
    LIST,
    NUMBER,
    TEXT,
    WORD,
    Answers,
    described,
    done,
    failed,
    message,
    mysql,
    mysql_rows,
    packet,
    postgresql,
    row,
    rows,
)
from support.waiting import SOON

from dlq.archive.store import LocalStore
from dlq.connectors import deadline
from dlq.connectors.external_stores import sql_patience, stores
from dlq.core import patience
from dlq.core.errors import ArchiveError, BrokerError, LedgerUnreachable
from dlq.core.settings import Evidence
from dlq.core.settings import Ledger as Settings
from dlq.replay import ledger, planfile, status
from dlq.replay.ledger.sql import SqlLedger
from dlq.replay.states import MAY_SEND_AGAIN, State

PATIENCE = 1.0
STEERING = b"\x1b[2J" + b"x" * 2**20
KNOWN, COUNTED, CLOCK, PAGED = r"key.*IN \(", "count", "clock_timestamp", "replays.*ORDER BY"
TEXTS = [TEXT] * 4
ENTRY = [TEXT, TEXT, NUMBER, *TEXTS, NUMBER, TEXT]
ALL = [TEXT, TEXT, NUMBER, TEXT, TEXT, NUMBER, TEXT, TEXT, NUMBER, NUMBER, NUMBER, TEXT]
SENT = [b"k", b"p", b"1", b"r", b"t", b"0", b"confirmed", b"o", b"1", b"1", b"1", None]
Use = Callable[[Any], object]


def states(book: SqlLedger) -> object:
    return book.states(["k"])


def counts(book: SqlLedger) -> object:
    return book.counts("p")


def pages(book: SqlLedger) -> object:
    return [*zip(range(9), book.all_rows(), strict=False)]


def resolved(book: SqlLedger) -> object:
    return book.resolve(["k"], "confirmed", "why")


def adopted(book: SqlLedger) -> object:
    return book.adopt([("k", "p", 1, "r", "t", 0, "confirmed", "o", 1, 1, 1, None)])


def forgotten(book: SqlLedger) -> object:
    return book.forget(["k"])


def cut_off(peer: socket.socket) -> None:
    """A row of a gigabyte that says that it has fewer cells than were described."""
    peer.sendall(described(TEXT, NUMBER) + b"D" + bytes((64, 0, 0, 0)) + b"\0\1")
    for _ in range(1024):
        peer.sendall(bytes(2**20))


NOT_UNDERSTOOD = "cannot be understood"
POSTGRESQL: Mapping[str, tuple[Answers, Use, str]] = {
    "a list for a key": ({KNOWN: rows([LIST, *TEXTS[1:]], [b"{a}", b"sending", b"p", b"o"])}, states,
     NOT_UNDERSTOOD),
    "a state that is none": ({KNOWN: rows(TEXTS, [b"k", b"\x1b[2J", b"p", b"o"])}, states, NOT_UNDERSTOOD),
    "too few cells": ({KNOWN: rows([TEXT], [b"k"])}, states, NOT_UNDERSTOOD),
    "no UTF-8": ({KNOWN: rows(TEXTS, [b"\xff", b"sending", b"p", b"o"])}, states, NOT_UNDERSTOOD),
    "a cell of many megabytes": ({KNOWN: rows(TEXTS, [b"k" * 2**24, b"sending", b"p", b"o"])}, states,
     NOT_UNDERSTOOD),
    "a cell of a gigabyte": ({COUNTED: cut_off}, counts, "failed"),
    "counts that are none": ({COUNTED: rows([TEXT, TEXT], [b"sending", b"many"])}, counts, NOT_UNDERSTOOD),
    "counts below zero": ({COUNTED: rows([TEXT, NUMBER], [b"sending", b"-1"])}, counts, NOT_UNDERSTOOD),
    "a clock that is none": ({CLOCK: rows([TEXT], [b"x"])}, SqlLedger.expire, NOT_UNDERSTOOD),
    "no time": ({CLOCK: rows([NUMBER], [None])}, SqlLedger.expire, NOT_UNDERSTOOD),
    "a time beyond the calendar": ({CLOCK: rows([NUMBER], [b"9" * 18])}, SqlLedger.expire, NOT_UNDERSTOOD),
    "entries without cells": ({PAGED: rows(ENTRY, [b"k", *[None] * 8])},
     lambda book: book.entries("p", "in_doubt"), NOT_UNDERSTOOD),
    "an event that is a number": ({"events": rows([NUMBER], [b"5"])}, SqlLedger.events, NOT_UNDERSTOOD),
    "the same page for ever": ({PAGED: rows(ALL, SENT)}, pages, "for ever"),
    "a page of odd cells": ({PAGED: rows([TEXT] * 12, [b"k"] * 12)}, lambda book: next(book.rows()),
     "understood"),
    "an error that steers": ({COUNTED: failed(STEERING)}, counts, "failed"),
    "an error without words": ({COUNTED: failed(b"")}, counts, "failed"),
    "no version": ({r"pg_catalog\.version": rows([TEXT], [b"x"])}, counts, NOT_UNDERSTOOD),
    "more rows than it was asked for": ({"^UPDATE": done(b"UPDATE 2")}, resolved, NOT_UNDERSTOOD),
    "more new rows than there are": ({"^INSERT": done(b"INSERT 0 2")}, adopted, NOT_UNDERSTOOD),
    "more rows gone than were named": ({"^DELETE": done(b"DELETE 2")}, forgotten, NOT_UNDERSTOOD),
    "no count of rows": ({"^UPDATE": done(b"UPDATE")}, resolved, NOT_UNDERSTOOD),
    "a copy instead of rows": ({COUNTED: message(b"H", b"\0\0\0")}, counts, "cannot be reached"),
}  # fmt: skip
MANY = packet(1, b"\0\xfe" + b"\xff" * 8 + b"\0\x02\0\0\0")
"""2^64 - 1 rows."""
MYSQL: Mapping[str, tuple[Answers, Use, str]] = {
    "a file of ours": ({COUNTED: packet(1, b"\xfb/etc/passwd")}, counts, NOT_UNDERSTOOD),
    "nothing": ({COUNTED: packet(1, b"")}, counts, NOT_UNDERSTOOD),
    "half a column": ({COUNTED: packet(1, b"\x02") + packet(2, b"\x03d")}, counts, NOT_UNDERSTOOD),
    "a number that is none": ({"unix_timestamp": mysql_rows([LARGE], [b"x"])}, SqlLedger.expire, "failed"),
    "a state that is none": ({COUNTED: mysql_rows([WORD, LARGE], [b"\x1b[2J", b"1"])}, counts,
     NOT_UNDERSTOOD),
    "no version": ({"VERSION": mysql_rows([WORD], [b"x"])}, counts, NOT_UNDERSTOOD),
    "an error that steers": ({COUNTED: packet(1, b"\xff\x01\x01#HY000" + STEERING)}, counts, "failed"),
    "more rows than it was asked for": ({"^UPDATE": MANY}, resolved, NOT_UNDERSTOOD),
    "more new rows than there are": ({"^INSERT": MANY}, adopted, NOT_UNDERSTOOD),
    "more rows gone than were named": ({"^DELETE": MANY}, forgotten, NOT_UNDERSTOOD),
    "half an error": ({COUNTED: packet(1, b"\xff")}, counts, NOT_UNDERSTOOD),
}  # fmt: skip
SERVERS = {"postgresql": postgresql, "mysql": mysql}
LEDGERS = [("postgresql", odd) for odd in POSTGRESQL] + [("mysql", odd) for odd in MYSQL]


@pytest.mark.parametrize(("kind", "odd"), LEDGERS)
def test_what_no_ledger_holds_is_said_in_a_line(
    kind: str, odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(patience, "AWAY", PATIENCE)
    answers, use, words = {"postgresql": POSTGRESQL, "mysql": MYSQL}[kind][odd]
    with Server(SERVERS[kind](answers)) as server:
        settings = Settings(url=f"{kind}://u@{server.address}/d")
        with (
            pytest.raises(ArchiveError) as refused,
            ledger.opened(settings, LocalStore(str(tmp_path))) as book,
        ):
            use(book)
    check(str(refused.value), words)
    assert "Traceback" not in capfd.readouterr().err


def check(said: str, words: str) -> None:
    assert words in said
    assert "\n" not in said
    assert len(said) < 1000


def silent(peer: socket.socket) -> None:
    """Whatever comes, it says nothing."""
    while peer.recv(2**16):
        pass


def dripping(peer: socket.socket) -> None:
    peer.sendall(described(TEXT, NUMBER))
    while True:
        peer.sendall(b"D")
        time.sleep(0.05)
        peer.sendall(row(b"sending", b"1")[1:])


LONG = b"x" * 10_000
"""So that memory grows soon, also that of a process which has much of it free."""


def endless(peer: socket.socket) -> None:
    peer.sendall(described(TEXT, NUMBER))
    while True:
        peer.sendall(row(LONG, b"1") * 100)


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
WITHOUT_END: Mapping[tuple[str, str], tuple[Behaviour, float, str]] = {
    ("postgresql", "silent from the first"): (silent, 1.0, SLOW),
    ("postgresql", "silent to a question"): (postgresql({COUNTED: silent}), 1.0, SLOW),
    ("postgresql", "silent to a commit"): (postgresql({"COMMIT": silent}), 1.0, SLOW),
    ("postgresql", "dripping"): (postgresql({COUNTED: dripping}), 1.0, SLOW),
    ("postgresql", "rows without end"): (postgresql({COUNTED: endless}), 60.0, HUGE),
    ("mysql", "silent from the first"): (silent, 1.0, SLOW),
    ("mysql", "silent to a question"): (mysql({COUNTED: silent}), 1.0, SLOW),
    ("mysql", "silent to a commit"): (mysql({"COMMIT": silent}), 1.0, SLOW),
    ("mysql", "dripping"): (mysql({COUNTED: dripping_of_mysql}), 1.0, SLOW),
    ("mysql", "rows without end"): (mysql({COUNTED: endless_of_mysql}), 60.0, HUGE),
}


@pytest.mark.parametrize(("kind", "how"), WITHOUT_END)
def test_who_says_nothing_or_goes_on_for_ever_is_left(
    kind: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behave, seconds, words = WITHOUT_END[kind, how]
    monkeypatch.setattr(patience, "AWAY", 0.0)
    monkeypatch.setattr(patience, "ANSWER", seconds)
    monkeypatch.setattr(patience, "SHORTLY", 2)
    monkeypatch.setattr(sql_patience, "LARGEST_ANSWER", 32 << 20)
    with Server(behave) as server:
        settings = Settings(url=f"{kind}://u@{server.address}/d", lease="1s")
        with (
            pytest.raises(LedgerUnreachable, match=words) as refused,
            ledger.opened(settings, LocalStore(str(tmp_path))) as book,
        ):
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


EVIDENCE: Mapping[str, tuple[str, Answers, str]] = {
    "words for times": ("postgresql", {"FETCH": rows([TEXT] * 6, [b"a"] * 6)}, NOT_UNDERSTOOD),
    "rows without end": ("postgresql", {"FETCH": rows([TEXT] * 5 + [NUMBER], *[[b"a"] * 5 + [b"1"]] * 5000)},
     "a look takes more than"),
    "a cell of a megabyte": ("postgresql",
     {"FETCH": rows([TEXT] * 5 + [NUMBER], [b"a" * 2**20] * 5 + [b"1"])}, NOT_UNDERSTOOD),
    "a file of ours": ("mysql", {"dedup": packet(1, b"\xfb/etc/passwd")}, NOT_UNDERSTOOD),
    "half a column": ("mysql", {"dedup": packet(1, b"\x02") + packet(2, b"\x03d")}, NOT_UNDERSTOOD),
    "an error that steers": ("mysql", {"dedup": packet(1, b"\xff\x01\x01#HY000" + STEERING)}, "failed"),
    "an error without words": ("postgresql", {"dedup": failed(b"")}, "failed"),
}  # fmt: skip


@pytest.mark.parametrize("odd", EVIDENCE)
def test_what_no_store_of_evidence_holds_is_said_in_a_line(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, answers, words = EVIDENCE[odd]
    monkeypatch.setattr(patience, "LOOK", 1.0 if "a look" in words else SOON)

    def count() -> Any:
        return sum(1 for _ in stores.read(evidence))

    with Server(SERVERS[kind](answers)) as server:
        evidence = Evidence("e", "rocketmq-dedup", f"{kind}://u@{server.address}/d", ("*",))
        with pytest.raises(BrokerError) as refused:
            deadline.with_deadline(count)()
    check(str(refused.value), words)


@pytest.mark.parametrize("state", MAY_SEND_AGAIN)
def test_counts_beyond_a_plan_s_letters_are_said_in_a_line(
    replay: Replaying, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(replay.store, 3)
    header = planfile.load(replay.store, replay.plan())
    monkeypatch.setattr(replay.ledger, "counts", lambda _plan: {state: 10**18})
    with pytest.raises(ArchiveError, match="more replays of plan"):
        status.counts(replay.store, replay.ledger, header)


def test_a_letter_that_changes_meanwhile(replay: Replaying, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(replay.store, 3)
    header = planfile.load(replay.store, replay.plan())
    monkeypatch.setattr(replay.ledger, "counts", lambda _plan: {"refused": 1, "confirmed": 1})
    monkeypatch.setattr(replay.ledger, "states", lambda keys: dict.fromkeys(keys, "confirmed"))
    assert status.counts(replay.store, replay.ledger, header)["planned"] == 0
