"""Looking at the archive: a read-only DuckDB connection with views over its Parquet files.

    records       every committed record (segments without a manifest do not exist)
    verdicts, incidents, bursts, transactions, client_log    of the latest analysis; empty when there is none
    replays       the ledger, as the caller gives it
    audit         who did what: to failures and plans as the caller gives it, and dismissals of letters
    letters       every column of record and verdict, replay_state, its analysis (or null), and
                  still_queued: it lies in its dead-letter queue, too, as the caller gives it
    ls            the columns of letters that `dlq ls` shows

The SQL of users runs on the same connection. It can read these views and nothing else: only the
archive's committed files are open to it, and the configuration is locked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, cast
from weakref import finalize

import pyarrow as pa

from dlq.archive import analyses, brief, manifests, user_sql
from dlq.archive.analyses import Analysis
from dlq.archive.interruptible import Interruptible
from dlq.archive.manifests import Manifest
from dlq.archive.schema import AUDIT, REPLAYS, SEGMENT, to_records
from dlq.archive.storage import scratch
from dlq.archive.storage.store import HELD, Store
from dlq.core.errors import ArchiveError, UsageError
from dlq.core.record import Record
from dlq.core.text import for_terminal, sql_literal

if TYPE_CHECKING:
    import duckdb

LS_COLUMNS = (
    "record_id", "source", "broker_kind", "dead_letter_queue", "origin", "cause", "mechanism",
    "attempts", "exception_class", "fingerprint", "incident_id", "advice", "message_id", "key",
    "published_at", "dead_at", "captured_at", "body_size", "laps", "replay_state", "analysis",
)  # fmt: skip
_VERDICT_WINS = ("attempts", "origin_kind", "origin")
"""Columns of both record and verdict; in letters the verdict's win."""
_VERDICT_KNOWS_MORE = ("origin_exchange", "origin_routing_key")
"""Columns in which the verdict wins where it says something."""
LETTER_COLUMNS = (
    *SEGMENT.names,
    *(name for name in analyses.VERDICTS.names if name not in SEGMENT.names),
    "replay_state",
    "analysis",
    "still_queued",
)

_OF_CHOSEN = "SEMI JOIN _chosen USING (source, record_id)"
_NARROWED: Mapping[str, str] = {
    "_stored": _OF_CHOSEN,
    "_brief": _OF_CHOSEN,
    "verdicts": _OF_CHOSEN,
    "verdicts_before": _OF_CHOSEN,
    "incidents": "SEMI JOIN verdicts USING (incident_id)",
    "transactions": "WHERE list_has_any(record_ids, (SELECT list(record_id) FROM _chosen))",
}
"""View -> what it keeps when some letters alone are looked at."""

_Page = Mapping[str, Set[str]]
"""Some letters: a segment's file, as DuckDB names it -> the ids of those of its letters."""
Queued = Mapping[str, Collection[str]]
"""Stem of a segment whose letters still lie in their queue -> the ids of those that do not."""

_SEGMENTS = pa.schema([("stem", pa.string()), ("segment_file", pa.string())])
_NEWEST_FIRST = "dead_at DESC NULLS LAST, captured_at DESC NULLS LAST, record_id, source"
"""Letters of which nothing says when they died come last."""
_FIRST_LOOK = 50_000
_ALIKE = "source, cause, advice, exception_class, exception_message"
"""Of these columns a million letters have few values together."""
_NEWEST_MINUTE = """
    WITH died AS (SELECT minute, sum(letters) AS letters FROM _minutes GROUP BY 1),
         since AS (SELECT minute, sum(letters) OVER (ORDER BY minute DESC) AS letters FROM died)
    SELECT 60000000 * coalesce(max(minute) FILTER (letters >= {least}), min(minute)) FROM since"""
"""Since when so many died, in microseconds."""
_ATTEMPTS = 20
_BATCH_ROWS = 10_000
_NOT_AS_GIVEN = re.compile(r"[\\\ud800-\udfff]")
"""What DuckDB turns into `/` in a path, and what is no UTF-8, which it does not take."""
MEMORY = "2GB"
"""Beyond this DuckDB spills into its temporary folder: looking must not starve the host."""


def connect(
    store: Store,
    replays: pa.Table | None = None,
    analysis: str | None = None,
    before: str | None = None,
    audit: pa.Table | None = None,
    queued: Queued | None = None,
    memory: str = MEMORY,
) -> duckdb.DuckDBPyConnection:
    """Return a locked, read-only connection with the views of this module, on one archive.

    `replays` is the ledger's table (columns REPLAYS at least); `analysis` chooses another analysis than
    the latest; with `before`, another analysis, its verdicts are the view verdicts_before; `audit` (columns
    AUDIT) is what people said of failures and plans; `queued` says which letters are still_queued. Beyond
    `memory` DuckDB spills. Times come back in UTC. Raises UsageError, ArchiveError, FormatTooNew.
    """
    for _ in range(_ATTEMPTS):
        committed = [m for m in manifests.list_committed(store) if m.rows]
        chosen = analyses.load(store, analysis) if analysis else analyses.latest(store)
        looked_at = _LookedAt(committed, chosen, analyses.load(store, before) if before else None)
        connection, held = _open_duckdb(store, memory), ExitStack()
        finalize(connection, held.close)
        try:
            _fill(connection, partial(store.lend, until=held), looked_at, replays, audit, queued or {})
        except UsageError as error:  # no SQL of anybody's has run yet
            connection.close()
            raise ArchiveError(f"cannot read the archive: {error}") from error
        except ArchiveError as error:
            connection.close()
            if not _is_gone(error) or _is_still_there(store, looked_at):
                raise
        else:
            return connection
    raise ArchiveError(f"the segments of the archive {store.location} keep changing: run it again")


class _LookedAt(NamedTuple):
    """What of an archive a connection shows: its segments with letters, an analysis, and one before that."""

    committed: Sequence[Manifest]
    chosen: Analysis | None
    before: Analysis | None


def _is_gone(error: ArchiveError) -> bool:
    return isinstance(error, user_sql.Gone) or isinstance(error.__cause__, FileNotFoundError)


def _is_still_there(store: Store, looked_at: _LookedAt) -> bool:
    """Return whether the archive still names these files, so that one that is gone is missing."""
    used = {one.analysis for one in (looked_at.chosen, looked_at.before) if one}
    return used <= {*analyses.ids(store)} and manifests.are_committed(store, looked_at.committed)


def _fill(
    connection: duckdb.DuckDBPyConnection,
    lend: Callable[[str], str],
    looked_at: _LookedAt,
    replays: pa.Table | None,
    audit: pa.Table | None,
    queued: Queued,
) -> None:
    """Make the views, and lock the connection."""
    committed, chosen, before = looked_at
    files = {m.stem: lend(m.segment) for m in committed}
    segments = [*files.values()]
    former = [*map(lend, before.tables["verdicts"] if before else ())]
    made = chosen.tables if chosen else {}
    tables = {name: [*map(lend, made.get(name, ()))] for name in analyses.TABLES}
    kept: list[str] = []
    with user_sql.guarded(connection):
        _register(connection, "_segments", pa.table({"stem": [*files], "segment_file": segments}, _SEGMENTS))
        _records(connection, segments)
        named = dict(zip(segments, committed, strict=True))
        _check_rows(connection, named)
        for name, schema in analyses.TABLES.items():
            _table(connection, name, schema, tables[name])
        for name in brief.KEPT:
            kept.extend(_show_kept(connection, name, lend, made.get(name, ())))
        if before:
            _table(connection, "verdicts_before", analyses.VERDICTS, former)
        show_replays(connection, replays)
        _audit(connection, audit)
        _create_classified(connection, chosen.analysis if chosen else None)
        left = {files[m.stem]: out for m in committed if (out := _taken_out(m, queued)) is not None}
        still_queued = _still_queued(connection, left)
        _letters(connection, still_queued)
        verdicts = _parquet(tables["verdicts"]) if tables["verdicts"] else None
        of_files = brief.Files(named, verdicts, chosen.analysis if chosen else "", _queued_whole(named, left))
        brief.make(connection, of_files, still_queued)
        _lock(connection, [*segments, *former, *kept, *chain.from_iterable(tables.values())])


def _show_kept(
    connection: duckdb.DuckDBPyConnection, name: str, lend: Callable[[str], str], files: Iterable[str]
) -> list[str]:
    """Make the table of what an analysis has summed up, which most do not read; nothing where that is
    damaged, since letters say the same. Returns its files."""
    try:
        lent = [*map(lend, files)]
        with user_sql.guarded(connection):
            _table(connection, f"_kept_{name}", analyses.KEPT[name], lent)
    except (ArchiveError, UsageError):
        lent = []
        _table(connection, f"_kept_{name}", analyses.KEPT[name], lent)
    return lent


def _taken_out(manifest: Manifest, queued: Queued) -> Collection[str] | None:
    """Return the letters of a segment that left their queue, of one that was written again since `queued` was
    asked, too; None where none lies there."""
    known = [queued[stem] for stem in (manifest.stem, *manifest.replaces) if stem in queued]
    return set().union(*known) if known else None


def _queued_whole(segments: Mapping[str, Manifest], left: Queued) -> Collection[str] | None:
    """Return the sources of which all letters lie in their queues still; None: some do and others do not."""
    queued = {segments[file].source for file in left}
    others = {manifest.source for file, manifest in segments.items() if file not in left}
    return None if queued & others or any(left.values()) else queued


def sum_up_verdicts(store: Store, files: Iterable[str]) -> Mapping[str, pa.Table]:
    """Return the tables of `brief.KEPT`, of these files of verdicts. Raises ArchiveError."""
    with ExitStack() as held, closing(_open_duckdb(store, MEMORY)) as connection:
        _table(connection, "_kept", analyses.IN_FILES, [store.lend(one, held) for one in files])
        with user_sql.guarded(connection):
            found = {name: connection.sql(sql).to_arrow_table() for name, sql in brief.KEPT.items()}
    return {
        name: table.select(analyses.KEPT[name].names).cast(analyses.KEPT[name])
        for name, table in found.items()
    }


def _lock(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> None:
    """DuckDB resolves a name when it is allowed, and again whenever it opens it: for a file that we hold open
    and another has removed since, as `retain` does, the kernel tells another name. Raises ArchiveError where
    somebody has put a link at one of these names, which would be allowed to lead anywhere."""
    ours = [os.readlink(file) if file.startswith(HELD) else file for file in files]
    removed = [f"{name} (deleted)" for name, file in zip(ours, files, strict=True) if file != name]
    if _NOT_AS_GIVEN.search("".join(ours)):
        removed = []
    connection.execute("SET allowed_paths = ?", [[*files, *removed]])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    if removed:
        _check_allowed(connection, {*ours, *removed})


def _check_allowed(connection: duckdb.DuckDBPyConnection, given: Set[str]) -> None:
    allowed = connection.execute("SELECT unnest(current_setting('allowed_paths'))").fetchall()
    if strange := {name for (name,) in allowed} - given:
        raise ArchiveError(
            f"in the archive lies a link to {for_terminal(min(strange))} by the name of a file that was "
            "removed, and links are not followed"
        )


def _open_duckdb(store: Store, memory: str) -> duckdb.DuckDBPyConnection:
    import duckdb  # a tenth of a second, which who asks the archive nothing need not wait for

    connection = duckdb.connect(
        config={
            "memory_limit": memory,
            "threads": min(8, os.cpu_count() or 1),
            "temp_directory": str(scratch.choose_name("duckdb")),
            "python_enable_replacements": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_persistent_secrets": False,
        }
    )
    if store.filesystem is not None:
        connection.register_filesystem(store.filesystem)
    connection.execute("SET TimeZone = 'UTC'")
    # DuckDB draws one on stdout, between the data, where Python runs without a script.
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET parquet_metadata_cache = true")
    return cast("duckdb.DuckDBPyConnection", Interruptible(connection))


def _register(connection: duckdb.DuckDBPyConnection, name: str, content: pa.Table | pa.Schema) -> None:
    connection.register(name, content.empty_table() if isinstance(content, pa.Schema) else content)


def _quote_all(columns: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _parquet(files: Iterable[str], options: str = "") -> str:
    return f"read_parquet([{', '.join(map(sql_literal, files))}], hive_partitioning = false{options})"


def _table(connection: duckdb.DuckDBPyConnection, name: str, schema: pa.Schema, files: list[str]) -> None:
    """Make a table. A column that an older version did not write is null."""
    if not files:
        return _register(connection, name, schema)
    _register(connection, f"_no_{name}", schema)
    connection.execute(f"""
        CREATE TEMP VIEW {name} AS SELECT {_quote_all(schema.names)}
        FROM (FROM _no_{name} UNION ALL BY NAME FROM {_parquet(files)})""")
    return None


def _records(connection: duckdb.DuckDBPyConnection, segments: list[str]) -> None:
    """`_stored` is records and where each lies: its segment's file and its row there, from 0."""
    columns = _quote_all(SEGMENT.names)
    _register(connection, "_no_records", SEGMENT)
    if segments:
        placed = _parquet(segments, ", filename = 'segment_file', file_row_number = true")
        sql = f"SELECT {columns}, segment_file, file_row_number AS segment_row FROM {placed}"
    else:
        sql = f"SELECT {columns}, '' AS segment_file, 0::BIGINT AS segment_row FROM _no_records"
    connection.execute(f"CREATE TEMP VIEW _stored AS {sql}")
    connection.execute(f"CREATE TEMP VIEW records AS SELECT {columns} FROM _stored")
    _check_types(connection)


def _check_types(connection: duckdb.DuckDBPyConnection) -> None:
    """Check that all have the first segment's types: DuckDB takes these for all, and reads no others."""
    found, meant = (connection.execute(f"DESCRIBE {view}").fetchall() for view in ("records", "_no_records"))
    for (name, kind, *_), (_, expected, *_) in zip(found, meant, strict=True):
        if kind != expected:
            raise ArchiveError(
                f"a segment's column {name} holds {kind}, not {expected}: someone changed it; "
                "dlq verify says which"
            )


def _check_rows(connection: duckdb.DuckDBPyConnection, segments: Mapping[str, Manifest]) -> None:
    """Footers tell, and are kept for what is asked next: a quarter of a millisecond a segment."""
    counts = connection.execute("SELECT segment_file, count(*) FROM _stored GROUP BY 1").fetchall()
    found = dict(counts)
    for file, manifest in segments.items():
        if (rows := found.get(file, 0)) != manifest.rows:
            raise ArchiveError(
                f"{manifest.segment} in the archive has {rows} rows, and its manifest says {manifest.rows}: "
                "someone changed one of them; dlq verify shows the damage"
            )


def _audit(connection: duckdb.DuckDBPyConnection, audit: pa.Table | None) -> None:
    """Make the table of dismissals: each is a row of the ledger, whose detail ends with who made it."""
    _register(connection, "_said", AUDIT if audit is None else audit)
    connection.execute(r"""
        CREATE TEMP VIEW audit AS
        FROM _said UNION ALL
        SELECT updated_at, regexp_extract(detail, '\(([^()]*)\)$', 1), 'letter', record_id, 'dismiss', '',
               regexp_replace(detail, ' \([^()]*\)$', '')
        FROM replays WHERE state = 'dismissed'
        ORDER BY 1""")


def show_replays(connection: duckdb.DuckDBPyConnection, replays: pa.Table | None) -> None:
    """Let all views show these rows of the ledger, of the same archive."""
    _register(connection, "replays", REPLAYS if replays is None else replays)
    brief.forget_made(connection)


def say(connection: duckdb.DuckDBPyConnection, audit: pa.Table) -> None:
    """Let the view `audit` show what people said by now."""
    _register(connection, "_said", audit)


def _create_classified(connection: duckdb.DuckDBPyConnection, analysis: str | None) -> None:
    """Make the view of verdicts with the `analysis` that they are from."""
    told = "NULL" if analysis is None else sql_literal(analysis)
    connection.execute(f"CREATE TEMP VIEW _classified AS SELECT *, {told}::VARCHAR AS analysis FROM verdicts")


def narrow(connection: duckdb.DuckDBPyConnection, checked: str) -> None:
    """Let all views show the letters alone that fulfil the `checked` condition, and what they belong to."""
    with user_sql.guarded(connection):
        connection.execute(
            f"CREATE TEMP TABLE _chosen AS SELECT source, record_id FROM letters WHERE {checked}"
        )
        brief.forget_sums(connection)
        found = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
        for (name,) in found:
            if rest := _NARROWED.get(name):
                connection.execute(f"ALTER VIEW {name} RENAME TO _every_{name}")
                connection.execute(f"CREATE TEMP VIEW {name} AS FROM _every_{name} {rest}")


def _still_queued(connection: duckdb.DuckDBPyConnection, left: Queued) -> str:
    """Return the column: true in these segments' files, but for the letters that are named out."""
    if not left:
        return "false"
    lies = f"r.segment_file IN ({', '.join(map(sql_literal, left))})"
    out = [(file, record_id) for file, ids in left.items() for record_id in ids]
    if not out:
        return lies
    columns = zip(("segment_file", "record_id"), map(pa.array, zip(*out, strict=True)), strict=True)
    _register(connection, "_taken_out", pa.table(dict(columns)))
    return f"{lies} AND (r.segment_file, r.record_id) NOT IN (FROM _taken_out)"


def _letter_column(name: str) -> str:
    if name in _VERDICT_WINS:
        return f'CASE WHEN v.record_id IS NULL THEN r."{name}" ELSE v."{name}" END AS "{name}"'
    if name in _VERDICT_KNOWS_MORE:
        return f'coalesce(v."{name}", r."{name}") AS "{name}"'
    if name == "replay_state":
        return "p.replay_state"
    return f'r."{name}"' if name in SEGMENT.names else f'v."{name}"'


def _letters(connection: duckdb.DuckDBPyConnection, still_queued: str) -> None:
    connection.execute("""
        CREATE TEMP VIEW _states AS
        SELECT record_id, arg_max(state, updated_at) AS replay_state FROM replays GROUP BY record_id""")
    connection.execute(f"""
        CREATE TEMP VIEW _placed AS
        SELECT {", ".join(map(_letter_column, LETTER_COLUMNS[:-1]))}, {still_queued} AS still_queued,
               r.segment_file, r.segment_row
        FROM _stored r
        LEFT JOIN _classified v ON v.record_id = r.record_id AND v.source = r.source
        LEFT JOIN _states p ON p.record_id = r.record_id""")
    connection.execute(f"CREATE TEMP VIEW letters AS SELECT {_quote_all(LETTER_COLUMNS)} FROM _placed")
    connection.execute(f"CREATE TEMP VIEW ls AS SELECT {_quote_all(LS_COLUMNS)} FROM letters")


class Order(NamedTuple):
    """By which column letters are sorted; within the same value the last dead first. Nothing stands last."""

    column: str
    falls: bool

    def sql(self) -> str:
        """Return the text as in ORDER BY."""
        return f"{self.column} {'DESC' if self.falls else 'ASC'} NULLS LAST, {_NEWEST_FIRST}"


def newest(
    connection: duckdb.DuckDBPyConnection,
    columns: Collection[str],
    checked: str,
    limit: int = 0,
    order: Order | None = None,
) -> user_sql.Rows:
    """Return the letters that fulfil the `checked` condition, the last dead first unless in another `order`;
    `limit` 0 is no limit. Raises as `user_sql.run`."""
    view = "_brief" if is_brief(connection, checked) else "_placed"
    looked_at = view if {*brief.COLUMNS}.issuperset(columns) else "_placed"
    if limit and order is None:
        checked = f"{checked} AND {_not_behind(connection, view, limit, checked)}"
        if looked_at != view:
            checked = on_page(first_page(connection, limit, checked))
    end, by = f"LIMIT {limit}" if limit else "", order.sql() if order else _NEWEST_FIRST
    sql = f"SELECT {_quote_all(columns)} FROM {looked_at} WHERE {checked} ORDER BY {by} {end}"
    return user_sql.run(connection, sql)


def count(connection: duckdb.DuckDBPyConnection, checked: str, is_dear: bool = False) -> int:
    """Return how many letters fulfil the `checked` condition; `is_dear`: to ask it of each costs much more
    than to find which are alike. Raises as `user_sql.run`."""
    groups = f"(SELECT {_ALIKE}, count(*) AS alike FROM _brief GROUP BY ALL)"
    if is_dear and is_brief(connection, checked, groups):
        looked_at, counted = groups, "coalesce(sum(alike), 0)"
    else:
        looked_at, counted = "_brief" if is_brief(connection, checked) else "letters", "count(*)"
    (found,) = next(user_sql.run(connection, f"SELECT {counted} FROM {looked_at} WHERE {checked}").rows)
    return int(found)


def among_newest(connection: duckdb.DuckDBPyConnection, least: int = _FIRST_LOOK) -> str:
    """Return a condition that the newest of all letters fulfil, so many that one looks through them at
    once."""
    brief.sum_up(connection, "_minutes")
    ((begin,),) = user_sql.run(connection, _NEWEST_MINUTE.format(least=least)).rows
    return "true" if begin is None else f"dead_at >= make_timestamptz({begin})"


def _not_behind(connection: duckdb.DuckDBPyConnection, view: str, limit: int, checked: str) -> str:
    """Return a condition that the last dead of these letters fulfil, so many or more: one column tells, so
    that of all others only theirs are read. They are sought among the newest of all first; where letters
    themselves have to be read for that, nowhere else."""
    among = among_newest(connection)
    for part in [among] if view == "_placed" else [among, "true"]:
        times = f"SELECT dead_at FROM {view} WHERE {checked} AND {part} ORDER BY 1 DESC NULLS LAST"
        sql = f"SELECT count(*), count(dead_at), epoch_us(min(dead_at)) FROM ({times} LIMIT {limit})"
        ((found, dated, cut),) = user_sql.run(connection, sql).rows
        if dated == limit:
            return f"dead_at >= make_timestamptz({cut})"
        if part == "true" and not found:
            return "(false)"
    return "(true)"


def is_brief(connection: duckdb.DuckDBPyConnection, checked: str, view: str = "_brief") -> bool:
    """Return whether `archive.brief` has the columns that a `checked` condition is about."""
    import duckdb

    with user_sql.guarded(connection):
        try:
            connection.execute(f"DESCRIBE SELECT 1 FROM {view} WHERE {checked}")
        except (duckdb.BinderException, duckdb.CatalogException):
            return False  # another column, or a mistake, of which who asks is told
    return True


class Position(NamedTuple):
    """Where a letter stands in the order of `newest`; times as ISO 8601."""

    dead_at: str | None
    captured_at: str | None
    record_id: str
    source: str


def condition_behind(place: Position, order: Order | None = None, value: str | None = None) -> str:
    """Return a condition that letters behind this place alone fulfil; in another `order` it has a `value`."""
    last = f"(record_id, source) > ({sql_literal(place.record_id)}, {sql_literal(place.source)})"
    captured = _seek_condition("captured_at", _moment(place.captured_at), last)
    newest_first = _seek_condition("dead_at", _moment(place.dead_at), captured)
    if order is None:
        return newest_first
    at = _moment(value) if order.column == "dead_at" else value and sql_literal(value)
    return _seek_condition(order.column, at, newest_first, order.falls)


def _moment(moment: str | None) -> str | None:
    return moment and f"TIMESTAMPTZ {sql_literal(moment)}"


def _seek_condition(column: str, at: str | None, rest: str, falls: bool = True) -> str:
    """Return the condition of a value further on or none, which is last; at the same one `rest` decides."""
    if at is None:
        return f"({column} IS NULL AND {rest})"
    return f"({column} {'<' if falls else '>'} {at} OR {column} IS NULL OR ({column} = {at} AND {rest}))"


def first_page(connection: duckdb.DuckDBPyConnection, limit: int, checked: str = "(true)") -> _Page:
    """Return the `limit` last dead of the letters that fulfil a `checked` condition over the columns of
    `archive.brief`, so that no other letter is read."""
    return _page(connection, f"WHERE {checked} ORDER BY {_NEWEST_FIRST} LIMIT {limit}")


def page_of(connection: duckdb.DuckDBPyConnection, record_id: str) -> _Page:
    """Return one letter, which may lie under several sources."""
    return _page(connection, f"WHERE record_id = {sql_literal(record_id)}")


def _page(connection: duckdb.DuckDBPyConnection, rest: str) -> _Page:
    page: dict[str, set[str]] = {}
    for file, record_id in user_sql.run(
        connection, f"SELECT segment_file, record_id FROM _brief {rest}"
    ).rows:
        page.setdefault(file, set()).add(record_id)
    return page


def on_page(page: _Page) -> str:
    """Return a condition that only the letters of a page fulfil."""
    files, ids = (", ".join(map(sql_literal, sorted(each))) for each in (page, set().union(*page.values())))
    return f"(segment_file IN ({files}) AND record_id IN ({ids}))" if page else "(false)"


def read_records(connection: duckdb.DuckDBPyConnection, lies: str) -> Iterator[Record]:
    """Return the records of a page, as its condition `lies` says (`on_page`)."""
    with user_sql.guarded(connection):
        sql = f"SELECT {_quote_all(SEGMENT.names)} FROM _stored WHERE {lies}"
        table = connection.sql(sql).to_arrow_reader(_BATCH_ROWS).read_all()
    return to_records(table.cast(SEGMENT))


def segment_rows(
    connection: duckdb.DuckDBPyConnection, where: str | None = None, columns: Iterable[str] = LS_COLUMNS
) -> Iterator[pa.RecordBatch]:
    """Yield the letters that fulfil `where`, with `stem` and `row` (from 0): where each lies in the archive.

    In the order of stem and row. Batches stream, so read them before the next statement on `connection`.
    Raises UsageError for a bad condition or column, at the first batch.
    """
    sql = f"""
        SELECT {_quote_all(columns)}, stem, segment_row AS row
        FROM _placed JOIN _segments USING (segment_file)
        WHERE {user_sql.condition(where)} ORDER BY stem, row"""
    with user_sql.guarded(connection):
        yield from connection.sql(sql).to_arrow_reader(_BATCH_ROWS)
