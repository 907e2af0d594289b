"""Tables of an analysis, as both engines make them: whole columns at once, where no letter is looked at by
itself."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import signature
from itertools import starmap
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dlq.analyzers.classification import CLASSIFIED, ROW_GROUP
from dlq.analyzers.groups.classified import Classified, Identity
from dlq.analyzers.groups.conclusions import Change
from dlq.analyzers.groups.contract import Alike, Census, Context, Relation, Said
from dlq.analyzers.groups.relations import CENSUSES
from dlq.analyzers.rules.rocketmq import Stored
from dlq.archive.analyses import IN_FILES, KEPT, TABLES, VERDICTS

FROM_FILES = tuple(name for name in Classified._fields if name in CLASSIFIED.names)
"""Columns of classified letters that make a `Classified`."""
COUNTED = tuple({"record_id", "dead_at", "published_at"}.union(*(
    (*census.common, *census.known) for census in CENSUSES)))  # fmt: skip
"""Those by which letters are counted."""
SAID = tuple(name for name in IN_FILES.names if name in CLASSIFIED.names)
"""Those that files of verdicts hold."""


def read_letters(table: pa.Table) -> list[Classified]:
    """Return the letters of a table of step 1."""
    columns = [values(table[name]) for name in FROM_FILES]
    rockets = FROM_FILES.index("rocket")
    columns[rockets] = [None if one is None else Stored(**one) for one in columns[rockets]]
    return list(starmap(Classified, zip(*columns, strict=True)))


def identities(table: pa.Table) -> list[Identity]:
    """Return what no other letter has, of each."""
    return list(zip(table["source"].to_pylist(), table["record_id"].to_pylist(), strict=True))


def find_repeated(keys: pa.ChunkedArray) -> pa.Array:
    """Return the keys that are there more than once."""
    found, counts = pc.value_counts(keys).flatten()
    return found.filter(pc.greater(counts, 1))


def rows_of(keys: pa.ChunkedArray, wanted: pa.Array | pa.ChunkedArray) -> Iterator[tuple[int, int]]:
    """Yield which of the `wanted` keys letters have, and the rows of these."""
    flat = pc.list_flatten(keys)
    has = pc.is_in(flat, value_set=wanted)
    columns = (part.filter(has).to_pylist() for part in (flat, pc.list_parent_indices(keys)))
    return zip(*columns, strict=True)


def find_concerned(table: pa.Table, looked_for: Iterable[Relation], context: Context) -> set[int]:
    """Return the rows of letters of which anything may be found, though they share no key."""
    if any(relation.may_be_any(context) for relation in looked_for):
        return set(range(len(table)))
    columns = (pc.is_valid(table[one.column]) for one in looked_for if one.column is not None)
    return {row for has in columns for row in pc.indices_nonzero(has).to_pylist()}


def values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column; times are microseconds since the epoch, as everywhere in `dlq`."""
    found: list[Any] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return found


def change(
    table: pa.Table, rows: Sequence[int], changes: Sequence[Change], names: Sequence[str] = Change._fields
) -> pa.Table:
    """Return letters after step 1, and what was found of those in `rows` -> what is said of them by now;
    `names`: in which columns."""
    places = list(range(len(table)))
    for number, row in enumerate(rows):
        places[row] = len(table) + number
    for name in names:
        field = VERDICTS.field(name)
        is_there = name in table.column_names
        before = table[name].combine_chunks() if is_there else pa.nulls(len(table), field.type)
        now = pa.array([getattr(one, name) for one in changes], field.type)
        column = pa.concat_arrays([_array(before).cast(field.type), now]).take(pa.array(places, pa.int64()))
        at = table.column_names.index(name) if is_there else table.num_columns
        table = table.set_column(at, field, column) if is_there else table.append_column(field, column)
    return table


def _array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Join the chunks of a column; of none, an empty one."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)
    return column


def verdicts(changed: pa.Table, counted: Sequence[Sequence[Alike]], said: Said) -> pa.Table:
    """Return what `change` has made as the archive's table, with what each census says of the letters that it
    has counted."""
    for census, alike in zip(CENSUSES, counted, strict=True):
        told = {one: text for one in alike if (text := census.conclude(one, said)) is not None}
        if told:
            known = _names(_columns_of(told, changed, census))
            of_alike = pa.array(told.values(), pa.string()).take(
                pc.index_in(_names(_common(changed, census)), value_set=known)
            )
            at = changed.column_names.index(census.column)
            column = pc.coalesce(changed[census.column], of_alike)
            changed = changed.set_column(at, census.column, column)
    return changed.select(IN_FILES.names).cast(IN_FILES)


def _columns_of(alike: Iterable[Alike], table: pa.Table, census: Census) -> list[pa.Array]:
    """Return what letters that are alike have in common, as `_common` has it of letters."""
    types = [table.schema.field(name).type for name in census.common] + [pa.bool_()] * len(census.known)
    columns = zip(*((*one.values, one.slot) for one in alike), strict=True)
    return [pa.array(each, kind) for each, kind in zip(columns, [*types, pa.int64()], strict=True)]


def _names(columns: Iterable[Any]) -> Any:
    """Return rows as texts."""
    texts = (column.cast(pa.string()) for column in columns)
    names = pc.binary_join_element_wise(*texts, "\n", null_handling="replace", null_replacement="\0")
    return names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names


def _common(table: pa.Table, census: Census) -> list[Any]:
    """Return what letters have in common that a census takes for alike; their slot comes last, and is null
    where nothing says when they died."""
    at = _died_at(table)
    micros = census.slot * 1_000_000
    # Arrow rounds towards zero.
    floor = pc.if_else(pc.less(at, 0), pc.subtract(at, micros - 1), at)
    known = (pc.is_valid(table[name]) for name in census.known)
    return [*(table[name] for name in census.common), *known, pc.divide(floor, micros)]


def _died_at(table: pa.Table) -> Any:
    return pc.coalesce(table["dead_at"], table["published_at"]).cast(pa.int64())


def count_all(changed: pa.Table) -> list[list[Alike]]:
    """Return what each census counts, by what `change` has made."""
    return [count(changed, census) for census in CENSUSES]


def count(changed: pa.Table, census: Census) -> list[Alike]:
    """Return letters as far as they are alike."""
    common = _common(changed, census)
    names = [str(number) for number in range(len(common))]
    columns = [*common, _died_at(changed), changed["record_id"]]
    counting = pa.table(columns, names=[*names, "at", "record_id"])
    in_time = counting.filter(pc.is_valid(common[-1])).sort_by(
        [("at", "ascending"), ("record_id", "ascending")]
    )
    found = in_time.group_by(names, use_threads=False).aggregate(
        [("at", "count"), ("at", "first"), ("record_id", "first"), ("at", "last")]
    )
    totals = ("at_count", "at_first", "record_id_first", "at_last")
    rows = zip(*(found[name].to_pylist() for name in (*names, *totals)), strict=True)
    return [Alike(row[: len(names) - 1], *row[len(names) - 1 :]) for row in rows]


SCHEMAS = {**TABLES, **KEPT}


def make(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows of a table of the archive, of which its columns count."""
    schema = SCHEMAS[name]
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)


_FILTER = {"record_id": {"ndv": ROW_GROUP, "fpp": 0.01}}
"""By it DuckDB finds a letter of a million by its id, and reads the ids of few others. Older pyarrows write
none."""
_CAN_FILTER = "bloom_filter_options" in signature(pq.ParquetWriter).parameters


def write(table: pa.Table, stream: Any) -> None:
    """Write a table as a file of the archive."""
    how: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "row_group_size": ROW_GROUP}
    if _CAN_FILTER and "record_id" in table.column_names:
        how["bloom_filter_options"] = _FILTER
    pq.write_table(table, stream, **how)
