"""Where a dead letter of Kafka came from is told by the newest headers that a framework has left."""

import time
from collections.abc import Mapping

from support.rows import each_row

from dlq.core.headers.kafka_headers import BINARY_NUMBERS, FIRST_IS_NEWEST, died_at

Place = tuple[str, str | None, str | None, str | None]


def placed(prefix: str, topic: str = "orders") -> dict[str, str]:
    return {f"{prefix}topic": topic, f"{prefix}partition": "3", f"{prefix}offset": "41"}


SPRING = placed("kafka_dlt-original-")
SPRING_RETRY = placed("kafka_original-")
CONNECT = placed("__connect.errors.", "orders-dlt")
GROUP = {"kafka_dlt-original-consumer-group": "billing"}
TOLD: list[tuple[Mapping[str, str], Place | None]] = [
    ({}, None),
    ({**SPRING, **GROUP}, ("orders", "3", "41", "billing")),
    (SPRING, ("orders", "3", "41", None)),
    # Without the topic nothing can be found there.
    ({"kafka_dlt-original-offset": "41"}, None),
    (placed("__streams.errors."), ("orders", "3", "41", None)),
    (placed("dead-letter-"), ("orders", "3", "41", None)),
    ({**placed("source_"), "source_consumer_group": "billing"}, ("orders", "3", "41", "billing")),
    (placed("original-"), ("orders", "3", "41", None)),
    (placed("dlq.source."), ("orders", "3", "41", None)),
    (placed("dlq-original."), ("orders", "3", "41", None)),
    # Without the word for the dead it is a business' own.
    (placed("source-"), None),
    ({"OriginalTopic": "orders"}, ("orders", None, None, None)),
    ({"original-destination": "kafka://topic/orders.retry.5s", "wolverine-kafka-retry-source": "orders"},
     ("orders", None, None, None)),
    # A sink connector read Spring's dead letters, and then Spring a message that a connector had had.
    ({**SPRING, **CONNECT}, ("orders-dlt", "3", "41", None)),
    ({**SPRING_RETRY, **SPRING}, ("orders", "3", "41", None)),
    ({"kafka_dlt-original-topic": ""}, None),
    ({"original-destination": "kafka://topic/"}, None),
    # Somebody names the topic that it lies in.
    ({"dead-letter-topic": "orders.dlq"}, None),
]  # fmt: skip


@each_row(("headers", "expected"), TOLD)
def test_the_newest_headers_say_where_it_was(headers: Mapping[str, str], expected: Place | None) -> None:
    found = died_at(headers, "orders.dlq")
    assert (found and found[1:]) == expected


GROUPS: list[tuple[str, str, str | None]] = [
    ("error.orders.billing", "", "billing"),
    ("error.orders.", "", None),
    ("error.stock.billing", "", None),
    ("error.orders.named", "M: no, x=G [headers={a=1, kafka_groupId=billing, b=2}]\n\tat x\nCaused by: M",
     "billing"),
    ("error.orders.named", "M: {kafka_groupId=billing}\nCaused by: M: {kafka_groupId=billing}", "billing"),
    ("error.orders.named", "M: {x_kafka_groupId=mine, kafka_groupId=billing}", "billing"),
    # An application's header says another.
    ("error.orders.named", "M: {tenant=kafka_groupId=evil, kafka_groupId=billing}", "named"),
    # Cut off: that may be a part of it.
    ("error.orders.named", "M: {kafka_groupId=bil", "named"),
    ("error.orders.named", "M: no", "named"),
]  # fmt: skip


@each_row(("topic", "trace", "group"), GROUPS)
def test_spring_cloud_stream_names_the_group(topic: str, trace: str, group: str | None) -> None:
    found = died_at({**placed("x-original-"), **({"x-exception-stacktrace": trace} if trace else {})}, topic)
    assert found is not None
    assert found.group == group


def test_a_trace_that_names_groups_without_an_end_holds_up_nobody() -> None:
    trace, began = "kafka_groupId=" * 10_000, time.process_time()
    found = died_at({"x-original-topic": "orders", "x-exception-stacktrace": trace}, "error.orders.billing")
    assert (found and found.group) == "billing"
    assert time.process_time() - began < 2


def test_of_repeated_headers_only_those_of_smallrye_have_the_newest_first() -> None:
    first = ("dead-letter-topic", "dead-letter-cause", "delayed-retry-cause-class-name")
    last = ("delayed-retry-topic", "delayed-retry-count", "kafka_dlt-original-topic")
    assert all(name.startswith(FIRST_IS_NEWEST) for name in first)
    assert not any(name.startswith(FIRST_IS_NEWEST) for name in last)
    of_spring = {"kafka_dlt-original-offset", "x-original-partition", "retry_topic-attempts"}
    assert BINARY_NUMBERS.keys() >= of_spring, "numbers of Spring are bytes, those of others are text"
    assert not any(name.startswith(("__", "dead-letter", "source_")) for name in BINARY_NUMBERS)
