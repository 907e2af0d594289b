"""The engine of the few: an analysis in this process, without anything to install or to start."""

import bz2
import gzip
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import chain
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dlq.analyzers import tables, user_rules
from dlq.analyzers.asked import Asked, Done
from dlq.analyzers.classification import CLASSIFIED, Part, Terms, classify_share, shares
from dlq.analyzers.groups import client_log, relations, stores
from dlq.analyzers.groups.classified import Classified, Identity, Key
from dlq.analyzers.groups.conclusions import conclude, with_rule
from dlq.analyzers.groups.contract import Alike, Context, Member, Said
from dlq.analyzers.tables import read_letters, values
from dlq.archive import analyses
from dlq.archive.manifests import Manifest
from dlq.archive.storage.store import Store
from dlq.archive.store_facts import FACTS
from dlq.core.errors import ArchiveError, UsageError
from dlq.core.runtime.interpreter import rare_garbage_collection
from dlq.core.runtime.regular_files import UNREADABLE
from dlq.core.settings import Rule
from dlq.core.store_facts import Fact


class _Files(NamedTuple):
    """Files of the archive as this process opens them."""

    store: Store

    def parquet(self, name: str) -> Any:
        """`name` as pyarrow reads it."""
        return self.store.parquet(name)

    @contextmanager
    def write(self, name: str) -> Iterator[IO[bytes]]:
        """Open a stream into `name`, which appears whole at the end."""
        stream = BytesIO()  # never closed: of a view that the error of `put` still holds, closing raises
        yield stream
        self.store.put(name, stream.getbuffer())


Rows = Mapping[str, list[Mapping[str, Any]]]
"""Of tables of the archive."""


class Compared(NamedTuple):
    """What letters say together."""

    changed: pa.Table
    """Of `tables.change`."""
    rows: Rows
    context: Context


def run(asked: Asked, terms: Terms, kept: Sequence[Part]) -> Done:
    """Return all four steps, and all tables written. Raises ConfigError for a bad user rule, ArchiveError for
    a segment that cannot be read."""
    with rare_garbage_collection():
        parts = [*kept, *classify(asked, terms, kept)]
        _look_between(asked, _classified_letters(asked, parts), parts)
        return Done(parts)


def classify(asked: Asked, terms: Terms, kept: Sequence[Part]) -> list[Part]:
    """Carry out step 1: the letters of the segments that no kept part has. Raises ArchiveError."""
    fresh = [
        classify_share(_Files(asked.store), terms, share, f"{asked.folder}/classified")
        for share in shares(asked.fresh(kept), 1)
    ]
    if damage := next((part.damage for part in fresh if part.damage), None):
        raise ArchiveError(f"{damage}; dlq verify looks through all segments")
    return fresh


def _classified_letters(asked: Asked, parts: Iterable[Part]) -> pa.Table:
    """Return all letters after step 1."""
    table = pa.concat_tables(analyses.table(asked.store, part.file, CLASSIFIED) for part in parts)
    if asked.since is None:
        return table
    since = pa.scalar(asked.since, table.schema.field("captured_at").type)
    return table.filter(pc.greater_equal(table["captured_at"], since))


def _look_between(asked: Asked, table: pa.Table, parts: Sequence[Part]) -> None:
    """Carry out steps 2 to 4, and write all tables."""
    found = compare(asked, table, parts, asked.chosen)
    counted = tables.count_all(found.changed)
    said, rows = take_censuses(counted, found.context)
    write(asked, "verdicts", tables.verdicts(found.changed, counted, said))
    for name in tables.SCHEMAS.keys() - {"verdicts"}:
        write(asked, name, tables.make(name, (*found.rows[name], *rows[name])))


def compare(asked: Asked, table: pa.Table, parts: Iterable[Part], segments: Sequence[Manifest]) -> Compared:
    """Carry out steps 2 and 3 on a table of step 1, of letters in `segments`. `parts`: all there are."""
    rules = user_rules.find(table, asked, segments)
    shared = tables.find_repeated(pc.list_flatten(table["keys"]))
    context = asked.context(parts, set(shared.to_pylist()))
    places = sorted(_concerned_rows(table, rules, shared, context))
    read = read_letters(table.take(pa.array(places, pa.int64())))
    letters = [with_rule(one, rules[one.identity]) if one.identity in rules else one for one in read]
    said, rows = _carry_out(letters, context, [*_facts(asked), *client_log.members(log_lines(asked.logs))])
    settings = asked.settings
    concluded = (conclude(one, said, context, settings.rules, settings.replay.max_laps) for one in letters)
    changes = {row: change for row, change in zip(places, concluded, strict=True) if change is not None}
    return Compared(tables.change(table, list(changes), list(changes.values())), rows, context)


def _concerned_rows(
    table: pa.Table, rules: Mapping[Identity, Rule], shared: pa.Array, context: Context
) -> set[int]:
    """Return the rows of letters of which anything may be found, or a rule of the user's speaks."""
    of_rules = enumerate(tables.identities(table) if rules else ())
    return {
        *(row for _, row in tables.rows_of(table["keys"], shared)),
        *tables.find_concerned(table, relations.EVERY, context),
        *(row for row, one in of_rules if one in rules),
    }


def take_censuses(
    counted: Iterable[Iterable[Alike]], context: Context, before: Iterable[Member] = ()
) -> tuple[Said, Rows]:
    """Carry out step 4. `counted`: of each census; `before`: what was counted already."""
    found = (census.members(alike) for census, alike in zip(relations.CENSUSES, counted, strict=True))
    said: dict[Key, Any] = {}
    rows: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    _bring_together(chain(*found, before), context, said, rows)
    return said, rows


def _carry_out(
    letters: Sequence[Classified], context: Context, outside: Iterable[Member]
) -> tuple[Said, Rows]:
    """Return what members of each key come to: what is said to their letters, and rows of tables."""
    said: dict[Key, Any] = {}
    rows: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for round_of in relations.ROUNDS:
        found = (one.members(letters, context, said) for one in round_of)
        _bring_together(chain(*found, outside), context, said, rows)
        outside = ()
    return said, rows


def _bring_together(
    members: Iterable[Member],
    context: Context,
    said: dict[Key, Any],
    rows: Mapping[str, list[Mapping[str, Any]]],
) -> None:
    groups: dict[Key, list[Member]] = defaultdict(list)
    for member in members:
        groups[member.key].append(member)
    for key, of_key in groups.items():
        in_order = sorted(of_key, key=lambda one: one.order)
        for come in relations.TOGETHER[key[0]](key, (one.said for one in in_order), context):
            if come.said is not None:
                said[come.key or key] = come.said
            for table, row in come.rows:
                rows[table].append(row)


def _facts(asked: Asked) -> Iterator[Member]:
    """Yield what the stores say under keys."""
    for snapshot, of_store in asked.asked_stores():
        for file in snapshot.files:
            table = analyses.table(asked.store, file, FACTS)
            columns = (values(table[name]) for name in Fact._fields)
            yield from stores.members(of_store, map(Fact._make, zip(*columns, strict=True)))


def log_lines(paths: Iterable[str]) -> Iterator[client_log.Line]:
    return chain.from_iterable(map(_lines_of, paths))


_PACKED: Mapping[str, Callable[..., Any]] = {"gz": gzip.open, "bz2": bz2.open}


def _lines_of(path: str) -> Iterator[client_log.Line]:
    unpack = _PACKED.get(path.rpartition(".")[2].lower(), open)
    try:
        with unpack(path, "rb") as log:
            yield from client_log.read(line.decode("utf-8", "replace").rstrip("\r\n") for line in log)
    except UNREADABLE as error:
        raise UsageError(f"--client-log {path}: {client_log.CUT_SHORT}") from error


def write(asked: Asked, name: str, table: pa.Table, number: int = 0) -> None:
    """Write a file of a table of the analysis, where there is anything in it."""
    if len(table) or name == "verdicts":
        with _Files(asked.store).write(f"{asked.folder}/{name}/part-{number:05d}.parquet") as stream:
            tables.write(table, stream)
