"""What hands leave on a letter when they park it, under names of their own (`dlq.core.failure_headers`)."""

import re
from collections.abc import Mapping, Sequence

from dlq.analyzers.rules.frameworks import parked_finding
from dlq.analyzers.rules.letter import Facts, Finding, Letter, Rule, first, join_all, once_per_letter
from dlq.core.causes import MOVED
from dlq.core.failure_headers import CLASSES, MESSAGES, STACKS, HandWritten, by_hand, is_of_a_program

_UNREAD_WORD = re.compile(
    r"(?:\A|[-_.])(?:deseriali[sz]\w*|unmarshal\w*|malformed|unpars\w*|pars(?:e|er|ing)|undecodable|decod(?:e|ing)"
    r"|(?:invalid|bad|not|no)[-_.]?(?:json|xml|avro|protobuf))(?:\Z|[-_.])",
    re.ASCII | re.IGNORECASE,
)
"""In the word, or the code, that a hand writes for the reason: the body was not read."""
_MOST_OF_A_WORD = 60


@once_per_letter
def _written_by_hand(letter: Letter) -> HandWritten | None:
    """What hands wrote of a failure; RocketMQ's users write properties."""
    return by_hand(letter.properties if letter.broker_kind == "rocketmq" else letter.headers)


def _of_parts(failure: HandWritten, parts: Sequence[str]) -> str | None:
    return next((value for part in parts if (value := failure.errors.get(part, ("", ""))[1])), None)


def _error_text(failure: HandWritten) -> str | None:
    """The text that class and message are read from. A reason beside a message is the exception's class, or
    another word for it."""
    trace, whole_text = _of_parts(failure, STACKS), _of_parts(failure, ("",))
    reason, message = _of_parts(failure, ("reason",)), _of_parts(failure, ("message",))
    if trace or whole_text or not reason or not message:
        return trace or whole_text
    return f"{reason}: {message}"


def _origin_by_hand(letter: Letter, places: Mapping[str, str]) -> str | None:
    queue = places.get("queue") or places.get("address") or first(letter.headers, "x-error-queue")
    if queue is None and not letter.deaths:
        queue = letter.headers.get("x-first-death-queue")
    return queue or (letter.origin if letter.broker_kind in ("activemq", "artemis") else None)


def _class_as_reason(failure: HandWritten) -> str | None:
    """A reason beside a text may be the class of the exception: ValueError."""
    reason = _of_parts(failure, ("reason",))
    return reason if reason and _of_parts(failure, ("",)) and is_of_a_program(reason) else None


def _thrown(text: str | None) -> tuple[str | None, str | None]:
    """Class and message of `com.shop.Declined: no money`, whatever the class ends with; else None and the
    text."""
    name, colon, message = (text or "").partition(": ")
    return (name, message) if colon and is_of_a_program(name) else (None, text)


def _hand_written(letter: Letter, failure: HandWritten) -> Finding:
    name, value = next(iter(failure.errors.values()))
    topic = failure.origins.get("topic") or failure.origins.get("channel")
    of_class = _of_parts(failure, CLASSES) or _class_as_reason(failure)
    told = _of_parts(failure, ("",) if _class_as_reason(failure) else (*MESSAGES, ""))
    thrown, message = (None, told) if of_class else _thrown(told)
    found = parked_finding(
        letter,
        join_all(name, ": ", value),
        attempts=failure.counted.attempts if failure.counted else None,
        origin=_origin_by_hand(letter, failure.origins) or topic,
        error_class=of_class or thrown,
        error_message=message,
        error_text=_error_text(failure),
    )
    return found._replace(origin_kind="topic") if topic and found.origin == topic else found


def _is_unread_word(text: str) -> bool:
    return len(text) <= _MOST_OF_A_WORD and " " not in text and bool(_UNREAD_WORD.search(text))


def hand_written_unread(letter: Letter, facts: Facts) -> Finding | None:
    """the same, and the reason is a word for it: malformed-json, deserialization, PARSE_ERROR; an exception's
    class is none, since listeners parse texts by themselves"""
    failure = _written_by_hand(letter)
    told = [value for _, value in failure.errors.values()] if failure else []
    if not any(_is_unread_word(value) and not is_of_a_program(value) for value in told):
        return None
    found = hand_written_error(letter, facts)
    return found and found._replace(also_possible=None)


def hand_written_error(letter: Letter, _: Facts) -> Finding | None:
    """any x-exception*, x-error* or x-death-reason header, or one like x-last-error, dlq-reason; of names
    that a business may use, too (errorMessage), two, or an exception's class or stack, which prove it"""
    failure = _written_by_hand(letter)
    if failure is None or not failure.errors:
        return None
    return _hand_written(letter, failure)._replace(also_possible=() if failure.is_proven else None)


def _hand_written_retries(letter: Letter, _: Facts) -> Finding | None:
    """a count of retries or attempts above 0 beside where it came from (x-original-queue, …), and no death
    since: the application gave up and parked it"""
    failure = _written_by_hand(letter)
    if failure is None or failure.errors or failure.counted is None or letter.deaths:
        return None
    origin = failure.origins.get("queue")
    return parked_finding(letter, str(failure.counted), attempts=failure.counted.attempts, origin=origin)


RULES: tuple[Rule, ...] = (
    Rule(hand_written_unread, "unreadable", "deserialization", ("application_error", "poison_ack", MOVED)),
    Rule(hand_written_error, "application_error", "framework", ("poison_ack", MOVED)),
    Rule(_hand_written_retries, "application_error", "framework", ("poison_ack", MOVED)),
)
