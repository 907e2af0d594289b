"""What letters name is asked of Artemis while they are read: of many addresses and queues those alone."""

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from support.archives import letter
from support.rows import each_row

from dlq.connectors.activemq.read.ways import WaysReading
from dlq.connectors.base import Batch


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


def test_counts_are_asked_when_the_last_letter_is_read_and_settings_with_the_first_of_an_address() -> None:
    given: list[Batch] = []
    management = Management(given, [])
    named = [("shop", "shop"), ("shop", "deadly"), ("news", "eu"), ("", "")]

    def batches() -> Iterator[Batch]:
        for number, (address, queue) in enumerate(named, 1):
            headers = {"_AMQ_ORIG_ADDRESS": address, "_AMQ_ORIG_QUEUE": queue}
            given.append(Batch((letter(number, headers=headers),), number))
            yield given[-1]

    dead: Any = SimpleNamespace(
        queue="DLQ", depth=None, topology={}, notes=(), complete=True, position=0, seen=0, batches=batches
    )
    dead.begin = lambda _limit: dead
    reading = WaysReading(management, [dead], "drain", None, {"diverts": []})
    assert len([*reading.batches()]) == 4
    assert management.asked == [
        (1, "settings", ["shop"]),
        (3, "settings", ["news"]),
        (4, "killed", ["deadly", "eu", "shop"]),
    ]
    never = 2**63 - 1  # for what was once learned of it does not hold for its new letters
    assert reading.topology["killed_none"] == {"eu": 7, "shop": 7, "deadly": never}
    assert reading.topology["places_of_the_dead"] == {"shop": ["DLQ", None], "news": ["DLQ", None]}


@each_row("header", ["_AMQ_ORIG_QUEUE", "JMS_AMQP_MA_x-opt-ORIG-QUEUE", "_HQ_ORIG_QUEUE"])
def test_where_management_tells_nothing_what_was_learned_holds_for_no_new_letter(header: str) -> None:
    given: list[Batch] = []
    management = Management(given, [])
    batch = Batch((letter(1, headers={header: "shop"}),), 1)
    dead: Any = SimpleNamespace(
        queue="DLQ", depth=None, topology={}, notes=(), complete=True, position=0, seen=0
    )
    dead.batches, dead.begin = lambda: iter([batch]), lambda _limit: dead
    reading = WaysReading(management, [dead], "drain", None, {})
    assert len([*reading.batches()]) == 1
    assert (management.asked, reading.topology["killed_none"]) == ([], {"shop": 2**63 - 1})
