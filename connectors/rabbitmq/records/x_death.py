"""The death history (`x-death`) in every shape it is met in; reading it never fails.

RabbitMQ writes an array of tables. Frameworks that turn every header into text and republish leave
JSON, Python's or Java's way to print a list of maps; others leave one table, or entries with parts
missing. `time` is the first death of its (queue, reason) pair, in seconds.
Shapes and traps: https://www.rabbitmq.com/docs/dlx#effects and what servers 3.8 to 4.3 send.
"""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from dlq.connectors.rabbitmq.amqp091.codec.fields import instant
from dlq.core.clock import from_iso, to_micros
from dlq.core.record import Death
from dlq.core.text import encodable

_LONGEST_TEXT = 65_536
_INT64 = 2**63
_MOST_ATTEMPTS = 2**31 - 1
# The counted repetitions keep a hostile text from costing more than its length.
_PYTHON_LONG = re.compile(r"\b(\d+)L\b")
_PYTHON_TIME = re.compile(r"datetime\.datetime\((\d{1,6}(?:, \d{1,6}){2,6})[^()]{0,40}(?:\([^()]{0,40}\))?\)")
_JAVA_MAP = re.compile(r"\{([^{}]*)\}")
_JAVA_ENTRY = re.compile(r"([\w-]{1,32})=(\[[^\]\[]*\]|[^,}]*)")
_JAVA_TIME = re.compile(r"\w{3} (\w{3} \d\d \d\d:\d\d:\d\d) (?:UTC|GMT) (\d{4})")


def deaths(x_death: object) -> tuple[Death, ...]:
    """Return the entries of an x-death header, most recent first; what says nothing of a death is left out.

    Takes the decoded value, or its text (as `Properties.headers` has it, which is the fast way:
    the same text is read once).
    """
    if isinstance(x_death, str):
        return _of_text(x_death)
    entries = x_death if isinstance(x_death, list | tuple) else [x_death]
    return tuple(_death(entry) for entry in entries if isinstance(entry, Mapping) and "reason" in entry)


def first_death(history: Sequence[Death], queue: str | None, reason: str | None) -> Death:
    """Return the death that x-first-death-* name. Else it is the last of the history, where nothing has died
    twice: what dies again goes to the front, with what it had the first time."""
    named = (death for death in history if (death.queue, death.reason) == (queue, reason))
    return next(named, history[-1] if history else Death())


def rejections(history: Sequence[Death]) -> int | None:
    """Return how often a consumer refused it; None for a count, which anybody can write, too large."""
    count = next((death.count for death in history if death.reason == "rejected"), None)
    return count if count is not None and count <= _MOST_ATTEMPTS else None


@lru_cache(maxsize=512)
def _of_text(text: str) -> tuple[Death, ...]:
    if len(text) > _LONGEST_TEXT:
        return ()
    for read in (json.loads, _python, _java):
        try:
            found = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(found, list | tuple | dict):
            return deaths(found)
    return ()


def _python(text: str) -> object:
    """Read `[{'count': 1L, 'time': datetime.datetime(2026, 11, 2, 3, 12, 9), ...}]`"""
    return ast.literal_eval(_PYTHON_TIME.sub(_python_time, _PYTHON_LONG.sub(r"\1", text)))


def _python_time(match: re.Match[str]) -> str:
    year, month, day, hour, minute, second = ([int(n) for n in match[1].split(", ")] + [0] * 5)[:6]
    return repr(datetime(year, month, day, hour, minute, second, tzinfo=UTC).isoformat())


def _java(text: str) -> object:
    """Read `[{reason=rejected, count=1, exchange=, time=Mon Nov 02 03:12:09 UTC 2026, queue=orders}]`"""
    return [dict(_JAVA_ENTRY.findall(entry)) for entry in _JAVA_MAP.findall(text)]


def _death(entry: Mapping[object, object]) -> Death:
    return Death(
        reason=_text(entry.get("reason")),
        queue=_text(entry.get("queue")),
        exchange=_text(entry.get("exchange")),
        routing_keys=_keys(entry.get("routing-keys")),
        count=_count(entry.get("count")),
        time=_time(entry.get("time")),
        original_expiration=_text(entry.get("original-expiration")),
    )


def _text(value: object) -> str | None:
    return None if value is None else encodable(str(value))


def _keys(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.strip("[]").split(", ")
    return tuple(encodable(str(key)) for key in value) if isinstance(value, list | tuple) else ()


def _integer(value: object) -> int | None:
    if not isinstance(value, str | int) or isinstance(value, bool):
        return None
    try:
        number = int(value)
    except ValueError:
        return None
    return number if -_INT64 <= number < _INT64 else None


def _count(value: object) -> int | None:
    number = _integer(value)
    return None if number is None or number < 0 else number


def _time(value: object) -> int | None:
    number = _integer(value)
    if number is not None:
        return instant(number)
    if not isinstance(value, str):
        return None
    java = _JAVA_TIME.fullmatch(value)
    return from_iso(value) if java is None else _java_time(f"{java[1]} {java[2]} +0000")


def _java_time(text: str) -> int | None:
    try:
        return to_micros(datetime.strptime(text, "%b %d %H:%M:%S %Y %z"))
    except ValueError:
        return None
