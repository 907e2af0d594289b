"""What a plan binds of a letter: all that a connector may look at when it sends it, and where it goes.

Whoever can write into the archive can change a letter after its plan was made, or approved. Its digest stands
in the plan's line, and the plan's own digest covers that line.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from operator import attrgetter
from typing import Any

from dlq.connectors.base import Target
from dlq.core.brokers import plugin_of
from dlq.core.record import COLUMNS, Record
from dlq.replay.plans.letters import Letter

_NOT_SENT = {
    "broker_version", "physical_id", "captured_at", "first_dead_at", "failure_text",
    "deaths", "attempts", "redelivered", "body_sha256", "pull_id", "mode",
}  # fmt: skip
SENT_COLUMNS = tuple(name for name in COLUMNS if name not in _NOT_SENT)
"""What connectors may look at when they publish; everything else of the record is empty then."""
ALWAYS_SENT = ("record_id", "broker_kind", "raw_properties")
"""What they look at in any case."""

_EMPTY = Record("", "", "", "", "")
_OF_VALUES = "2:"
"""Begins what `digest` makes; a plan of an older dlq has what `digest_of_pieces` makes."""
_LONG = ("raw_properties", "body")
"""Columns of bytes."""


def digest(record: Record, target: Target, edited: bool, body_sha256: str | None = None) -> str:
    """Return the digest of a letter as it was captured; `edited`: it does not go back as it was.
    `body_sha256` is that of its body, where it is known.

    Python writes no two different values alike, and in ASCII alike in all its versions. Of the bytes beside
    them the length is among the values.
    """
    block = record.raw_properties
    values = (
        _values_of(_kind_bound(record, edited))(record),
        *target,
        None if block is None else len(block),
        body_sha256 or sha256(_as_bytes(record.body)).hexdigest(),
    )
    return _OF_VALUES + sha256(ascii(values).encode() + _as_bytes(block)).hexdigest()


def restore_planned(letter: Letter, record: Record, edited: bool) -> Record | None:
    """Return the record with what its plan has bound and nothing else; None where that is not what was
    planned."""
    made = digest if letter.content.startswith(_OF_VALUES) else digest_of_pieces
    if made(record, letter.target, edited) != letter.content:
        return None
    bound = _bound_columns(record, edited)
    if bound is SENT_COLUMNS:
        return record
    bare = [*_EMPTY]
    for place in _places_of(bound):
        bare[place] = record[place]
    return Record._make(bare)


def _bound_columns(record: Record, edited: bool) -> tuple[str, ...]:
    """Return the columns by which a letter is sent: the property block and a few beside it, more where it was
    edited, or has no block."""
    return _columns_of(_kind_bound(record, edited))


def _kind_bound(record: Record, edited: bool) -> str | None:
    return None if edited or record.raw_properties is None else record.broker_kind


@lru_cache(maxsize=64)
def _columns_of(broker_kind: str | None) -> tuple[str, ...]:
    beside = plugin_of(broker_kind).sent_columns if broker_kind else None
    return SENT_COLUMNS if beside is None else (*ALWAYS_SENT, *beside)


@lru_cache(maxsize=64)
def _values_of(broker_kind: str | None) -> Callable[[Record], Any]:
    """Return what takes the values of the columns that are bound out of a record, but for the long ones."""
    return attrgetter(*(name for name in _columns_of(broker_kind) if name not in _LONG))


@lru_cache(maxsize=64)
def _places_of(names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(COLUMNS.index(name) for name in names)


def _as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else ascii(value).encode()


def digest_of_pieces(record: Record, target: Target, edited: bool) -> str:
    made = sha256()
    for name in _bound_columns(record, edited):
        for piece in _pieces(getattr(record, name)):
            made.update(piece)
    for piece in _pieces(target):
        made.update(piece)
    return made.hexdigest()


def _pieces(value: Any) -> Iterator[bytes]:
    """Yield a value so that no two different ones look alike: kind, length, content; a map keeps its
    order."""
    if isinstance(value, Mapping):
        value = [part for pair in value.items() for part in pair]
    if value is None:
        yield b"n"
    elif isinstance(value, bytes):
        yield b"b%d:" % len(value)
        yield value
    elif isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        yield b"s%d:%s" % (len(text), text)
    elif isinstance(value, int):
        yield b"i%d:" % value
    else:
        yield b"l%d:" % len(value)
        for part in value:
            yield from _pieces(part)
