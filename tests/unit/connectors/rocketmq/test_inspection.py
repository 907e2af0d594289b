"""What brokers tell of how they keep transactions, in words."""

from support.rows import each_row

from dlq.connectors.rocketmq.look.coverage import Definitions, predict
from dlq.connectors.rocketmq.look.doctor import gathered_ms, late_outcomes, unread_halves, without_index

HALVES = [
    # in RocksDB, in the usual topics too, whether they are unread
    (False, True, False), (False, False, False), (True, True, False), (True, False, True),
]  # fmt: skip


@each_row(("in_rocksdb", "usual_too", "is_unread"), HALVES)
def test_half_messages_that_lie_in_rocksdb_alone_are_told(
    in_rocksdb: bool, usual_too: bool, is_unread: bool
) -> None:
    facts = {"broker-a": {"rocksdb_transactions": in_rocksdb, "usual_transactions": usual_too}}
    assert [text.split()[0] for text in unread_halves(facts)] == ["broker-a"] * is_unread


@each_row(("index", "is_told"), [(True, False), (None, False), (False, True)])
def test_a_broker_without_an_index_is_told(index: bool | None, is_told: bool) -> None:
    assert bool(without_index({"broker-a": {"index": index}})) == is_told


@each_row(("version", "interval", "gathered", "is_late"), [
    ("4.9.7", None, 0, False), ("5.0.0", 3_600_000, 0, False), ("5.1.0", None, 3_000, False),
    ("5.5.0", 100, 100, False), ("5.5.0", 30_000, 30_000, False), ("5.5.0", 3_600_000, 3_600_000, True),
])  # fmt: skip
def test_outcomes_that_come_later_than_they_are_waited_for_are_told(
    version: str, interval: int | None, gathered: int, is_late: bool
) -> None:
    known = {"version": version, "op_batch_interval_ms": interval}
    assert gathered_ms(known) == gathered
    assert [text.split()[:4] for text in late_outcomes({"broker-a": known})] == (
        [["broker-a", "may", "tell", "3600"]] if is_late else []
    )


@each_row(("topic", "verdict"), [
    ("%RETRY%pay", "kept"), ("%RETRY%pay_orders", "unknown"), ("%RETRY%pay+orders", "unknown"),
    ("%RETRY%pay_later", "kept"), ("%DLQ%pay_orders", "kept"),
])  # fmt: skip
def test_what_a_group_by_pop_gives_up_may_be_dropped_by_its_client(topic: str, verdict: str) -> None:
    groups: dict[str, dict[str, int]] = {"pay": {}, "pay_later": {}}
    known = {"a": Definitions("h:1", "ns:1", groups, {topic: {"readQueueNums": 1, "perm": 6}}, 72.0)}
    fates = [fate for fate in predict(known) if fate.name == "pay"]
    assert [fate.verdict for fate in fates] == [verdict] * 2
    assert all((topic in fate.why) == (verdict == "unknown") for fate in fates)


def test_a_group_is_not_called_safe_while_one_broker_says_nothing_of_it() -> None:
    told = Definitions("h:1", "ns:1", {"pay": {}}, {}, 72.0)
    silent = Definitions("h:2", "ns:1", {}, {}, 72.0, refused="broker-b refuses the user")
    fates = [fate for fate in predict({"a": told, "b": silent}) if fate.name == "pay"]
    assert {(fate.verdict, "broker-b refuses" in fate.why) for fate in fates} == {("unknown", True)}
    assert {fate.verdict for fate in predict({"a": told}) if fate.name == "pay"} == {"kept"}
