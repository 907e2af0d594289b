"""Tables of an analysis, as both engines make them: whole columns at once, where no letter is looked at by
itself."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import starmap
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dlq.analyzers.groups.conclusions import Change
from dlq.analyzers.groups.incidents import DEPENDENCY, SLOT, Counted, Place, Slot
from dlq.analyzers.groups.judged import Judged
from dlq.analyzers.judging import JUDGED, ROW_GROUP
from dlq.analyzers.rules.rocketmq import Stored
from dlq.archive.analyses import SLOTS, VERDICTS

_MICROS = SLOT * 1_000_000
_PLACE = ("kind", "fingerprint", "slot")
FROM_FILES = tuple(name for name in Judged._fields if name in JUDGED.names)
"""Columns of judged letters that make a `Judged`."""
COUNTED = ("source", "record_id", "cause", "exception_family", "fingerprint", "connection_id", "role",
           "dead_at", "published_at")  # fmt: skip
"""Those that say in which slot a letter counts."""
SAID = tuple(name for name in VERDICTS.names if name in JUDGED.names)
"""Those that are a verdict's."""


def read_letters(table: pa.Table) -> list[Judged]:
    """The letters of a table of step 1."""
    columns = [values(table[name]) for name in FROM_FILES]
    rockets = FROM_FILES.index("rocket")
    columns[rockets] = [None if one is None else Stored(**one) for one in columns[rockets]]
    return list(starmap(Judged, zip(*columns, strict=True)))


def values(column: pa.ChunkedArray) -> list[Any]:
    """Of a column; times are microseconds since the epoch, as everywhere in `dlq`."""
    found: list[Any] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return found


def change(
    table: pa.Table, rows: Sequence[int], changes: Sequence[Change], names: Sequence[str] = Change._fields
) -> pa.Table:
    """Letters after step 1, and what was found of those in `rows` -> what is said of them by now; `names`: in
    which columns."""
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
    """Without chunks; of none, an empty one."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)
    return column


def verdicts(changed: pa.Table, incident_at: Mapping[Place, str]) -> pa.Table:
    """What `change` has made as the archive's table, with the incidents of the places where letters count."""
    if incident_at:
        kind, slot = _places(changed)
        mine = _names(kind, changed["fingerprint"], slot)
        known = _names(*map(pa.array, zip(*incident_at, strict=True)))
        of_place = pa.array(incident_at.values(), pa.string()).take(pc.index_in(mine, value_set=known))
        at = changed.column_names.index("incident_id")
        column = pc.coalesce(changed["incident_id"], of_place)
        changed = changed.set_column(at, "incident_id", column)
    return changed.select(VERDICTS.names).cast(VERDICTS)


def _names(kind: Any, fingerprint: Any, slot: Any) -> Any:
    """Places as texts."""
    names = pc.binary_join_element_wise(kind, fingerprint, slot.cast(pa.string()), "\n")
    return names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names


def _places(table: pa.Table) -> tuple[Any, Any]:
    """The kind of reason for which each letter died, and its slot; null: it counts in none. As
    `incidents.place_of` says it of one letter."""
    family, cause = table["exception_family"], table["cause"]
    is_shared = pc.is_in(family, value_set=pa.array(DEPENDENCY))
    kind = pc.if_else(is_shared, "dependency", pc.coalesce(family, cause))
    at = pc.coalesce(table["dead_at"], table["published_at"]).cast(pa.int64())
    # Arrow rounds towards zero.
    floor = pc.if_else(pc.less(at, 0), pc.subtract(at, _MICROS - 1), at)
    is_of_burst = pc.and_(pc.equal(cause, "suppressed_duplicate"), pc.is_valid(table["connection_id"]))
    counts = pc.and_(pc.is_valid(cause), pc.invert(pc.fill_null(is_of_burst, False)))
    return kind, pc.if_else(counts, pc.divide(floor, _MICROS), None)


def count(changed: pa.Table) -> Counted:
    """The slots that letters count in, by what `change` has made."""
    kind, slot = _places(changed)
    at = pc.coalesce(changed["dead_at"], changed["published_at"]).cast(pa.int64())
    source, role = changed["source"], changed["role"]
    of = pc.if_else(pc.is_valid(role), source, None)
    names = [*_PLACE, "of", "at", "record_id", "source", "cause"]
    columns = [kind, changed["fingerprint"], slot, of, at, changed["record_id"], source, changed["cause"]]
    counting = pa.table(columns, names=names).filter(pc.is_valid(slot))
    in_time = counting.sort_by([("at", "ascending"), ("record_id", "ascending")])
    each = in_time.group_by([*_PLACE, "of"], use_threads=False)
    found = each.aggregate(
        [("at", "count"), ("at", "first"), ("record_id", "first"), ("at", "last"), ("source", "distinct"),
         ("cause", "distinct")]
    )  # fmt: skip
    counted: dict[tuple[Place, str | None], Slot] = {}
    for row in zip(*(found[name].to_pylist() for name in _OF_SLOT), strict=True):
        kind_of, fingerprint, slot_at, source_of, letters, first, first_id, last, sources, causes = row
        counted[(kind_of, fingerprint, slot_at), source_of] = Slot(
            fingerprint, slot_at, letters, first, first_id, last, sorted(sources), sorted(causes)
        )
    return counted


_OF_SLOT = (*_PLACE, "of", "at_count", "at_first", "record_id_first", "at_last", "source_distinct",
            "cause_distinct")  # fmt: skip
"""What Arrow calls the columns of what was counted."""


def slots_table(counted: Counted, incident_at: Mapping[Place, str]) -> pa.Table:
    """What the next analysis counts on with."""
    rows = (row_of_slot(place, of, slot, incident_at.get(place)) for (place, of), slot in counted.items())
    return make(SLOTS, rows)


def row_of_slot(place: Place, of: str | None, slot: Slot, incident_id: str | None) -> dict[str, Any]:
    """`of`: the source, of transactions that were counted apart."""
    return {"kind": place[0], **slot._asdict(), "transactions_of": of, "incident_id": incident_id}


def make(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows, of which the columns of `schema` count."""
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)


def write(table: pa.Table, stream: Any) -> None:
    """A table as a file of the archive."""
    pq.write_table(table, stream, compression="zstd", compression_level=1, row_group_size=ROW_GROUP)
