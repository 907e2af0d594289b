"""ActiveMQ and Artemis letters get the verdict that their evidence bears, and no more."""

from typing import Any

import pytest
from support.analyzers.activemq_texts import TEXTS, THROWABLE
from support.analyzers.letters import imported, record, said
from support.rows import each_row

from dlq.analyzers.rules import Facts
from dlq.analyzers.rules import judge as classify_one
from dlq.analyzers.rules.letter import producer_of


def letter(
    cause: str | None = None, kind: str = "activemq", version: str | None = None, **headers: str
) -> Any:
    own = {"original-destination": "/queue/orders", "message-id": "ID:b-1-1795195175398-1:1:-1:1:5"}
    given = {
        name.replace("_", "-") if name.startswith("original_") else name: text
        for name, text in headers.items()
    }
    told = {"dlqDeliveryFailureCause": cause} if cause else {}
    document = {"broker_kind": kind, "queue": "ActiveMQ.DLQ", "headers": {**own, **told, **given}}
    return imported(document | ({"broker_version": version} if version else {}))


def on_artemis(headers: dict[str, str]) -> Any:
    return imported({"broker_kind": "artemis", "queue": "DLQ", "headers": headers})


def test_every_text_of_every_client_is_read(judge: Any) -> None:
    rows = judge(*(letter(text, originalExpiration="0") for text, _ in TEXTS))
    assert [said(row, expected) for row, (_, expected) in zip(rows, TEXTS, strict=True)] == [
        e for _, e in TEXTS
    ]
    assert {(row["origin"], row["producer_id"], row["producer_seq"]) for row in rows} == {
        ("orders", "ID:b-1-1795195175398-1:1:-1:1", 5)
    }
    assert not any(row["stale_evidence"] for row in rows)


CUT: list[tuple[str, dict[str, Any]]] = [
    ("Suppressing duplicate delivery", {"cause": "suppressed_duplicate", "consumer_id": None}),
    ("Exceeded redelivery policy limit ... cause: java.lang.IllegalStateException: boom",
     {"cause": "redelivery_exhausted", "exception_class": "java.lang.IllegalStateException"}),
    ("Delivery[3] exceeds redelivery policy li", {"cause": "redelivery_exhausted", "attempts": 3}),
    ("Dispatch[2] to ID:x-1-2-3:1:1:1 exceeds redelivery policy li", {"mechanism": "dispatch_check", "attempts": 2}),
    ("duplicate from store for", {"cause": "duplicate_from_store"}),
    # Traps: what an application says of itself, or of something else.
    ("com.acme.FooException: it says: Message discarded", {"cause": "redelivery_exhausted"}),
    ("Message discarded by the filter of the shop", {"cause": "unknown"}),
    ("Message Expired tokens cannot be used", {"cause": "unknown"}),
    ("duplicate from storehouse 7", {"cause": "unknown"}),
    ("we think it exceeded redelivery policy limit", {"cause": "unknown"}),
    ("Suppressing duplicates of order 7", {"cause": "unknown"}),
]  # fmt: skip


@each_row(("text", "expected"), CUT)
def test_a_cut_text_says_what_its_telling_words_say(judge: Any, text: str, expected: dict[str, Any]) -> None:
    [row] = judge(letter(text))
    assert said(row, expected) == expected


EXPIRED = THROWABLE + "Message Expired. Expiration:1795195175398"
WITHOUT: list[tuple[Any, dict[str, Any]]] = [
    (letter(EXPIRED, originalExpiration="1795195175398"), {"cause": "expired", "stale_evidence": False}),
    (letter(EXPIRED), {"cause": "expired", "stale_evidence": False}),
    (letter(THROWABLE + "something never seen"), {"cause": "unknown"}),
    (letter(THROWABLE + "Suppressing duplicate delivery on connection, consumer ID:x-1-2-3:1:1:1 "),
     {"cause": "suppressed_duplicate"}),
    (letter(EXPIRED, originalExpiration="0"), {"cause": "poison_ack", "mechanism": "nack", "stale_evidence": True}),
    (letter(EXPIRED, originalExpiration="0", redeliveryDelay="1000"), {"mechanism": "redelivery_plugin", "stale_evidence": True}),
    (letter(originalExpiration="0"), {"cause": "poison_ack", "mechanism": "nack", "evidence": "no dlqDeliveryFailureCause"}),
    (letter(originalExpiration="5", version="5.8.0"), {"cause": "expired", "mechanism": "expiry"}),
    (letter(originalExpiration="5", version="5.18.6"), {"cause": "poison_ack", "mechanism": "nack"}),
    (letter(redeliveryDelay="1000", scheduledJobId="x"),
     {"cause": "redelivery_exhausted", "mechanism": "redelivery_plugin", "attempts": None}),
]  # fmt: skip


@each_row(("made", "expected"), WITHOUT)
def test_others_decide_on_an_absent_or_old_cause(judge: Any, made: Any, expected: dict[str, Any]) -> None:
    [row] = judge(made)
    assert said(row, expected) == expected


@pytest.mark.parametrize(("queue", "headers", "producer"), [
    ("held", {"message-id": "ID:b-1-17-1:1:-1:1:5"}, ("ID:b-1-17-1:1:-1:1", 5)),
    ("ActiveMQ.DLQ", {"message-id": "x", "destination": "/queue/ActiveMQ.DLQ"}, (None, None)),
])  # fmt: skip
def test_a_letter_put_there_by_hand_is_unknown_and_tells_its_producer(
    judge: Any, queue: str, headers: dict[str, str], producer: tuple[str | None, int | None]
) -> None:
    [row] = judge(imported({"broker_kind": "activemq", "queue": queue, "headers": headers}))
    assert (row["cause"], row["mechanism"], row["origin"]) == ("unknown", "none", None)
    assert (row["producer_id"], row["producer_seq"]) == producer


@each_row(("headers", "expected"), [
    ({"_AMQ_ACTUAL_EXPIRY": "1762053729000"}, {"cause": "expired", "mechanism": "expiry", "origin": "orders"}),
    ({}, {"cause": "redelivery_exhausted", "mechanism": "redelivery_policy", "origin": "orders", "attempts": None}),
    ({"_AMQ_ORIG_ADDRESS": "DLQ", "_AMQ_ORIG_QUEUE": "DLQ"}, {"cause": "unknown", "mechanism": "none", "origin": None}),
    # A property that is called like the broker's.
    ({"_AMQ_ACTUAL_EXPIRY": "tomorrow"}, {"cause": "redelivery_exhausted", "mechanism": "redelivery_policy"}),
])  # fmt: skip
def test_artemis_says_where_it_died_and_of_expiry(judge: Any, headers: dict[str, str], expected: Any) -> None:
    own = {"_AMQ_ORIG_ADDRESS": "orders", "_AMQ_ORIG_QUEUE": "orders"}
    [row] = judge(on_artemis({**own, **headers}))
    assert said(row, expected) == expected


ELSEWHERE: list[tuple[str, dict[str, str], dict[str, tuple[str, str]], str]] = [
    ("parking", {"destination": "parking"}, {"orders": ("DLQ", "ExpiryQueue")}, "unknown"),
    ("failed", {"destination": "failed"}, {"orders": ("failed", "late")}, "redelivery_exhausted"),
    ("late", {"destination": "late"}, {"orders": ("failed", "late")}, "redelivery_exhausted"),
    # Where the settings may have been others before; where nothing says where it lies, or where the dead go.
    ("DLQ.old", {"destination": "DLQ.old"}, {"orders": ("DLQ", "ExpiryQueue")}, "redelivery_exhausted"),
    ("parking", {}, {"orders": ("DLQ", "ExpiryQueue")}, "redelivery_exhausted"),
    ("parking", {"destination": "parking"}, {"bills": ("DLQ", "ExpiryQueue")}, "redelivery_exhausted"),
    ("parking", {"destination": "parking"}, {}, "redelivery_exhausted"),
]


@each_row(("queue", "headers", "places", "cause"), ELSEWHERE)
def test_what_lies_where_the_settings_send_no_dead_was_brought_there(
    queue: str, headers: dict[str, str], places: dict[str, tuple[str, str]], cause: str
) -> None:
    own = {"_AMQ_ORIG_ADDRESS": "orders", "_AMQ_ORIG_QUEUE": "orders", "_AMQ_ORIG_MESSAGE_ID": "7"}
    letter = record(broker_kind="artemis", dead_letter_queue=queue, headers={**own, **headers})
    verdict = classify_one(letter, Facts(places_of_the_dead={letter.source: places}))
    assert (verdict.cause, verdict.origin) == (cause, "orders")


ALONE: list[tuple[dict[str, str], tuple[str, str | None]]] = [
    # No queue took it: the broker names the address alone, and the message's id there.
    ({"_AMQ_ORIG_ADDRESS": "info", "_AMQ_ORIG_MESSAGE_ID": "7"}, ("unroutable", "info")),
    ({"x-opt-ORIG-ADDRESS": "info", "x-opt-ORIG-MESSAGE-ID": "7"}, ("unroutable", "info")),
    # A part of a letter: the queue may be what is left out.
    ({"_AMQ_ORIG_ADDRESS": "info"}, ("redelivery_exhausted", "info")),
    ({"_AMQ_ORIG_ADDRESS": "info", "_AMQ_ORIG_QUEUE": "in", "_AMQ_ORIG_MESSAGE_ID": "7"}, ("redelivery_exhausted", "in")),
    # As a console names them.
    ({"extraProperties._AMQ_ORIG_ADDRESS": "a", "messageAnnotations.x-opt-ORIG-QUEUE": "q"}, ("redelivery_exhausted", "q")),
    ({"extraProperties._AMQ_ORIG_QUEUE": "q", "extraProperties._AMQ_ACTUAL_EXPIRY": "1762053729000"}, ("expired", "q")),
    ({"applicationProperties._AMQ_ORIG_ADDRESS": "mine"}, ("unknown", None)),
    ({"_AMQ_ORIG_MESSAGE_ID": "7"}, ("unknown", None)),
    # An application that parks it writes the broker's names, and what failed.
    ({"_AMQ_ORIG_ADDRESS": "info", "errorReason": "no amount"}, ("application_error", "info")),
    ({"_AMQ_ORIG_QUEUE": "in", "_AMQ_ORIG_MESSAGE_ID": "7", "errorReason": "no amount"}, ("redelivery_exhausted", "in")),
    ({"errorReason": "no amount"}, ("unknown", None)),
]  # fmt: skip


@each_row(("headers", "expected"), ALONE)
def test_artemis_names_no_queue_where_none_took_it(
    judge: Any, headers: dict[str, str], expected: tuple[str, str | None]
) -> None:
    [row] = judge(on_artemis(headers))
    assert (row["cause"], row["origin"]) == expected


OF_OPENWIRE = {"__HDR_dlqDeliveryFailureCause": THROWABLE + "Delivery[7] exceeds redelivery policy limit:x, cause:null"}  # fmt: skip
DIED = {"_AMQ_ORIG_ADDRESS": "orders", "_AMQ_ORIG_QUEUE": "orders"}
ON_ARTEMIS: list[tuple[dict[str, str], tuple[Any, ...]]] = [
    ({**DIED, **OF_OPENWIRE}, ("amq-redelivery-policy", "redelivery_exhausted", 7, "orders")),
    ({**DIED, "_AMQ_ACTUAL_EXPIRY": "5", **OF_OPENWIRE}, ("artemis-expired", "expired", None, "orders")),
    ({**DIED, "dlqDeliveryFailureCause": EXPIRED}, ("artemis-dead-letter", "redelivery_exhausted", None, "orders")),
    ({**DIED, "__HDR_dlqDeliveryFailureCause": "?"}, ("artemis-dead-letter", "redelivery_exhausted", None, "orders")),
    (DIED, ("artemis-dead-letter", "redelivery_exhausted", None, "orders")),
]  # fmt: skip


@each_row(("headers", "expected"), ON_ARTEMIS)
def test_openwire_is_read_on_artemis(judge: Any, headers: dict[str, str], expected: tuple[Any, ...]) -> None:
    [row] = judge(on_artemis(headers))
    assert (row["rule"], row["cause"], row["attempts"], row["origin"]) == expected


@pytest.mark.parametrize(("message_id", "producer", "number"), [
    ("ID:shop-36041-1795195175398-1:75:1:1:7", "ID:shop-36041-1795195175398-1:75:1:1", 7),
    ("ID:shop-36041-1795195175398-1:75:-1:1:7", "ID:shop-36041-1795195175398-1:75:-1:1", 7),
    ("ID:1b4e28ba-2fa1-11d2-883f-0016d3cca427", None, None),
    ("ID:shop-36041-1795195175398-1:75:1:1:99999999999999999999", "ID:shop-36041-1795195175398-1:75:1:1", None),
    ("75:1:1:7", None, None),
    ("", None, None),
    (None, None, None),
])  # fmt: skip
def test_an_id_tells_the_producer(message_id: str | None, producer: str | None, number: int | None) -> None:
    assert producer_of(message_id) == (producer, number)
