"""JSON that others may have written, as typed values: every field is checked against its annotation."""

import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar

Document = dict[str, Any]
"""A JSON object that we make: what `-o json` prints of a thing."""
_T = TypeVar("_T")
_MOST = 2**63
_WORDS: Mapping[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: "a list",
    list: "a list",
    Sequence: "a list",
    Mapping: "an object",
    dict: "an object",
    type(None): "null",
}


def build(made_as: type[_T], document: Any) -> _T:
    """Return a dataclass or NamedTuple of a JSON object. Raises ValueError, which says what is wrong."""
    made: _T = _object(made_as, document)
    return made


def value(wanted: Any, found: Any, place: str = "it") -> Any:
    """Return what JSON says, as the type `wanted`: lists as tuples where that has tuples, and so on at every
    depth.

    Whole numbers are of 64 bits, numbers finite, and texts can be written as UTF-8. Raises ValueError, which
    names `place`.
    """
    if wanted is Any:
        return found
    origin = typing.get_origin(wanted) or wanted
    if origin in (typing.Union, types.UnionType):
        return _one_of(typing.get_args(wanted), found, place)
    if origin is Literal:
        if found not in typing.get_args(wanted) or not isinstance(found, str):
            raise ValueError(f"{place} must be one of {', '.join(typing.get_args(wanted))}")
        return found
    if origin in _LISTS:
        return _list(wanted, origin, found, place)
    if origin in (Mapping, dict):
        return _mapping(wanted, found, place)
    if origin in _PLAIN:
        if not _PLAIN[origin](found):
            raise ValueError(f"{place} must be {_WORDS[origin]}")
        return found
    return _object(wanted, found, place)


def _is_text(found: Any) -> bool:
    if type(found) is not str:
        return False
    try:
        found.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_whole(found: Any) -> bool:
    return type(found) is int and -_MOST <= found < _MOST


_PLAIN: Mapping[Any, Callable[[Any], bool]] = {
    str: _is_text,
    int: _is_whole,
    bool: lambda found: type(found) is bool,
    float: lambda found: _is_whole(found) or (type(found) is float and math.isfinite(found)),
    type(None): lambda found: found is None,
}
_LISTS = (tuple, list, Sequence)


def _one_of(options: Sequence[Any], found: Any, place: str) -> Any:
    for option in options:
        try:
            return value(option, found, place)
        except ValueError:
            continue
    names = (_WORDS.get(typing.get_origin(option) or option, "an object") for option in options)
    raise ValueError(f"{place} must be {' or '.join(names)}")


def _list(wanted: Any, origin: Any, found: Any, place: str) -> Any:
    if type(found) not in (list, tuple):
        raise ValueError(f"{place} must be a list")
    kinds = typing.get_args(wanted) or (Any,)
    if origin is tuple and kinds[-1] is not Ellipsis and len(kinds) != len(found):
        raise ValueError(f"{place} must be a list of {len(kinds)}")
    each = kinds if origin is tuple and kinds[-1] is not Ellipsis else (kinds[0],) * len(found)
    items = [value(kind, item, f"an entry of {place}") for kind, item in zip(each, found, strict=True)]
    return tuple(items) if origin is tuple else items


def _mapping(wanted: Any, found: Any, place: str) -> dict[str, Any]:
    if type(found) is not dict or not all(map(_is_text, found)):
        raise ValueError(f"{place} must be an object")
    kind = (typing.get_args(wanted) or (str, Any))[1]
    return {name: value(kind, item, f"an entry of {place}") for name, item in found.items()}


@lru_cache
def _fields(made_as: Any) -> tuple[Mapping[str, Any], frozenset[str]]:
    """Return name -> type, and the names that must be there."""
    hints = typing.get_type_hints(made_as)
    if is_dataclass(made_as):
        known = fields(made_as)
        needed = {f.name for f in known if f.default is MISSING and f.default_factory is MISSING}
        return {f.name: hints[f.name] for f in known}, frozenset(needed)
    names: Sequence[str] = made_as._fields
    return {name: hints[name] for name in names}, frozenset(set(names) - set(made_as._field_defaults))


def _object(made_as: Any, found: Any, place: str = "it") -> Any:
    if type(found) is not dict:
        raise ValueError(f"{place} must be an object")
    known, needed = _fields(made_as)
    if unknown := sorted(found.keys() - known.keys(), key=repr):
        raise ValueError(f"{place} has a field {unknown[0]!r} that nobody knows")
    if missing := sorted(needed - found.keys()):
        raise ValueError(f"{place} lacks {missing[0]!r}")
    return made_as(**{name: value(known[name], item, name) for name, item in found.items()})
