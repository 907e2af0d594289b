"""The headers of a Kafka record as a map of texts, for rules and for people; no I/O.

A value is shown as text where it is that, a number that Spring wrote in binary as decimal digits, and all
else as `base64:...`; so is a text that begins so, or holds control characters other than layout and the
escape with which colours begin: an error's message stays readable. Null is empty. Of a name that repeats
the newest counts. What the record holds to the byte is in its block (`raw`).
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from dlq.connectors.kafka.records.raw import Alike, Headers, decode, encode
from dlq.core.columns import Column, Constant, Maps, map_column, map_distinct
from dlq.core.errors import UsageError
from dlq.core.headers.kafka_headers import BINARY_NUMBERS, FIRST_IS_NEWEST

_BASE64 = "base64:"
SHORT = 256
"""Names and values below this are mostly those of other records, too: topics, classes, partitions."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")


def text_of(value: bytes | None) -> str:
    """Return a key or the value of a header."""
    if value is None:
        return ""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return _in_base64(value)
    is_plain = text.isprintable() or not _CONTROL.search(text)
    return text if is_plain and not text.startswith(_BASE64) else _in_base64(value)


def column_of_texts(values: Column) -> Column:
    """`text_of` for each of a column. Plain ASCII, as most are, is looked through for all of them at once."""
    if isinstance(values, Constant):
        return map_column(text_of, values)
    told: list[Any] = [value for value in values if value]
    whole = b"".join(told)
    is_plain = whole.isascii() and whole.decode().isprintable() and _BASE64.encode() not in whole
    return [*map(_decode, values)] if is_plain else map_distinct(text_of, values)


def _decode(value: bytes | None) -> str:
    return "" if value is None else value.decode()


def bytes_of(text: str) -> bytes:
    """Return what `text_of` made a text of; null is empty. Raises ValueError."""
    if text.startswith(_BASE64):
        return b64decode(text.removeprefix(_BASE64), validate=True)
    return text.encode()


def texts_of(headers: Headers) -> dict[str, str]:
    """Name -> text of its newest value, in the order of those."""
    found: dict[str, str] = {}
    for name, value in headers:
        shown, text = _texts(name, value)
        if shown in found:
            if name.startswith(FIRST_IS_NEWEST):
                continue
            del found[shown]
        found[shown] = text
    return found


def texts_column(records: Sequence[Headers], same_names: Alike | None) -> Column:
    """`texts_of` for each of one or more records; `same_names` are their headers once more, name by name."""
    shown = [shown_name(name) for name, _ in same_names or ()]
    if same_names is None or len(set(shown)) < len(shown):
        return [*map(texts_of, records)]
    texts = [
        map_distinct(partial(_text, name), values) if name in BINARY_NUMBERS else column_of_texts(values)
        for name, values in same_names
    ]
    return Maps(dict(zip(shown, texts, strict=True)), len(records))


def text_in(name: str, value: bytes | None) -> str:
    """Return the text of a header's value."""
    return _texts(name, value)[1]


def _texts(name: str, value: bytes | None) -> tuple[str, str]:
    is_short = len(name) < SHORT and (value is None or len(value) < SHORT)
    return _seen_before(name, value) if is_short else _as_texts(name, value)


def _as_texts(name: str, value: bytes | None) -> tuple[str, str]:
    return shown_name(name), _text(name, value)


def _text(name: str, value: bytes | None) -> str:
    sizes = BINARY_NUMBERS.get(name)
    return text_of(value) if sizes is None else _number(value, sizes)


_seen_before = lru_cache(maxsize=4096)(_as_texts)


def shown_name(name: str) -> str:
    """Return a header's name as it is shown: what is no UTF-8 comes as surrogates, which no archive holds."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _number(value: bytes | None, sizes: tuple[int, ...]) -> str:
    """Digits that somebody wrote as text are of another length, or would be a number beyond all sense."""
    if value is None or len(value) not in sizes or (len(value) >= 4 and value.isdigit()):
        return text_of(value)
    return str(int.from_bytes(value, "big", signed=True))


def _in_base64(value: bytes) -> str:
    return f"{_BASE64}{b64encode(value).decode()}"


def edit(block: bytes, drops: Callable[[str], bool], changed: Mapping[str, object]) -> bytes:
    """Return the block of a record without the headers that `drops` names, and with these values at its end;
    what stays keeps its bytes, order and duplicates. Of a resolved pointer the original is edited. Raises
    ValueError."""
    record = decode(block)
    if record.original is None:
        return encode(record._replace(headers=_edit_headers(record.headers, drops, changed)))
    original = record.original._replace(headers=_edit_headers(record.original.headers, drops, changed))
    return encode(record._replace(original=original))


def _edit_headers(headers: Headers, drops: Callable[[str], bool], changed: Mapping[str, object]) -> Headers:
    kept = [
        (name, value)
        for name, value in headers
        if not (shown_name(name) in changed or drops(shown_name(name)))
    ]
    return [*kept, *((name, _bytes_of(name, value)) for name, value in changed.items())]


def _bytes_of(name: str, value: object) -> bytes | None:
    """null is null; what is no text is its JSON, as consumers of such headers expect it."""
    if name in BINARY_NUMBERS:
        raise UsageError(
            f"header {name!r}: Spring writes it in binary, and it cannot be edited as text; leave it as it is"
        )
    if value is None or isinstance(value, str):
        return None if value is None else bytes_of(value)
    return json.dumps(value, ensure_ascii=False).encode()
