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

from dlq.analyzers.rules.custom_headers import READERS, hand_written_error, hand_written_unread, is_of_reader
from dlq.analyzers.rules.frameworks import is_told, is_unread, outer_class, quote_first, read_count, rules_of
from dlq.analyzers.rules.letter import (
    Facts,
    Finding,
    Letter,
    Rule,
    join_all,
    once_per_letter,
    whole,
    whole_characters,
)
from dlq.core.causes import MOVED
from dlq.core.headers import frameworks as rows
from dlq.core.headers.frameworks import Framework
from dlq.core.headers.kafka_headers import OF_SHARE_GROUP, Origin, died_at

_REJECTED = "Offset rejected by client."
_LIMIT = "Offset delivery count exceeded the threshold."
_UNREAD = ("DeserializationException", "RecordDeserializationException")
"""Exceptions that nothing but a deserializer's failure is wrapped in. A SerializationException is none of
them: what serializes throws it, too."""
_LISTENER = "ListenerExecutionFailedException"
"""What Spring wraps all in that a listener, or what reads its arguments, throws."""
_WHOLE_MESSAGE = " for GenericMessage ["
_RETRY_TOPICS = {
    re.compile(r"-retry(?:-\d+)?\Z", re.ASCII): ("retry_topic-attempts", "kafka_exception-message"),
    re.compile(r"_retry_\d+\Z", re.ASCII): ("delayed-retry-count",),
    re.compile(r"\.retry\.\d+[smh]\Z", re.ASCII): ("wolverine-kafka-retry-tier",),
    re.compile(r"-retry(?:-\d+s?)?\Z", re.ASCII): ("asyncRetry",),
}
"""What the names of a framework's retry topics end with -> its headers that are there."""
_OF_RETRY_TOPICS = (rows.SPRING_RETRY, rows.SMALLRYE_RETRY, rows.SMALLRYE, rows.WOLVERINE)


@once_per_letter
def _origin(letter: Letter) -> Origin | None:
    """Return where its newest headers say that it died."""
    return died_at(letter.headers, letter.dead_letter_queue)


def _report(letter: Letter, told: str | None, attempts: int | None = None) -> Finding:
    """Return a finding with where it was: a verdict has room for the topic, its evidence for the rest."""
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


def _read_failure(letter: Letter, row: Framework) -> Finding | None:
    """Return what a framework says of the exception; None: nothing, or another one has had it since."""
    headers = letter.headers
    told = quote_first(headers, row.evidence) if is_told(headers, row) else None
    was = _origin(letter)
    if told is None or (was is not None and was.told_by not in row.places):
        return None
    return _report(letter, told, read_count(headers, row.attempts))._replace(
        error_class=row.classes.read(headers),
        error_message=row.messages.read(headers),
        error_text=_whole_trace(headers, row),
        outer_error=outer_class(headers, row.classes),
    )


_CUT = re.compile(r"[\s.\u2026]*(?:\d{1,9} (?:more|common frames omitted)\s*)?")
"""What is left of a message that was cut away: dots, or how many frames follow."""


def _whole_trace(headers: Mapping[str, str], row: Framework) -> str | None:
    """Return the trace, unless it was cut where class and message stand, which have headers of their own:
    then all that it shows is what wraps the root cause."""
    trace, names = row.stacks.read(headers), row.classes.names
    root = headers.get(names[0]) if "-cause-" in names[0] else None
    if trace is None or row.classes.read(headers) is None:
        return trace
    line = trace.rpartition("Caused by: ")[2].lstrip().partition("\n")[0]
    is_cut = bool(_CUT.fullmatch(line.partition(": ")[2])) and ": " in line
    return (
        None if is_cut or line.startswith(("at ", "...", "\u2026")) or (root and root not in trace) else trace
    )


def _read_unread(letter: Letter, row: Framework) -> Finding | None:
    """Return the same where a deserializer failed, or a converter after it, by the exception or the row."""
    headers = letter.headers
    if not is_told(headers, row):
        return None
    names = {(headers.get(name) or "").rpartition(".")[2] for name in row.classes.names}
    is_sure = not names.isdisjoint(_UNREAD) or is_unread(headers, row)
    if not is_sure and names.isdisjoint(READERS):
        return None
    found = _read_failure(letter, row)
    if found is None or not (is_sure or is_of_reader(found)):
        return None
    if not is_sure:
        # Where nothing but a listener wraps it, that may have read something else.
        is_container = "SerializationException" in names and _LISTENER not in names
        return found._replace(also_possible=() if is_container else ("application_error",))
    # Spring tells the whole message there, which would make of each letter a failure of its own.
    return found._replace(error_text=(row.stacks.read(headers) or "").partition(_WHOLE_MESSAGE)[0] or None)


def _retry_topic(letter: Letter, _: Facts) -> Finding | None:
    """it lies in a retry topic of Spring, SmallRye or Wolverine, by its name and its headers: its consumer
    tries it again, and it is not dead"""
    for pattern, names in _RETRY_TOPICS.items():
        told = next((name for name in names if name in letter.headers), None)
        if told is not None and pattern.search(letter.dead_letter_queue):
            evidence = f"{told} {letter.headers[told]}, in a retry topic: it is tried again"
            failed = (_read_failure(letter, row) for row in _OF_RETRY_TOPICS)
            found = next((one for one in failed if one is not None), Finding(None))
            place = _report(letter, evidence)
            return found._replace(
                evidence=place.evidence, attempts=None, origin=place.origin, origin_kind=place.origin_kind
            )
    return None


def _find_share_group(letter: Letter, *messages: str) -> Finding | None:
    message, was = letter.headers.get("__dlq.errors.message"), _origin(letter)
    if was is None or was.told_by is not OF_SHARE_GROUP or (messages and message not in messages):
        return None
    return _report(letter, message, whole(letter.headers.get("__dlq.errors.delivery.count")))


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


def _smallrye_unread(letter: Letter, _: Facts) -> Finding | None:
    """dead-letter-* or delayed-retry-* with deserialization-failure-*: SmallRye could not read it
    (DeserializationFailureHandler)"""
    return _read_unread(letter, rows.SMALLRYE) or _read_unread(letter, rows.SMALLRYE_RETRY)


def _rejection(letter: Letter, *reasons: str) -> Finding | None:
    headers, reason = letter.headers, letter.headers.get("RejectionReason")
    if headers.get("OriginalTopic") is None or reason not in reasons:
        return None
    message = headers.get("RejectionMessage")
    told = f"RejectionReason: {reason}, {message}" if message else f"RejectionReason: {reason}"
    return _report(letter, told, read_count(headers, rows.BRIGHTER.attempts))._replace(error_message=message)


def _brighter_unacceptable(letter: Letter, _: Facts) -> Finding | None:
    """OriginalTopic with RejectionReason Unacceptable: Brighter could make no message of it
    (KafkaMessageConsumer)"""
    return _rejection(letter, "Unacceptable")


def _brighter_error(letter: Letter, _: Facts) -> Finding | None:
    """OriginalTopic with RejectionReason DeliveryError: its handler gave up, or was asked often enough"""
    return _rejection(letter, "DeliveryError")


def _wolverine_topic(letter: Letter, _: Facts) -> Finding | None:
    """exception-type with exception-message and failed-at (Wolverine's DeadLetterQueueConstants)"""
    return _read_failure(letter, rows.WOLVERINE) if letter.headers.get("failed-at") is not None else None


def _karafka(letter: Letter, _: Facts) -> Finding | None:
    """source_attempts above 1 with source_topic: Karafka Pro gave up after so many (strategies/dlq); 1 may
    also be a dispatch by hand"""
    was = _origin(letter)
    if was is None or was.told_by not in rows.KARAFKA.places:
        return None
    attempts = read_count(letter.headers, rows.KARAFKA.attempts)
    return None if (attempts or 0) <= 1 else _report(letter, f"{attempts} attempts", attempts)


def _clock_duplicate(letter: Letter, _: Facts) -> Finding | None:
    """x-dlq-reason lamport-clock-duplicate: the client library had seen a later clock, and did not call the
    handler (kafka-client's deduplication)"""
    headers = letter.headers
    if headers.get("x-dlq-reason") != "lamport-clock-duplicate":
        return None
    clocks = (headers.get(f"x-dlq-duplicate-{which}-clock") for which in ("incoming", "last-processed"))
    return _report(
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
        return _read_failure(letter, rows.BELOW_DLQ)
    found = hand_written_error(letter, facts)
    if found is not None:
        place = _report(letter, found.evidence)
        return found._replace(evidence=place.evidence, origin=place.origin, origin_kind="topic")
    return _read_failure(letter, rows.BELOW_DLQ) or _read_failure(letter, rows.BY_HAND)


def _origin_alone(letter: Letter, _: Facts) -> Finding | None:
    """headers say where it came from, and nothing says why"""
    return None if _origin(letter) is None else _report(letter, None)


FIRST: tuple[Rule, ...] = (
    Rule(_retry_topic, "unknown", "none"),
    Rule(_share_reject, "poison_ack", "reject"),
    Rule(_share_limit, "redelivery_exhausted", "delivery_limit"),
    Rule(_share_group, "unknown", "none"),
    *rules_of(rows.SPRING_RETRY, _read_failure, _read_unread),
    *rules_of(rows.SPRING_DLT, _read_failure, _read_unread),
    *rules_of(rows.CONNECT, _read_failure),
    *rules_of(rows.STREAMS, _read_failure, _read_unread),
    Rule(_smallrye_unread, "unreadable", "deserialization"),
    *rules_of(rows.SMALLRYE, _read_failure),
    *rules_of(rows.SMALLRYE_RETRY, _read_failure),
    *rules_of(rows.SPRING_BINDER, _read_failure, _read_unread),
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
