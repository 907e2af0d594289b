"""The incidents of an analysis, what to look at first on top, with what is known of their letters."""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dlq.archive import brief
from dlq.archive.user_sql import run
from dlq.core.documents import Document
from dlq.core.failures import ORDER, State
from dlq.core.text import list_names
from dlq.reports.headline import failure, minutes

if TYPE_CHECKING:
    import duckdb


_ALL_NEW: Mapping[str, State] = {}
_GROWING = 10
"""What goes on counts so many times: it costs more with each minute."""
_NEW, _RESOLVED = ORDER.index("new"), ORDER.index("resolved")
# Retention may have taken letters away since the analysis, so they are counted here.
_SQL = f"""
    WITH lives AS (SELECT unnest(?::VARCHAR[]) AS fingerprint, unnest(?::INTEGER[]) AS rank),
    hit AS (
        SELECT incident_id, sum(letters)::BIGINT AS size, count(DISTINCT fingerprint)::BIGINT AS failures,
               bool_or(undated < letters) OR incident_id IN (
                   SELECT incident_id FROM _brief WHERE incident_id IS NOT NULL
                   AND record_id IN (SELECT record_id FROM client_log WHERE record_id IS NOT NULL)) AS dated,
               list_sort(list(DISTINCT broker_kind)) AS broker_kinds,
               coalesce(sum(letters) FILTER (
                   coalesce(replay_state, 'planned') IN ('planned', 'returned', 'refused')), 0)::BIGINT
                   AS waiting,
               coalesce(list_sort(list(DISTINCT coalesce(origin, dead_letter_queue))), []) AS services,
               min(coalesce(rank, {_NEW})) AS rank
        FROM _sums LEFT JOIN lives USING (fingerprint) WHERE incident_id IS NOT NULL GROUP BY 1),
    failures AS (
        SELECT incident_id, sum(letters) AS letters, min(example) AS example
        FROM _sums WHERE incident_id IS NOT NULL GROUP BY incident_id, fingerprint),
    most AS (
        SELECT incident_id, arg_max(example, row(letters, example)) AS example FROM failures GROUP BY 1),
    told AS (
        SELECT DISTINCT ON (record_id) record_id, cause, proof, origin, exception_class, exception_message
        FROM _told WHERE record_id IN (SELECT example FROM most) ORDER BY record_id, source)
    SELECT i.* EXCLUDE (size), hit.* EXCLUDE (incident_id, dated), told.* EXCLUDE (record_id),
           hit.dated AND i.start IS NOT NULL AND i."end" IS NOT NULL AS dated
    FROM incidents i JOIN hit ON hit.incident_id = i.incident_id
    JOIN most ON most.incident_id = i.incident_id
    LEFT JOIN told ON told.record_id = most.example
    ORDER BY rank >= {_RESOLVED}, waiting * if(ongoing, {_GROWING}, 1) DESC,
             size DESC, start DESC, i.incident_id"""


def gather(
    connection: "duckdb.DuckDBPyConnection", most: int = 0, states: Mapping[str, State] = _ALL_NEW
) -> list[dict[str, Any]]:
    """Return them by how many of their letters wait, those that go on before what is over, and last those
    whose failures are all resolved or snoozed. `most` 0: all. `states`: how failures stand that somebody
    spoke of; `state` of an incident is that of its failures which needs a person first."""
    ranks = [ORDER.index(state) for state in states.values()]
    brief.sum_up(connection)
    found = run(connection, _SQL + (f" LIMIT {most}" if most else ""), [list(states), ranks])
    return [{**row, "state": ORDER[row.pop("rank")]} for row in found.objects()]


def marks(row: Document) -> list[str]:
    """Return what is special about an incident, in words."""
    said = [row["state"]] if row["state"] not in ("new", "open") else []
    return [mark for mark in ("ongoing", "new") if row[mark]] + said


def describe(row: Document) -> str:
    """Return what happened, in a line: `java.net.SocketTimeoutException: …, and 2 more failures`."""
    name, message = failure(row) if row["cause"] else (list_names(row["causes"] or []), "")
    others = row["failures"] - 1
    more = f", and {others:,} more failure{'s' if others > 1 else ''}" if others > 0 else ""
    published = f" (time of death unknown{', these are times of publishing' if row['start'] else ''})"
    between = ": " if row["exception_class"] else " "
    said = f"{name}{between if message else ''}{message[:200]}{more}"
    return said if row["dated"] else said + published


def places_of(row: Document) -> str:
    """Return the places that it hit: `orders, payments, stock and 4 more; letters of orders.dlq`."""
    services, sources = list_names(row["services"]), list_names(row["sources"] or [])
    return services if sources in ("", services) else f"{services}; letters of {sources}"


def end_of(row: Document) -> str:
    """Return when an incident's last letter died; the date only if it is another than the first's."""
    start, end = minutes(row["start"]), minutes(row["end"])
    return end[11:] if start[:10] == end[:10] else end


def next_step(row: Document) -> dict[str, str]:
    """Return the command that looks into an incident."""
    goes_on = ", going on at the last pull" if row["ongoing"] else ""
    since = f" since {minutes(row['start'])}" if row["dated"] else ""
    letters = f"{row['size']:,} letters{since}"
    return {
        "command": f"dlq ls --incident {shlex.quote(row['incident_id'])}",
        "why": f"the incident to look at first{goes_on}: {letters}",
    }
