"""What brokers tell of how they keep transactions, in words."""

import pytest

from dlq.connectors.rocketmq.inspection import unread_halves, without_index

HALVES = [
    # in RocksDB, in the usual topics too, whether they are unread
    (False, True, False),
    (False, False, False),
    (True, True, False),
    (True, False, True),
]


@pytest.mark.parametrize(("in_rocksdb", "usual_too", "is_unread"), HALVES)
def test_half_messages_that_lie_in_rocksdb_alone_are_told(
    in_rocksdb: bool, usual_too: bool, is_unread: bool
) -> None:
    facts = {"broker-a": {"rocksdb_transactions": in_rocksdb, "usual_transactions": usual_too}}
    assert [text.split()[0] for text in unread_halves(facts)] == ["broker-a"] * is_unread


@pytest.mark.parametrize(("index", "is_told"), [(True, False), (None, False), (False, True)])
def test_a_broker_without_an_index_is_told(index: bool | None, is_told: bool) -> None:
    assert bool(without_index({"broker-a": {"index": index}})) == is_told
