"""Letters whose body remembers that they failed, and the message that lies in it, taken out of it.

A body is a stranger's. What it holds is taken out only where its form leaves one reading; otherwise the
letter stays as it is, and the reason says so. What is taken out keeps its bytes: it is cut, not written anew.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dlq.connectors.jsonl.format import body_fields, parse_line
from dlq.core.errors import UsageError
from dlq.core.headers.envelopes import read_envelope, read_error, read_stamps, read_task
from dlq.core.headers.failure_headers import mark_of, names_of_cuts, words_of
from dlq.core.record import Record
from dlq.core.runtime import bounded_json
from dlq.replay.plans.edits import change

_SERIALIZED = b"O:", b"TzozNj"
"""How PHP's serialization begins, and its base64."""
_BEGINS = (b"{", *_SERIALIZED)
"""How all bodies begin that are looked into."""
_ERROR_TYPE = "EasyNetQ.SystemMessages.Error"
_ERROR = "its body is an error of EasyNetQ, around the message"


def memory_in_body(record: Record) -> str | None:
    """Return what of a failure the body of a letter remembers, in words; None where it is not seen to.
    Sent as it is, a consumer would take the envelope for the order, or the first hiccup for the last one."""
    body = record.body
    if not body.startswith(_BEGINS):
        return _ERROR if record.properties.get("type", "").startswith(_ERROR_TYPE) else None
    if body.startswith(_SERIALIZED):
        stamps = read_stamps(body)
        remembers = stamps is not None and (stamps.is_failed or stamps.retries or stamps.error_class)
        return (
            "its body is an envelope of Symfony Messenger, whose stamps count its failures"
            if remembers
            else None
        )
    task = None if "task" in record.headers else read_task(body)
    retries = task["retries"] if task else 0
    if isinstance(retries, int) and retries:
        return f"its body is a task of Celery's first protocol, which counts {retries} retries there"
    if record.properties.get("type", "").startswith(_ERROR_TYPE) or read_error(body):
        return _ERROR
    if read_envelope(body):
        return "its body is an envelope that describes the failure, around the message"
    return None


def why_cut(record: Record) -> Mapping[Any, str]:
    """Return why a letter goes back only if it is named, where a mark says that its body is cut."""
    for told in (record.headers, record.properties):
        for name in names_of_cuts(tuple(told)):
            if told[name].lower() in ("true", "1", "yes"):
                why = f"its body is only the beginning of the message, as {name[:40]} says"
                return {"letter": f"{why} (--edit changes it)"}
    return {}


def unwrap(record: Record) -> bytes:
    """Return the edit that makes the message of a letter whose body remembers a failure. Raises UsageError
    that says why there is none."""
    forms = ((read_error, _of_easynetq), (read_task, _of_celery), (read_envelope, _of_a_hand))
    take = next((take for read, take in forms if read(record.body)), None)
    if take is None:
        raise UsageError("dlq knows no message in such a body")
    try:
        text = record.body.decode()
        changes = take(record, _Object(text, _members(text)))
        line = {"broker_kind": record.broker_kind, "record": {"record_id": record.record_id}, **changes}
        encoded = json.dumps(line, ensure_ascii=False).encode()
    except bounded_json.Twice as error:
        raise UsageError(str(error)) from error
    except ValueError as error:
        raise UsageError("it is no well-formed JSON in UTF-8") from error
    if memory_in_body(change(record, parse_line(encoded))):
        raise UsageError("what it holds remembers a failure, too")
    return encoded


# --- JSON, of which the bytes stay ---


class _Member(NamedTuple):
    """A value of an object, and where it stands in its text."""

    value: Any
    start: int
    end: int


class _Object(NamedTuple):
    """A body that is an object of JSON."""

    text: str
    members: Mapping[str, _Member]

    def value(self, name: str) -> Any:
        """Return the value of a key that it has."""
        return self.members[name].value

    def names(self, is_wanted: Callable[[str], bool]) -> list[str]:
        """Return the keys that are wanted."""
        return [*filter(is_wanted, self.members)]


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_JSON = json.JSONDecoder(object_pairs_hook=bounded_json.once_each, parse_constant=_no_number)
_BETWEEN = re.compile(r"[\s:,]*")


def _members(text: str) -> dict[str, _Member]:
    """Return the members of an object, whose depth was looked at before. Raises ValueError, UsageError."""
    _JSON.decode(text)
    found: dict[str, _Member] = {}
    at = _skip_between(text, 1)
    while text[at] != "}":
        name, at = _JSON.raw_decode(text, at)
        start = _skip_between(text, at)
        value, end = _JSON.raw_decode(text, start)
        found[name] = _Member(value, start, end)
        at = _skip_between(text, end)
    return found


def _skip_between(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return at if found is None else found.end()


# --- Celery ---


def _of_celery(_: Record, body: _Object) -> dict[str, Any]:
    """Return the task as it is, which was never tried again."""
    retries = body.members["retries"]
    return {"body_text": f"{body.text[: retries.start]}0{body.text[retries.end :]}"}


# --- An object that a hand made around a message ---

_PAYLOAD = {"payload", "body", "value"}
_ORIGINAL = {"original", "orig", "origin", "source"}
_OF_ORIGINALS = {*_PAYLOAD, "message", "event", "data", "content"}
_TELLS = {*_ORIGINAL, "error", "exception", "failed", "failure", "cause", "retry", "dlq", "consumer"}
"""Words with which the keys begin that tell of the failure."""
_TELLS_ALONE = {"message", "reason", "timestamp", "time", "metadata", "meta", "info"}
_ORDER = {"first", "last"}
_LONGEST_NAME = 100


def _of_a_hand(record: Record, body: _Object) -> dict[str, Any]:
    """Return the payload and its headers, where any other key tells of the failure or is the letter's own."""
    payloads, headers, keys = map(body.names, (_is_payload, _is_headers, _is_key))
    if len(payloads) != 1 or len(headers) > 1:
        raise UsageError("it has no key, or several, that hold the message or its headers")
    if any(body.value(name) != record.properties.get("key") for name in keys):
        raise UsageError("it names a key that is not the letter's own")
    for name in sorted(body.members.keys() - {*payloads, *headers, *keys}):
        if not _tells_of_failure(name, body.value(name)):
            raise UsageError(f"nobody knows what its key {name[:40]!r} is for")
    found = body.members[payloads[0]]
    changes: dict[str, Any] = body_fields(_message(found.value, body.text[found.start : found.end]))
    if headers:
        changes["headers"] = _headers(body.value(headers[0]), _as_written)
    return changes


def _words(name: str) -> tuple[str, ...]:
    return words_of(name[:_LONGEST_NAME])


def _is_payload(name: str) -> bool:
    words = _words(name)
    is_original = len(words) == 2 and words[0] in _ORIGINAL and words[1] in _OF_ORIGINALS
    return is_original or (len(words) == 1 and words[0] in _PAYLOAD)


def _is_headers(name: str) -> bool:
    return _is_of_message(name, "headers")


def _is_key(name: str) -> bool:
    return _is_of_message(name, "key")


def _is_of_message(name: str, what: str) -> bool:
    words = _words(name)
    is_original = len(words) == 2 and words[0] in (*_ORIGINAL, "message")
    return words[-1:] == (what,) and (len(words) == 1 or is_original)


def _tells_of_failure(name: str, value: Any) -> bool:
    """Return whether a key is about the failure, and nothing of the message lies in its object."""
    if isinstance(value, dict) and any(_is_payload(x) or _is_headers(x) or _is_key(x) for x in value):
        return False
    words = [word for word in _words(name) if word not in _ORDER]
    is_told = bool(words) and (words[0] in _TELLS or (len(words) == 1 and words[0] in _TELLS_ALONE))
    return is_told or mark_of(name[:_LONGEST_NAME]) is not None


# --- EasyNetQ: Error.cs, MessageProperties.cs, DefaultErrorMessageSerializer.cs ---

_PROPERTIES = {
    "ContentType": "content_type",
    "ContentEncoding": "content_encoding",
    "DeliveryMode": "delivery_mode",
    "Priority": "priority",
    "CorrelationId": "correlation_id",
    "ReplyTo": "reply_to",
    "MessageId": "message_id",
    "Timestamp": "timestamp",
    "Type": "type",
    "AppId": "app_id",
    "ClusterId": "cluster_id",
}
"""Its names -> those of AMQP; a replay sends no expiration and no user."""


def _of_easynetq(_: Record, body: _Object) -> dict[str, Any]:
    """Return the message with its properties. Where it goes is the plan's to say."""
    told = body.value("BasicProperties")
    if not isinstance(body.value("Message"), str) or not isinstance(told, dict):
        raise UsageError("its Message is no text, or its BasicProperties are no object")
    properties = {
        name: told[key]
        for key, name in _PROPERTIES.items()
        if told.get(key) and told.get(f"{key}Present", True)
    }
    if not all(isinstance(value, str | int) for value in properties.values()):
        raise UsageError("one of its BasicProperties is no text and no number")
    return {
        **body_fields(_from_text(body.value("Message"))),
        "headers": _headers(told.get("Headers") or {}, _from_bytes),
        "properties": {name: str(value) for name, value in properties.items()},
    }


# --- Texts, which may be encoded bytes ---

_MAYBE_ENCODED = re.compile(r"[A-Za-z0-9+/=_\r\n-]*|b(['\"]).*\1|\[(?:B@|object ).*", re.DOTALL)
"""base64 and hex in all their spellings, and what Python, Java and JavaScript make of bytes."""
_LOST = "\ufffd"
"""What stands for bytes that were no text."""
_NEVER_SENT = "x-death"
_BYTES_OF_NET = {"$type", "$value"}


def _message(value: Any, text: str) -> bytes:
    """Return the message that a value of JSON is. Raises UsageError."""
    if isinstance(value, str):
        return _from_text(value)
    if not isinstance(value, dict):
        raise UsageError("its message is neither a text nor an object")
    if value.keys() == {"type", "data"} and value["type"] == "Buffer":
        raise UsageError("its message is a Buffer of Node")
    return text.encode()


def _from_text(text: str) -> bytes:
    decoded = _decode(text)
    if decoded is not None and _is_json(decoded):
        return decoded
    if _MAYBE_ENCODED.fullmatch(text) or _LOST in text:
        raise UsageError("its message may be encoded in a way that is not told")
    return text.encode()


def _decode(text: str) -> bytes | None:
    """Return what a text is the base64 of."""
    try:
        return b64decode(text, validate=True) or None
    except ValueError:
        return None


def _is_json(data: bytes) -> bool:
    try:
        return isinstance(bounded_json.loads(data, None), dict | list)
    except ValueError:
        return False


def _headers(found: Any, text_of: Callable[[str, Any], Any]) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise UsageError("its headers are no object")
    return {name: text_of(name, value) for name, value in found.items() if name not in (_NEVER_SENT, "$type")}


def _as_written(name: str, value: Any) -> Any:
    """Return a header as it stands there, where it is no container and does not look like encoded bytes."""
    decoded = _decode(value) if isinstance(value, str) else None
    if isinstance(value, dict | list) or (decoded is not None and _printable(decoded) is not None):
        raise UsageError(f"its header {name[:40]!r} may be encoded in a way that is not told")
    return value


def _from_bytes(name: str, value: Any) -> Any:
    """Return a header as .NET has it: a text is there as bytes, which its JSON writes as base64."""
    if isinstance(value, dict) and value.keys() == _BYTES_OF_NET:
        value = value["$value"]
    decoded = _decode(value) if isinstance(value, str) else None
    text = value if decoded is None else _printable(decoded)
    if isinstance(value, dict | list) or (text is None and value is not None):
        raise UsageError(f"its header {name[:40]!r} is no text and no number")
    return text


def _printable(data: bytes) -> str | None:
    try:
        text = data.decode()
    except ValueError:
        return None
    return text if text.isprintable() else None
