"""What hands leave on a letter when they park it, under names of their own (`failure_headers`)."""

import re
from collections.abc import Mapping, Sequence

from dlq.analyzers.rules import exceptions
from dlq.analyzers.rules.frameworks import complete_parked
from dlq.analyzers.rules.letter import (
    Facts,
    Finding,
    Letter,
    Rule,
    body_of,
    first,
    join_all,
    once_per_letter,
    text_lines,
)
from dlq.analyzers.rules.stack import TRACEBACK
from dlq.core.causes import MOVED
from dlq.core.headers.envelopes import read_envelope
from dlq.core.headers.failure_headers import CLASSES, MESSAGES, STACKS, HandWritten, by_hand, is_of_a_program

_UNREAD_WORD = re.compile(
    r"(?:\A|[-_.])(?:deseriali[sz]\w*|unmarshal\w*|malformed|unpars\w*|pars(?:e|er|ing)|undecodable|decod(?:e|ing)"
    r"|(?:invalid|bad|not|no)[-_.]?(?:json|xml|avro|protobuf))(?:\Z|[-_.])",
    re.ASCII | re.IGNORECASE,
)
"""In the word, or the code, that a hand writes for the reason: the body was not read."""
_MOST_OF_A_WORD = 60
_READERS_BY_MESSAGE = {
    "SyntaxError": re.compile(r"\bJSON\b"),
    "SerializationException": re.compile("deseriali[sz]", re.IGNORECASE),
}
"""Those that others throw, too: Node's of JSON, and Kafka's of a deserializer that is named."""
READERS = frozenset({
    "UnicodeDecodeError", "JSONDecodeError", "MessageConversionException", "MessageDeserializationException",
    *_READERS_BY_MESSAGE,
})  # fmt: skip
"""Exceptions of what reads bytes or texts: Python's, Spring's, NServiceBus'."""
_RUBY_FRAMES = re.compile(r"\A\S{1,300}\.rb:\d{1,9}:in [`']")


@once_per_letter
def _written_by_hand(letter: Letter) -> HandWritten | None:
    """Return what hands wrote of a failure; RocketMQ's users write properties."""
    return by_hand(letter.properties if letter.broker_kind == "rocketmq" else letter.headers)


def _of_parts(failure: HandWritten, parts: Sequence[str]) -> str | None:
    return next((value for part in parts if (value := failure.errors.get(part, ("", ""))[1])), None)


def _error_text(failure: HandWritten) -> str | None:
    """Return the text that class and message are read from. A reason beside a message is the exception's
    class, or another word for it."""
    trace, whole_text = _trace(failure), _of_parts(failure, ("",))
    reason, message = _of_parts(failure, ("reason",)), _of_parts(failure, ("message",))
    if trace or whole_text or not reason or not message:
        return trace or whole_text
    return f"{reason}: {message}"


def _trace(failure: HandWritten) -> str | None:
    """Return the stack. Ruby's backtrace is frames alone, and a list of them in JSON."""
    trace = _of_parts(failure, STACKS)
    if trace and trace.startswith('["'):
        trace = "\n".join(text_lines(trace)) or trace
    if not trace or not _RUBY_FRAMES.match(trace):
        return trace
    thrown = [part for part in (_of_parts(failure, CLASSES), _of_parts(failure, (*MESSAGES, ""))) if part]
    return f"{': '.join(thrown)}\n{trace}" if thrown else trace


def _origin_by_hand(letter: Letter, places: Mapping[str, str]) -> str | None:
    queue = places.get("queue") or places.get("address") or first(letter.headers, "x-error-queue")
    if queue is None and not letter.deaths:
        queue = letter.headers.get("x-first-death-queue")
    return queue or (letter.origin if letter.broker_kind in ("activemq", "artemis") else None)


def _class_as_reason(failure: HandWritten) -> str | None:
    """Return the reason beside a text where it is the class of the exception: ValueError."""
    reason = _of_parts(failure, ("reason",))
    return reason if reason and _of_parts(failure, ("",)) and is_of_a_program(reason) else None


def _split_exception(text: str | None) -> tuple[str | None, str | None]:
    """Split `com.shop.Declined: no money` into class and message, whatever the class ends with; else None and
    the text."""
    name, colon, message = (text or "").partition(": ")
    return (name, message) if colon and is_of_a_program(name) else (None, text)


def _hand_written(letter: Letter, failure: HandWritten) -> Finding:
    name, value = next(iter(failure.errors.values()))
    topic = failure.origins.get("topic") or failure.origins.get("channel")
    of_class = _of_parts(failure, CLASSES) or _class_as_reason(failure)
    told = _of_parts(failure, ("",) if _class_as_reason(failure) else (*MESSAGES, ""))
    thrown, message = (None, told) if of_class else _split_exception(told)
    found = Finding(
        join_all(name, ": ", value),
        attempts=failure.counted.attempts if failure.counted else None,
        origin=_origin_by_hand(letter, failure.origins) or topic,
        error_class=of_class or thrown,
        error_message=message,
        error_text=_error_text(failure),
    )
    found = complete_parked(letter, found)
    return found._replace(origin_kind="topic") if topic and found.origin == topic else found


def _is_unread_word(text: str) -> bool:
    return len(text) <= _MOST_OF_A_WORD and " " not in text and bool(_UNREAD_WORD.search(text))


def is_of_reader(found: Finding) -> bool:
    """Return whether its exception is that of what reads bytes, or a text, in any language."""
    texts = (found.error_class, found.error_message, found.error_text)
    if not any(text and name in text for text in texts for name in READERS):
        return False
    told = exceptions.explain(exceptions.if_class(texts[0]), *map(exceptions.if_told, texts[1:]))
    name = re.split(r"[.:\\]", told.exception_class or "")[-1]
    pattern = _READERS_BY_MESSAGE.get(name)
    return name in READERS and (pattern is None or bool(pattern.search(told.exception_message or "")))


def _is_word_for_unread(failure: HandWritten) -> bool:
    told = [value for _, value in failure.errors.values()]
    return any(_is_unread_word(value) and not is_of_a_program(value) for value in told)


def hand_written_unread(letter: Letter, facts: Facts) -> Finding | None:
    """the same, and the reason is a word for it (malformed-json, deserialization, PARSE_ERROR), or the error
    is a reader's: UnicodeDecodeError, SyntaxError of JSON, …; a listener may have read something else"""
    return _if_unread(_written_by_hand(letter), hand_written_error(letter, facts))


def _if_unread(failure: HandWritten | None, found: Finding | None) -> Finding | None:
    if failure is None or found is None or not (_is_word_for_unread(failure) or is_of_reader(found)):
        return None
    return found._replace(also_possible=None)


def hand_written_error(letter: Letter, _: Facts) -> Finding | None:
    """any x-exception*, x-error* or x-death-reason header, or one like x-last-error, dlq-reason; of names
    that a business may use, too (errorMessage), two, or an exception's class or stack, which prove it"""
    return _failed_by_hand(letter)


@once_per_letter
def _failed_by_hand(letter: Letter) -> Finding | None:
    failure = _written_by_hand(letter)
    if failure is None or not failure.errors:
        return None
    return _hand_written(letter, failure)._replace(also_possible=() if failure.is_proven else None)


def _hand_written_retries(letter: Letter, _: Facts) -> Finding | None:
    """a count of retries or attempts above 0 beside where it came from (x-original-queue, …), and no death
    since: the application gave up and parked it"""
    failure = _written_by_hand(letter)
    if failure is None or failure.errors or letter.deaths:
        return None
    return _counted_by_hand(letter, failure)


def _counted_by_hand(letter: Letter, failure: HandWritten) -> Finding | None:
    if failure.counted is None:
        return None
    origin = failure.origins.get("queue")
    found = Finding(str(failure.counted), attempts=failure.counted.attempts, origin=origin)
    return complete_parked(letter, found)


_BY_BROKERS = frozenset(
    {"x-death", "x-first-death-reason", "dlqDeliveryFailureCause", "_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE"}
)
"""Headers of letters that a broker put where they lie; what an application wraps, it sends."""
_OF_BROKERS = ("%", "RMQ_SYS_", "TRANS_CHECK_")
"""How RocketMQ's topics for such letters begin."""


@once_per_letter
def _wrapped(letter: Letter) -> HandWritten | None:
    """Return what an application wrote around a message into the body; the place that it names is another
    one."""
    is_of_broker = letter.dead_letter_queue.startswith(_OF_BROKERS) or not _BY_BROKERS.isdisjoint(
        letter.headers
    )
    found = None if is_of_broker else read_envelope(body_of(letter))
    is_here = found is not None and letter.dead_letter_queue in found.failure.origins.values()
    return found.failure if found and not is_here else None


def _enveloped_unread(letter: Letter, facts: Facts) -> Finding | None:
    """the same, and its error is a reader's (UnicodeDecodeError, SyntaxError of JSON), or a word for it"""
    return _if_unread(_wrapped(letter), _enveloped(letter, facts))


def _enveloped(letter: Letter, _: Facts) -> Finding | None:
    """an object of JSON around the message: keys of an error (error, errorMessage, exceptionClass, …) or a
    count, beside where the message came from (originalTopic, original_queue, …) or what it was"""
    return _found_in_envelope(letter)


@once_per_letter
def _found_in_envelope(letter: Letter) -> Finding | None:
    failure = _wrapped(letter)
    if failure is None:
        return None
    if not failure.errors:
        return _counted_by_hand(letter, failure)
    found = _hand_written(letter, failure)
    is_proven = failure.is_proven and bool(failure.origins)
    text = _without_module(found.error_text, found.error_class)
    return found._replace(error_text=text, also_possible=() if is_proven else None)


def _without_module(text: str | None, of_class: str | None) -> str | None:
    """Take out the module, which Python's traceback says before the envelope's class: `lab.Declined`."""
    if text is None or of_class is None or TRACEBACK not in text:
        return text
    before, line_end, last = text.rstrip().rpartition("\n")
    name, colon, message = last.partition(": ")
    return f"{before}{line_end}{of_class}{colon}{message}" if name.endswith(f".{of_class}") else text


RULES: tuple[Rule, ...] = (
    Rule(hand_written_unread, "unreadable", "deserialization", ("application_error", "poison_ack", MOVED)),
    Rule(hand_written_error, "application_error", "framework", ("poison_ack", MOVED)),
    Rule(_hand_written_retries, "application_error", "framework", ("poison_ack", MOVED)),
    Rule(_enveloped_unread, "unreadable", "deserialization", ("application_error", "poison_ack", MOVED)),
    Rule(_enveloped, "application_error", "framework", ("poison_ack", MOVED)),
)
