"""One more pull in an archive of many letters: only what the new ones touch is concluded anew, without Spark.

What is concluded of a letter follows from the letters that share a key with it (`groups.relations`). So
those that share one with a new letter are found in the files of classified letters, and so are those that
share one with these, which their conclusions need. All other verdicts stay: their files are those of the
analysis before, or are copied but for the rows that changed. Incidents add up (`groups.incidents.merge`): the
slots that were counted before are kept. The result is that of a whole analysis, row by row.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dlq.analyzers import tables, topology
from dlq.analyzers.asked import Asked, Done, span_of
from dlq.analyzers.classification import CLASSIFIED, ROW_GROUP, Part
from dlq.analyzers.groups import incidents, transactions
from dlq.analyzers.groups.classified import Identity, number_of
from dlq.analyzers.groups.contract import Member, OwnRows, Said
from dlq.analyzers.groups.incidents import INCIDENTS, SLOT, Place, Slot
from dlq.analyzers.groups.relations import EVERY
from dlq.analyzers.plain import Compared, compare, take_censuses, write
from dlq.archive import analyses
from dlq.archive.analyses import IN_FILES, SLOTS, VERDICTS, Analysis
from dlq.archive.manifests import Manifest
from dlq.archive.storage import parquet
from dlq.core.runtime.interpreter import rare_garbage_collection

_SECOND = 1_000_000


class _TooMany(Exception):
    """The new letters touch so many that a whole analysis is for them."""


class _Group(NamedTuple):
    """The new letters and those that they touch, and what is said of them together."""

    found: Compared
    new: Set[Identity]
    concluded: Set[Identity]
    """Whose verdicts are made anew; the others only say what these share with them."""

    @property
    def names(self) -> list[Identity]:
        """Of all its letters, in order."""
        return tables.identities(self.found.changed)

    @property
    def anew(self) -> pa.Table:
        """Letters whose verdicts are made anew, of `tables.change`."""
        is_anew = [one in self.concluded for one in self.names]
        return self.found.changed.filter(pa.array(is_anew, pa.bool_()))


class _Counts(NamedTuple):
    """Slots by now, and what that changes."""

    slots: pa.Table
    said: Said
    incidents: Sequence[Mapping[str, Any]]
    kinds: Set[str]
    """Of reasons, in which anything may have changed."""
    moved: Mapping[Place, tuple[str | None, str | None]]
    """Places whose letters are of another incident than before: of which, and of which now."""


class _Replaced(NamedTuple):
    """The rows of a relation."""

    table: str
    before: pa.Table
    left: pa.Table
    """Those that stay."""
    anew: Sequence[Mapping[str, Any]]
    """Those of letters whose verdicts are made anew."""


def run(asked: Asked, last: Analysis, kept: Sequence[Part], fresh: Sequence[Part]) -> Done | None:
    """Steps 2 to 4 for an archive whose other letters the last analysis has classified under the same terms,
    and all tables. None: so many letters are touched that a whole analysis is for them. Raises ArchiveError
    where what was kept cannot be read, ConfigError for a bad user rule."""
    with rare_garbage_collection():
        try:
            group = _gather(asked, last, kept, fresh)
            parts = [*kept, *fresh]
            counts = _count(asked, last, group, span_of(kept))
            return Done(parts, {"verdicts": _write(asked, last, kept, group, counts)})
        except _TooMany:
            return None


def _gather(asked: Asked, last: Analysis, kept: Sequence[Part], fresh: Sequence[Part]) -> _Group:
    new = pa.concat_tables(
        [CLASSIFIED.empty_table(), *(_table(asked, part.file, CLASSIFIED) for part in fresh)]
    )
    seen = _sources_seen(asked, last)
    touching = {*_keys_of(new), *(number_of(transactions.key_of(source)) for source in seen)}
    touched = _find(asked, kept, touching)[0]
    others, stems = _find(asked, kept, touching.union(_keys_of(touched)))
    stems.update(stem for part in fresh for stem in part.stems)
    found = compare(asked, pa.concat_tables([new, others]), [*kept, *fresh], _segments(asked, stems))
    concluded = {*tables.identities(new), *tables.identities(touched)}
    if len(concluded) < len(new) + len(touched):
        raise _TooMany
    return _Group(found, set(tables.identities(new)), concluded)


def _pairs(table: pa.Table, *columns: str) -> list[Any]:
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


def _keys_of(letters: pa.Table) -> set[int]:
    return set(pc.list_flatten(letters["keys"]).to_pylist())


def _sources_seen(asked: Asked, last: Analysis) -> set[str]:
    """Return sources of whose nodes pulls have learned since: their transactions may stand otherwise."""
    before, now = last.extra.get("nodes", {}), topology.digests(asked.store)
    return {source for source in {*before, *now} if before.get(source) != now.get(source)}


def _segments(asked: Asked, stems: Set[str]) -> list[Manifest]:
    return [m for m in asked.segments if m.stem in stems]


def _table(asked: Asked, name: str, schema: pa.Schema) -> pa.Table:
    return analyses.table(asked.store, name, schema)


def _find(asked: Asked, kept: Sequence[Part], keys: Set[int]) -> tuple[pa.Table, set[str]]:
    """Return letters of the parts that have one of these keys; and the segments of these, if rules ask."""
    most = asked.settings.analysis.spark_from
    found: list[pa.Table] = [CLASSIFIED.empty_table()]
    stems: set[str] = set()
    for part in kept:
        with parquet.readable(part.file):
            for rows, table in _match(asked, part.file, pa.array(sorted(keys), pa.int64())):
                found.append(table)
                stems.update(_find_stems(asked, part, rows) if asked.settings.rules else ())
        if sum(map(len, found)) > most:
            raise _TooMany
    return pa.concat_tables(found), stems


def _match(asked: Asked, name: str, keys: pa.Array) -> Iterator[tuple[list[int], pa.Table]]:
    """Yield of each row group the letters that have one of these keys, and their rows in the file."""
    file = analyses.open_table(asked.store, name, CLASSIFIED, {"keys"})
    whole = None
    for number, first in enumerate(_starts(file)):
        column = file.read_row_group(number, columns=["keys"])["keys"]
        has = pc.is_in(pc.list_flatten(column), value_set=keys)
        rows = pc.unique(pc.list_parent_indices(column).filter(has))
        if len(rows):
            whole = whole or analyses.open_table(asked.store, name, CLASSIFIED)
            table = whole.read_row_group(number, columns=CLASSIFIED.names).cast(CLASSIFIED)
            yield [first + row for row in rows.to_pylist()], table.take(rows)


def _starts(file: Any) -> list[int]:
    """Return the row with which each row group begins."""
    counts = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    return [sum(counts[:number]) for number in range(len(counts))]


def _find_stems(asked: Asked, part: Part, rows: Sequence[int]) -> Iterator[str]:
    """Yield the segments that these rows of a part are of: it has them one segment after the other."""
    letters_in = {m.stem: m.rows for m in asked.segments}
    wanted_rows = sorted(rows, reverse=True)
    end = 0
    for stem in part.stems:
        end += letters_in[stem]
        if wanted_rows and wanted_rows[-1] < end:
            yield stem
        while wanted_rows and wanted_rows[-1] < end:
            wanted_rows.pop()


def _count(asked: Asked, last: Analysis, group: _Group, span_before: int) -> _Counts:
    before = _complete(_tables(asked, last, "slots"), SLOTS.names[:9])
    changed, context = group.found.changed, group.found.context
    sources = set(group.anew["source"].filter(pc.is_valid(group.anew["role"])).to_pylist())
    of_anew = pc.fill_null(pc.is_in(before["transactions_of"], value_set=_texts(sources)), False)
    is_new = pa.array([one in group.new for one in group.names], pa.bool_())
    is_of_anew = pc.is_in(changed["source"], value_set=_texts(sources))
    counts = pc.if_else(pc.is_valid(changed["role"]), is_of_anew, is_new)
    counted = tables.count(changed.filter(counts), INCIDENTS)
    concerned = INCIDENTS.members([*counted, *tables.count(group.anew, INCIDENTS)])
    kinds = {str(one.key[1]) for one in concerned}
    kinds |= set(pc.unique(before["kind"].filter(of_anew)).to_pylist())
    if incidents.history_of(context.span) != incidents.history_of(span_before):
        kinds |= set(pc.unique(before["kind"]).to_pylist())
    is_of_kinds = pc.is_in(before["kind"], value_set=_texts(kinds))
    old = _rows(before.filter(pc.and_not(is_of_kinds, of_anew)))
    said, rows = take_censuses([counted], context, map(_member_of, old))
    slots = pa.concat_tables([before.filter(pc.invert(is_of_kinds)), tables.make("slots", rows["slots"])])
    now = {_place_of(row): row["incident_id"] for row in rows["slots"]}
    was = {_place_of(row): row["incident_id"] for row in old}
    moved = {at: (was[at], now.get(at)) for at in was if was[at] != now.get(at)}
    return _Counts(slots, said, rows["incidents"], kinds, moved)


def _complete(table: pa.Table, columns: Iterable[str]) -> pa.Table:
    """Return the table, of which these columns are never without a value. Raises Damaged."""
    for name in columns:
        column = table[name]
        inside = pc.list_flatten(column).null_count if pa.types.is_list(column.type) else 0
        if column.null_count or inside:
            raise analyses.Damaged(f"what the last analysis has kept is without {name}")
    return table


def _texts(values: Iterable[str]) -> pa.Array:
    return pa.array(sorted(values), pa.string())


def _place_of(row: Mapping[str, Any]) -> Place:
    return row["kind"], row["fingerprint"], row["slot"]


def _member_of(row: Mapping[str, Any]) -> Member:
    """Return a slot of the archive, as it counted."""
    slot = Slot(*(row[name] for name in Slot._fields))
    return incidents.member_of(row["kind"], row["transactions_of"], slot)


def _tables(asked: Asked, last: Analysis, name: str) -> pa.Table:
    schema = tables.SCHEMAS[name]
    files = last.tables.get(name, ())
    return pa.concat_tables([schema.empty_table(), *(_table(asked, file, schema) for file in files)])


def _write(asked: Asked, last: Analysis, kept: Sequence[Part], group: _Group, counts: _Counts) -> list[str]:
    """Write all tables; returns the files of verdicts that are taken over."""
    of_group = group.anew
    anew = [tables.verdicts(of_group, tables.count_all(of_group), counts.said)]
    taken_over: list[str] = []
    letters = 0
    for number, name in enumerate(last.tables["verdicts"], 1):
        rows, changed = _replace_rows(asked, name, group, counts.moved, _times(asked, kept, counts.moved))
        letters += rows
        if changed is None and rows >= ROW_GROUP:
            taken_over.append(name)
        elif changed is None or len(changed) < ROW_GROUP:
            anew.append(_table(asked, name, IN_FILES) if changed is None else changed)
        else:
            write(asked, "verdicts", changed, number)
    if letters != sum(m.rows for m in _segments(asked, {stem for part in kept for stem in part.stems})):
        raise analyses.Damaged("the last analysis has kept another number of verdicts than of letters")
    write(asked, "verdicts", pa.concat_tables(anew))
    write(asked, "slots", counts.slots)
    replaced = [_replace(asked, last, group, one.column, one.rows) for one in EVERY if one.rows]
    for one in replaced:
        write(asked, one.table, pa.concat_tables([one.left, tables.make(one.table, one.anew)]))
    _write_incidents(asked, last, group, counts, replaced)
    return taken_over


def _times(
    asked: Asked, kept: Sequence[Part], moved: Mapping[Place, tuple[str | None, str | None]]
) -> dict[Identity, int]:
    """Return the slots in which letters count that may be of these places."""
    if not moved:
        return {}
    failures = _texts({failure for _, failure, _ in moved})
    # Arrow rounds towards zero.
    near = pa.array(sorted({at for _, _, slot in moved for at in (slot, slot + 1)}), pa.int64())
    found: dict[Identity, int] = {}
    for part in kept:
        with parquet.readable(part.file):
            columns = ("source", "record_id", "fingerprint", "dead_at", "published_at")
            look = analyses.open_table(asked.store, part.file, CLASSIFIED, columns).read(
                columns=list(columns)
            )
        at = pc.coalesce(look["dead_at"], look["published_at"]).cast(pa.int64())
        may_be = pc.and_(
            pc.is_in(look["fingerprint"], value_set=failures),
            pc.is_in(pc.divide(at, SLOT * _SECOND), value_set=near),
        )
        names = look.select(["source", "record_id"]).filter(may_be).columns
        rows = zip(*(column.to_pylist() for column in names), at.filter(may_be).to_pylist(), strict=True)
        found.update(((source, record_id), micros // (SLOT * _SECOND)) for source, record_id, micros in rows)
        if len(found) > asked.settings.analysis.spark_from:
            raise _TooMany
    return found


def _replace_rows(
    asked: Asked,
    name: str,
    group: _Group,
    moved: Mapping[Place, tuple[str | None, str | None]],
    slots: Mapping[Identity, int],
) -> tuple[int, pa.Table | None]:
    """Return how many verdicts a file has; and those that stay, where some do not or are of another
    incident."""
    columns = ("source", "record_id")
    ids = _texts({record_id for _, record_id in (*group.concluded, *slots)})
    with parquet.readable(name):
        file = analyses.open_table(asked.store, name, VERDICTS, columns)
        look = file.read(columns=list(columns))
    if not pc.any(pc.is_in(look["record_id"], value_set=ids)).as_py():
        return len(look), None
    names = tables.identities(look)
    if not group.new.isdisjoint(names):
        raise _TooMany
    table = _table(asked, name, IN_FILES)
    table = _move(table, names, moved, slots)
    return len(look), table.filter(pa.array([one not in group.concluded for one in names], pa.bool_()))


def _move(
    table: pa.Table,
    names: Sequence[Identity],
    moved: Mapping[Place, tuple[str | None, str | None]],
    slots: Mapping[Identity, int],
) -> pa.Table:
    """Return verdicts with the incidents that their letters are of by now."""
    if not moved:
        return table
    told = (table[name].to_pylist() for name in ("exception_family", "cause", "fingerprint", "incident_id"))
    of_now: list[str | None] = []
    for name, family, cause, failure, incident_id in zip(names, *told, strict=True):
        slot = slots.get(name)
        place = None if slot is None or cause is None else (incidents.kind_of(family, cause), failure, slot)
        was, now = moved.get(place, (None, None)) if place else (None, None)
        # A suppressed duplicate is of its burst.
        of_now.append(now if place in moved and incident_id == was else incident_id)
    column = table.column_names.index("incident_id")
    return table.set_column(column, "incident_id", pa.array(of_now, pa.string()))


def _replace(asked: Asked, last: Analysis, group: _Group, column: str | None, own: OwnRows) -> _Replaced:
    """Return what becomes of a relation's own rows. `column`: in which its letters have a value."""
    letters = group.anew.filter(pc.is_valid(group.anew[column]))
    places = set(_pairs(letters, *own.of))
    before = _tables(asked, last, own.table)
    is_left = pa.array([place not in places for place in _pairs(before, *own.of)], pa.bool_())
    anew = [row for row in group.found.rows[own.table] if tuple(map(row.get, own.of)) in places]
    return _Replaced(own.table, before, before.filter(is_left), anew)


def _write_incidents(
    asked: Asked, last: Analysis, group: _Group, counts: _Counts, replaced: Iterable[_Replaced]
) -> None:
    """Write the incidents: those of slots, and those that are rows of relations, too."""
    of_relations = [one for one in replaced if "incident_id" in one.before.column_names]
    rows = _tables(asked, last, "incidents")
    is_of_relation = _is_named(rows, [one.before for one in of_relations])
    of_slots = [
        {**row, "ongoing": incidents.is_ongoing(row["end"], group.found.context.looked_at)}
        for row in _rows(_complete(rows.filter(pc.invert(is_of_relation)), ("incident_id", "end")))
        if incidents.kind_in(row["incident_id"]) not in counts.kinds
    ]
    anew = [*of_slots, *counts.incidents, *chain.from_iterable(one.anew for one in of_relations)]
    left = rows.filter(_is_named(rows, [one.left for one in of_relations]))
    write(asked, "incidents", pa.concat_tables([left, tables.make("incidents", anew)]))


def _is_named(rows: pa.Table, others: Iterable[pa.Table]) -> Any:
    """Return whether each row's incident is in one of the other tables."""
    ids = (one["incident_id"].to_pylist() for one in others)
    return pc.is_in(rows["incident_id"], value_set=_texts(chain.from_iterable(ids)))


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows of a table; times are microseconds since the epoch."""
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(number, field.name, table[field.name].cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
