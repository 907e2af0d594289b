"""Letters in brief: what is asked of a million letters at once, from the files of verdicts alone.

An analysis writes what lists and sums ask of a record beside its verdict (`analyses.BESIDE`). So of a segment
whose letters are all still there neither is read, nor is it joined. Others are looked at as they lie: those
that no analysis has read, or one of an older version, and those of which retention has removed letters.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import duckdb
import pyarrow as pa

from dlq.archive import analyses
from dlq.archive.manifests import Manifest
from dlq.archive.user_sql import guarded
from dlq.core.text import sql_literal

_OF_BOTH = ("origin_exchange", "origin_routing_key")
"""Of these a verdict and its record say something together."""
_OF_FILES = (
    *(name for name in analyses.VERDICTS.names if name not in _OF_BOTH),
    *(name for name in analyses.BESIDE.names if name != "stem"),
)
COLUMNS = (*_OF_FILES, "replay_state", "analysis", "still_queued")
"""Columns of the view `_brief`, which has `segment_file` besides. A row of it is that of `letters`."""
_LIES = pa.schema([("stem", pa.string()), ("segment_file", pa.string())])
DIED = """
    CASE WHEN dead_at IS NULL THEN epoch_us(coalesce(published_at, captured_at))
         WHEN epoch_us(dead_at) % 1000000 = 0
         THEN greatest(epoch_us(dead_at), least(epoch_us(dead_at) + 999999, epoch_us(captured_at)))
         ELSE epoch_us(dead_at) END"""
"""When a letter of `_brief` died, in microseconds. A broker that counts seconds says when the second began:
the letter died at its end, or before it was captured."""
IS_LETTER = "NOT (cause IS NULL AND rule IS NOT NULL)"
"""A judged record without a cause is evidence beside a letter, such as a copy of a half message."""
_SUMS = f"""
    CREATE TEMP TABLE IF NOT EXISTS _sums AS
    SELECT source, broker_kind, dead_letter_queue, origin, cause, advice, fingerprint, incident_id,
           replay_state, coalesce(proof = 'likely', false) AS likely,
           {IS_LETTER} AS is_letter, count(*) AS letters,
           min(dead_at) AS first, max(dead_at) AS last, count(*) - count(dead_at) AS undated,
           max({DIED}) AS died, sum(body_size) AS body_bytes, min(record_id) AS example,
           count(*) FILTER (still_queued) AS still_queued
    FROM _brief GROUP BY ALL"""
_MINUTES = f"""
    CREATE TEMP TABLE IF NOT EXISTS _minutes AS
    SELECT cause, floor(epoch(dead_at) / 60)::BIGINT AS minute, count(*) AS letters FROM _brief
    WHERE dead_at IS NOT NULL AND {IS_LETTER} GROUP BY ALL"""
_TOLD = """
    CREATE TEMP TABLE IF NOT EXISTS _told AS
    SELECT source, record_id, cause, proof, also_possible, advice, exception_class, exception_message,
           exception_family, outer_exception, origin
    FROM verdicts WHERE record_id IN (
        SELECT example FROM _sums WHERE fingerprint IS NOT NULL OR incident_id IS NOT NULL)"""
_MADE = {"_sums": _SUMS, "_minutes": _MINUTES, "_told": _TOLD}


class Files(NamedTuple):
    """The segments that count by their files, and the files of verdicts as SQL; None where there are none."""

    segments: Mapping[str, Manifest]
    verdicts: str | None
    analysis: str


def make(connection: duckdb.DuckDBPyConnection, files: Files, still_queued: str) -> None:
    """Make the view `_brief`; `_placed` and `_states` are there. `still_queued`: whether the letter `r` lies
    in its queue still."""
    others = f"SELECT {', '.join(COLUMNS)}, segment_file FROM _placed"
    if files.verdicts is None:
        connection.execute(f"CREATE TEMP VIEW _brief AS {others}")
        return
    connection.register("_no_brief", analyses.IN_FILES.empty_table())
    names = ", ".join(("stem", *_OF_FILES))
    every = f"(FROM _no_brief UNION ALL BY NAME FROM {files.verdicts})"
    connection.execute(f"CREATE TEMP VIEW _kept AS SELECT {names} FROM {every}")
    lies = _find_whole(connection, files.segments)
    connection.register("_lies", pa.table([[*lies], [*lies.values()]], _LIES))
    rest = files.segments.keys() - set(lies.values())
    told = ", ".join(f"r.{name}" for name in _OF_FILES)
    connection.execute(f"""
        CREATE TEMP VIEW _brief AS
        SELECT {told}, p.replay_state, {sql_literal(files.analysis)} AS analysis,
               {still_queued} AS still_queued, r.segment_file
        FROM (FROM _kept JOIN _lies USING (stem)) r LEFT JOIN _states p USING (record_id)
        {f"UNION ALL {others} WHERE segment_file IN ({_listed(rest)})" if rest else ""}""")


def _find_whole(connection: duckdb.DuckDBPyConnection, segments: Mapping[str, Manifest]) -> Mapping[str, str]:
    """Stem -> the file in which all its letters of then lie: that segment, or what it was compacted into."""
    counts = connection.execute(
        "SELECT stem, count(*) FROM _kept WHERE stem IS NOT NULL GROUP BY 1"
    ).fetchall()
    kept = dict(counts)
    return {
        stem: file
        for file, manifest in segments.items()
        if sum(kept.get(stem, 0) for stem in _stems(manifest)) == manifest.rows
        for stem in _stems(manifest)
    }


def _stems(manifest: Manifest) -> Iterable[str]:
    return (manifest.stem, *manifest.replaces)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(sql_literal, sorted(names)))


def sum_up(connection: duckdb.DuckDBPyConnection) -> None:
    """Make these tables, unless they are there: `_sums`, letters that are alike in all that is counted, a row
    each; `_minutes`, how many died in each; `_told`, the verdicts of examples."""
    with guarded(connection):
        for sql in _MADE.values():
            connection.execute(sql)


def forget_sums(connection: duckdb.DuckDBPyConnection) -> None:
    """Other letters are looked at from now on."""
    for table in _MADE:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
