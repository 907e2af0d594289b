"""Which of two messages of a key is the newer: one broker's log tells it, and two brokers' clocks may."""

from support.rows import each_row

from dlq.connectors.rocketmq.link.message import StoredMessage
from dlq.connectors.rocketmq.look.newer import Indexed, age

MINUTE = 60_000


def stored(node: str, position: int, at: int) -> Indexed:
    message = StoredMessage("orders", 0, 0, position, 0, 0, at, b"", at, b"", 0, 0, 0, b"", b"")
    return Indexed(node, message, {}, {})


OWN = stored("a", 500, 10 * MINUTE)


@each_row("other, own, dead_at, said", [
    (stored("a", 501, 0), OWN, None, "newer"),
    (stored("a", 499, 99 * MINUTE), OWN, None, "older"),
    (stored("b", 1, 11 * MINUTE), OWN, None, None),
    (stored("b", 1, 11 * MINUTE + 1), OWN, None, "newer"),
    (stored("b", 1, 9 * MINUTE), OWN, None, None),
    (stored("b", 1, 9 * MINUTE - 1), OWN, None, "older"),
    (stored("b", 1, 12 * MINUTE + 1), None, 11 * MINUTE, "newer"),
    (stored("b", 1, 12 * MINUTE), None, 11 * MINUTE, None),
    (stored("b", 1, 0), None, 11 * MINUTE, None),
    (stored("b", 1, 12 * MINUTE), None, None, None),
])  # fmt: skip
def test_what_is_newer_is_proven_or_not_known(
    other: Indexed, own: Indexed | None, dead_at: int | None, said: str | None
) -> None:
    assert age(other, own, None if dead_at is None else dead_at * 1000) == said
