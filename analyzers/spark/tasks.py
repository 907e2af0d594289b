"""What Spark's Python workers do, a share of the classified letters at a time. Between them go only members
of groups, and what these come to."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from itertools import chain, groupby
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dlq.analyzers import tables
from dlq.analyzers.classification import CLASSIFIED
from dlq.analyzers.groups import relations
from dlq.analyzers.groups.classified import Classified, Identity, Key, number_of
from dlq.analyzers.groups.conclusions import Change, conclude, with_rule
from dlq.analyzers.groups.contract import Alike, Context, Relation
from dlq.analyzers.spark.files import Files
from dlq.archive import analyses
from dlq.archive.storage import parquet
from dlq.archive.store_facts import FACTS
from dlq.core.settings import Rule
from dlq.core.store_facts import Fact

_ROWS = 10_000
"""Of a table that are written at once."""
Item = tuple[int, tuple[Key, Any]]
"""The number of a share, and what is said under a key to its letters."""
Sent = tuple[tuple[int, tuple[Any, ...]], tuple[int | None, Key, Any]]
"""A member of a group: what it is sorted by, and the share that it is of, its key and what it says."""


class Concluded(NamedTuple):
    """Letters of a share that are not as they were by themselves, by their rows; and what each census counts
    in the share."""

    rows: Sequence[int]
    changes: Sequence[Change]
    counted: Sequence[Sequence[Alike]]


class Shares(NamedTuple):
    """The classified letters of an analysis, as workers read them, and what they are looked at for."""

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
        """Return columns of a share's letters. Raises ArchiveError."""
        wanted = [name for name in CLASSIFIED.names if name in {*columns, "captured_at"}]
        parts = (_read(self.files, name, CLASSIFIED, wanted) for name in self.parts[number])
        table = pa.concat_tables([CLASSIFIED.empty_table().select(wanted), *parts])
        if self.since is None:
            return table
        since = pa.scalar(self.since, table.schema.field("captured_at").type)
        return table.filter(pc.greater_equal(table["captured_at"], since))

    def write(self, name: str, data: pa.Table) -> str:
        """Return a file of the analysis; its whole name."""
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
    """Return the keys of one bucket that several letters have, as a file."""
    found = []
    for number in range(len(shares.parts)):
        keys = pc.list_flatten(shares.read(number, ["keys"])["keys"])
        found.append(keys.filter(pc.equal(pc.bit_wise_and(keys, buckets - 1), bucket)))
    keys = pa.chunked_array(chain.from_iterable(one.chunks for one in found), pa.int64())
    return shares.write(f"shared-{bucket:05d}", pa.table({"key": tables.find_repeated(keys)}))


class _Concerned(NamedTuple):
    """The letters of a share of which anything may be found, by their rows."""

    rows: Sequence[int]
    letters: Sequence[Classified]
    context: Context


def _read_concerned(
    shares: Shares, number: int, said: Mapping[Key, Any], looked_for: Sequence[Relation]
) -> _Concerned:
    columns = {one.column for one in looked_for}
    look = shares.read(number, ["record_id", "keys", *filter(None, columns)])
    shared = _shared_rows(shares, look["keys"]) if None in columns else {}
    rows = tables.find_concerned(look, looked_for, shares.context).union(*shared.values())
    if None in columns:
        of_rules = pa.array([key[2] for key in said if key[0] == RULE], pa.string())
        rows.update(pc.indices_nonzero(pc.is_in(look["record_id"], value_set=of_rules)).to_pylist())
    found = sorted(rows)
    letters = _letters(shares, number, found, said) if found else []
    return _Concerned(found, letters, shares.context._replace(shared=shared.keys()))


def _shared_rows(shares: Shares, keys: pa.ChunkedArray) -> dict[int, list[int]]:
    """Return the keys that several letters have, and the rows of those that are of this share."""
    every = pa.concat_tables(pq.read_table(shares.files.parquet(name)) for name in shares.shared)
    rows: dict[int, list[int]] = {}
    for key, row in tables.rows_of(keys, every["key"]):
        rows.setdefault(key, []).append(row)
    return rows


def _letters(shares: Shares, number: int, rows: Sequence[int], said: Mapping[Key, Any]) -> list[Classified]:
    """Classify letters, with what the user's rules say of them."""
    letters = tables.read_letters(shares.read(number, tables.FROM_FILES).take(pa.array(rows, pa.int64())))
    held = ((place, said.get(key_of_rule(one.identity))) for place, one in enumerate(letters))
    for place, rule in held:
        if rule is not None:
            letters[place] = with_rule(letters[place], shares.rules[rule])
    return letters


RULE = "rule"


def key_of_rule(letter: Identity) -> Key:
    """Return the key under which the number of the user's rule is said that holds of a letter."""
    return (RULE, *letter)


def say(shares: Shares, round_of: int, number: int, items: Iterable[Item]) -> Iterator[Sent]:
    """Yield what a share's letters are members of in one round."""
    said = dict(value for _, value in items)
    looked_for = relations.ROUNDS[round_of]
    _, letters, context = _read_concerned(shares, number, said, looked_for)
    for relation in looked_for if letters else ():
        for key, order, value in relation.members(letters, context, said):
            yield (number_of(key), order), (number, key, value)


def together(shares: Shares, name: str, index: int, sent: Iterable[Sent]) -> Iterator[Item]:
    """Yield what the members of each key come to, who come in order; and rows of tables, which are written to
    files of this name."""
    with ExitStack() as until:
        rows = _Rows(shares, f"{name}-{index:05d}", until)
        for _, group in groupby(sent, key=lambda one: one[0][0]):
            said, of_shares = _come(group, shares.context, rows)
            yield from ((number, told) for number in of_shares for told in said)
        rows.flush()


def _come(
    group: Iterator[Sent], context: Context, rows: "_Rows"
) -> tuple[Sequence[tuple[Key, Any]], Set[int]]:
    """Return what the members of one key come to, under which keys; and the shares that they are of."""
    of_shares: set[int] = set()

    def told() -> Iterator[Any]:
        for _, (number, _, said) in chain([first], group):
            if number is not None:
                of_shares.add(number)
            yield said

    first = next(group)
    key, members = first[1][1], told()
    said: list[tuple[Key, Any]] = []
    for come in relations.TOGETHER[key[0]](key, members, context):
        rows.take(come.rows)
        if come.said is not None:
            said.append((come.key or key, come.said))
    deque(members, maxlen=0)
    return said, of_shares


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

    def flush(self) -> None:
        """Write all that waits."""
        for table in self._waiting:
            self._write(table)

    def _write(self, table: str) -> None:
        if table not in self._writers:
            path = f"{self._shares.folder}/{table}/{self._name}.parquet"
            stream = self._until.enter_context(self._shares.files.write(path))
            writer = pq.ParquetWriter(stream, tables.SCHEMAS[table], compression="zstd", compression_level=1)
            self._writers[table] = self._until.enter_context(writer)
        self._writers[table].write_table(tables.make(table, self._waiting[table]))
        self._waiting[table] = []


def conclude_share(shares: Shares, number: int, items: Iterable[Item]) -> Iterator[Concluded]:
    """Yield what was found of a share's letters changes their verdicts; then all of them are counted."""
    said = dict(value for _, value in items)
    rows, letters, context = _read_concerned(shares, number, said, relations.EVERY)
    changed: dict[int, Change] = {}
    for row, letter in zip(rows, letters, strict=True):
        change = conclude(letter, said, context, shares.rules, shares.max_laps)
        if change is not None:
            changed[row] = change
    told = list(changed), list(changed.values())
    table = tables.change(shares.read(number, tables.COUNTED), *told, names=("cause",))
    yield Concluded(*told, tables.count_all(table))


def say_counted(number: int, concluded: Iterable[Concluded]) -> Iterator[Sent]:
    """Yield what each census has to say of a share's letters."""
    for one in concluded:
        for census, alike in zip(relations.CENSUSES, one.counted, strict=True):
            for key, order, value in census.members(alike):
                yield (number_of(key), order), (number, key, value)


def write_verdicts(
    shares: Shares, number: int, items: Iterable[tuple[int, Concluded | tuple[Key, Any]]]
) -> Iterator[str]:
    """Yield the verdicts of a share's letters, as a file."""
    said: dict[Key, Any] = {}
    concluded = Concluded((), (), ())
    for _, one in items:
        if isinstance(one, Concluded):
            concluded = one
        else:
            said.update([one])
    table = shares.read(number, {*tables.SAID, *tables.COUNTED})
    changed = tables.change(table, concluded.rows, concluded.changes)
    yield shares.write(f"verdicts/part-{number:05d}", tables.verdicts(changed, concluded.counted, said))


def read_facts(files: Files, name: str) -> Iterator[Fact]:
    """Return what a store outside said, of one file."""
    table = _read(files, name, FACTS, FACTS.names)
    columns = (tables.values(table[column]) for column in Fact._fields)
    return map(Fact._make, zip(*columns, strict=True))
