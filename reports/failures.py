"""Failures: the letters of one fingerprint as one row, with what people said of it."""

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlq.archive import brief
from dlq.archive.user_sql import run
from dlq.core.causes import cause_in_words
from dlq.core.clock import iso
from dlq.core.failures import ORDER, Deaths, Event, Life, State, by_fingerprint, life
from dlq.core.settings import Settings
from dlq.core.text import list_names
from dlq.core.values.suggestions import find_by_prefix
from dlq.reports.versions import add_versions

if TYPE_CHECKING:
    import duckdb

Row = dict[str, Any]

COLUMNS = (
    "fingerprint", "state", "owner", "letters", "waiting", "first", "last", "oldest", "sources", "origin",
    "origins", "cause", "proof", "exception_class", "exception_message", "outer_exception", "advice",
    "until", "resolved_in", "note", "changed_by", "changed_at", "example",
)  # fmt: skip
"""Of a row. `letters` are those that nobody dismissed; `waiting` those that did not go back, `oldest` when
the first of them died or, if nothing says so, was captured; `origins` all queues in which they did; `until`,
`resolved_in`, `note`, `changed_by` and `changed_at` as `core.failures.Life` has them."""
_COUNTS = "replay_state IS DISTINCT FROM 'dismissed' AND is_letter"
_WAITS = "(replay_state IS NULL OR replay_state IN ('planned', 'returned', 'refused'))"
_ISO = "replace(strftime(found.{0} AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ'), '.000000Z', 'Z') AS {0}"
"""A time as text: to make one of each of 10,000 rows costs Python more than all the rest of it."""
_TIMES = ", ".join(map(_ISO.format, ("first", "last", "oldest")))
_SQL = f"""
    WITH found AS (
        SELECT fingerprint, sum(letters)::BIGINT AS letters,
               coalesce(sum(letters) FILTER ({_WAITS}), 0)::BIGINT AS waiting,
               min(first) AS first, max(last) AS last, max(died) AS died,
               min({brief.DEAD_SINCE}) FILTER ({_WAITS}) AS oldest,
               list_sort(list(DISTINCT source)) AS sources,
               coalesce(list_sort(list(DISTINCT origin) FILTER (origin IS NOT NULL)), []) AS origins,
               list_sort(list(DISTINCT broker_kind)) AS broker_kinds,
               min(example) AS example, arg_min(source, example) AS lies_in, bool_or(likely) AS likely
        FROM _sums
        WHERE fingerprint IS NOT NULL AND {_COUNTS} GROUP BY 1)
    SELECT found.* EXCLUDE (lies_in, likely) REPLACE ({_TIMES}), v.cause,
           if(likely, 'likely', v.proof) AS proof, v.advice, v.exception_class, v.exception_message,
           v.outer_exception, v.origin
    FROM found JOIN _told v ON v.record_id = found.example AND v.source = found.lies_in"""


def states(
    connection: "duckdb.DuckDBPyConnection", events: Sequence[Event], now: int, settings: Settings
) -> Mapping[str, State]:
    """Return fingerprint -> how that failure stands, of those that somebody spoke of; all others are new."""
    return {one: stands.state for one, stands in lives(connection, events, now, settings).items()}


def lives(
    connection: "duckdb.DuckDBPyConnection", events: Sequence[Event], now: int, settings: Settings
) -> Mapping[str, Life]:
    """Return fingerprint -> the life of that failure, of those that somebody spoke of; `settings` say where
    letters have the version of their application."""
    said_of = by_fingerprint(events)
    sql = f"""
        SELECT fingerprint, sum(letters)::BIGINT, max(died) FROM _sums
        WHERE fingerprint IN (SELECT unnest(?)) AND {_COUNTS} GROUP BY 1"""
    brief.sum_up(connection)
    found = run(connection, sql, [list(said_of)]).rows if said_of else ()
    seen = {fingerprint: Deaths(letters, died) for fingerprint, letters, died in found}
    deaths = add_versions(connection, settings, said_of, seen)
    return {one: life(said, deaths.get(one, Deaths()), now) for one, said in said_of.items()}


def oldest_waiting(connection: "duckdb.DuckDBPyConnection") -> Mapping[str, int]:
    """Return source -> when the first of its letters died that wait, in microseconds since the epoch."""
    brief.sum_up(connection)
    sql = f"""
        SELECT source, epoch_us(min({brief.DEAD_SINCE})) FROM _sums
        WHERE {_WAITS} AND {_COUNTS} GROUP BY 1"""
    return {source: died for source, died in run(connection, sql).rows if died is not None}


def gather(
    connection: "duckdb.DuckDBPyConnection", events: Sequence[Event], now: int, settings: Settings
) -> list[Row]:
    """Return every failure that has letters, or that somebody spoke of: what needs a person first, snoozed
    last; of one state those with the most waiting letters first. Times are ISO 8601. A letter of which
    nothing says when it died was alive when it was published; of one that says neither, the capture is what
    is known."""
    return tell(connection, find_all(connection), events, now, settings)


def find_all(connection: "duckdb.DuckDBPyConnection") -> list[Row]:
    """Return every failure that has letters, as if nobody had spoken of any, sorted as `gather` does."""
    brief.sum_up(connection)
    blank, new = _blank(), _tell_life(Life("new"))
    return sorted(({**blank, **row, **new} for row in run(connection, _SQL).objects()), key=_place)


def tell(
    connection: "duckdb.DuckDBPyConnection",
    found: Sequence[Row],
    events: Sequence[Event],
    now: int,
    settings: Settings,
) -> list[Row]:
    """Return `gather` of what `find_all` found: those that somebody spoke of are told anew, and put in their
    places."""
    said_of = by_fingerprint(events)
    rows = [row for row in found if row["fingerprint"] not in said_of]
    known = {one: row for row in found if (one := row["fingerprint"]) in said_of}
    seen = {one: Deaths(row["letters"], row["died"]) for one, row in known.items()}
    deaths = add_versions(connection, settings, said_of, seen)
    for one, said in said_of.items():
        now_is = _tell_life(life(said, deaths.get(one, Deaths()), now))
        told = {**known.get(one, _blank()), **now_is, "fingerprint": one, "events": said}
        insort(rows, told, key=_place)
    return rows


def _place(row: Row) -> tuple[int, int, str]:
    """Return where a failure stands in a list: what needs a person first."""
    return ORDER.index(row["state"]), -row["waiting"], row["fingerprint"]


def _blank() -> Row:
    """Return a failure of which no letter is left."""
    none: Row = {"letters": 0, "waiting": 0, "sources": [], "origins": [], "broker_kinds": [], "died": None}
    return {**dict.fromkeys(COLUMNS), **none, "events": ()}


def _tell_life(stands: Life) -> Mapping[str, Any]:
    told = stands._asdict()
    told["changed_by"] = told.pop("actor")
    return {**told, "changed_at": None if stands.changed_at is None else iso(stands.changed_at)}


def find(rows: Sequence[Row], prefix: str) -> Row:
    """Return the failure whose fingerprint begins so. Raises UsageError when none does, or several."""
    known = {row["fingerprint"]: row for row in rows}
    missing = f"no failure has the fingerprint {prefix!r}; dlq failures lists them"
    return known[find_by_prefix(prefix, known, missing)]


def describe(row: Row) -> str:
    """Return what happened, in a line: the exception without its package, else the cause."""
    if row["exception_class"]:
        name = row["exception_class"].rpartition(".")[2]
        return f"{name}: {row['exception_message']}" if row["exception_message"] else name
    return (
        cause_in_words(row["cause"], row["broker_kinds"], row["proof"])
        if row["cause"]
        else "none of its letters is left"
    )


def place_of(row: Row) -> str:
    """Return the queues it failed in, else where its letters lie."""
    return list_names(row["origins"]) or ", ".join(row["sources"])


def alike(rows: Iterable[Row], row: Row) -> list[Row]:
    """Return other failures that have the same exception, at another place in the code or by another cause:
    what is said of one of them is not said of the others."""
    if row["exception_class"] is None:
        return []
    from dlq.analyzers.rules.exceptions import template  # all rules come with it

    words = template(row["exception_message"])
    found = (one for one in rows if one["exception_class"] == row["exception_class"] and one is not row)
    return [one for one in found if template(one["exception_message"]) == words]


def stands(row: Mapping[str, Any]) -> str:
    """Return its state, and who has it."""
    return f"{row['state']}, {row['owner']}" if row["owner"] else str(row["state"])
