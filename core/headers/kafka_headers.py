"""The headers by which frameworks and brokers say of a Kafka record where it died.

A record holds a list of headers, in which names may repeat and values are bytes. `records` makes of it a map
of texts for the rules, in the order of the list: of what repeats the newest, and numbers that Spring writes
in binary as decimal text. Where letters are captured and where they are classified must agree on it. Sources:
DeadLetterPublishingRecoverer(Factory) of Spring, DeadLetterQueueReporter of Connect, ExceptionHandlerUtils of
Streams, KIP-1191, KafkaDeadLetterQueue and KafkaDelayedRetryTopic of SmallRye, KafkaMessageChannelBinder of
Spring Cloud Stream, Karafka's strategies/dlq, HeaderNames of Brighter, DeadLetterQueueConstants of Wolverine.
"""

import re
from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple


class OriginHeaders(NamedTuple):
    """What one framework calls the place that a letter comes from; "" where it does not say."""

    topic: str
    partition: str = ""
    offset: str = ""
    group: str = ""
    timestamp: str = ""
    keeps_time: bool = False
    """The record's own time is the original's (Connect, Streams), not that of its death."""


def _origin_headers(prefix: str, **more: Any) -> OriginHeaders:
    return OriginHeaders(f"{prefix}topic", f"{prefix}partition", f"{prefix}offset", **more)


_GROUP = "kafka_dlt-original-consumer-group"
SHARE_GROUP = "__dlq.errors."
OF_SHARE_GROUP = _origin_headers(SHARE_GROUP, group=f"{SHARE_GROUP}group")
SPRING = _origin_headers("kafka_dlt-original-", group=_GROUP, timestamp="kafka_dlt-original-timestamp")
SPRING_RETRY = _origin_headers("kafka_original-", group=_GROUP, timestamp="kafka_original-timestamp")
SPRING_CLOUD_STREAM = _origin_headers("x-original-", timestamp="x-original-timestamp")
CONNECT = _origin_headers("__connect.errors.", keeps_time=True)
STREAMS = _origin_headers("__streams.errors.", keeps_time=True)
SMALLRYE = _origin_headers("dead-letter-")
SMALLRYE_RETRY = _origin_headers("delayed-retry-")
KARAFKA = _origin_headers("source_", group="source_consumer_group")
KARAFKA_BEFORE = _origin_headers("original_", group="original_consumer_group")
"""Of its older versions."""
BRIGHTER = OriginHeaders("OriginalTopic")
WOLVERINE = OriginHeaders("original-destination", "original-partition", "original-offset")
WOLVERINE_RETRY = OriginHeaders("wolverine-kafka-retry-source")
_BELOW_DLQ = tuple(
    f"dlq{first}{word}{second}"
    for first, word, second in product(".-_", ("original", "source", "origin"), ".-_")
)
BY_HAND = tuple(map(_origin_headers, ("original-", *_BELOW_DLQ)))
"""What many write who write it themselves."""
_ORIGINS = (
    OF_SHARE_GROUP, SPRING, SPRING_RETRY, SPRING_CLOUD_STREAM, CONNECT, STREAMS, SMALLRYE, SMALLRYE_RETRY,
    KARAFKA, KARAFKA_BEFORE, BRIGHTER, WOLVERINE, WOLVERINE_RETRY, *BY_HAND,
)  # fmt: skip
_BY_TOPIC = {known.topic: known for known in _ORIGINS}
TRACE_OF_BINDER = "x-exception-stacktrace"
"""In which Spring Cloud Stream shows the message's headers, its consumer group among them."""
_GROUP_IN_TRACE = re.compile(r"\bkafka_groupId=([^,}\s]+)([,}]?)")
"""A group, and what ends it; nothing does where it is cut off. A pattern that needs an end would read one
long word anew from each name in it."""
TELL_THE_PLACE = frozenset(
    [TRACE_OF_BINDER, *(name for known in _ORIGINS for name in (known.topic, known.group))]
)
"""All that says which topic and group a letter comes from: mostly the same in each letter of a topic, while
partition, offset and time are each letter's own."""
TELL_THE_PARTITION = frozenset(name for known in _ORIGINS for name in (known.topic, known.partition))

_INTEGERS = {"original-partition": (4,), "original-offset": (8,), "original-timestamp": (8,)}
BINARY_NUMBERS: Mapping[str, tuple[int, ...]] = {
    **{
        f"{prefix}{name}": sizes
        for prefix in ("kafka_dlt-", "kafka_", "x-")
        for name, sizes in _INTEGERS.items()
    },
    "kafka_deliveryAttempt": (4,),
    "retry_topic-attempts": (1, 4),
    "retry_topic-original-timestamp": tuple(range(1, 9)),
    "retry_topic-backoff-timestamp": tuple(range(1, 9)),
}
"""Headers of Spring whose value is a signed big-endian number -> in how many bytes. The last two are Java's
BigInteger, as short as they can be; attempts were one byte once."""
FIRST_IS_NEWEST = ("dead-letter-", "delayed-retry-exception-", "delayed-retry-reason", "delayed-retry-cause")
"""SmallRye puts its own before those that were there; everybody else appends. Its delayed-retry-topic is
where the last retry was, so that of it the last is wanted, too: where it began."""


def _origin_of(headers: Mapping[str, str]) -> OriginHeaders | None:
    """Return what says where a letter died, or None: of several frameworks' headers those that stand last,
    since they append them."""
    named = [name for name in headers if name in _BY_TOPIC and headers[name]]
    return _BY_TOPIC[named[-1]] if named else None


class Origin(NamedTuple):
    """Where a letter was when it died; numbers as they stand there."""

    told_by: OriginHeaders
    topic: str
    partition: str | None
    offset: str | None
    group: str | None


def died_at(headers: Mapping[str, str], dead_letter_topic: str) -> Origin | None:
    """Return where a letter died, by the headers of whoever moved it; None where they say nothing, or name
    the topic that it lies in."""
    names = _origin_of(headers)
    if names is None:
        return None
    topic = headers[names.topic]
    if names in (WOLVERINE, WOLVERINE_RETRY):  # the first is a URI: kafka://topic/orders
        topic = (headers.get(WOLVERINE_RETRY.topic) or topic).rpartition("/")[2]
    group = headers.get(names.group)
    if names is SPRING_CLOUD_STREAM:
        trace = headers.get(TRACE_OF_BINDER) or ""
        group = _group_in(trace) or _group_of_binder(topic, dead_letter_topic)
    if topic in ("", dead_letter_topic):
        return None
    return Origin(names, topic, headers.get(names.partition), headers.get(names.offset), group)


def _group_in(trace: str) -> str | None:
    """Return the one group that a trace names: it may show the message, with anybody's headers, often."""
    named = {group for group, end in _GROUP_IN_TRACE.findall(trace) if end}
    return named.pop() if len(named) == 1 else None


def _group_of_binder(topic: str, dead_letter_topic: str) -> str | None:
    """Return the group of a binder: without a name of its own the dead-letter topic is called
    `error.<topic>.<group>`."""
    begins = f"error.{topic}."
    return dead_letter_topic.removeprefix(begins) or None if dead_letter_topic.startswith(begins) else None
