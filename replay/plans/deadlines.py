"""Deadlines that a letter carries itself: in headers, properties, or a body of a known form.

A broker drops what has outlived its own expiry; of these it knows nothing. It confirms such a letter, and the
consumer throws it away and acknowledges it. `dlq` changes no deadline of an application: whoever set it may
mean it.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dlq.core.clock import from_iso, to_micros
from dlq.core.record import Record

_Kind = Literal["end", "age", "start"]
"""`end`: a moment until which it is of use; `age`: how long after it was published; `start`: a moment before
which it is not handled."""

_UNIT = r"(?:ms|msec|millis|milliseconds|s|sec|secs|seconds)?"
_KINDS: Mapping[_Kind, re.Pattern[str]] = {
    "age": re.compile(
        rf"(?:max|maximum)age{_UNIT}|ttl{_UNIT}|timetolive{_UNIT}|timetobereceived|lifetime{_UNIT}"
        rf"|(?:expires|expire|expiration|valid)(?:in|after|for){_UNIT}"
    ),
    "end": re.compile(
        r"(?:expires?|expiry|expiration|deadline)(?:at|on|time|date|datetime|timestamp|epoch|ms|utc)*"
        r"|valid(?:until|to|till)|not(?:valid)?after|bestbefore|useby|retryuntil|timeoutat"
        r"|(?:do|process|handle|deliver|consume|discard|start)(?:by|before)|discard(?:at|after)"
    ),
    "start": re.compile(
        r"eta|notbefore|validfrom|timetosend|(?:delay|hold|wait)until|startdelivertime"
        r"|(?:schedule|scheduled|deliver|delivery|run|execute|visible)(?:at|for|on|time|after)"
    ),
}
_PREFIX = re.compile(r"^(?:x|ce|mt|rbs2|kafka|message|msg|task|job|event)[-_]|.*[.:$](?=.)", re.IGNORECASE)
_HINT = (
    r"expir|deadline|max_?age|ttl|time_?to_?live|until|not_?after|valid_?to|best_?before|eta\"|_by\"|before"
)
_TOGETHER = 4 * 2**20
"""Bytes of bodies that are looked through at once: by itself each costs many times as much."""
_LONGEST_NAME = 80
"""Of a longer one nobody asks what it tells, and nothing of it is remembered."""
_LARGEST_BODY = 2**20
"""A body of more bytes is not looked into."""
_INNER = ("options", "labels", "headers", "properties", "metadata", "meta")
_FORMS: Mapping[str, frozenset[str]] = {
    "Dramatiq's": frozenset({"actor_name", "message_timestamp"}),
    "Celery's": frozenset({"task", "id", "kwargs"}),
    "a cloud event's": frozenset({"specversion", "type"}),
    "MassTransit's": frozenset({"messageType", "message"}),
    "Laravel's": frozenset({"displayName", "job", "data"}),
    "Taskiq's": frozenset({"task_id", "task_name", "labels"}),
}
"""Whose consumers look at a deadline -> fields that tell their bodies from others."""
_PUBLISHED = ("message_timestamp", "time", "sentTime", "timestamp")
_NONE = "0"
"""As ActiveMQ says of what never expires, of each letter."""
_EPOCH_FROM = 10**9
"""A smaller number counts from when it was published."""
_COUNT = r"(\d{1,19})"
_SPAN = re.compile(rf"(?:{_COUNT}\.)?(\d{{1,3}}):(\d\d):(\d\d)(?:\.\d+)?")
_ISO_SPAN = re.compile(rf"P(?:{_COUNT}D)?(?:T(?:{_COUNT}H)?(?:{_COUNT}M)?(?:{_COUNT}(?:\.\d+)?S)?)?")
_WITH_UNIT = re.compile(r"(\d{1,19}(?:\.\d{1,9})?) ?(ms|s|m|h|d)")
_IN_SECONDS = re.compile(r"(?:[_-]s|(?<!milli)sec(?:ond)?s?)$", re.IGNORECASE)
_MICROS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}


class Deadline(NamedTuple):
    """One deadline: where it stands, in words, and the moment in microseconds (None: nobody knows when the
    letter was published, from which it counts). `is_known`: its consumer is known to look at it there."""

    place: str
    kind: _Kind
    at: int | None
    is_known: bool = True


class _Field(NamedTuple):
    """A name and a value that may tell a deadline, and when the letter was published."""

    place: str
    name: str
    value: str
    published: int | None
    is_known: bool = True


def with_hints(bodies: Sequence[bytes]) -> Iterator[bool]:
    """Yield for each of these bodies whether its letters hint at a deadline."""
    read = [body if _is_read(body) else b"" for body in bodies]
    step = max(1, _TOGETHER // max([1, *map(len, read)]))
    for start in range(0, len(read), step):
        some = pa.array(read[start : start + step], pa.large_binary())
        yield from pc.match_substring_regex(some, _HINT, ignore_case=True).to_pylist()


def deadlines(record: Record, dropped: Collection[str], has_hint: bool | None = None) -> Iterator[Deadline]:
    """Yield what the letter says of itself; `dropped` are names of headers and properties that are not sent.
    `has_hint`: what `with_hints` has said of its body, where that was asked."""
    [look_inside] = with_hints([record.body]) if has_hint is None else [has_hint]
    for field in (*_deadline_fields(record, dropped), *(_in_body(record) if look_inside else ())):
        kind = _kind(field.name)
        moment = _moment(field, kind) if kind else None
        if kind and moment:
            yield Deadline(field.place, kind, moment if moment > 0 else None, field.is_known)


@lru_cache(maxsize=4096)
def _kind(name: str) -> _Kind | None:
    """Return what a name of any spelling tells: `x-Expires-At`, `expires_at`, `cloudEvents:expirytime`."""
    bare = name.replace("_HYPHEN_", "-")
    while (shorter := _PREFIX.sub("", bare, count=1)) != bare:
        bare = shorter
    word = re.sub(r"[^a-z0-9]", "", bare.lower())
    return next((kind for kind, pattern in _KINDS.items() if pattern.fullmatch(word)), None)


def _deadline_fields(record: Record, dropped: Collection[str]) -> Iterator[_Field]:
    for kind, fields in (("header", record.headers), ("property", record.properties)):
        names = tuple(name for name in fields if len(name) <= _LONGEST_NAME)
        for name in _deadline_names(names) if names else ():
            if name not in dropped and fields[name] != _NONE:
                yield _Field(f"{kind} {name}", name, fields[name], record.published_at)


@lru_cache(maxsize=256)
def _deadline_names(names: tuple[str, ...]) -> Sequence[str]:
    """Return those of these names that tell a deadline; letters of one kind all have the same names."""
    return [*filter(_kind, names)]


def _is_read(body: bytes) -> bool:
    return body.lstrip()[:1] == b"{" and len(body) <= _LARGEST_BODY


def _in_body(record: Record) -> Iterator[_Field]:
    try:
        document = json.loads(record.body)
    except (ValueError, RecursionError):
        return
    form = next((name for name, fields in _FORMS.items() if fields <= document.keys()), None)
    told = (_epoch(str(document[name])) for name in _PUBLISHED if name in document)
    published = next((moment for moment in told if moment), record.published_at)
    for inner in ("", *_INNER):
        fields: Any = document if not inner else document.get(inner)
        for name, value in fields.items() if isinstance(fields, dict) else ():
            is_told = isinstance(value, str | int | float) and not isinstance(value, bool)
            if is_told and len(name) <= _LONGEST_NAME:
                place = f"{inner}.{name}" if inner else name
                yield _Field(f"body, {form or 'its'} {place}", name, str(value), published, form is not None)


def _moment(field: _Field, kind: _Kind) -> int | None:
    """Return the moment in microseconds; -1: it counts from one that nobody knows; None: it tells none."""
    text = field.value.strip().strip('"')
    if not text.strip(_NONE):
        return None
    length = _length(text, field.name)
    if kind != "age" and length is None:
        return _epoch(text)
    if length is None or kind == "start":
        return None
    return -1 if field.published is None else field.published + length


def _length(text: str, name: str) -> int | None:
    """Return a length of time in microseconds. Without a unit it counts milliseconds, the shorter of two."""
    span = _SPAN.fullmatch(text) or (_ISO_SPAN.fullmatch(text) if len(text) > 2 else None)
    if span:
        days, hours, minutes, seconds = (int(part or 0) for part in span.groups())
        return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * _MICROS["s"]
    if unit := _WITH_UNIT.fullmatch(text):
        return int(float(unit[1]) * _MICROS[unit[2]])
    number = _number(text)
    unit_of = "s" if _IN_SECONDS.search(name) else "ms"
    return int(number * _MICROS[unit_of]) if 0 < number < _EPOCH_FROM else None


def _number(text: str) -> float:
    return float(text) if re.fullmatch(r"\d{1,19}(\.\d{1,9})?", text) else 0.0


def _epoch(text: str) -> int | None:
    """Return a moment in microseconds: ISO 8601, a date of mails, or a number of seconds, milliseconds,
    microseconds or nanoseconds since 1970."""
    number = _number(text)
    if number >= _EPOCH_FROM:
        while number >= 10**11:  # seconds until the year 5138
            number /= 1000
        return int(number * 1_000_000)
    if number or not text:
        return None
    return from_iso(text) or _of_mail(text)


def _of_mail(text: str) -> int | None:
    try:
        return to_micros(parsedate_to_datetime(text).astimezone())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def is_late(deadline: Deadline, moment: int) -> bool:
    """Return whether its consumer would throw the letter away; where nobody knows, it may."""
    return deadline.kind != "start" and (deadline.at is None or deadline.at <= moment)


def in_words(deadline: Deadline, moment: int) -> str | None:
    """Return what a deadline means for a letter that is sent at this moment; None where it means nothing."""
    place = f"its {deadline.place}"
    if is_late(deadline, moment):
        passed = "may have passed" if deadline.at is None else "has passed"
        return f"the deadline in {place} {passed}: who looks at it throws the letter away, though confirmed"
    if deadline.kind != "start":
        return f"the deadline in {place} lies ahead: what is consumed after it is thrown away"
    return f"{place} lies ahead: until then it is held back" if (deadline.at or 0) > moment else None
