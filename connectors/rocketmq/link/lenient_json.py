"""JSON as fastjson 1.x writes it: object keys may be bare numbers (`{0:"a"}`) or even objects.

Brokers and name servers of every version answer so to some requests (cluster info, topic statistics).
A key that is an object becomes the text that it is written with: as JSON it would
double its escapes at each level that one key is in another. Strict JSON is read by the standard library.
"""

import json
import re
from typing import Any

_STRINGS = json.JSONDecoder(strict=False)
_SPACE = re.compile(r"[ \t\r\n]*")
_ATOM = re.compile(r"[-+.\w$]+")
_WORDS = {"true": True, "false": False, "null": None}
_DEEPEST = 64


def loads(text: str) -> Any:
    """Return the document in `text`; raises ValueError when it is none."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except ValueError:
        value, end = _value(text, _skip(text, 0), 0)
        if _skip(text, end) != len(text):
            raise ValueError("text after the document") from None
        return value


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    opening = text[at : at + 1]
    if opening == '"':
        return _STRINGS.raw_decode(text, at)
    if opening == "{":
        return _object(text, _skip(text, at + 1), depth + 1)
    if opening == "[":
        return _array(text, _skip(text, at + 1), depth + 1)
    return _atom(text, at)


def _atom(text: str, at: int) -> tuple[Any, int]:
    match = _ATOM.match(text, at)
    if match is None:
        raise ValueError(f"no value at {at}")
    word = match[0]
    return (_WORDS[word] if word in _WORDS else json.loads(word)), match.end()


def _key(text: str, at: int, depth: int) -> tuple[str, int]:
    match = _ATOM.match(text, at)
    if match:
        return match[0], match.end()
    value, end = _value(text, at, depth)
    return value if isinstance(value, str) else text[at:end], end


def _object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while text[at : at + 1] != "}":
        name, at = _key(text, at, depth)
        at = _expect(text, _skip(text, at), ":")
        found[name], at = _value(text, at, depth)
        at = _next_member(text, at, "}")
    return found, at + 1


def _array(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    while text[at : at + 1] != "]":
        value, at = _value(text, at, depth)
        found.append(value)
        at = _next_member(text, at, "]")
    return found, at + 1


def _expect(text: str, at: int, wanted: str) -> int:
    if text[at : at + 1] != wanted:
        raise ValueError(f"expected {wanted} at {at}")
    return _skip(text, at + 1)


def _next_member(text: str, at: int, closing: str) -> int:
    at = _skip(text, at)
    return at if text[at : at + 1] == closing else _expect(text, at, ",")
