"""JSONL letters: one object per line, to records and back.

`headers` and `properties` hold what the broker kind calls so. A line that `dlq export` wrote carries
`record`, the columns that a foreign file lacks; with it, export then import is the identity. The first line
of a queue's letters carries `topology`, what verdicts on them rest on beside.
"""

import base64
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from dlq.connectors.jsonl.values import escape_surrogates, fit_column, moment
from dlq.core.brokers import plugin_of, plugins, resolve
from dlq.core.clock import iso
from dlq.core.errors import UsageError
from dlq.core.identity import ID_HEX_DIGITS, content_id, is_record_id
from dlq.core.keys import KeyReader
from dlq.core.record import COLUMNS, Death, Record
from dlq.core.runtime.bounded_json import Twice, once_each
from dlq.core.text import encodable
from dlq.core.values.suggestions import suggest

_MASKED = "masked"
"""The field of a line that `dlq export --mask` wrote: not all that it holds is what was captured."""
_TEXTS = ("exchange", "routing_key", "message_id", "broker_version", "failure_text")
_TIMES = ("published_at", "dead_at")
_KNOWN = (
    "broker_kind", "queue", "topic", *_TEXTS, *_TIMES, "headers", "properties", "body_base64", "body_text",
    "record", "topology", _MASKED,
)  # fmt: skip
_ALL_TIMES = (*_TIMES, "captured_at", "first_dead_at", "expires_at")
_OF_THE_CAPTURE = ("captured_at", "pull_id", "mode", "source")
_OF_THE_BODY = ("body_size", "body_sha256")
_AT_TOP = ("broker_kind", "dead_letter_queue", "headers", "properties", "body", *_TEXTS, *_TIMES)


def parse_line(line: str | bytes) -> dict[str, Any]:
    """Return one line as a checked object; raises UsageError in words, without the line number."""
    try:
        document = _read(line)
    except Twice as error:
        raise UsageError(f"{error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no JSON: {error}") from error
    if not isinstance(document, dict):
        raise UsageError("not a JSON object; write one")
    return check_document(document)


def check_document(document: dict[str, Any]) -> dict[str, Any]:
    """Return the object of a line where it holds what a line may hold; raises UsageError in words."""
    for name in document:
        if name not in _KNOWN:
            raise UsageError(f"unknown field {name!r}{suggest(name, _KNOWN)}; take it out")
    known = [name for name, kind in plugins().items() if kind.line]
    if document.get("broker_kind") not in known:
        raise UsageError(
            f"broker_kind must be one of {', '.join(known)}, not {document.get('broker_kind')!r}"
        )
    for name in ("headers", "properties", "record", "topology"):
        if not isinstance(document.get(name, {}), dict):
            raise UsageError(f"{name} must be an object")
    if document.get(_MASKED):
        raise UsageError("it is masked, so it is not the letter that died; export it without --mask")
    return document


def _read(line: str | bytes) -> Any:
    """Return the JSON; a lone surrogate has bytes in a body (see `body_of`), and is escaped elsewhere."""
    document = json.loads(line, object_pairs_hook=once_each)
    return fit(document) if isinstance(document, dict) else document


def fit(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with what UTF-8 cannot hold escaped, but for the body."""
    return {
        encodable(name): value if name == "body_text" else escape_surrogates(value)
        for name, value in document.items()
    }


def body_of(document: Mapping[str, Any]) -> bytes:
    """Return the body's bytes; raises UsageError for bad base64, no text, or both forms at once."""
    text = document.get("body_text", "")
    if "body_base64" in document and "body_text" in document:
        raise UsageError("body_base64 and body_text exclude each other; leave one of them")
    if not isinstance(text, str):
        raise UsageError(f"body_text must be text, not {json.dumps(text)[:60]}; write JSON as text in quotes")
    try:
        if "body_base64" in document:
            return base64.b64decode(document["body_base64"], validate=True)
        return text.encode("utf-8", "surrogatepass")
    except (ValueError, TypeError) as error:
        raise UsageError(f"body_base64 is not base64: {error}") from error


def to_text(value: Any) -> str:
    """Return a header of any JSON type as text: strings as they are, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def record_of(document: Mapping[str, Any], source: str, broker: str, place: str, key: KeyReader) -> Record:
    """Return the record of a checked object; `place` (a line number, a position) tells equal lines apart."""
    body = body_of(document)
    headers = {name: to_text(value) for name, value in document.get("headers", {}).items()}
    properties = {name: to_text(value) for name, value in document.get("properties", {}).items()}
    fields: dict[str, Any] = {
        "source": source,
        "broker": broker,
        "broker_kind": document["broker_kind"],
        "dead_letter_queue": str(document.get("queue") or document.get("topic") or ""),
        "headers": headers,
        "properties": properties,
        "body": body,
        "body_size": len(body),
        "body_sha256": sha256(body).hexdigest(),
    }
    if "record" not in document:
        derived = resolve(plugin_of(document["broker_kind"]).line)(document, headers, properties)
        fields |= {name: value for name, value in derived.items() if value is not None}
    fields |= {name: to_text(document[name]) for name in _TEXTS if document.get(name) is not None}
    fields |= {name: moment(name, document[name]) for name in _TIMES if document.get(name) is not None}
    if "record" in document:
        fields |= _read_columns(document["record"])
    else:
        fields["key"] = key(fields.get("message_id"), headers, properties, body)
    return Record(**{"record_id": _identity(source, place, document, fields["body_sha256"]), **fields})


def _identity(source: str, place: str, document: Mapping[str, Any], body_sha256: str) -> str:
    rest = {name: value for name, value in document.items() if not name.startswith("body_")}
    return content_id(
        source.encode(), place.encode(), json.dumps(rest, sort_keys=True).encode(), body_sha256.encode()
    )


def _read_columns(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that an export carried along, without what follows from others."""
    known = {*COLUMNS, "raw_properties_base64"} - {"body", "broker_kind", "raw_properties"}
    for name in record:
        if name not in known:
            raise UsageError(f"unknown field 'record.{name}'{suggest(name, known)}; take it out")
    carried = {
        name: value
        for name, value in record.items()
        if name not in (*_OF_THE_CAPTURE, *_OF_THE_BODY) and value is not None
    }
    try:
        if (raw := carried.pop("raw_properties_base64", None)) is not None:
            carried["raw_properties"] = base64.b64decode(raw, validate=True)
    except (ValueError, TypeError) as error:
        raise UsageError(f"record.raw_properties_base64 is not base64: {error}") from error
    columns = {name: _column(name, value) for name, value in carried.items()}
    return {name: value for name, value in columns.items() if value is not None}


def _column(name: str, value: Any) -> Any:
    if name == "raw_properties":
        return value
    if name in _ALL_TIMES:
        return moment(f"record.{name}", value)
    checked = fit_column(name, value)
    if name == "record_id" and not is_record_id(checked):
        raise UsageError(f"record.record_id must be {ID_HEX_DIGITS} hex digits, not {value!r}")
    if isinstance(checked, dict):
        return {each: to_text(text) for each, text in checked.items()}
    if name == "deaths":
        return tuple(map(_death, checked))
    return tuple(checked) if isinstance(checked, list) else checked


def _death(entry: Any) -> Death:
    if not isinstance(entry, dict):
        raise UsageError(f"record.deaths must hold objects, not {entry!r}; correct it")
    known = Death._fields
    for name in entry:
        if name not in known:
            raise UsageError(f"unknown field 'record.deaths.{name}'{suggest(name, known)}; take it out")
    said = {name: value for name, value in entry.items() if value is not None}
    time = said.pop("time", None)
    parts = {name: fit_column(name, value) for name, value in said.items()}
    parts["routing_keys"] = tuple(parts.get("routing_keys", ()))
    return Death(**parts, time=None if time is None else moment("record.deaths.time", time))


def line_of(record: Record) -> dict[str, Any]:
    """Return the object that `dlq export` writes for a record; `json.dumps` makes the line."""
    document: dict[str, Any] = {
        "broker_kind": record.broker_kind,
        "queue": record.dead_letter_queue,
        **{name: value for name in _TEXTS if (value := getattr(record, name)) is not None},
        **{name: iso(value) for name in _TIMES if (value := getattr(record, name)) is not None},
        "headers": {name: _json_value(value) for name, value in record.headers.items()},
        "properties": dict(record.properties),
        **body_fields(record.body),
    }
    document["record"] = {
        name: _portable(name, value)
        for name, value in record._asdict().items()
        if name not in (*_OF_THE_CAPTURE, *_AT_TOP, "raw_properties") and value is not None
    }
    if record.raw_properties is not None:
        document["record"]["raw_properties_base64"] = base64.b64encode(record.raw_properties).decode()
    return document


def masked_line(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a masked line that says so: it is nothing to send or to import."""
    return {_MASKED: True, **line}


def body_fields(body: bytes) -> dict[str, str]:
    """Return a body as `body_text` where it is UTF-8, else as `body_base64`."""
    try:
        return {"body_text": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def _json_value(text: str) -> Any:
    """Return nested values (x-death) as JSON where the text is exactly what `to_text` makes of them."""
    if not text or text[0] not in "[{":
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if to_text(value) == text else text


def _portable(name: str, value: Any) -> Any:
    if name in _ALL_TIMES:
        return iso(value)
    if name == "deaths":
        return [
            {**death._asdict(), "time": None if death.time is None else iso(death.time)} for death in value
        ]
    return list(value) if isinstance(value, tuple) else value
