"""A verdict says how sure it is: what else leaves the same trace is named, and its words are true for all of it."""

from typing import Any

import pytest
from support.analyzers.letters import imported
from support.rows import each_row

from dlq.analyzers.groups.advice import Known, advise
from dlq.analyzers.rules import Facts, table
from dlq.core.causes import CAUSES, MOVED, cause_in_words, mark_doubt, proof_of

FOUR = {"_AMQ_ORIG_ADDRESS": "shop", "_AMQ_ORIG_QUEUE": "orders", "_AMQ_ORIG_MESSAGE_ID": "17", "_AMQ_ORIG_ROUTING_TYPE": "1"}  # fmt: skip
FRAME = {"message-id": "4e1,99", "destination": "DLQ", "subscription": "s"}
"""What a pull by STOMP always reads."""
CORE = {"__AMQ_CID": "c-1"}
EXPIRED = {"_AMQ_ACTUAL_EXPIRY": "1795195175398"}
OF_OPENWIRE = {
    "__HDR_MESSAGE_ID": "x",
    "__HDR_dlqDeliveryFailureCause": "java.lang.Throwable: Delivery[7] exceeds redelivery policy limit:"
    "RedeliveryPolicy {maximumRedeliveries = 6}, cause:com.shop.Declined: no money",
}


def artemis(*parts: dict[str, str], queue: str = "DLQ", **more: str) -> Any:
    headers = {name: text for part in (FRAME, *parts, more) for name, text in part.items()}
    return imported({"broker_kind": "artemis", "queue": queue, "headers": headers})


def annotated(prefix: str) -> Any:
    headers = {f"{prefix}-ADDRESS": "shop", f"{prefix}-QUEUE": "orders"}
    return imported({"broker_kind": "artemis", "queue": "DLQ", "headers": headers})


def of(row: dict[str, Any], *names: str) -> list[Any]:
    return [row[name] for name in names]


LIKELY = ("redelivery_exhausted", "likely", ("poison_ack", "moved"))
ARTEMIS = {
    "core, rolled back": (artemis(FOUR, CORE), LIKELY),
    "AMQP, rejected, by STOMP": (artemis({**FOUR, "NATIVE_MESSAGE_ID": "m"}), LIKELY),
    "AMQP, as its annotations": (annotated("x-opt-ORIG"), LIKELY),
    "AMQP, as OpenWire shows it": (annotated("JMS_AMQP_MA_x-opt-ORIG"), LIKELY),
    "an OpenWire client's limit": (artemis(FOUR, OF_OPENWIRE), ("redelivery_exhausted", "proven", ())),
    "an OpenWire client's own exception": (artemis(FOUR, {"__HDR_dlqDeliveryFailureCause": "com.shop.Declined: no money"}),
     ("redelivery_exhausted", "proven", ())),
    "the words of a death before a retry": (artemis(FOUR, OF_OPENWIRE, {"_AMQ_ROUTING_TYPE": "1"}),
     ("redelivery_exhausted", "likely", ("redelivery_exhausted", "poison_ack", "moved"))),
    "core, expired": (artemis(FOUR, CORE, EXPIRED), ("expired", "proven", ())),
    "core, an older expiry before a retry": (artemis(FOUR, CORE, EXPIRED, {"destination-type": "ANYCAST"}), LIKELY),
    "STOMP, expired, perhaps before": (artemis(FOUR, EXPIRED, {"destination-type": "ANYCAST"}),
     ("expired", "likely", ("redelivery_exhausted", "poison_ack", "moved"))),
    "no route": (artemis(FOUR, {"_AMQ_ORIG_QUEUE": ""}, CORE), ("unroutable", "proven", ())),
    "names that its sender wrote": (artemis({"_AMQ_ORIG_ADDRESS": "shop", "_AMQ_ORIG_QUEUE": "orders"}), ("unknown", None, ())),
    "brought out of the dead-letter queue": (artemis(FOUR, {"_AMQ_ORIG_QUEUE": "DLQ", "_AMQ_ORIG_ADDRESS": "DLQ"}, queue="orders"),
     ("unknown", None, ())),
    "a live message": (artemis(CORE), ("unknown", None, ())),
}  # fmt: skip


@each_row(("letter", "expected"), ARTEMIS.values(), ids=ARTEMIS)
def test_artemis_says_what_a_trace_proves(judge: Any, letter: Any, expected: tuple[Any, ...]) -> None:
    """And quotes a property that the letter has."""
    cause, proof, others = expected
    [row] = judge(letter)
    also = tuple(one for one in others if one != cause)
    assert (row["cause"], row["proof"], tuple(row["also_possible"])) == (cause, proof, also)
    told = row["evidence"]
    assert told is None or any(name in told or value in told for name, value in letter.headers.items())


def test_what_the_settings_say_of_the_expired_narrows(judge: Any) -> None:
    letter = artemis(FOUR, EXPIRED, {"destination-type": "ANYCAST"})
    places = {letter.source: {"shop": ("DLQ", "ExpiryQueue")}}
    elsewhere = {letter.source: {"shop": ("Dead", "DLQ")}}
    [with_dead] = judge(letter, facts=Facts(places_of_the_dead=places))
    [with_expired] = judge(letter, facts=Facts(places_of_the_dead=elsewhere))
    assert of(with_dead, "cause", "proof", "stale_evidence") == ["redelivery_exhausted", "likely", True]
    assert of(with_expired, "cause", "proof") == ["expired", "proven"]


@each_row(("most", "cause", "also", "told"), [
    (-1, "poison_ack", ("moved",), ""),
    (0, "poison_ack", ("moved",), ""),
    (1, "redelivery_exhausted", ("poison_ack", "moved"), "one failure is enough"),
    (10, "redelivery_exhausted", ("poison_ack", "moved"), ""),
])  # fmt: skip
def test_the_most_attempts_of_an_address_narrow(
    judge: Any, most: int, cause: str, also: tuple[str, ...], told: str
) -> None:
    letter = artemis(FOUR, CORE)
    [row] = judge(letter, facts=Facts(most_attempts={letter.source: {"shop": most}}))
    assert (row["cause"], row["proof"], tuple(row["also_possible"])) == (cause, "likely", also)
    assert told in row["evidence"]


@each_row(("before", "cause"), [(3600, "unknown"), (60, "redelivery_exhausted")])
def test_a_queue_that_killed_none_since_lost_it_to_a_hand(judge: Any, before: int, cause: str) -> None:
    sent = 1_790_000_000_000_000
    letter = artemis(FOUR, CORE)._replace(published_at=sent)
    since = {letter.headers["_AMQ_ORIG_QUEUE"]: sent - before * 1_000_000}
    [row] = judge(letter, facts=Facts(killed_none={letter.source: since}))
    assert row["cause"] == cause


def classic(queue: str = "ActiveMQ.DLQ", **headers: str) -> Any:
    frame = {"message-id": "ID:b-1-17-1:1:-1:1:5", "destination": f"/queue/{queue}"}
    given = {
        name.replace("_", "-") if name.startswith("original_") else name: v for name, v in headers.items()
    }
    return imported({"broker_kind": "activemq", "queue": queue, "headers": {**frame, **given}})


CLASSIC = {
    "STOMP NACK": (classic(original_destination="/queue/orders", originalExpiration="0"), ("poison_ack", "likely", "orders")),
    "a strategy's expiration": (classic(original_destination="/queue/orders", expires="1795195175398"),
     ("poison_ack", "likely", "orders")),
    "moved or copied by hand": (classic(original_destination="/queue/orders"), ("unknown", None, "orders")),
    "live in the queue of a virtual topic": (
        classic("Consumer.A.VirtualTopic.Orders", original_destination="/topic/VirtualTopic.Orders"),
        ("unknown", None, "VirtualTopic.Orders"),
    ),
    "moved out of the dead-letter queue": (classic("orders", original_destination="/queue/ActiveMQ.DLQ"),
     ("unknown", None, "ActiveMQ.DLQ")),
}  # fmt: skip


@each_row(("letter", "expected"), CLASSIC.values(), ids=CLASSIC)
def test_classic_killed_only_what_it_stamped(judge: Any, letter: Any, expected: tuple[Any, ...]) -> None:
    [row] = judge(letter)
    assert tuple(of(row, "cause", "proof", "origin")) == expected


def rabbit(*deaths: dict[str, Any], **headers: Any) -> Any:
    line = {"broker_kind": "rabbitmq", "queue": "dead", "headers": {"x-death": [*deaths], **headers}}
    return imported(line)


def test_a_loop_that_nobody_rejected_is_no_refusal_of_zero(judge: Any) -> None:
    waited = {"reason": "expired", "queue": "wait", "count": 3}
    limited = {"reason": "delivery_limit", "queue": "orders", "count": 1}
    by_hand, by_limit = judge(rabbit(waited), rabbit(waited, limited))
    assert of(by_hand, "cause", "proof", "evidence") == ["poison_ack", "likely", "waited in wait 3 x"]
    assert of(by_limit, "cause", "proof", "origin") == ["redelivery_exhausted", "proven", "orders"]


@pytest.mark.parametrize(("times", "proof"), [(17, "proven"), (1, "likely"), (4, "likely")])
def test_a_consumer_of_rocketmq_may_ask_for_no_more(judge: Any, times: int, proof: str) -> None:
    properties = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "a"}
    line = {"broker_kind": "rocketmq", "queue": "%DLQ%pay", "properties": properties}
    [row] = judge(imported({**line, "headers": {"reconsumeTimes": times}}))
    assert of(row, "cause", "proof") == ["redelivery_exhausted", proof]


def test_the_table_of_rules_says_which_traces_prove() -> None:
    rows = list(table())
    for row in rows:
        others = row["also_possible"].split(", ") if row["also_possible"] else []
        assert row["proof"] == (proof_of(row["cause"], others) or "")
        assert len(others) <= 3
        assert set(others) <= {*CAUSES, MOVED} - {row["cause"], "unknown"}
    assert {row["proof"] for row in rows} == {"proven", "likely", ""}


def test_advice_on_a_likely_cause_is_safe_for_all_that_it_may_be() -> None:
    for cause in set(CAUSES) - {"unknown"}:
        for family in (None, "timeout", "bug"):
            known = Known(cause, 3, exception_family=family, also_possible=("poison_ack", "moved"))
            advice, reason = advise(known)
            assert advice != "replay"
            if advice == "fix_first":
                assert "most likely" in reason
                assert "someone or a divert put it here" in reason
                assert "every attempt failed" not in reason


def test_a_likely_cause_has_a_question_mark() -> None:
    assert mark_doubt("expired", "likely") == "expired?"
    assert mark_doubt("expired", "proven") == "expired"
    assert cause_in_words("poison_ack", ["rabbitmq"], "likely").endswith("?")
