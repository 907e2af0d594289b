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
import xxhash

from dlq.analyzers import topology, user_rules
from dlq.analyzers.asked import Asked, Done, span_of
from dlq.analyzers.groups import bursts, client_log, conclusions, duplicates, incidents, stores, transactions
from dlq.analyzers.groups.conclusions import NOTHING, Change, conclude
from dlq.analyzers.groups.judged import Identity, Judged
from dlq.analyzers.judging import Part, Terms, judge_share, shares
from dlq.analyzers.rules.rocketmq import Stored
from dlq.archive import analyses
from dlq.archive.analyses import BURSTS, CLIENT_LOG, INCIDENTS, TRANSACTIONS, VERDICTS
from dlq.archive.store import Store
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


def run(asked: Asked, terms: Terms, kept: Sequence[Part]) -> Done:
    """All four steps, and all tables written. Raises ConfigError for a bad user rule, ArchiveError for a
    segment that cannot be read."""
    with rare_garbage_collection():
        fresh = [
            judge_share(_Files(asked.store), terms, share, f"{asked.folder}/judged")
            for share in shares(asked.fresh(kept), 1)
        ]
        if damage := next((part.damage for part in fresh if part.damage), None):
            raise ArchiveError(f"{damage}; dlq verify looks through all segments")
        parts = [*kept, *fresh]
        table = _judged_letters(asked, parts)
        return Done(parts, _look_between(asked, table, _letters(table), span_of(parts)))


def _judged_letters(asked: Asked, parts: Iterable[Part]) -> pa.Table:
    """All letters after step 1, and what the user's rules say of them."""
    table = pa.concat_tables(analyses.table(asked.store, part.file) for part in parts)
    if asked.since is not None:
        since = pa.scalar(asked.since, table.schema.field("captured_at").type)
        table = table.filter(pc.greater_equal(table["captured_at"], since))
    return user_rules.applied(table, asked)


def _letters(table: pa.Table) -> list[Judged]:
    columns = [_values(table[name]) for name in Judged._fields]
    rockets = Judged._fields.index("rocket")
    columns[rockets] = [None if one is None else Stored(**one) for one in columns[rockets]]
    return list(map(Judged._make, zip(*columns, strict=True)))


def _values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = (
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    ).to_pylist()
    return values


def _look_between(
    asked: Asked, table: pa.Table, letters: Sequence[Judged], span: int
) -> Mapping[str, int] | None:
    """Steps 2 to 4, and all tables written; what the clients' logs came to, where there are some."""
    joined = client_log.join(letters, _log_lines(asked.logs)) if asked.logs else None
    standing = bursts.find(letters, client_log.of_letters(joined or ()))
    resolved = transactions.find(letters, topology.node_facts(asked.store))
    changes = _changes(asked, letters, standing, resolved)
    now = [
        one._replace(cause=changes[one.identity].cause) if one.identity in changes else one for one in letters
    ]
    of_place, rows = incidents.find_all(now, span, topology.last_look(asked.store, asked.segments))
    found = bursts.bursts(standing)
    _write(asked, "verdicts", _verdicts(table, now, changes, of_place))
    _write(asked, "incidents", _table(INCIDENTS, [*map(_incident, found), *(one._asdict() for one in rows)]))
    _write(asked, "bursts", _table(BURSTS, [one._asdict() for one in found]))
    _write(asked, "transactions", _table(TRANSACTIONS, map(_transaction, resolved.transactions)))
    if joined is None:
        return None
    _write(asked, "client_log", _table(CLIENT_LOG, [one._asdict() for one in joined]))
    return client_log.counts(joined)


def _changes(
    asked: Asked,
    letters: Iterable[Judged],
    standing: Iterable[bursts.Member],
    resolved: transactions.Resolved,
) -> dict[Identity, Change]:
    """Of every letter that is not as it was by itself."""
    twins = duplicates.find(letters, _hash)
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
        of_store = stores.asked(asked.settings.evidence[snapshot.name], snapshot.taken_at)
        if snapshot.error is not None:
            found[of_store] = None
            continue
        of_key = found.setdefault(of_store, {})
        for file in snapshot.files:
            table = analyses.table(asked.store, file)
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


def _verdicts(
    table: pa.Table,
    letters: Sequence[Judged],
    changes: Mapping[Identity, Change],
    of_place: Mapping[incidents.Place, str],
) -> pa.Table:
    base = table.select([name for name in VERDICTS.names if name in table.column_names])
    columns = {name: base[name] for name in base.column_names}
    changed = [changes.get(letter.identity) for letter in letters]
    for number, name in enumerate(Change._fields):
        before = columns[name].to_pylist() if name in columns else [None] * len(letters)
        values = [old if new is None else new[number] for old, new in zip(before, changed, strict=True)]
        if name == "incident_id":
            values = [
                one or _incident_of(letter, of_place) for one, letter in zip(values, letters, strict=True)
            ]
        columns[name] = pa.array(values, VERDICTS.field(name).type)
    return pa.table([columns[name] for name in VERDICTS.names], schema=VERDICTS)


def _incident_of(letter: Judged, of_place: Mapping[incidents.Place, str]) -> str | None:
    place = incidents.place_of(letter)
    return None if place is None else of_place.get(place)


def _incident(burst: bursts.Burst) -> dict[str, Any]:
    return {**burst._asdict(), "peak": burst.start, "ongoing": False, "new": True}


def _transaction(one: tuple[str, str, transactions.Transaction]) -> dict[str, Any]:
    return {"source": one[0], **one[2]._asdict()}


def _table(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)


def _write(asked: Asked, name: str, table: pa.Table) -> None:
    if len(table) or name == "verdicts":
        with BytesIO() as stream:
            pq.write_table(table, stream, compression="zstd", compression_level=1)
            asked.store.put(f"{asked.folder}/{name}/part-00000.parquet", stream.getbuffer())


_TAGS: Mapping[str, str] = {
    "same_message_id": "id", "same_key": "key", "same_body": "body", "several_groups": "elsewhere",
    "by_id": "id", "by_business": "key", "of_message": "message",
}  # fmt: skip
"""Kind of match key -> what its hash begins with."""


def _hash(match_key: duplicates.MatchKey) -> int:
    """As Spark's `xxhash64` of the same values, so that a group has one name whoever finds it."""
    hashed = 42
    for value in (_TAGS[str(match_key[0])], *match_key[1:]):
        data = value.to_bytes(4, "little") if isinstance(value, int) else value.encode()
        hashed = xxhash.xxh64_intdigest(data, hashed)
    return hashed - (hashed >> 63 << 64)
