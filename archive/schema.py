"""The Parquet schema of a segment, and records to and from Arrow, column by column."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise, repeat
from typing import Any, get_type_hints

import pyarrow as pa

from dlq.core.columns import ArrowArray, Column, Columns, Constant, Maps
from dlq.core.record import COLUMNS, Death, Record

FORMAT_VERSION = 1

_TIME = pa.timestamp("us", tz="UTC")
_MAP = pa.map_(pa.string(), pa.string())
_DEATH = pa.struct(
    [
        ("reason", pa.string()),
        ("queue", pa.string()),
        ("exchange", pa.string()),
        ("routing_keys", pa.list_(pa.string())),
        ("count", pa.int64()),
        ("time", _TIME),
        ("original_expiration", pa.string()),
    ]
)
REPLAYS = pa.schema(
    [
        ("record_id", pa.string()),
        ("plan", pa.string()),
        ("target", pa.string()),
        ("lap", pa.int32()),
        ("state", pa.string()),
        ("key", pa.string()),
        ("updated_at", pa.timestamp("us", tz="UTC")),
        ("detail", pa.string()),
    ]
)
"""The rows of the ledger in the view `replays` (`dlq.archive.views`)."""
AUDIT = pa.schema(
    [
        ("done_at", pa.timestamp("us", tz="UTC")),
        ("actor", pa.string()),
        ("about", pa.string()),
        ("subject", pa.string()),
        ("action", pa.string()),
        ("value", pa.string()),
        ("reason", pa.string()),
    ]
)
"""Who did what (the view `audit`): `about` is failure, plan or letter, and `subject` which one."""
_TYPES: Mapping[str, pa.DataType] = {
    "queue_id": pa.int32(),
    "offset": pa.int64(),
    "keys": pa.list_(pa.string()),
    "captured_at": _TIME,
    "published_at": _TIME,
    "first_dead_at": _TIME,
    "dead_at": _TIME,
    "expires_at": _TIME,
    "deaths": pa.list_(_DEATH),
    "attempts": pa.int32(),
    "redelivered": pa.bool_(),
    "headers": _MAP,
    "raw_properties": pa.binary(),
    "properties": _MAP,
    "body": pa.binary(),
    "body_size": pa.int64(),
    "persistent": pa.bool_(),
    "priority": pa.int32(),
    "flags": pa.int32(),
}
_TEXT = pa.field("text", pa.string())
SEGMENT = pa.schema([(name, _TYPES.get(name, pa.string())) for name in COLUMNS])


def check_columns(found: pa.Schema, columns: Iterable[str]) -> None:
    """Raise pa.ArrowInvalid where a column of a segment is missing or holds something else: somebody changed
    the file."""
    for name in columns:
        if name not in found.names or found.field(name).type != SEGMENT.field(name).type:
            raise pa.ArrowInvalid(f"its column {name} is missing, or of another type")


_HINTS = get_type_hints(Record)
_FULL = frozenset(name for name in COLUMNS if _HINTS[name] in (str, int))
"""Columns that have a value for each letter."""


def check_cells(table: pa.Table | pa.RecordBatch) -> None:
    """Raise pa.ArrowInvalid where letters lack what each letter has, or a text is none: somebody changed the
    file."""
    for name, column in zip(table.schema.names, table.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(f"its column {name} is damaged: {error}") from error
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        if name in _FULL and column.null_count:
            raise pa.ArrowInvalid(f"its column {name} has an empty cell")
        if pa.types.is_map(column.type) and any(chunk.items.null_count for chunk in chunks):
            raise pa.ArrowInvalid(f"its column {name} has a name without a value")


def _offsets(groups: Sequence[Sequence[Any]] | Sequence[Mapping[str, str]]) -> pa.Array:
    return pa.array(list(accumulate(map(len, groups), initial=0)), pa.int32())


def _map_column(maps: Sequence[Mapping[str, str]]) -> pa.Array:
    names = pa.array(list(chain.from_iterable(maps)), pa.string())
    values = pa.array(list(chain.from_iterable(m.values() for m in maps)), pa.string())
    return pa.MapArray.from_arrays(_offsets(maps), names, values)


def _list_column(lists: Sequence[Sequence[str]]) -> pa.Array:
    return pa.ListArray.from_arrays(_offsets(lists), pa.array(list(chain.from_iterable(lists)), pa.string()))


def _deaths_column(histories: Sequence[Sequence[Death]]) -> pa.Array:
    """Write each history once and then repeat it: letters that died together share one."""
    distinct = {id(history): history for history in histories}
    places = {each: place for place, each in enumerate(distinct)}
    flat = list(chain.from_iterable(distinct.values()))
    columns = [
        _list_column([d.routing_keys for d in flat]) if f.name == "routing_keys"
        else pa.array([getattr(d, f.name) for d in flat], f.type)
        for f in _DEATH
    ]  # fmt: skip
    written = pa.ListArray.from_arrays(
        _offsets(list(distinct.values())), pa.StructArray.from_arrays(columns, fields=list(_DEATH))
    )
    return written.take(pa.array([places[id(history)] for history in histories], pa.int32()))


_BUILDERS: Mapping[str, Any] = {
    "headers": _map_column,
    "properties": _map_column,
    "keys": _list_column,
    "deaths": _deaths_column,
}


def _array(field: pa.Field, values: Column) -> pa.Array:
    if isinstance(values, Constant):
        return _repeat(_array(field, [values.value]), len(values))
    if isinstance(values, ArrowArray):
        return values.array.cast(field.type)
    if isinstance(values, Maps):
        return _alike_maps(values)
    return _BUILDERS[field.name](values) if field.name in _BUILDERS else pa.array(values, field.type)


def _repeat(one: pa.Array, times: int) -> pa.Array:
    """Repeat a value: Arrow does a text at once, and a list entry by entry."""
    return one.take(pa.repeat(0, times)) if pa.types.is_nested(one.type) else pa.repeat(one[0], times)


def _alike_maps(maps: Maps) -> pa.Array:
    """Build maps that have the same names: the values come by name and are wanted by row."""
    rows, names = len(maps), len(maps.columns)
    by_name = [_array(_TEXT, values) for values in maps.columns.values()]
    by_row = array("i", bytes(4 * rows * names))
    for place in range(names):
        by_row[place::names] = array("i", range(place * rows, (place + 1) * rows))
    values = pa.concat_arrays(by_name).take(_integers(by_row)) if names else pa.array([], pa.string())
    repeated = pa.array(list(maps.columns), pa.string()).take(_integers(array("i", range(names)) * rows))
    offsets = array("i", range(0, rows * names + 1, names)) if names else array("i", [0]) * (rows + 1)
    return pa.MapArray.from_arrays(_integers(offsets), repeated, values)


def _integers(values: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])


def _columns(records: Sequence[Record]) -> Iterable[Column]:
    if isinstance(records, Columns):
        return records.columns
    return zip(*records, strict=True) if records else repeat((), len(COLUMNS))


def to_table(records: Sequence[Record]) -> pa.Table:
    """Return records as one Arrow table with the schema SEGMENT."""
    arrays = [_array(f, values) for f, values in zip(SEGMENT, _columns(records), strict=True)]
    return pa.Table.from_arrays(arrays, schema=SEGMENT)


def _to_deaths(column: pa.ChunkedArray) -> list[tuple[Death, ...]]:
    """Return the death histories of a segment, read column by column."""
    histories: list[tuple[Death, ...]] = []
    for chunk in column.chunks:
        entries = chunk.flatten()
        parts = dict(zip((f.name for f in _DEATH), map(_entry_values, entries.flatten()), strict=True))
        parts["routing_keys"] = [tuple(keys or ()) for keys in parts["routing_keys"]]
        deaths = list(map(Death._make, zip(*parts.values(), strict=True)))
        lengths = chunk.value_lengths().to_pylist()
        ends = list(accumulate((length or 0 for length in lengths), initial=0))
        histories += [tuple(deaths[begin:end]) for begin, end in pairwise(ends)]
    return histories


def _entry_values(array: pa.Array) -> list[Any]:
    times = pa.types.is_timestamp(array.type)
    values: list[Any] = (array.cast(pa.int64()) if times else array).to_pylist()
    return values


_READERS: Mapping[str, Any] = {"keys": lambda keys: tuple(keys or ()), "body": lambda body: body or b""}


def _maps_of(column: pa.ChunkedArray) -> Iterator[dict[str, str]]:
    """Yield the maps of a column. Names and values are read as two long columns: pyarrow's own way costs
    twice as much."""
    for chunk in column.chunks:
        offsets = chunk.offsets.to_pylist()
        first, end = offsets[0], offsets[-1]
        if first == end:
            yield from ({} for _ in range(len(chunk)))
            continue
        names, values = (c.slice(first, end - first) for c in (chunk.keys, chunk.items))
        texts = values.to_pylist()
        shared = _shared_names(names, offsets)
        if shared is not None:
            yield from map(dict, map(zip, repeat(shared), zip(*[iter(texts)] * len(shared), strict=True)))
        else:
            all_names = names.to_pylist()
            rows = (slice(begin - first, end - first) for begin, end in pairwise(offsets))
            yield from (dict(zip(all_names[each], texts[each], strict=True)) for each in rows)


def _shared_names(names: pa.Array, offsets: Sequence[int]) -> list[str] | None:
    """Return the names of the first map, where all the maps have the same in the same order."""
    width = offsets[1] - offsets[0] if len(offsets) > 1 else 0
    if any(end - begin != width for begin, end in pairwise(offsets)):
        return None
    is_alike = names.slice(width).equals(names.slice(0, len(names) - width))
    return names.slice(0, width).to_pylist() if is_alike else None


def column_values(column: pa.ChunkedArray, name: str) -> list[Any]:
    """Return the values of a segment's column of this name, as a record has them."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_map(column.type):
        return list(_maps_of(column))
    if name == "deaths":
        return _to_deaths(column)
    if name in _READERS:
        return [_READERS[name](value) for value in column.to_pylist()]
    return [None] * len(column) if column.null_count == len(column) else column.to_pylist()


def to_records(table: pa.Table) -> Iterator[Record]:
    """Return the rows of a segment (or of some of its columns) as records again."""
    columns = [
        column_values(table[name], name)
        if name in table.column_names
        else repeat(Record._field_defaults.get(name, ""), table.num_rows)
        for name in COLUMNS
    ]
    return map(Record._make, zip(*columns, strict=True))
