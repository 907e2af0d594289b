"""What Spark's Python workers do, a share of the judged letters at a time. Between them go only members of
groups, and what these come to."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, groupby
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dlq.analyzers import tables
from dlq.analyzers.groups import incidents, relations
from dlq.analyzers.groups.conclusions import NOTHING, Change, conclude, with_rule
from dlq.analyzers.groups.contract import Come, Context, Relation
from dlq.analyzers.groups.incidents import Place, Slot
from dlq.analyzers.groups.judged import Identity, Judged, Key, number_of
from dlq.analyzers.judging import JUDGED
from dlq.analyzers.spark.files import Files
from dlq.archive import analyses, parquet
from dlq.archive.analyses import SLOTS, TABLES
from dlq.archive.store_facts import FACTS
from dlq.core.settings import Rule
from dlq.core.store_facts import Fact

_ROWS = 10_000
"""Of a table that are written at once."""
Item = tuple[int, tuple[Key, Any]]
"""The number of a share, and what is said under a key to its letters."""
Sent = tuple[tuple[int, tuple[Any, ...]], tuple[int | None, Key, Any]]
"""A member of a group: what it is sorted by, and the share that it is of, its key and what it says."""
Counted = tuple[tuple[str, str, int, tuple[bool, str]], Slot]
"""A slot, and what it is sorted by: its place, and the source of transactions that were counted apart."""


class Changed(NamedTuple):
    """Letters of a share that are not as they were by themselves, by their rows."""

    rows: Sequence[int]
    changes: Sequence[Change]


class Shares(NamedTuple):
    """The judged letters of an analysis, as workers read them, and what they are looked at for."""

    files: Files
    folder: str
    """Of the analysis."""
    parts: Sequence[Sequence[str]]
    """Files of each share."""
    since: int | None
    context: Context
    rules: Sequence[Rule]
    max_laps: int
    shared: Sequence[str] = ()
    """Files of the keys that several letters have."""

    def read(self, number: int, columns: Iterable[str]) -> pa.Table:
        """Columns of a share's letters. Raises ArchiveError."""
        wanted = [name for name in JUDGED.names if name in {*columns, "captured_at"}]
        parts = (_read(self.files, name, JUDGED, wanted) for name in self.parts[number])
        table = pa.concat_tables([JUDGED.empty_table().select(wanted), *parts])
        if self.since is None:
            return table
        since = pa.scalar(self.since, table.schema.field("captured_at").type)
        return table.filter(pc.greater_equal(table["captured_at"], since))

    def write(self, name: str, data: pa.Table) -> str:
        """A file of the analysis; its whole name."""
        path = f"{self.folder}/{name}.parquet"
        with self.files.write(path) as stream:
            tables.write(data, stream)
        return path


def _read(files: Files, name: str, schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    with parquet.readable(name):
        return (
            analyses.open_table(files, name, schema, columns)
            .read(columns=columns)
            .cast(pa.schema([schema.field(column) for column in columns]))
        )


def find_shared(shares: Shares, buckets: int, bucket: int) -> str:
    """The keys of one bucket that several letters have, as a file."""
    found = []
    for number in range(len(shares.parts)):
        keys = pc.list_flatten(shares.read(number, ["keys"])["keys"])
        found.append(keys.filter(pc.equal(pc.bit_wise_and(keys, buckets - 1), bucket)))
    counted = pc.value_counts(pa.chunked_array(chain.from_iterable(one.chunks for one in found), pa.int64()))
    values, counts = counted.flatten()
    return shares.write(f"shared-{bucket:05d}", pa.table({"key": values.filter(pc.greater(counts, 1))}))


class _Concerned(NamedTuple):
    """The letters of a share of which anything may be found, by their rows."""

    rows: Sequence[int]
    letters: Sequence[Judged]
    context: Context


def _concerned(
    shares: Shares, number: int, said: Mapping[Key, Any], looked_for: Sequence[Relation]
) -> _Concerned:
    columns = {one.column for one in looked_for}
    look = shares.read(number, ["record_id", "keys", *filter(None, columns)])
    shared = _shared(shares, look["keys"]) if None in columns else {}
    rows = set(chain.from_iterable(shared.values()))
    for name in filter(None, columns):
        rows.update(pc.indices_nonzero(pc.is_valid(look[name])).to_pylist())
    if None in columns:
        of_rules = pa.array([key[2] for key in said if key[0] == RULE], pa.string())
        rows.update(pc.indices_nonzero(pc.is_in(look["record_id"], value_set=of_rules)).to_pylist())
        rows.update(range(len(look)) if relations.concerns_all(shares.context) else ())
    found = sorted(rows)
    letters = _letters(shares, number, found, said) if found else []
    return _Concerned(found, letters, shares.context._replace(shared=shared.keys()))


def _shared(shares: Shares, keys: pa.ChunkedArray) -> dict[int, list[int]]:
    """The keys that several letters have, and the rows of those that are of this share."""
    every = pa.concat_tables(pq.read_table(shares.files.parquet(name)) for name in shares.shared)
    flat = pc.list_flatten(keys)
    has = pc.is_in(flat, value_set=every["key"])
    rows: dict[int, list[int]] = {}
    pairs = zip(*(part.filter(has).to_pylist() for part in (flat, pc.list_parent_indices(keys))), strict=True)
    for key, row in pairs:
        rows.setdefault(key, []).append(row)
    return rows


def _letters(shares: Shares, number: int, rows: Sequence[int], said: Mapping[Key, Any]) -> list[Judged]:
    """With what the user's rules say of them."""
    letters = tables.read_letters(shares.read(number, tables.FROM_FILES).take(pa.array(rows, pa.int64())))
    held = ((place, said.get(key_of_rule(one.identity))) for place, one in enumerate(letters))
    for place, rule in held:
        if rule is not None:
            letters[place] = with_rule(letters[place], shares.rules[rule])
    return letters


RULE = "rule"


def key_of_rule(letter: Identity) -> Key:
    """Under which the number of the user's rule is said that holds of a letter."""
    return (RULE, *letter)


def say(shares: Shares, round_of: int, number: int, items: Iterable[Item]) -> Iterator[Sent]:
    """What a share's letters are members of in one round."""
    said = dict(value for _, value in items)
    looked_for = relations.ROUNDS[round_of]
    _, letters, context = _concerned(shares, number, said, looked_for)
    for relation in looked_for if letters else ():
        for key, order, value in relation.members(letters, context, said):
            yield (number_of(key), order), (number, key, value)


def together(shares: Shares, round_of: int, index: int, sent: Iterable[Sent]) -> Iterator[Item]:
    """What the members of each key come to, who come in order; and rows of tables, which are written."""
    with ExitStack() as until:
        rows = _Rows(shares, f"{round_of}-{index:05d}", until)
        for _, group in groupby(sent, key=lambda one: one[0][0]):
            key, come, of_shares = _come(group, shares.context)
            rows.take(come.rows)
            if come.said is not None:
                yield from ((number, (key, come.said)) for number in of_shares)
        rows.flush()


def _come(group: Iterator[Sent], context: Context) -> tuple[Key, Come, set[int]]:
    """What the members of one key come to, and the shares that they are of."""
    of_shares: set[int] = set()

    def told() -> Iterator[Any]:
        for _, (number, _, said) in chain([first], group):
            if number is not None:
                of_shares.add(number)
            yield said

    first = next(group)
    key, members = first[1][1], told()
    come = relations.OF_KIND[key[0]].together(key, members, context)
    deque(members, maxlen=0)
    return key, come, of_shares


class _Rows:
    """Rows of tables, each of which becomes a file."""

    def __init__(self, shares: Shares, name: str, until: ExitStack) -> None:
        self._shares, self._name, self._until = shares, name, until
        self._waiting: dict[str, list[Mapping[str, Any]]] = {}
        self._writers: dict[str, pq.ParquetWriter] = {}

    def take(self, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        for table, row in rows:
            waiting = self._waiting.setdefault(table, [])
            waiting.append(row)
            if len(waiting) >= _ROWS:
                self._write(table)

    def flush(self) -> dict[str, str]:
        """All that waits is written; the file of each table."""
        for table in self._waiting:
            self._write(table)
        return {table: self._path(table) for table in self._waiting}

    def _path(self, table: str) -> str:
        return f"{self._shares.folder}/{table}/{self._name}.parquet"

    def _write(self, table: str) -> None:
        if table not in self._writers:
            stream = self._until.enter_context(self._shares.files.write(self._path(table)))
            writer = pq.ParquetWriter(stream, _SCHEMAS[table], compression="zstd", compression_level=1)
            self._writers[table] = self._until.enter_context(writer)
        self._writers[table].write_table(tables.make(_SCHEMAS[table], self._waiting[table]))
        self._waiting[table] = []


_SCHEMAS = {**TABLES, "slots": SLOTS}


def conclude_share(shares: Shares, number: int, items: Iterable[Item]) -> Iterator[Changed | Counted]:
    """What was found of a share's letters changes their verdicts; and the slots that they all count in."""
    said = dict(value for _, value in items)
    every = [*chain.from_iterable(relations.ROUNDS)]
    rows, letters, context = _concerned(shares, number, said, every)
    changed: dict[int, Change] = {}
    for row, letter in zip(rows, letters, strict=True):
        found = relations.find(letter, said, context)
        if found != NOTHING or letter.user_rule is not None:
            changed[row] = conclude(letter, found, shares.rules, shares.max_laps)
    told = Changed(list(changed), list(changed.values()))
    yield told
    table = tables.change(shares.read(number, tables.COUNTED), *told, names=("cause",))
    for (place, of), slot in tables.count(table).items():
        yield (*place, (of is not None, of or "")), slot


def find_incidents(
    shares: Shares, span: int, looked_at: int, index: int, counted: Iterable[Counted]
) -> Iterator[str]:
    """The slots, and the incidents that they are part of, as files; the names of the former. Slots of one
    kind of reason come together, by failure and time."""
    with ExitStack() as until:
        rows = _Rows(shares, f"of-slots-{index:05d}", until)
        for kind, of_kind in groupby(counted, key=lambda one: one[0][0]):
            apart: dict[Place, list[tuple[str | None, Slot]]] = {}
            for part in incidents.in_parts(_merged(of_kind, apart)):
                found = incidents.find(kind, part, span)
                incident_at = {(kind, *one.slot[:2]): one.incident_id for one in found}
                rows.take(("incidents", one._asdict()) for one in incidents.incidents(found, looked_at))
                places = [(kind, *slot[:2]) for slot in part]
                each = ((place, of, slot) for place in places for of, slot in apart.pop(place))
                rows.take(
                    ("slots", tables.row_of_slot(place, of, slot, incident_at.get(place)))
                    for place, of, slot in each
                )
        names = rows.flush()
    yield from (name for table, name in names.items() if table == "slots")


def _merged(counted: Iterable[Counted], apart: dict[Place, list[tuple[str | None, Slot]]]) -> Iterator[Slot]:
    """Slots of one place as one; what was counted apart there is put into `apart`."""
    for place, of_place in groupby(counted, key=lambda one: one[0][:3]):
        slots = []
        for of, same in groupby(of_place, key=lambda one: one[0][3]):
            merged = incidents.merge([slot for _, slot in same])
            slots.append((of[1] if of[0] else None, merged))
        apart[place] = slots
        yield incidents.merge([slot for _, slot in slots])


def write_verdicts(
    shares: Shares, slots: Sequence[str], number: int, concluded: Iterable[Changed | Counted]
) -> Iterator[str]:
    """The verdicts of a share's letters, as a file."""
    [changed] = [one for one in concluded if isinstance(one, Changed)]
    table = tables.change(shares.read(number, {*tables.SAID, *tables.COUNTED}), *changed)
    verdicts = tables.verdicts(table, _incident_at(shares.files, slots))
    yield shares.write(f"verdicts/part-{number:05d}", verdicts)


def _incident_at(files: Files, slots: Sequence[str]) -> dict[Place, str]:
    columns = ["kind", "fingerprint", "slot", "incident_id"]
    none = SLOTS.empty_table().select(columns)
    every = pa.concat_tables([none, *(_read(files, name, SLOTS, columns) for name in slots)])
    found = every.filter(pc.is_valid(every["incident_id"]))
    rows = zip(*(found[name].to_pylist() for name in columns), strict=True)
    return {(kind, fingerprint, slot): incident_id for kind, fingerprint, slot, incident_id in rows}


def read_facts(files: Files, name: str) -> Iterator[Fact]:
    """What a store outside said, of one file."""
    table = _read(files, name, FACTS, FACTS.names)
    columns = (tables.values(table[column]) for column in Fact._fields)
    return map(Fact._make, zip(*columns, strict=True))
