"""Counts of the management API that are none."""

from typing import Any

from support.rows import each_row

from dlq.connectors.rabbitmq.consumption import _acknowledged
from dlq.connectors.rabbitmq.discovery import places

ODD = [None, "x", [1], {"a": 1}, -1, 1e300, True, "\x1b[2J"]


@each_row("odd", ODD, ids=repr)
def test_what_is_no_count_counts_nothing(odd: Any) -> None:
    assert _acknowledged({"q": {"messages": 1, "message_stats": {"ack": odd, "get_no_ack": 2}}}) == {"q": 2}
    counts = dict.fromkeys(("messages", "consumers", "head_message_timestamp"), odd)
    [found] = places([{"name": "orders.dlq", **counts}], [])
    assert (found.depth, found.consumers, found.oldest) == (None, None, None)
