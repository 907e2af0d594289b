"""Acknowledgements: each segment's in steps that make the broker page in, one sync of its disk at the end."""

from collections.abc import Container
from typing import Any, cast

import pytest
from support.rows import each_row

from dlq.connectors.activemq.records.frames import Place, record_maker
from dlq.connectors.activemq.stomp import read as stomp_consumer
from dlq.connectors.activemq.stomp.codec import Frame, escape, headers_of
from dlq.connectors.activemq.stomp.link import Link
from dlq.connectors.activemq.stomp.read import Scan, Started, StompReading
from dlq.connectors.base import ReadRequest
from dlq.core.errors import ConnectionLost
from dlq.core.runtime import patience
from dlq.core.settings import Source

REQUEST = ReadRequest(Source("s", "b", queue="q"), "drain", "p")


class Connection:
    """`Link` to a queue whose letters come at once."""

    token, place, artemis, unfinished_bytes = "t", "b", False, 0

    def __init__(self, letters: int = 0, unnamed: Container[int] = ()) -> None:
        """The ids of `unnamed` letters are an AMQP producer's."""
        names = [b"1-%d" if n in unnamed else b"1\\c1\\c%d" for n in range(1, letters + 1)]
        head = b"message-id:ID\\c1\\c%b\nack:%d\ntimestamp:%d"
        self.hold(*(head % (name % n, n, n) for n, name in enumerate(names, 1)))
        self.sent: list[bytes] = []
        self.selectors: list[str] = []

    def hold(self, *heads: bytes) -> None:
        self._all = [Frame(b"MESSAGE", head, b"body") for head in heads]
        self._frames = list(self._all)

    def receive(self, _wait: float) -> list[Frame]:
        frames, self._frames = self._frames, []
        return frames

    def send(self, data: bytes) -> None:
        self.sent += data.split(b"\0")[:-1]

    def request(self, command: str, headers: Any) -> None:
        """A selector finds all letters whose ids it names."""
        if "selector" in headers:
            self.selectors.append(selector := headers["selector"])
            self._frames = [f for f in self._all if f"'{headers_of(f.head)['message-id']}'" in selector]
        elif command == "SUBSCRIBE" and self.sent:
            self._frames = []

    def discard(self) -> None: ...

    def wait_for(self, _receipt: str) -> None: ...

    def new_receipt(self) -> str:
        return "r"


def reading_of(link: Any, letters: int, cumulative: bool) -> StompReading:
    make = record_maker(REQUEST, Place("q", "activemq", "6", "n"))
    started = Started(link, {"destination": "/queue/q"}, make, lambda _frame: None, cumulative=cumulative)
    scan = Scan(REQUEST, "DLQ", lambda _limit: started, False, letters, {}, ())
    return StompReading(scan, None)


def acknowledgements(link: Connection) -> list[bytes]:
    assert all(frame.startswith(b"ACK\n") for frame in link.sent)
    ids = [frame.removeprefix(b"ACK\nid:").strip() for frame in link.sent]
    return [one.replace(b"\nreceipt:r", b" synced") for one in ids]


@each_row(("letters", "cumulative", "acks"), [
    (1, True, [b"1 synced"]), (2, True, [b"1", b"2 synced"]), (201, True, [b"200", b"201 synced"]),
    (450, True, [b"49", b"249", b"449", b"450 synced"]), (3, False, [b"1", b"2", b"3 synced"]),
])  # fmt: skip
def test_a_receipt_that_syncs_the_disk_covers_one_letter_alone(
    letters: int, cumulative: bool, acks: list[bytes]
) -> None:
    link = Connection(letters)
    reading = reading_of(link, letters, cumulative)
    assert sum(len(batch.records) for batch in reading.batches()) == letters
    reading.acknowledge(letters)
    assert acknowledgements(link) == acks


@each_row(("unnamed", "cumulative", "acks", "taken"), [
    ((1, 3, 4, 6), True, [b"2", b"5 synced"], [6]), ((1, 3, 4, 6), False, [b"2", b"5 synced"], [1, 3, 4, 6]),
    ((1, 2), False, [b"3", b"4", b"5", b"6 synced"], [1, 2]),
])  # fmt: skip
def test_a_letter_that_no_acknowledgement_names_is_covered_by_one_behind_it_or_taken_by_its_id(
    unnamed: tuple[int, ...], cumulative: bool, acks: list[bytes], taken: list[int]
) -> None:
    link = Connection(6, unnamed)
    reading = reading_of(link, 6, cumulative)
    read = 0
    for batch in reading.batches():
        assert not batch.skipped
        read += len(batch.records)
        reading.acknowledge(batch.position)
    assert (read, reading.complete, reading.settled_position()) == (6, True, 6)
    assert acknowledgements(link) == acks
    clauses = [f"(JMSMessageID = 'ID:1:1-{n}' AND JMSTimestamp = {n})" for n in taken]
    assert link.selectors == [" OR ".join(clauses)]


def test_what_is_not_durable_yet_is_not_taken() -> None:
    link = Connection(2, unnamed=(1, 2))
    reading = reading_of(link, 2, cumulative=True)
    batches = reading.batches()
    assert len(next(batches).records) == 2
    assert next(batches).records == ()
    assert (link.selectors, reading.settled_position()) == ([], 0)


def test_a_letter_that_does_not_come_back_to_be_taken_ends_the_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "REPLY", 0.1)
    link = Connection(1, unnamed=(1,))
    reading = reading_of(link, 1, cumulative=True)
    batches = reading.batches()
    reading.acknowledge(next(batches).position)
    link.request = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(ConnectionLost, match=r"1 letter\(s\) of AMQP producers are archived"):
        list(batches)


def test_a_property_in_the_place_of_the_time_leaves_the_id_alone_to_select() -> None:
    link, head = Connection(), b"message-id:ID\\c1-1\ntimestamp:' OR 1=1"
    link.hold(head)
    stomp_consumer.take(cast(Link, link), "/queue/q", [head])
    assert link.selectors == ["(JMSMessageID = 'ID:1-1')"]


def test_selectors_are_short_enough_for_a_header_line() -> None:
    heads = [b"message-id:ID\\c%d's\ntimestamp:7" % (10**40 + n) for n in range(500)]
    link = Connection()
    link.hold(*(head.replace(b"'", b"''") for head in heads))
    stomp_consumer.take(cast(Link, link), "/queue/q", heads)
    assert len(link.selectors) > 2
    assert max(len(escape(selector)) for selector in link.selectors) < 10_000
    assert sum(selector.count("''s'") for selector in link.selectors) == 500
