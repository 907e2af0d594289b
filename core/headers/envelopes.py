"""What a framework or a hand wrote into a letter's body when it gave up, or while it tried: pure functions.

There the memory of the retries is in the body, which goes back byte for byte: whoever classifies a letter,
and whoever plans its way back, must see the same. Bodies are strangers': nothing is unserialized or run, what
is looked at is bounded, and each look costs its length at most. Sources: PhpSerializer, Envelope and the
stamps of Symfony Messenger; `as_task_v1` of Celery (app/amqp.py); EasyNetQ's Error.
"""

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from dlq.core.headers.failure_headers import HandWritten, by_hand, words_of
from dlq.core.runtime import bounded_json

_LONGEST_JSON = 1 << 20
"""Bytes up to which a body is read as JSON."""
_LONGEST_STAMPS = 1 << 18
"""Bytes in which Symfony's stamps are looked for; they stand before the message."""

# --- Symfony Messenger, by PHP's serialize ---

_BASE64 = b"TzozNj"
"""How such a body begins as base64, which it is where it is no UTF-8."""
_ENVELOPE = re.compile(rb'O:36:\\?"Symfony\\{1,2}Component\\{1,2}Messenger\\{1,2}Envelope\\?":')
"""Its class, as PHP writes it, and with addslashes."""
_END = re.compile(rb'Envelope(?:\\0|\0)message\\?"')
_STAMP = re.compile(
    rb"""
    s:\d\d:\\?" (?: \\0 | \0 ) Symfony \\{1,2} Component \\{1,2} Messenger \\{1,2} Stamp \\{1,2}
    (?P<stamp> \w{1,50} ) (?: \\0 | \0 ) (?P<name> \w{1,50} ) \\?";
    (?: i:(?P<number> \d{1,9} ); | s:(?P<length> \d{1,9} ):\\?" )
    """,
    re.VERBOSE,
)
"""A property of a stamp that is a number or a text, up to the text."""
_ADDED = re.compile(rb"\\(.)", re.DOTALL)


class Stamps(NamedTuple):
    """What Symfony's stamps say of a letter that lies in a failure transport."""

    is_failed: bool
    """It was sent to the failure transport (SentToFailureTransportStamp)."""
    error_class: str | None
    error_message: str | None
    retries: int | None
    """The most that a RedeliveryStamp counts; that of the parking counts from 0 again."""


def read_stamps(body: bytes) -> Stamps | None:
    """Return the stamps of an envelope that PHP serialized; None for every other body."""
    begin = body[:_LONGEST_STAMPS]
    if begin.startswith(_BASE64):
        begin = _decode_base64(begin)
    if not _ENVELOPE.match(begin):
        return None
    end = _END.search(begin)
    texts: dict[bytes, tuple[int, int]] = {}
    counts: list[int] = []
    for found in _STAMP.finditer(begin, 0, end.start() if end else len(begin)):
        if found["number"] is None:
            texts[found["name"]] = (found.end(), int(found["length"]))
        elif (found["stamp"], found["name"]) == (b"RedeliveryStamp", b"retryCount"):
            counts.append(int(found["number"]))
    return Stamps(
        b"originalReceiverName" in texts,
        _text_at(begin, *texts.get(b"exceptionClass", (0, 0))) or None,
        _text_at(begin, *texts.get(b"exceptionMessage", (0, 0))) or None,
        max(counts, default=None),
    )


def _decode_base64(base64: bytes) -> bytes:
    try:
        return b64decode(base64)
    except ValueError:
        return b""


def _text_at(body: bytes, at: int, length: int) -> str:
    """Return a text of so many bytes, of which addslashes makes twice as many at most."""
    text = body[at : at + 2 * length]
    if b"\\" in body[:7]:
        text = _ADDED.sub(lambda found: b"\0" if found[1] == b"0" else found[1], text)
    return text[:length].decode(errors="replace")


# --- JSON ---

_CELERY = {"task", "id", "args", "kwargs", "retries"}
_EASYNETQ = {"Exchange", "RoutingKey", "Message", "BasicProperties", "Exception"}
_TASK = re.compile(rb'"retries": ?\d')
_KEY = re.compile(rb'"(?:x[-_])?(?:orig|source|error|exception|stack|backtrace|failure|failed|dlq)')
"""What keys of an envelope begin with, in small letters; a body without them is not parsed."""
_PARTS_OF_ORIGINS = (b"rig", b"ource")
"""One of which is in every envelope (originalTopic, Original-Message, sourceQueue), and in few bodies."""
_OF_A_FAILURE = re.compile(
    rb"error|exception|fail|cause|trace|reason|retr|attempt|deliver|processing|death|\\u"
)
"""What is in each name of an error or a count (`mark_of`), unless it is escaped."""
_AROUND = {
    "error", "exception", "failure", "cause", "original", "origin", "source", "metadata", "meta", "dlq",
    "info",
}  # fmt: skip
"""Words with which a key ends whose object tells of the failure, too; other objects are the business's."""
_ORIGINALS = {"message", "payload", "event", "value", "body", "data", "record", "key", "headers", "content"}
_MOST_KEYS = 100


def read_task(body: bytes) -> Mapping[str, Any] | None:
    """Return a task of Celery's first protocol, which counts its retries; None for every other body."""
    if not body.startswith(b"{") or b'"retries"' not in body or not _TASK.search(body):
        return None
    document = _document(body)
    return document if document.keys() >= _CELERY else None


def read_error(body: bytes) -> Mapping[str, Any] | None:
    """Return an error of EasyNetQ, with the message in it; None for every other body."""
    if not body.startswith(b"{") or b'"BasicProperties"' not in body:
        return None
    document = _document(body)
    return document if document.keys() >= _EASYNETQ else None


class Envelope(NamedTuple):
    """A message in an object of JSON that says why, and where, it failed."""

    failure: HandWritten
    """In the words of headers that hands write: `error.type` is a class, `retryCount` a count."""
    document: Mapping[str, Any]


def read_envelope(body: bytes) -> Envelope | None:
    """Return what a hand wrapped around a message when it gave up: keys of an error, or a count, beside those
    of where the message came from or what it was; None for every other body."""
    if not body.startswith(b"{") or not any(part in body for part in _PARTS_OF_ORIGINS):
        return None
    small = body[:_LONGEST_JSON].lower()
    if not _KEY.search(small) or not _OF_A_FAILURE.search(small):
        return None
    document = _document(body)
    failure = by_hand(dict(_fields(document)))
    if failure is None or not (failure.errors or failure.counted):
        return None
    is_wrapped = bool(failure.origins) or any(_is_original(name) for name in islice(document, _MOST_KEYS))
    return Envelope(failure, document) if is_wrapped else None


def _document(body: bytes) -> Mapping[str, Any]:
    """Return the object that a body is; empty where it is none, too long or nested too deep."""
    try:
        found = bounded_json.loads(body, None) if len(body) <= _LONGEST_JSON else None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_original(name: str) -> bool:
    words = words_of(name)
    return len(words) == 2 and words[0] in ("original", "orig", "origin") and words[1] in _ORIGINALS


def _fields(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield keys as names of headers, with their values as texts."""
    for name, value in islice(document.items(), _MOST_KEYS):
        if isinstance(value, dict):
            if _AROUND.intersection(words_of(name[:_MOST_KEYS])[-1:]):
                for inner, one in islice(value.items(), _MOST_KEYS):
                    yield f"{name}.{inner}", _text(one)
                    yield inner, _text(one)
        else:
            yield ("error.reason" if name == "reason" else name), _text(value)


def _text(value: object) -> str:
    """Return a text: of a list, an entry a line; nothing of what is no text and no number."""
    if isinstance(value, list):
        return "\n".join(one for one in value[:_MOST_KEYS] if isinstance(one, str))
    is_told = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value).encode(errors="replace").decode() if is_told else ""
