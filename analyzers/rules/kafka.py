"""Kafka: a dead letter is a record that somebody has put into another topic; its headers say who, and why.

The broker itself writes only those of share groups (KIP-1191). Each writer has names of its own, so these
rules come before those for frameworks on any broker; which set of headers is the newest, and where the letter
was when it died, `core.kafka_headers` says. An exception without more proves no number of attempts: only what
counted them does. A letter in a retry topic is not dead. Sources are those named there, and
ShareGroupDLQStateManager and SharePartition of Kafka 4.4, Stage of Connect, RecordDeserializer of Streams.
"""

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from dlq.analyzers.rules.by_hand import READERS, hand_written_error, hand_written_unread, is_of_reader
from dlq.analyzers.rules.frameworks import READS_FOR_FUNCTION, attempts_of_binder
from dlq.analyzers.rules.letter import (
    Facts,
    Finding,
    Letter,
    Rule,
    first,
    join_all,
    once_per_letter,
    plus,
    whole,
    whole_characters,
)
from dlq.core.causes import MOVED
from dlq.core.kafka_headers import (
    BRIGHTER,
    BY_HAND,
    CONNECT,
    KARAFKA,
    KARAFKA_BEFORE,
    OF_SHARE_GROUP,
    SMALLRYE,
    SMALLRYE_RETRY,
    SPRING,
    SPRING_CLOUD_STREAM,
    SPRING_RETRY,
    STREAMS,
    TRACE_OF_BINDER,
    WOLVERINE,
    WOLVERINE_RETRY,
    Origin,
    OriginHeaders,
    died_at,
)

_REJECTED = "Offset rejected by client."
_LIMIT = "Offset delivery count exceeded the threshold."
_UNREAD = ("DeserializationException", "RecordDeserializationException")
"""Exceptions that nothing but a deserializer's failure is wrapped in. A SerializationException is none of
them: what serializes throws it, too."""
_LISTENER = "ListenerExecutionFailedException"
"""What Spring wraps all in that a listener, or what reads its arguments, throws."""
_UNCONVERTED = (
    "ConversionException: Failed to convert from JSON",
    "MessageConversionException: Cannot convert from [",
    READS_FOR_FUNCTION,
)
"""In a trace of Spring's: the listener was not called, since the record was nothing that it takes."""
_WHOLE_MESSAGE = " for GenericMessage ["
_READS_RECORDS = "RecordDeserializer.deserialize("
"""The frame of Streams that reads a record of a topic; its state stores have other ones."""
_RETRY_TOPICS = {
    re.compile(r"-retry(?:-\d+)?\Z", re.ASCII): ("retry_topic-attempts", "kafka_exception-message"),
    re.compile(r"_retry_\d+\Z", re.ASCII): ("delayed-retry-count",),
    re.compile(r"\.retry\.\d+[smh]\Z", re.ASCII): ("wolverine-kafka-retry-tier",),
    re.compile(r"-retry(?:-\d+s?)?\Z", re.ASCII): ("asyncRetry",),
}
"""What the names of a framework's retry topics end with -> its headers that are there."""


class _Framework(NamedTuple):
    """The headers in which one says what it died of; of several the first that is there counts."""

    origin: OriginHeaders
    classes: tuple[str, ...]
    messages: tuple[str, ...]
    traces: tuple[str, ...] = ()


def _spring(origin: OriginHeaders, prefix: str) -> _Framework:
    """`cause-fqcn` is the root cause's; of the others mostly a wrapper's. A key has headers of its own."""
    return _Framework(
        origin,
        (f"{prefix}exception-cause-fqcn", f"{prefix}exception-fqcn", f"{prefix}key-exception-fqcn"),
        (f"{prefix}exception-message", f"{prefix}key-exception-message"),
        (f"{prefix}exception-stacktrace", f"{prefix}key-exception-stacktrace"),
    )


def _make_smallrye(origin: OriginHeaders, prefix: str) -> _Framework:
    return _Framework(
        origin,
        (f"{prefix}-cause-class-name", f"{prefix}-exception-class-name"),
        (f"{prefix}-cause", f"{prefix}-reason"),
    )


_SPRING = _spring(SPRING, "kafka_dlt-")
_SPRING_RETRY = _spring(SPRING_RETRY, "kafka_")
_SPRING_CLOUD_STREAM = _Framework(
    SPRING_CLOUD_STREAM, ("x-exception-fqcn",), ("x-exception-message",), (TRACE_OF_BINDER,)
)
_CONNECT = _Framework(
    CONNECT,
    ("__connect.errors.exception.class.name",),
    ("__connect.errors.exception.message",),
    ("__connect.errors.exception.stacktrace",),
)
_STREAMS = _Framework(
    STREAMS, ("__streams.errors.exception",), ("__streams.errors.message",), ("__streams.errors.stacktrace",)
)
_SMALLRYE = _make_smallrye(SMALLRYE, "dead-letter")
_SMALLRYE_RETRY = _make_smallrye(SMALLRYE_RETRY, "delayed-retry")
_BY_HAND = _Framework(
    BY_HAND[0],
    ("error-type", "error-class", "exception-class", "exception-type"),
    ("error-message", "error-reason", "error", "exception-message", "exception", "dead-letter-reason"),
    ("error-stacktrace", "exception-stacktrace", "stacktrace"),
)
"""What people call them who write them themselves, beside where it was."""
_BELOW_DLQ = _Framework(
    BY_HAND[0],
    ("dlq.error.class", "dlq.error.type", "dlq.error_class", "dlq.exception.class"),
    ("dlq.error.message", "dlq.error.reason", "dlq.error_message", "dlq.error", "dlq.exception.message"),
    ("dlq.error.stacktrace", "dlq.exception.stacktrace"),
)
"""The same of those who begin all their names so, and may not say where it was."""
_WOLVERINE_RETRIED = _Framework(
    WOLVERINE_RETRY, ("exception-type",), ("exception-message",), ("exception-stack",)
)
_WOLVERINE = _Framework(WOLVERINE, ("exception-type",), ("exception-message",), ("exception-stack",))
_OF_RETRY_TOPICS = (_SPRING_RETRY, _SMALLRYE_RETRY, _SMALLRYE, _WOLVERINE_RETRIED)


@once_per_letter
def _origin(letter: Letter) -> Origin | None:
    """Where its newest headers say that it died."""
    return died_at(letter.headers, letter.dead_letter_queue)


def _died(letter: Letter, told: str | None, attempts: int | None = None) -> Finding:
    """Every finding says where it was: a verdict has room for the topic, its evidence for the rest."""
    was = _origin(letter)
    if was is None:
        return Finding(told, attempts=attempts)
    partition, offset = whole(was.partition), whole(was.offset, 64)
    parts = (
        was.topic,
        join_all("partition ", partition),
        join_all("offset ", offset),
        join_all("group ", was.group),
    )
    place = ", ".join(part for part in parts if part is not None)
    evidence = f"{place}: {told}" if told else place
    return Finding(evidence, attempts=attempts, origin=was.topic, origin_kind="topic")


def _failed(letter: Letter, framework: _Framework, attempts: int | None = None) -> Finding | None:
    """What a framework says of the exception; None where it says nothing, or another one has had it since."""
    headers, was = letter.headers, _origin(letter)
    names = (*framework.messages, *framework.classes, *framework.traces)
    told = next((f"{name}: {headers[name]}" for name in names if headers.get(name)), None)
    if told is None or (was is not None and was.told_by is not framework.origin):
        return None
    return _died(letter, told, attempts)._replace(
        error_class=_filled(headers, framework.classes),
        error_message=_filled(headers, framework.messages),
        error_text=_whole_trace(headers, framework),
        outer_error=_outer_class(headers, framework.classes),
    )


_CUT = re.compile(r"[\s.\u2026]*(?:\d{1,9} (?:more|common frames omitted)\s*)?")
"""What is left of a message that was cut away: dots, or how many frames follow."""


def _whole_trace(headers: Mapping[str, str], framework: _Framework) -> str | None:
    """The trace, unless it was cut where class and message stand, which have headers of their own: then all
    that it shows is what wraps the root cause."""
    trace = _filled(headers, framework.traces)
    root = headers.get(framework.classes[0]) if "-cause-" in framework.classes[0] else None
    if trace is None or _filled(headers, framework.classes) is None:
        return trace
    line = trace.rpartition("Caused by: ")[2].lstrip().partition("\n")[0]
    is_cut = bool(_CUT.fullmatch(line.partition(": ")[2])) and ": " in line
    return (
        None if is_cut or line.startswith(("at ", "...", "\u2026")) or (root and root not in trace) else trace
    )


def _outer_class(headers: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    """What wraps the root cause, where that has a header of its own."""
    is_told = len(names) > 1 and "cause" in names[0] and bool(headers.get(names[0]))
    return headers.get(names[1]) if is_told else None


def _filled(headers: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    """The first that holds something: an exception without a message leaves a header without a value."""
    return next((headers[name] for name in names if headers.get(name)), None)


def _unread(letter: Letter, framework: _Framework, attempts: int | None = None) -> Finding | None:
    """The same where a deserializer failed, or a converter after it."""
    trace = _filled(letter.headers, framework.traces) or ""
    names = {(letter.headers.get(name) or "").rpartition(".")[2] for name in framework.classes}
    is_unread = not names.isdisjoint(_UNREAD) or any(mark in trace for mark in _UNCONVERTED)
    if not is_unread and names.isdisjoint(READERS):
        return None
    found = _failed(letter, framework, attempts)
    if found is None or not (is_unread or is_of_reader(found)):
        return None
    if not is_unread:
        # Where nothing but a listener wraps it, that may have read something else.
        is_container = "SerializationException" in names and _LISTENER not in names
        return found._replace(also_possible=() if is_container else ("application_error",))
    # Spring tells the whole message there, which would make of each letter a failure of its own.
    return found._replace(error_text=trace.partition(_WHOLE_MESSAGE)[0] or None)


def _retry_topic(letter: Letter, _: Facts) -> Finding | None:
    """it lies in a retry topic of Spring, SmallRye or Wolverine, by its name and its headers: its consumer
    tries it again, and it is not dead"""
    for pattern, names in _RETRY_TOPICS.items():
        told = next((name for name in names if name in letter.headers), None)
        if told is not None and pattern.search(letter.dead_letter_queue):
            evidence = f"{told} {letter.headers[told]}, in a retry topic: it is tried again"
            failed = (_failed(letter, framework) for framework in _OF_RETRY_TOPICS)
            found = next((one for one in failed if one is not None), Finding(None))
            place = _died(letter, evidence)
            return found._replace(evidence=place.evidence, origin=place.origin, origin_kind=place.origin_kind)
    return None


def _find_share_group(letter: Letter, *messages: str) -> Finding | None:
    message, was = letter.headers.get("__dlq.errors.message"), _origin(letter)
    if was is None or was.told_by is not OF_SHARE_GROUP or (messages and message not in messages):
        return None
    return _died(letter, message, whole(letter.headers.get("__dlq.errors.delivery.count")))


def _share_reject(letter: Letter, _: Facts) -> Finding | None:
    """__dlq.errors.message is that of a REJECT: a member of the share group refused it (KIP-1191)"""
    return _find_share_group(letter, _REJECTED)


def _share_limit(letter: Letter, _: Facts) -> Finding | None:
    """__dlq.errors.message is that of the limit: the share group had it as often as it may
    (share.delivery.count.limit)"""
    return _find_share_group(letter, _LIMIT)


def _share_group(letter: Letter, _: Facts) -> Finding | None:
    """__dlq.errors.* with another message, or none"""
    return _find_share_group(letter)


def _retry_topic_attempts(letter: Letter) -> int | None:
    """The header counts the next attempt, which a dead letter does not have."""
    return plus(whole(letter.headers.get("retry_topic-attempts")), -1)


def _spring_retry_unread(letter: Letter, _: Facts) -> Finding | None:
    """kafka_exception-* of a DeserializationException, or of a conversion in the trace: the consumer of a
    @RetryableTopic could not read it (ErrorHandlingDeserializer, PayloadMethodArgumentResolver)"""
    return _unread(letter, _SPRING_RETRY, _retry_topic_attempts(letter))


def _spring_retry(letter: Letter, _: Facts) -> Finding | None:
    """kafka_exception-* with retry_topic-attempts: a @RetryableTopic gave up
    (DeadLetterPublishingRecovererFactory)"""
    return _failed(letter, _SPRING_RETRY, _retry_topic_attempts(letter))


def _delivery_attempt(letter: Letter) -> int | None:
    """There where the container is told to count (deliveryAttemptHeader)."""
    return whole(letter.headers.get("kafka_deliveryAttempt"))


def _spring_unread(letter: Letter, _: Facts) -> Finding | None:
    """kafka_dlt-exception-* or kafka_dlt-key-exception-* of a DeserializationException, or of a conversion in
    the trace (ErrorHandlingDeserializer, PayloadMethodArgumentResolver)"""
    return _unread(letter, _SPRING, _delivery_attempt(letter))


def _spring_recoverer(letter: Letter, _: Facts) -> Finding | None:
    """kafka_dlt-exception-*: Spring's error handler gave up (DeadLetterPublishingRecoverer); how often it had
    tried only kafka_deliveryAttempt says"""
    return _failed(letter, _SPRING, _delivery_attempt(letter))


def _stage(letter: Letter) -> str:
    return letter.headers.get("__connect.errors.stage") or ""


def _connect_converter(letter: Letter, _: Facts) -> Finding | None:
    """__connect.errors.stage is KEY_CONVERTER, VALUE_CONVERTER or HEADER_CONVERTER: Connect could not read
    it"""
    return _failed(letter, _CONNECT) if _stage(letter).endswith("_CONVERTER") else None


def _connect(letter: Letter, _: Facts) -> Finding | None:
    """__connect.errors.exception.*: a transformation or the sink refused it (DeadLetterQueueReporter)"""
    return _failed(letter, _CONNECT)


def _streams_unread(letter: Letter, _: Facts) -> Finding | None:
    """__streams.errors.stacktrace shows RecordDeserializer: Streams could not read it (KIP-1034)"""
    trace = letter.headers.get("__streams.errors.stacktrace") or ""
    return _failed(letter, _STREAMS) if _READS_RECORDS in trace else _unread(letter, _STREAMS)


def _streams(letter: Letter, _: Facts) -> Finding | None:
    """__streams.errors.exception: a processor or a producer of Streams failed (ExceptionHandlerUtils)"""
    return _failed(letter, _STREAMS)


def _delayed_retries(letter: Letter) -> int | None:
    return plus(whole(letter.headers.get("delayed-retry-count")), 1)


def _smallrye_unread(letter: Letter, _: Facts) -> Finding | None:
    """dead-letter-* or delayed-retry-* with deserialization-failure-*: SmallRye could not read it
    (DeserializationFailureHandler)"""
    headers = letter.headers
    reason = first(headers, "deserialization-failure-reason", "deserialization-failure-deserializer")
    for framework in (_SMALLRYE, _SMALLRYE_RETRY):
        find = _unread if reason is None else _failed
        if found := find(letter, framework, _delayed_retries(letter)):
            return found
    return None


def _smallrye(letter: Letter, _: Facts) -> Finding | None:
    """dead-letter-exception-class-name, or dead-letter-reason: nacked (SmallRye's KafkaDeadLetterQueue)"""
    return _failed(letter, _SMALLRYE, _delayed_retries(letter))


def _smallrye_retry(letter: Letter, _: Facts) -> Finding | None:
    """delayed-retry-exception-class-name: nacked after all delayed retries (SmallRye's
    KafkaDelayedRetryTopic)"""
    return _failed(letter, _SMALLRYE_RETRY, _delayed_retries(letter))


def _spring_binder_unread(letter: Letter, _: Facts) -> Finding | None:
    """x-original-topic with x-exception-fqcn of a DeserializationException, or a conversion in the trace"""
    return (
        _unread(letter, _SPRING_CLOUD_STREAM, attempts_of_binder(letter)) if _is_of_binder(letter) else None
    )


def _spring_binder(letter: Letter, _: Facts) -> Finding | None:
    """x-original-topic with x-exception-fqcn or x-exception-stacktrace (Spring Cloud Stream's
    KafkaMessageChannelBinder); how often it had tried deliveryAttempt in the trace says"""
    is_told = _is_of_binder(letter)
    return _failed(letter, _SPRING_CLOUD_STREAM, attempts_of_binder(letter)) if is_told else None


def _is_of_binder(letter: Letter) -> bool:
    headers = letter.headers
    failed = first(headers, "x-exception-fqcn", TRACE_OF_BINDER)
    return None not in (headers.get("x-original-topic"), failed)


def _requeued(letter: Letter) -> int | None:
    return plus(whole(letter.headers.get("HandledCount")), 1)


def _rejection(letter: Letter, *reasons: str) -> Finding | None:
    headers, reason = letter.headers, letter.headers.get("RejectionReason")
    if headers.get(BRIGHTER.topic) is None or reason not in reasons:
        return None
    message = headers.get("RejectionMessage")
    told = f"RejectionReason: {reason}, {message}" if message else f"RejectionReason: {reason}"
    return _died(letter, told, _requeued(letter))._replace(error_message=message)


def _brighter_unacceptable(letter: Letter, _: Facts) -> Finding | None:
    """OriginalTopic with RejectionReason Unacceptable: Brighter could make no message of it
    (KafkaMessageConsumer)"""
    return _rejection(letter, "Unacceptable")


def _brighter_error(letter: Letter, _: Facts) -> Finding | None:
    """OriginalTopic with RejectionReason DeliveryError: its handler gave up, or was asked often enough"""
    return _rejection(letter, "DeliveryError")


def _wolverine_topic(letter: Letter, _: Facts) -> Finding | None:
    """exception-type with exception-message and failed-at (Wolverine's DeadLetterQueueConstants)"""
    headers, was = letter.headers, _origin(letter)
    named = (headers.get("exception-type"), headers.get("exception-message"), headers.get("failed-at"))
    if None in named or (was is not None and was.told_by not in (WOLVERINE, WOLVERINE_RETRY)):
        return None
    attempts = whole(first(headers, "wolverine-kafka-retry-attempt", "attempts"))
    framework = _WOLVERINE if was is None else _WOLVERINE._replace(origin=was.told_by)
    return _failed(letter, framework, attempts)


def _karafka(letter: Letter, _: Facts) -> Finding | None:
    """source_attempts above 1 with source_topic: Karafka Pro gave up after so many (strategies/dlq); 1 may
    also be a dispatch by hand"""
    was = _origin(letter)
    if was is None or was.told_by not in (KARAFKA, KARAFKA_BEFORE):
        return None
    attempts = whole(first(letter.headers, "source_attempts", "original_attempts"))
    return None if (attempts or 0) <= 1 else _died(letter, f"{attempts} attempts", attempts)


def _clock_duplicate(letter: Letter, _: Facts) -> Finding | None:
    """x-dlq-reason lamport-clock-duplicate: the client library had seen a later clock, and did not call the
    handler (kafka-client's deduplication)"""
    headers = letter.headers
    if headers.get("x-dlq-reason") != "lamport-clock-duplicate":
        return None
    clocks = (headers.get(f"x-dlq-duplicate-{which}-clock") for which in ("incoming", "last-processed"))
    return _died(
        letter, join_all("lamport-clock-duplicate: ", " after ".join(clock or "?" for clock in clocks))
    )


def _async_retry(letter: Letter, _: Facts) -> Finding | None:
    """asyncRetry with top and att: a handler failed as often as it may, or for good (kafkajs-async-retry);
    no exception is kept"""
    try:
        told = json.loads(letter.headers.get("asyncRetry") or "null")
    except (ValueError, RecursionError):
        return None
    topic, before = (told.get("top"), told.get("att")) if isinstance(told, dict) else (None, None)
    if not isinstance(topic, str) or not topic or type(before) is not int:
        return None
    evidence = f"asyncRetry: {before} attempts before the last, {whole_characters(topic)}"
    return Finding(evidence, attempts=before + 1, origin=whole_characters(topic), origin_kind="topic")


def _parked_unread(letter: Letter, facts: Facts) -> Finding | None:
    """the same as parked-by-hand, and the reason is a word for a body that was not read (deserialization), or
    the error a reader's (UnicodeDecodeError, SyntaxError of JSON)"""
    found = _parked_by_hand(letter, facts)
    if found is None or (hand_written_unread(letter, facts) is None and not is_of_reader(found)):
        return None
    return found._replace(also_possible=None)


def _parked_by_hand(letter: Letter, facts: Facts) -> Finding | None:
    """an error in an application's own headers: dlq.error*, or beside original-topic and the like x-error*,
    error-message, dead-letter-reason, …"""
    was = _origin(letter)
    if was is None:
        return _failed(letter, _BELOW_DLQ)
    found = hand_written_error(letter, facts)
    if found is not None:
        place = _died(letter, found.evidence)
        return found._replace(evidence=place.evidence, origin=place.origin, origin_kind="topic")
    own = (_BELOW_DLQ, _BY_HAND) if was.told_by in BY_HAND else ()
    failures = (_failed(letter, names._replace(origin=was.told_by)) for names in own)
    return next((failure for failure in failures if failure is not None), None)


def _origin_alone(letter: Letter, _: Facts) -> Finding | None:
    """headers say where it came from, and nothing says why"""
    return None if _origin(letter) is None else _died(letter, None)


FIRST: tuple[Rule, ...] = (
    Rule(_retry_topic, "unknown", "none"),
    Rule(_share_reject, "poison_ack", "reject"),
    Rule(_share_limit, "redelivery_exhausted", "delivery_limit"),
    Rule(_share_group, "unknown", "none"),
    Rule(_spring_retry_unread, "unreadable", "deserialization"),
    Rule(_spring_retry, "application_error", "framework"),
    Rule(_spring_unread, "unreadable", "deserialization"),
    Rule(_spring_recoverer, "application_error", "framework"),
    Rule(_connect_converter, "unreadable", "deserialization"),
    Rule(_connect, "application_error", "framework"),
    Rule(_streams_unread, "unreadable", "deserialization"),
    Rule(_streams, "application_error", "framework"),
    Rule(_smallrye_unread, "unreadable", "deserialization"),
    Rule(_smallrye, "application_error", "framework"),
    Rule(_smallrye_retry, "application_error", "framework"),
    Rule(_spring_binder_unread, "unreadable", "deserialization"),
    Rule(_spring_binder, "application_error", "framework"),
    Rule(_brighter_unacceptable, "poison_ack", "framework"),
    Rule(_brighter_error, "application_error", "framework"),
    Rule(_wolverine_topic, "application_error", "framework"),
    Rule(_karafka, "redelivery_exhausted", "framework"),
    Rule(_async_retry, "application_error", "framework"),
    Rule(_clock_duplicate, "suppressed_duplicate", "audit"),
    Rule(_parked_unread, "unreadable", "deserialization", ("application_error", "poison_ack", MOVED)),
    Rule(_parked_by_hand, "application_error", "framework"),
)

RULES: tuple[Rule, ...] = (Rule(_origin_alone, "unknown", "none"),)
