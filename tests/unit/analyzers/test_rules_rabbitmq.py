"""What a death history proves, as a truth table; a letter without anything is its None row."""

from typing import Any

from support.analyzers.letters import died, record
from support.rows import each_row

from dlq.analyzers.rules import Facts
from dlq.core.record import Death

FACTS = Facts(
    delivery_limits={"orders": {"payments": 2, "zero": 0, "below": -1}},
    alternate_exchanges={"orders": ("unrouted",)},
    dead_letter_exchanges={"orders": {"orders": "dlx", "direct": ""}},
)
IN_ITSELF = {"exchange": "", "routing_key": "orders.dlq"}


def _last(reason: str, queue: str) -> dict[str, str]:
    return {"x-last-death-reason": reason, "x-last-death-queue": queue, "x-last-death-exchange": "shop"}


def _first(reason: str) -> dict[str, str]:
    return {"x-first-death-reason": reason}


# letter, (cause, mechanism, origin, attempts)
TABLE: list[tuple[Any, tuple[Any, ...]]] = [
    (record(), ("unknown", "none", None, None)),
    (died(("rejected", "orders", 1)), ("poison_ack", "reject", "orders", 1)),
    (died(("rejected", "orders", 3)), ("poison_ack", "reject", "orders", 3)),
    (died(("rejected", "orders", None)), ("poison_ack", "reject", "orders", None)),
    (died(("rejected", "orders", 1), headers={"x-retry-count": "4"}), ("poison_ack", "reject", "orders", 5)),
    (died(("rejected", "orders", 1), headers={"x-retry-count": "many"}), ("poison_ack", "reject", "orders", 1)),
    # A retry loop: the newest entry is the wait queue, the consumer's queue is in the rejected one.
    (died(("expired", "orders.wait", 3), ("rejected", "orders", 4)), ("poison_ack", "retry_loop", "orders", 4)),
    (died(("rejected", "orders", 4), ("expired", "orders.wait", 3), headers=_first("rejected")),
     ("poison_ack", "retry_loop", "orders", 4)),
    (died(("expired", "orders.wait", 3)), ("poison_ack", "retry_loop", "orders.wait", None)),
    # Published again with its old history, and expired again: the queue of its death sent it here. An
    # application that parks it uses another exchange.
    (died(("expired", "orders", 3), exchange="dlx"), ("expired", "ttl", "orders", None)),
    (died(("expired", "orders", 3), exchange="parking"), ("poison_ack", "retry_loop", "orders", None)),
    # What an application does at the last delivery leaves no entry: it came back from each wait.
    (died(("expired", "wait", 2), ("rejected", "orders", 2), **IN_ITSELF), ("poison_ack", "retry_loop", "orders", 3)),
    (died(("expired", "wait.30", 1), ("expired", "wait.5", 1), ("rejected", "orders", 2), exchange="parked"),
     ("poison_ack", "retry_loop", "orders", 3)),
    # The first wait may have been the delay that it was sent with.
    (died(("expired", "wait", 3), ("rejected", "orders", 2), headers=_first("expired"), exchange="parked"),
     ("poison_ack", "retry_loop", "orders", None)),
    # It went on from a dead-letter queue with a TTL, and never came back.
    (died(("expired", "orders.dlq", 1), ("rejected", "orders", 1), exchange="", routing_key="parking"),
     ("poison_ack", "reject", "orders", 1)),
    (died(("expired", "orders.dlq", 1), ("rejected", "orders", 1), headers=_first("rejected")),
     ("poison_ack", "reject", "orders", 1)),
    # It was sent again with the key of its own queue.
    (
        record(
            deaths=[Death("expired", "wait", "", ("wait",), 1), Death("rejected", "orders", "", ("new",), 1)], exchange="dlx",
            routing_key="new",
        ),
        ("poison_ack", "retry_loop", "orders", 2),
    ),
    # A delayed message that was refused once: it had expired before, in no loop.
    (died(("rejected", "orders", 1), ("expired", "delay", 1)), ("poison_ack", "reject", "orders", 1)),
    (died(("expired", "orders", 1)), ("expired", "ttl", "orders", None)),
    (died(("expired", "dlq1", 1), ("maxlen", "orders", 1)), ("expired", "ttl", "dlq1", None)),
    (died(("maxlen", "orders", 1)), ("overflow", "maxlen", "orders", None)),
    (died(("delivery_limit", "payments", 1)), ("redelivery_exhausted", "delivery_limit", "payments", 3)),
    (died(("delivery_limit", "zero", 1)), ("redelivery_exhausted", "delivery_limit", "zero", 1)),
    (died(("delivery_limit", "below", 1)), ("redelivery_exhausted", "delivery_limit", "below", 1)),
    (died(("delivery_limit", "other", 1)), ("redelivery_exhausted", "delivery_limit", "other", None)),
    (died(("expired", "dlq1", 1), ("delivery_limit", "payments", 1)), ("redelivery_exhausted", "delivery_limit", "payments", 3)),
    (died(("delivery_limit", "payments", 1), ("expired", "wait", 2), ("rejected", "payments", 2)),
     ("redelivery_exhausted", "delivery_limit", "payments", 3)),
    (died(("invented", "orders", 1)), ("unknown", "none", None, None)),
    # 3.13 and later name the last death; the order of x-death is not to be relied on there.
    (died(("expired", "delay", 1), ("rejected", "orders", 1), headers=_last("rejected", "orders") | _first("expired")),
     ("poison_ack", "reject", "orders", 1)),
    # An older broker leaves the names that a newer one wrote.
    (died(("maxlen", "b", 1), ("expired", "a", 1), headers=_last("expired", "a"), broker_version="3.12.1"),
     ("overflow", "maxlen", "b", None)),
    # The history has no such entry: it is newer.
    (died(("maxlen", "b", 1), headers=_last("rejected", "a")), ("overflow", "maxlen", "b", None)),
    # A STOMP client sees no x-death. A reason without a queue is not the broker's.
    (record(headers=_first("maxlen") | {"x-first-death-queue": "orders"}), ("overflow", "maxlen", "orders", None)),
    (record(headers=_first("maxlen")), ("unknown", "none", None, None)),
    # Nor is one without an exchange, on a letter that was published to this queue.
    (record(headers=_first("maxlen") | {"x-first-death-queue": "orders"}, **IN_ITSELF), ("unknown", "none", None, None)),
    # Alternate exchange: no death, and the envelope still has the exchange it was published to.
    (record(exchange="shop", routing_key="no.such"), ("unroutable", "alternate_exchange", "shop", None)),
    (record(exchange="unrouted", routing_key="x"), ("unknown", "none", None, None)),
    (record(exchange="shop", routing_key="x", source="elsewhere"), ("unknown", "none", None, None)),
    (record(exchange=None), ("unknown", "none", None, None)),
    # Put into the dead-letter queue by hand: its death is of an earlier hop.
    (record(**IN_ITSELF), ("unknown", "none", None, None)),
    (died(("rejected", "orders", 1), **IN_ITSELF), ("unknown", "none", None, None)),
    (died(("rejected", "direct", 1), **IN_ITSELF), ("poison_ack", "reject", "direct", 1)),
    (died(("rejected", "who-knows", 1), **IN_ITSELF), ("poison_ack", "reject", "who-knows", 1)),
]  # fmt: skip


@each_row(("letter", "expected"), TABLE)
def test_the_death_history_decides(judge: Any, letter: Any, expected: tuple[Any, ...]) -> None:
    [row] = judge(letter, facts=FACTS)
    assert (row["cause"], row["mechanism"], row["origin"], row["attempts"]) == expected


def test_evidence_names_what_the_rule_saw(judge: Any) -> None:
    history = [Death("rejected", "orders", "shop", ("a",), 2, 1_793_589_129_000_000)]
    rejected, unrouted, parked = judge(
        record(deaths=history),
        record(exchange="shop", routing_key="no.such"),
        died(("rejected", "orders", 1), **IN_ITSELF),
        facts=FACTS,
    )
    assert rejected["evidence"] == "rejected from orders, 2 x, first at 2026-11-02T03:12:09Z"
    assert (unrouted["evidence"], unrouted["origin_kind"]) == ("exchange shop, routing key no.such", "exchange")  # fmt: skip
    assert parked["stale_evidence"]
    assert not rejected["stale_evidence"]


def test_a_first_death_alone_is_not_known_to_be_the_last(judge: Any) -> None:
    first = {**_first("expired"), "x-first-death-queue": "wait", "x-first-death-exchange": ""}
    alone, known, last = judge(
        record(headers=first),
        died(("expired", "wait", 1), headers=first),
        record(headers={**first, **_last("expired", "wait")}),
    )
    assert [row["cause"] for row in (alone, known, last)] == ["expired"] * 3
    assert [row["proof"] for row in (alone, known, last)] == ["likely", "proven", "proven"]


def test_a_loop_whose_entries_count_nothing_is_told_without_numbers(judge: Any) -> None:
    """Servers before 3.5 left an entry a death."""
    rounds = [("rejected", "orders", None), ("expired", "wait", None)] * 3
    [row] = judge(died(*rounds[:-1], headers=_first("rejected")))
    assert (row["cause"], row["evidence"]) == ("poison_ack", "rejected, waited in wait")


def test_a_lap_is_read_from_the_headers_of_the_replay(judge: Any) -> None:
    rows = judge(
        record(headers={"dlq_replay_lap": "2", "dlq_replay_of": "abc"}),
        record(properties={"dlq_replay_lap": "1"}),
        record(headers={"dlq_replay_lap": "odd"}),
        record(),
    )
    assert [row["laps"] for row in rows] == [2, 1, 0, 0]
