"""What letters name is asked of Artemis while they are read: of many addresses and queues those alone."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

from support.archives import letter

from dlq.connectors.activemq.read.ways import WaysReading
from dlq.connectors.base import Batch
from dlq.connectors.chain import Scan


class Management(NamedTuple):
    """It answers everything, and keeps what it was asked, with how many letters had been given by then."""

    given: list[Batch]
    asked: list[tuple[int, str, list[str]]]

    def settings_of(self, addresses: Iterable[str]) -> dict[str, dict[str, Any]]:
        self.asked.append((len(self.given), "settings", [*addresses]))
        return {"places_of_the_dead": {address: ["DLQ", None] for address in self.asked[-1][2]}}

    def killed_none(self, queues: Iterable[str]) -> dict[str, int]:
        self.asked.append((len(self.given), "killed", [*queues]))
        return {name: 7 for name in self.asked[-1][2] if name != "deadly"}


class Dead(NamedTuple):
    """A queue of dead letters that come one by one; each names an address and a queue."""

    named: list[tuple[str, str]]
    given: list[Batch]
    queue: str = "DLQ"
    depth: int | None = None
    topology: dict[str, Any] = {}  # noqa: RUF012
    notes: tuple[str, ...] = ()
    complete: bool = True
    position: int = 0
    seen: int = 0

    def begin(self, limit: int | None) -> "Dead":
        return self

    def batches(self) -> Iterator[Batch]:
        for number, (address, queue) in enumerate(self.named, 1):
            headers = {"_AMQ_ORIG_ADDRESS": address, "_AMQ_ORIG_QUEUE": queue}
            self.given.append(Batch((letter(number, headers=headers),), number))
            yield self.given[-1]


def test_counts_are_asked_when_the_last_letter_is_read_and_settings_with_the_first_of_an_address() -> None:
    given: list[Batch] = []
    management = Management(given, [])
    dead = Dead([("shop", "shop"), ("shop", "deadly"), ("news", "eu"), ("", "")], given)
    reading = WaysReading(management, [cast(Scan, dead)], "drain", None, {"diverts": []})
    assert len([*reading.batches()]) == 4
    assert management.asked == [
        (1, "settings", ["shop"]),
        (3, "settings", ["news"]),
        (4, "killed", ["deadly", "eu", "shop"]),
    ]
    assert reading.topology["killed_none"] == {"eu": 7, "shop": 7}
    assert reading.topology["places_of_the_dead"] == {"shop": ["DLQ", None], "news": ["DLQ", None]}
