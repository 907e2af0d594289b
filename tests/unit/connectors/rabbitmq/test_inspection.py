"""What a look at all letters of a queue may do to them."""

from typing import Any

from support.rows import each_row

from dlq.connectors.rabbitmq.look.doctor import may_release

QUORUM: dict[str, Any] = {"queue_type": "quorum", "policies_known": True, "delivery_limit": None}


@each_row(("topology", "version", "may"), [
    ({**QUORUM, "delivery_limit": 1}, (4, 3, 0), True),
    ({"queue_type": None}, (4, 3, 0), True),
    ({"queue_type": "classic"}, (4, 0, 5), True),
    ({**QUORUM, "delivery_limit": 20}, (4, 0, 5), True),
    ({**QUORUM, "delivery_limit": 9}, (4, 2, 9), False),
    (QUORUM, (4, 0, 5), True),
    ({**QUORUM, "policies_known": False}, (4, 0, 5), False),
    ({"queue_type": None, "policies_known": False}, (4, 0, 5), False),
])  # fmt: skip
def test_letters_are_released_where_that_counts_not_or_the_limit_leaves_room(
    topology: dict[str, Any], version: tuple[int, ...], may: bool
) -> None:
    assert may_release(topology, version) is may
