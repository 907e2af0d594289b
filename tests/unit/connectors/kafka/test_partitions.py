"""Reading partitions, without a broker: nothing is given up too early."""

from collections.abc import Iterator

import pytest
from support.rows import each_row

from dlq.connectors.kafka.look.cluster import Cluster, Topic
from dlq.connectors.kafka.plugin.description import KafkaBroker
from dlq.core.errors import NotFound

DEAD = Topic("dead", "4nLo", 2)


@each_row(("answers", "found"), [([True], True), ([False, False, True], True), ([False] * 99, False)])
def test_a_topic_is_not_there_where_it_is_not_for_a_while(
    monkeypatch: pytest.MonkeyPatch, answers: list[bool], found: bool
) -> None:
    """A broker that has just started may know none: what was not read of it would be given up for ever."""
    told: Iterator[bool] = iter(answers)

    def tell(_cluster: Cluster, name: str) -> Topic:
        if next(told):
            return DEAD
        raise NotFound(name)

    monkeypatch.setattr(Cluster, "topic", tell)
    monkeypatch.setattr("dlq.core.runtime.patience.REPLY", 0.3)
    cluster = Cluster(KafkaBroker("shop", "kafka", "kafka://127.0.0.1:1", timeout="1s"))
    assert cluster.find_topic("dead") == (DEAD if found else None)
