"""Where a message for a topic may be put, in the order in which Java's clients count the queues."""

from types import SimpleNamespace
from typing import Any

import pytest

from dlq.connectors.base import Target
from dlq.connectors.rocketmq.link.cluster import Queues
from dlq.connectors.rocketmq.look.routes import route_to, writable_queues

OWN = [("a", 0), ("a", 1), ("b", 0)]


@pytest.mark.parametrize(
    ("hosted", "expected"),
    [((None, None), OWN), (([0, 2], [1]), [("a", 0), ("b", 1), ("a", 2)]), (([], [0]), [("b", 0)])],
    ids=["ordinary", "static", "static, moved to one broker"],
)
def test_a_static_topics_queues_are_sent_to_by_their_numbers_over_all_brokers(
    hosted: tuple[list[int] | None, list[int] | None], expected: list[tuple[str, int]]
) -> None:
    route = {"a": Queues(2, 2, 6, hosted[0]), "b": Queues(1, 1, 6, hosted[1])}
    cluster: Any = SimpleNamespace(masters=lambda: {"a": "", "b": ""}, route=lambda _: route)
    assert route_to(cluster, Target("topic", "orders"), "orders").places == expected
    assert writable_queues(cluster, "orders") == OWN
