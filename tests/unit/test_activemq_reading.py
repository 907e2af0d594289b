"""Acknowledgements: each segment's in steps that make the broker page in, one sync of its disk at the end."""

from collections.abc import Container
from typing import Any

import pytest

from dlq.connectors.activemq_reading import Started, StompReading, Walk
from dlq.connectors.activemq_records import Place, record_maker
from dlq.connectors.base import ReadRequest
from dlq.connectors.stomp_frames import Frame
from dlq.core.settings import Source

REQUEST = ReadRequest(Source("s", "b", queue="q"), "drain", "p")


class Connection:
    """`Link` to a queue whose letters come at once."""

    token = "t"

    def __init__(self, letters: int, odd: Container[int] = ()) -> None:
        """The ids of `odd` letters do not end in a number."""
        tails = [b"1-" if n in odd else b"" for n in range(1, letters + 1)]
        heads = [b"message-id:ID\\c%b%d\nack:%d" % (tail, n, n) for n, tail in enumerate(tails, 1)]
        self._frames = [Frame(b"MESSAGE", head, b"body") for head in heads]
        self.sent: list[bytes] = []

    def receive(self, _wait: float) -> list[Frame]:
        frames, self._frames = self._frames, []
        return frames

    def send(self, data: bytes) -> None:
        self.sent += data.split(b"\0")[:-1]

    def request(self, _command: str, _headers: Any) -> None: ...

    def new_receipt(self) -> str:
        return "r"


def reading_of(link: Any, letters: int, cumulative: bool) -> StompReading:
    make = record_maker(REQUEST, Place("q", "activemq", "6", "n"))
    started = Started(link, {}, make, cumulative=cumulative)
    walk = Walk(REQUEST, lambda _limit: started, False, letters, lambda _frame: None, {}, ())
    return StompReading(walk, None)


def acknowledgements(link: Connection) -> list[bytes]:
    assert all(frame.startswith(b"ACK\n") for frame in link.sent)
    return [
        frame.removeprefix(b"ACK\nid:").strip().replace(b"\nreceipt:r", b" synced") for frame in link.sent
    ]


def acknowledged(letters: int, cumulative: bool) -> list[bytes]:
    link = Connection(letters)
    reading = reading_of(link, letters, cumulative)
    assert sum(len(batch.records) for batch in reading.batches()) == letters
    reading.acknowledge(letters)
    return acknowledgements(link)


@pytest.mark.parametrize(
    ("letters", "acks"),
    [
        (1, [b"1 synced"]),
        (2, [b"1", b"2 synced"]),
        (201, [b"200", b"201 synced"]),
        (450, [b"49", b"249", b"449", b"450 synced"]),
    ],
)
def test_a_receipt_that_syncs_the_disk_covers_one_letter_alone(letters: int, acks: list[bytes]) -> None:
    assert acknowledged(letters, cumulative=True) == acks


def test_without_cumulative_acknowledgements_each_letter_has_its_own() -> None:
    assert acknowledged(3, cumulative=False) == [b"1", b"2", b"3 synced"]


@pytest.mark.parametrize(
    ("cumulative", "staying", "acks"),
    [(True, ["6"], [b"2", b"5 synced"]), (False, ["1", "3", "4", "6"], [b"2", b"5 synced"])],
)
def test_a_letter_with_an_odd_id_is_acknowledged_by_one_behind_it_or_stays(
    cumulative: bool, staying: list[str], acks: list[bytes]
) -> None:
    link = Connection(6, odd=(1, 3, 4, 6))
    reading = reading_of(link, 6, cumulative)
    batches = list(reading.batches())
    assert [each.physical_id for batch in batches for each in batch.left] == [f"ID:1-{n}" for n in staying]
    assert sum(len(batch.records) for batch in batches) == 6
    assert reading.complete
    reading.acknowledge(6 - len(staying))
    assert acknowledgements(link) == acks
