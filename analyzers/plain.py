"""The engine of the few: an analysis in this process, without anything to install or to start."""

import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import chain
from typing import IO, Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dlq.analyzers import topology, user_rules
from dlq.analyzers.asked import Asked, Done, span_of
from dlq.analyzers.groups import bursts, client_log, conclusions, duplicates, incidents, stores, transactions
from dlq.analyzers.groups.conclusions import NOTHING, Change, conclude
from dlq.analyzers.groups.judged import Identity, Judged
from dlq.analyzers.judging import JUDGED, ROW_GROUP, Part, Terms, judge_share, shares
from dlq.analyzers.rules.rocketmq import Stored
from dlq.archive import analyses
from dlq.archive.analyses import BURSTS, CLIENT_LOG, INCIDENTS, SLOTS, TRANSACTIONS, VERDICTS
from dlq.archive.store import Store
from dlq.archive.store_facts import FACTS
from dlq.core.errors import ArchiveError, UsageError
from dlq.core.interpreter import rare_garbage_collection
from dlq.core.store_facts import Fact


class _Files(NamedTuple):
    """Files of the archive as this process opens them."""

    store: Store

    def read(self, name: str) -> Any:
        """`name` as pyarrow reads it."""
        return self.store.parquet(name)

    @contextmanager
    def write(self, name: str) -> Iterator[IO[bytes]]:
        """A stream into `name`, which appears whole at the end."""
        with BytesIO() as stream:
            yield stream
            self.store.put(name, stream.getbuffer())


class Compared(NamedTuple):
    """What letters say together."""

    letters: list[Judged]
    """With the causes that they have by now."""
    changes: Mapping[Identity, Change]
    """Of every letter that is not as it was by itself."""
    standing: Sequence[bursts.Member]
    transactions: Sequence[tuple[str, str, transactions.Transaction]]
    """Each with its source and broker."""


def run(asked: Asked, terms: Terms, kept: Sequence[Part]) -> Done:
    """All four steps, and all tables written. Raises ConfigError for a bad user rule, ArchiveError for a
    segment that cannot be read."""
    with rare_garbage_collection():
        parts = [*kept, *judge(asked, terms, kept)]
        return Done(parts, _look_between(asked, _judged_letters(asked, parts), span_of(parts)))


def judge(asked: Asked, terms: Terms, kept: Sequence[Part]) -> list[Part]:
    """Step 1: the letters of the segments that no kept part has. Raises ArchiveError."""
    fresh = [
        judge_share(_Files(asked.store), terms, share, f"{asked.folder}/judged")
        for share in shares(asked.fresh(kept), 1)
    ]
    if damage := next((part.damage for part in fresh if part.damage), None):
        raise ArchiveError(f"{damage}; dlq verify looks through all segments")
    return fresh


def _judged_letters(asked: Asked, parts: Iterable[Part]) -> pa.Table:
    """All letters after step 1, and what the user's rules say of them."""
    table = pa.concat_tables(analyses.table(asked.store, part.file, JUDGED) for part in parts)
    if asked.since is not None:
        since = pa.scalar(asked.since, table.schema.field("captured_at").type)
        table = table.filter(pc.greater_equal(table["captured_at"], since))
    return user_rules.apply_rules(table, asked, asked.chosen)


def read_letters(table: pa.Table) -> list[Judged]:
    """The letters of a table of step 1, to which the user's rules were applied."""
    columns = [_values(table[name]) for name in Judged._fields]
    rockets = Judged._fields.index("rocket")
    columns[rockets] = [None if one is None else Stored(**one) for one in columns[rockets]]
    return list(map(Judged._make, zip(*columns, strict=True)))


def _values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = (
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    ).to_pylist()
    return values


def _look_between(asked: Asked, table: pa.Table, span: int) -> Mapping[str, int] | None:
    """Steps 2 to 4, and all tables written; what the clients' logs came to, where there are some."""
    letters = read_letters(table)
    joined = client_log.join(letters, _log_lines(asked.logs)) if asked.logs else None
    found = compare(asked, letters, client_log.of_letters(joined or ()))
    counted = incidents.count(found.letters)
    incident_at, rows = incidents.find_all(counted, span, topology.last_look(asked.store, asked.segments))
    write(asked, "verdicts", make_verdicts(table, found, incident_at))
    write(asked, "slots", slots_table(counted, incident_at))
    standing = bursts.bursts(found.standing)
    write(asked, "incidents", make_table(INCIDENTS, [*map(bursts.incident_of, standing), *map(as_row, rows)]))
    write(asked, "bursts", make_table(BURSTS, map(as_row, standing)))
    write(asked, "transactions", make_table(TRANSACTIONS, map(transaction_row, found.transactions)))
    if joined is None:
        return None
    write(asked, "client_log", make_table(CLIENT_LOG, map(as_row, joined)))
    return client_log.counts(joined)


def compare(asked: Asked, letters: list[Judged], log: Mapping[str, bursts.LogLine]) -> Compared:
    """Step 2 and 3. `log`: record id -> what the clients' logs say of it."""
    standing = bursts.find(letters, log)
    resolved = transactions.find(letters, topology.node_facts(asked.store))
    changes = _changes(asked, letters, standing, resolved)
    now = [
        one._replace(cause=changes[one.identity].cause) if one.identity in changes else one for one in letters
    ]
    return Compared(now, changes, standing, resolved.transactions)


def _changes(
    asked: Asked,
    letters: Iterable[Judged],
    standing: Iterable[bursts.Member],
    resolved: transactions.Resolved,
) -> dict[Identity, Change]:
    twins = duplicates.find(letters)
    told = stores.find(letters, _told(asked), asked.settings) if asked.snapshots else {}
    places = {member.letter.identity: member for member in standing}
    rules, max_laps = asked.settings.rules, asked.settings.replay.max_laps
    changes: dict[Identity, Change] = {}
    for letter in letters:
        name = letter.identity
        place = places.get(name)
        found = conclusions.Found(
            twins.get(name),
            resolved.conclusions.get(name),
            told.get(name),
            place and place.standing,
            place and place.burst_id,
        )
        if found != NOTHING or letter.user_rule is not None:
            changes[name] = conclude(letter, found, rules, max_laps)
    return changes


def _told(asked: Asked) -> dict[stores.Asked, dict[str, list[Fact]] | None]:
    """Each store's facts by their key; None: it did not answer."""
    found: dict[stores.Asked, dict[str, list[Fact]] | None] = {}
    for snapshot in asked.snapshots:
        of_store = stores.describe_store(asked.settings.evidence[snapshot.name], snapshot.taken_at)
        if snapshot.error is not None:
            found[of_store] = None
            continue
        of_key = found.setdefault(of_store, {})
        for file in snapshot.files:
            table = analyses.table(asked.store, file, FACTS)
            for fact in map(Fact._make, zip(*(_values(table[name]) for name in Fact._fields), strict=True)):
                if of_key is not None:
                    of_key.setdefault(fact.key, []).append(fact)
    return found


def _log_lines(paths: Iterable[str]) -> Iterator[client_log.Line]:
    return chain.from_iterable(map(_lines_of, paths))


def _lines_of(path: str) -> Iterator[client_log.Line]:
    unpacked: Callable[[str, Literal["rb"]], Any] = gzip.open if path.endswith(".gz") else open
    try:
        with unpacked(path, "rb") as log:
            yield from client_log.read(line.decode("utf-8", "replace").rstrip("\r\n") for line in log)
    except (OSError, EOFError) as error:
        raise UsageError(f"--client-log {path}: {client_log.CUT_SHORT}") from error


def make_verdicts(table: pa.Table, found: Compared, incident_at: Mapping[incidents.Place, str]) -> pa.Table:
    """The verdicts of letters: `table` as step 1 left them, `found` of the same letters in this order."""
    base = table.select([name for name in VERDICTS.names if name in table.column_names])
    columns = {name: base[name] for name in base.column_names}
    changed = [found.changes.get(letter.identity) for letter in found.letters]
    for number, name in enumerate(Change._fields):
        before = columns[name].to_pylist() if name in columns else [None] * len(changed)
        values = [old if new is None else new[number] for old, new in zip(before, changed, strict=True)]
        if name == "incident_id":
            pairs = zip(values, found.letters, strict=True)
            values = [one or _incident_of(letter, incident_at) for one, letter in pairs]
        columns[name] = pa.array(values, VERDICTS.field(name).type)
    return pa.table([columns[name] for name in VERDICTS.names], schema=VERDICTS)


def _incident_of(letter: Judged, incident_at: Mapping[incidents.Place, str]) -> str | None:
    place = incidents.place_of(letter)
    return None if place is None else incident_at.get(place)


def slots_table(counted: incidents.Counted, incident_at: Mapping[incidents.Place, str]) -> pa.Table:
    """What the next analysis counts on with."""
    rows = (
        {"kind": place[0], **slot._asdict(), "transactions_of": of, "incident_id": incident_at.get(place)}
        for (place, of), slot in counted.items()
    )
    return make_table(SLOTS, rows)


def transaction_row(one: tuple[str, str, transactions.Transaction]) -> dict[str, Any]:
    """A transaction of `Compared` as a row of its table."""
    return {"source": one[0], **one[2]._asdict()}


def as_row(one: Any) -> dict[str, Any]:
    """A named tuple as a row of the table that has its fields."""
    row: dict[str, Any] = one._asdict()
    return row


def make_table(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows, of which the columns of `schema` count."""
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)


def write(asked: Asked, name: str, table: pa.Table, number: int = 0) -> None:
    """A file of a table of the analysis, where there is anything in it."""
    if len(table) or name == "verdicts":
        with BytesIO() as stream:
            pq.write_table(table, stream, compression="zstd", compression_level=1, row_group_size=ROW_GROUP)
            asked.store.put(f"{asked.folder}/{name}/part-{number:05d}.parquet", stream.getbuffer())
