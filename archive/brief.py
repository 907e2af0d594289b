"""Letters in brief: what is asked of a million letters at once, from the files of verdicts alone.

An analysis writes what lists and sums ask of a record beside its verdict (`analyses.BESIDE`). So of a segment
whose letters are all still there neither is read, nor is it joined. Others are looked at as they lie: those
that no analysis has read, or one of an older version, and those of which retention has removed letters.

Of many letters it writes sums, too (`analyses.SUMS`), of letters as if nothing had become of any. They hold
for a failure of which the ledger knows no letter; the letters of others are walked through.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from dlq.archive import analyses
from dlq.archive.manifests import Manifest
from dlq.archive.user_sql import guarded
from dlq.core.errors import ArchiveError
from dlq.core.text import sql_literal

if TYPE_CHECKING:
    import duckdb

_OF_BOTH = ("origin_exchange", "origin_routing_key")
"""Of these a verdict and its record say something together."""
_OF_FILES = (
    *(name for name in analyses.VERDICTS.names if name not in _OF_BOTH),
    *(name for name in analyses.BESIDE.names if name != "stem"),
)
COLUMNS = (*_OF_FILES, "replay_state", "analysis", "still_queued")
"""Columns of the view `_brief`, which has `segment_file` besides. A row of it is that of `letters`."""
OF_FAILURE = ("record_id", "dead_at", "dead_letter_queue", "attempts", "consumer_id", "producer_id")
"""Columns of the table `_of_failure`, which has `segment_file` besides."""
_LIES = pa.schema([("stem", pa.string()), ("segment_file", pa.string())])
DIED = """
    CASE WHEN dead_at IS NULL THEN epoch_us(coalesce(published_at, captured_at))
         WHEN epoch_us(dead_at) % 1000000 = 0
         THEN greatest(epoch_us(dead_at), least(epoch_us(dead_at) + 999999, epoch_us(captured_at)))
         ELSE epoch_us(dead_at) END"""
"""When a letter of `_brief` died, in microseconds. A broker that counts seconds says when the second began:
the letter died at its end, or before it was captured."""
IS_LETTER = "NOT (cause IS NULL AND rule IS NOT NULL)"
"""A classified record without a cause is evidence beside a letter, such as a copy of a half message."""
DEAD_SINCE = "coalesce(dead_since, first)"
"""The first time at which a letter of a row of `_sums` was certainly dead: one of unknown time when it was
captured."""
_SUMS_OF = pa.schema([("queued", pa.list_(pa.string())), ("letters", pa.int64())])
_ALIKE = "source, broker_kind, dead_letter_queue, origin, cause, advice, fingerprint, incident_id"
_TOTALS = f"""
    coalesce(proof = 'likely', false) AS likely, {IS_LETTER} AS is_letter, count(*) AS letters,
    min(dead_at) AS first, max(dead_at) AS last, count(*) - count(dead_at) AS undated,
    min(coalesce(dead_at, captured_at)) AS dead_since,
    max({DIED}) AS died, sum(body_size)::BIGINT AS body_bytes, min(record_id) AS example"""
_DEATHS = f"""
    SELECT cause, floor(epoch(dead_at) / 60)::BIGINT AS minute, count(*) AS letters FROM {{letters}}
    WHERE dead_at IS NOT NULL AND {IS_LETTER} GROUP BY ALL"""
_TOLD = ", ".join(analyses.TOLD)
_SUMS = f"""
    SELECT * EXCLUDE (told), unnest(told) FROM (
        SELECT {_ALIKE}, {_TOTALS}, arg_min(struct_pack({_TOLD}), record_id) AS told {{more}}
        FROM {{letters}} GROUP BY ALL)"""
KEPT: Mapping[str, str] = {
    "sums": _SUMS.format(letters="_kept", more=""),
    "minutes": _DEATHS.format(letters="_kept"),
}
"""Table of an analysis -> how the letters of its verdicts, the view `_kept`, are summed up."""
_WALKED = """
    (FROM _again SEMI JOIN _touched USING (fingerprint) UNION ALL FROM _again WHERE fingerprint IS NULL
     UNION ALL FROM _alone)"""
_BY_STATE = ", replay_state, count(*) FILTER (still_queued) AS still_queued"
_MADE: Mapping[str, str] = {
    "_touched": "SELECT DISTINCT fingerprint FROM _known WHERE fingerprint IS NOT NULL",
    "_sums": f"""
        SELECT * EXCLUDE (is_queued), NULL::VARCHAR AS replay_state, if(is_queued, letters, 0) AS still_queued
        FROM _summed WHERE fingerprint IS NOT NULL AND fingerprint NOT IN (FROM _touched)
        UNION ALL BY NAME {_SUMS.format(letters=_WALKED, more=_BY_STATE)}""",
    "_minutes": f"FROM _deaths UNION ALL {_DEATHS.format(letters='_alone')}",
    "_told": f"SELECT source, example AS record_id, cause, advice, origin, {_TOLD} FROM _sums",
}


class Files(NamedTuple):
    """The segments that count by their files, and the files of verdicts as SQL; None where there are none."""

    segments: Mapping[str, Manifest]
    verdicts: str | None
    analysis: str
    queued: Collection[str] | None
    """The sources whose letters all lie in their queues still, where those of others do not; else None."""


def make(connection: duckdb.DuckDBPyConnection, files: Files, still_queued: str) -> None:
    """Make the view `_brief`, and those that sums are made of; `_placed`, `_states` and what an analysis has
    kept are there. `still_queued`: whether the letter `r` lies in its queue still."""
    names = ", ".join(("stem", *_OF_FILES))
    connection.register("_no_brief", analyses.IN_FILES.empty_table())
    every = f"FROM _no_brief UNION ALL BY NAME FROM {files.verdicts}" if files.verdicts else "FROM _no_brief"
    connection.execute(f"CREATE TEMP VIEW _kept AS SELECT {names} FROM ({every})")
    kept = dict(connection.execute("SELECT stem, count(*) FROM _kept GROUP BY 1").fetchall())
    lies = _find_whole(kept, files.segments)
    connection.register("_lies", pa.table([[*lies], [*lies.values()]], _LIES))
    told = ", ".join(f"r.{name}" for name in _OF_FILES)
    connection.execute(f"""
        CREATE TEMP VIEW _whole AS
        SELECT {told}, p.replay_state, {sql_literal(files.analysis)} AS analysis,
               {still_queued} AS still_queued, r.segment_file
        FROM (FROM _kept JOIN _lies USING (stem)) r LEFT JOIN _states p USING (record_id)""")
    rest = files.segments.keys() - set(lies.values())
    lie_there = f"segment_file IN ({_sql_list(rest)})" if rest else "false"
    connection.execute(f"""
        CREATE TEMP VIEW _rest AS SELECT {", ".join(COLUMNS)}, segment_file FROM _placed WHERE {lie_there}""")
    more = "UNION ALL FROM _rest" if rest else ""  # beside which DuckDB joins the ledger where nobody asks
    connection.execute(f"CREATE TEMP VIEW _brief AS FROM _whole {more}")
    _note_sums(connection, files.queued, sum(kept.values()) if kept.keys() <= lies.keys() else None)


def _find_whole(kept: Mapping[str, int], segments: Mapping[str, Manifest]) -> Mapping[str, str]:
    """Map a stem to the file where all its letters of then lie: its segment, or what that was merged into."""
    return {
        stem: file
        for file, manifest in segments.items()
        if sum(kept.get(stem, 0) for stem in _stems(manifest)) == manifest.rows
        for stem in _stems(manifest)
    }


def _stems(manifest: Manifest) -> Iterable[str]:
    """Return where the letters of a segment lay. Of what it replaces, some may be gone that were counted."""
    return (manifest.stem, *(() if manifest.purged else manifest.replaces))


def _sql_list(names: Iterable[str]) -> str:
    return ", ".join(map(sql_literal, sorted(names)))


def _note_sums(
    connection: duckdb.DuckDBPyConnection, queued: Collection[str] | None, letters: int | None
) -> None:
    """Note for `sum_up`, which most do not ask for, that the sums of the analysis count where they are of so
    many letters, with those of these sources as still queued; None: they do not."""
    usable = None if queued is None else letters
    connection.register("_sums_of", pa.table([[[*(queued or ())]], [usable]], _SUMS_OF))


def _use_sums(connection: duckdb.DuckDBPyConnection) -> None:
    """Let the sums of the analysis count, as was noted, if they are of all letters that they should be of."""
    ((queued, letters),) = connection.execute("FROM _sums_of").fetchall()
    use, alone = ("true", "_rest") if _count_kept(connection) == letters else ("false", "_brief")
    is_queued = f"source IN ({_sql_list(queued)})" if queued else "false"
    for name, sql in {
        "_summed": f"SELECT *, {is_queued} AS is_queued FROM _read_sums WHERE {use}",
        "_deaths": f"FROM _read_minutes WHERE {use}",
        "_known": f"FROM _kept SEMI JOIN _states USING (record_id) WHERE {use}",
        "_again": f"FROM _whole WHERE {use}",
        "_alone": f"FROM {alone}",
    }.items():
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {sql}")


def _count_kept(connection: duckdb.DuckDBPyConnection) -> int:
    """Read what the analysis has summed up, and return of how many letters that is; -1: it is damaged."""
    try:
        with guarded(connection):
            for name in KEPT:
                connection.execute(f"CREATE OR REPLACE TEMP TABLE _read_{name} AS FROM _kept_{name}")
            ((letters,),) = connection.execute("SELECT sum(letters) FROM _read_sums").fetchall()
    except ArchiveError:
        for name in KEPT:
            connection.execute(f"CREATE OR REPLACE TEMP TABLE _read_{name} AS FROM _kept_{name} LIMIT 0")
        return -1
    return int(letters or 0)


def sum_up(connection: duckdb.DuckDBPyConnection, *wanted: str) -> None:
    """Make those of these tables that are `wanted`, else all, unless they are there: `_sums`, letters that
    are alike in all that is counted, a row each; `_minutes`, how many died in each; `_told`, the verdicts of
    examples."""
    with guarded(connection):
        there = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        missing = [name for name in wanted or _MADE if (name,) not in there]
        if missing:
            _use_sums(connection)
        for name in missing:
            connection.execute(f"CREATE TEMP TABLE {name} AS {_MADE[name]}")


@contextmanager
def of_failure(connection: duckdb.DuckDBPyConnection, fingerprint: str) -> Iterator[None]:
    """Hold the letters of one failure as the table `_of_failure` while the block runs: to find them among a
    million is most of the work of whatever is asked of them."""
    sql = "CREATE OR REPLACE TEMP TABLE _of_failure AS SELECT {} FROM _brief WHERE fingerprint = ?"
    with guarded(connection):
        connection.execute(sql.format(", ".join((*OF_FAILURE, "segment_file"))), [fingerprint])
    try:
        yield
    finally:
        with guarded(connection):  # who took too long is ended here, too
            connection.execute("DROP TABLE IF EXISTS _of_failure")


def forget_sums(connection: duckdb.DuckDBPyConnection) -> None:
    """Forget sums: other letters are looked at from now on."""
    forget_made(connection)
    _note_sums(connection, None, None)


def forget_made(connection: duckdb.DuckDBPyConnection) -> None:
    """Forget what was summed up: the ledger says something else by now."""
    for table in _MADE:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
