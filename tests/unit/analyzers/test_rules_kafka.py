"""What each framework leaves on a dead letter of Kafka proves a cause, or proves none."""

from typing import Any

import pytest
from support.analyzers.letters import record
from support.rows import each_row

from dlq.core.record import Record

Verdict = tuple[str, str, str | None, int | None, str | None]
"""Cause, mechanism, origin, attempts, exception."""
TRACE = """org.springframework.kafka.listener.ListenerExecutionFailedException: Listener failed
\tat shop.Orders.receive(Orders.java:7)
Caused by: java.lang.IllegalStateException: no such account
\tat shop.Accounts.find(Accounts.java:3)
\t... 9 more
"""
STATE = "java.lang.IllegalStateException"
WRAPPER = "org.springframework.kafka.listener.ListenerExecutionFailedException"
UNREAD = "org.springframework.kafka.support.serializer.DeserializationException"
SERIALIZATION = "org.apache.kafka.common.errors.SerializationException"
READ_TRACE = f"""{SERIALIZATION}: Size of data received by IntegerDeserializer is not 4
\tat org.apache.kafka.common.serialization.IntegerDeserializer.deserialize(IntegerDeserializer.java:28)
\tat org.apache.kafka.streams.processor.internals.RecordDeserializer.deserialize(RecordDeserializer.java:68)
"""
CONVERSION = "org.springframework.messaging.converter.MessageConversionException"
CONVERSION_TRACE = f"""{WRAPPER}: Listener method could not be invoked with the incoming message
\tat org.springframework.kafka.listener.KafkaMessageListenerContainer.decorate(Container.java:1)
Caused by: {CONVERSION}: Cannot convert from [java.lang.Integer] to [java.util.UUID] for GenericMessage [payload=7]
\tat org.springframework.messaging.PayloadMethodArgumentResolver.resolveArgument(Payload.java:1)
"""
WRITE_TRACE = f"""{SERIALIZATION}: Can't convert value
\tat org.apache.kafka.clients.producer.KafkaProducer.doSend(KafkaProducer.java:1051)
\tat org.apache.kafka.streams.processor.internals.RecordDeserializer.toString(RecordDeserializer.java:1)
"""


def letter(headers: dict[str, str], topic: str = "orders-dlt") -> Record:
    return record(broker_kind="kafka", dead_letter_queue=topic, headers=headers)


def placed(prefix: str, **more: str) -> dict[str, str]:
    where = {f"{prefix}topic": "orders", f"{prefix}partition": "0", f"{prefix}offset": "41"}
    return {**where, **{f"{prefix}{name.replace('_', '-')}": value for name, value in more.items()}}


def spring(cause: str | None = STATE, wrapper: str = WRAPPER, **more: str) -> dict[str, str]:
    told = {"kafka_dlt-exception-fqcn": wrapper, "kafka_dlt-exception-message": "Listener failed; no"}
    if cause is not None:
        told["kafka_dlt-exception-cause-fqcn"] = cause
    return {**told, **placed("kafka_dlt-original-"), **more}


def retryable(attempts: str | None = "4", wrapper: str = WRAPPER) -> dict[str, str]:
    told = {"kafka_exception-fqcn": wrapper, "kafka_exception-cause-fqcn": STATE}
    counted = {} if attempts is None else {"retry_topic-attempts": attempts}
    return {**told, **placed("kafka_original-"), **counted}


def connect(stage: str | None = "TASK_PUT", **more: str) -> dict[str, str]:
    named = {} if stage is None else {"stage": stage}
    return {
        **placed("__connect.errors.", **named),
        "__connect.errors.connector.name": "s3-sink",
        "__connect.errors.exception.class.name": "org.apache.kafka.connect.errors.DataException",
        **more,
    }


def streams(exception: str = STATE, trace: str | None = None) -> dict[str, str]:
    told = {"__streams.errors.exception": exception}
    shown = {} if trace is None else {"__streams.errors.stacktrace": trace}
    return {**told, **shown, **placed("__streams.errors.")}


def shared(message: str | None, count: str | None = "5") -> dict[str, str]:
    told = {} if message is None else {"__dlq.errors.message": message}
    counted = {} if count is None else {"__dlq.errors.delivery.count": count}
    return {**placed("__dlq.errors.", group="billing"), **told, **counted}


def nacked(prefix: str = "dead-letter-", **more: str) -> dict[str, str]:
    return placed(prefix, exception_class_name="shop.OrderError", reason="order 17", **more)


def in_function(trace: str, method: str) -> dict[str, str]:
    """As the binder parks what failed around a function of Spring Cloud Stream."""
    frame = f"o.SimpleFunctionRegistry$FunctionInvocationWrapper.{method}(S.java:1)"
    return {**placed("x-original-"), "x-exception-stacktrace": f"{trace}\n\tat {frame}"}


WOLVERINE = {"exception-type": "System.TimeoutException", "exception-message": "no answer", "failed-at": "1"}
DATA = "org.apache.kafka.connect.errors.DataException"
REJECTED, LIMIT = "Offset rejected by client.", "Offset delivery count exceeded the threshold."
ERROR = ("application_error", "framework", "orders")
UNREADABLE = ("unreadable", "deserialization", "orders")
UNKNOWN = ("unknown", "none", "orders")
NOTHING: Verdict = ("unknown", "none", None, None, None)

TABLE: list[tuple[Record, Verdict]] = [
    (letter({}), NOTHING),
    (letter({"traceparent": "00-1", "content-type": "application/json"}), NOTHING),
    # A name is no evidence.
    (letter({}, "orders.DLT"), NOTHING),
    # --- Spring ---
    (letter(spring()), (*ERROR, None, STATE)),
    (letter(spring(**{"kafka_dlt-exception-stacktrace": TRACE})), (*ERROR, None, STATE)),
    (letter(spring(kafka_deliveryAttempt="3")), (*ERROR, 3, STATE)),
    (letter(spring(kafka_deliveryAttempt="\x00\x00\x00\x03")), (*ERROR, None, STATE)),
    (letter({"kafka_dlt-key-exception-fqcn": UNREAD, **placed("kafka_dlt-original-")}), (*UNREADABLE, None, UNREAD)),
    (letter(spring(**{"kafka_dlt-exception-stacktrace": CONVERSION_TRACE})), (*UNREADABLE, None, CONVERSION)),
    # A stack that was cut shows what wraps the root cause, which has a header of its own.
    (letter(spring(**{"kafka_dlt-exception-stacktrace": f"{WRAPPER}: Listener\n\tat a.B.c(B.java:1)\n\t... 66 more"})),
     (*ERROR, None, STATE)),
    (letter(spring(cause=CONVERSION)), (*UNREADABLE, None, CONVERSION)),
    # Its reply could not be written: it had been read.
    (letter(spring(cause=SERIALIZATION)), (*ERROR, None, SERIALIZATION)),
    # The recoverer's exception headers are switched off, or its own for the origin.
    (letter(placed("kafka_dlt-original-")), (*UNKNOWN, None, None)),
    (letter(retryable("2", UNREAD)), (*UNREADABLE, 1, STATE)),
    # In a retry topic it is on its way.
    (letter(retryable(), "orders-retry-1000"), (*UNKNOWN, None, STATE)),
    # --- Spring Cloud Stream ---
    (letter(placed("x-original-") | {"x-exception-fqcn": "a.MessagingException", "x-exception-stacktrace": TRACE}),
     (*ERROR, None, STATE)),
    (letter(placed("x-original-") | {"x-exception-fqcn": UNREAD}), (*UNREADABLE, None, UNREAD)),
    (letter(in_function(f"M: no, headers={{deliveryAttempt=3}}\nCaused by: {UNREAD}: no", "convertInputIfNecessary")),
     (*UNREADABLE, 3, UNREAD)),
    # What the function gave could not be written.
    (letter(in_function(f"{STATE}: no", "convertOutputIfNecessary")), (*ERROR, None, STATE)),
    # --- Connect ---
    (letter(connect("VALUE_CONVERTER")), (*UNREADABLE, None, DATA)),
    (letter(placed("__connect.errors.", stage="TASK_PUT")), (*UNKNOWN, None, None)),
    # An exception without a message leaves a header without a value.
    (letter(connect(**{"__connect.errors.exception.message": ""})), (*ERROR, None, DATA)),
    # --- Streams ---
    (letter(streams()), (*ERROR, None, STATE)),
    (letter(streams(SERIALIZATION, READ_TRACE)), (*UNREADABLE, None, SERIALIZATION)),
    (letter(streams(SERIALIZATION, WRITE_TRACE)), (*ERROR, None, SERIALIZATION)),
    (letter(streams(SERIALIZATION)), (*ERROR, None, SERIALIZATION)),
    # --- Share groups ---
    (letter(shared(REJECTED, "1")), ("poison_ack", "reject", "orders", 1, None)),
    (letter(shared(LIMIT)), ("redelivery_exhausted", "delivery_limit", "orders", 5, None)),
    (letter(shared("Offset is no friend of ours.")), (*UNKNOWN, 5, None)),
    (letter(shared(REJECTED, None)), ("poison_ack", "reject", "orders", None, None)),
    # What its resolved original has is older than that.
    (letter({**spring(), "x-error": "5", **shared(REJECTED)}), ("poison_ack", "reject", "orders", 5, None)),
    # --- SmallRye ---
    (letter(nacked(cause_class_name=STATE, cause="no such account")), (*ERROR, None, STATE)),
    (letter(nacked() | {"delayed-retry-count": "3"}), (*ERROR, 4, "shop.OrderError")),
    (letter(nacked() | {"deserialization-failure-reason": "no JSON"}), (*UNREADABLE, None, "shop.OrderError")),
    (letter(nacked("delayed-retry-") | {"delayed-retry-count": "3"}), (*ERROR, 4, "shop.OrderError")),
    (letter(nacked("delayed-retry-") | {"delayed-retry-count": "1"}, "orders_retry_10000"), (*UNKNOWN, None, "shop.OrderError")),
    (letter({"dead-letter-reason": "order 17"}), ("application_error", "framework", None, None, None)),
    (letter(placed("dead-letter-")), (*UNKNOWN, None, None)),
    # --- Brighter ---
    (letter({"OriginalTopic": "orders", "RejectionReason": "Unacceptable", "RejectionMessage": "no JSON"}),
     ("poison_ack", "framework", "orders", None, None)),
    (letter({"OriginalTopic": "orders", "RejectionReason": "DeliveryError", "HandledCount": "3"}), (*ERROR, 4, None)),
    (letter({"OriginalTopic": "orders", "RejectionReason": "None"}), (*UNKNOWN, None, None)),
    (letter({"OriginalTopic": "orders", "RejectionTimestamp": "2026-11-02"}), (*UNKNOWN, None, None)),
    (letter({"RejectionReason": "Unacceptable"}), NOTHING),
    # --- Wolverine ---
    (letter({**WOLVERINE, "attempts": "3", "original-destination": "kafka://topic/orders"}),
     (*ERROR, 3, "System.TimeoutException")),
    (letter(WOLVERINE), ("application_error", "framework", None, None, "System.TimeoutException")),
    (letter({"original-destination": "kafka://topic/orders"}), (*UNKNOWN, None, None)),
    # --- Karafka ---
    (letter(placed("source_") | {"source_attempts": "4"}), ("redelivery_exhausted", "framework", "orders", 4, None)),
    (letter(placed("original_") | {"original_attempts": "2"}), ("redelivery_exhausted", "framework", "orders", 2, None)),
    (letter(placed("source_") | {"source_attempts": "1"}), (*UNKNOWN, None, None)),
    (letter({"source_attempts": "4"}), NOTHING),
    # --- kafkajs-async-retry ---
    (letter({"asyncRetry": '{"ttl":1,"top":"orders","att":2}'}), (*ERROR, 3, None)),
    (letter({"asyncRetry": '{"ttl":1,"top":"orders","att":1}'}, "billing-retry-5s"), ("unknown", "none", None, None, None)),
    (letter({"asyncRetry": "["}), NOTHING),
    # --- What others write, on any broker ---
    (letter({"original-topic": "orders", "error-type": "UnicodeDecodeError", "error-message": "bad byte"}),
     (*UNREADABLE, None, "UnicodeDecodeError")),
    (letter({"original-topic": "orders", "x-error": "SyntaxError: Unexpected end of JSON input"}),
     (*UNREADABLE, None, "SyntaxError")),
    (letter({"reason_poisoned": "no such account", "topic_poisoned": "orders"}),
     ("application_error", "framework", "orders", None, None)),
    (letter({"x-error": "no such account"}), ("application_error", "framework", None, None, None)),
    (letter({"original-topic": "orders", "error": "no such account"}), (*ERROR, None, None)),
    (letter({"original-topic": "orders", "delivery-count": "10"}), (*UNKNOWN, None, None)),
    (letter({"error": "no such account"}), NOTHING),
    (letter({"dlq.timestamp": "2026-11-02"}), NOTHING),
    # --- The newest of several sets ---
    (letter({**spring(), **connect()}), (*ERROR, None, DATA)),
    (letter({**connect("VALUE_CONVERTER"), **spring()}), (*ERROR, None, STATE)),
    (letter({**spring(wrapper=UNREAD), **retryable()}), (*ERROR, 3, STATE)),
    (letter({**spring(), **placed("__dlq.errors.")}), (*UNKNOWN, None, None)),
    (letter({"x-error-code": "5", **spring()}), (*ERROR, None, STATE)),
]  # fmt: skip


@each_row(("dead", "expected"), TABLE)
def test_each_set_of_headers_has_its_verdict(judge: Any, dead: Record, expected: Verdict) -> None:
    [row] = judge(dead)
    said = tuple(row[name] for name in ("cause", "mechanism", "origin", "attempts", "exception_class"))
    assert said == expected
    assert row["origin_kind"] == ("topic" if row["origin"] else None)


@pytest.mark.parametrize(("headers", "proof"), [
    (spring(wrapper=UNREAD), "proven"),
    (spring(wrapper=SERIALIZATION, cause=None, **{"kafka_dlt-exception-message": "Can't deserialize"}), "proven"),
    (spring(cause=CONVERSION), "likely"),
    ({"original-topic": "orders", "error-type": "UnicodeDecodeError", "error-message": "bad byte"}, "likely"),
])  # fmt: skip
def test_what_a_listener_may_have_read_by_itself_is_likely(judge: Any, headers: Any, proof: str) -> None:
    [row] = judge(letter(headers))
    assert (row["cause"], row["proof"]) == ("unreadable", proof)


PLACE = {"x-original-topic": "orders", "x-original-partition": "0", "x-original-offset": "41"}
CLOCKS = {"x-dlq-duplicate-incoming-clock": "3", "x-dlq-duplicate-last-processed-clock": "5"}
BY_WORD: list[tuple[dict[str, str], tuple[str, str, str | None]]] = [
    ({**PLACE, "x-dlq-reason": "deserialization"}, ("unreadable", "parked-unread", "orders")),
    ({**PLACE, "x-dlq-reason": "no stock"}, ("application_error", "parked-by-hand", "orders")),
    ({**PLACE, **CLOCKS, "x-dlq-reason": "lamport-clock-duplicate"}, ("suppressed_duplicate", "clock-duplicate", "orders")),
    (CLOCKS, ("unknown", "unknown", None)),
]  # fmt: skip


@each_row(("headers", "expected"), BY_WORD)
def test_a_word_for_what_was_not_read_or_was_seen_before_is_a_cause(
    judge: Any, headers: dict[str, str], expected: tuple[str, str, str | None]
) -> None:
    [row] = judge(letter(headers))
    assert (row["cause"], row["rule"], row["origin"]) == expected


def test_the_evidence_says_partition_offset_and_group_too(judge: Any) -> None:
    of_group = letter(spring(**{"kafka_dlt-original-consumer-group": "billing"}))
    [mine, other, alone] = judge(of_group, letter(shared(REJECTED)), letter({"OriginalTopic": "orders"}))
    place = "orders, partition 0, offset 41, group billing"
    assert mine["evidence"] == f"{place}: kafka_dlt-exception-message: Listener failed; no"
    assert other["evidence"] == f"{place}: {REJECTED}"
    assert alone["evidence"] == "orders"
    [row] = judge(letter(spring() | {"kafka_dlt-original-offset": "\x00\ufffd"}))
    assert str(row["evidence"]).startswith("orders, partition 0: kafka_dlt-exception-message"), "no offset"


def test_letters_that_no_converter_takes_are_one_failure_whatever_is_in_them(judge: Any) -> None:
    traces = (CONVERSION_TRACE, CONVERSION_TRACE.replace("payload=7", "payload=eight"))
    one, other = judge(*(letter(spring(**{"kafka_dlt-exception-stacktrace": trace})) for trace in traces))
    assert one["exception_message"] == "Cannot convert from [java.lang.Integer] to [java.util.UUID]"
    assert one["fingerprint"] == other["fingerprint"]


def test_class_and_message_are_those_of_the_root_cause(judge: Any) -> None:
    traced, told = judge(letter(spring(**{"kafka_dlt-exception-stacktrace": TRACE})), letter(spring()))
    assert (traced["exception_class"], traced["exception_message"]) == (STATE, "no such account")
    assert (told["exception_class"], told["exception_message"]) == (STATE, "Listener failed; no")
    assert traced["exception_family"] == told["exception_family"] == "bug"
    cut = {"kafka_dlt-exception-stacktrace": f"{WRAPPER}: ...\nCaused by: {STATE}: \u2026 66 more"}
    [row] = judge(letter(spring(**cut, **{"kafka_dlt-exception-message": "no such account"})))
    assert (row["exception_class"], row["exception_message"]) == (STATE, "no such account")
