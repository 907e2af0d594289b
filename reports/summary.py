"""The numbers of a report, as one JSON-able document: every format renders this and nothing else.

DuckDB counts, over the views; no letter is loaded into Python. One pass groups the letters (`archive.brief`)
into a small table of facts, from which the rest is summed up.
"""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dlq.archive import brief
from dlq.archive.analyses import Analysis
from dlq.archive.user_sql import list_objects, run
from dlq.core.causes import ADVICE, CAUSES, cause_in_words
from dlq.core.clock import iso, now
from dlq.core.documents import Document
from dlq.core.failures import ORDER
from dlq.core.text import sql_literal
from dlq.reports import incidents, timeline
from dlq.reports.incidents import next_step
from dlq.reports.thresholds import STATES

if TYPE_CHECKING:
    import duckdb


_STEPS = (
    (("in_doubt", "sending"), "dlq replay status",
        "{letters} may or may not have arrived: once no apply runs, dlq replay reconcile PLAN"),
    (("no_verdict",), "dlq analyze",
        "{letters} without a verdict of an analysis; plans and thresholds rest on those"),
    (("replay",), "dlq replay plan --where \"advice = 'replay'\"",
        "{letters} may go back; planning sends nothing"),
    (("fix_first",), "dlq ls --where \"advice = 'fix_first'\"",
        "{letters} go back once their cause is fixed: dlq replay plan --fixed"),
    (("check_first",), "dlq ls --where \"advice = 'check_first'\"",
        "{letters} need a check before they go back; dlq show says which, for each"),
    (("unknown",), "dlq ls --where \"cause = 'unknown'\"",
        "{letters} carry no evidence; a rule of your own in dlq.toml can name their cause"),
    (("still_queued",), "dlq pull --mode drain",
        "{letters} went back and still lie in their dead-letter queues: take them out before someone moves "
        "them once more"),
    (("confirmed",), "dlq verify", "{letters} went back: prove that nothing is lost or doubled"),
)  # fmt: skip
"""Counts, or advice (of which those that wait count), the next command where letters are of that, and why."""


def _next_steps(document: Document, waiting: Mapping[str, int]) -> list[dict[str, str]]:
    """Return `{command, why}` for everything that is left to do; each command can be copied as it stands.

    `waiting`: how many letters wait, by the advice of an analysis.
    """
    counts = {**document["counts"], **{advice: waiting.get(advice, 0) for advice in ADVICE}}
    steps = [
        {"command": command, "why": why.format(letters=_letters(letters))}
        for names, command, why in _STEPS
        if (letters := sum(counts.get(name, 0) for name in names))
    ]
    incident = [next_step(row) for row in document["incidents"][:1] if row["state"] not in _AT_REST]
    return _look_at_the_top(document["fingerprints"]) + incident + steps


_AT_REST = ("resolved", "snoozed")
"""Failures that need nobody now. They stand last, so that the first tells of all."""


def _letters(count: int) -> str:
    return "1 letter" if count == 1 else f"{count:,} letters"


def _look_at_the_top(fingerprints: Sequence[Document]) -> list[dict[str, str]]:
    if not fingerprints or fingerprints[0]["state"] in _AT_REST:
        return []
    top = fingerprints[0]
    state = "" if top["letters"] == max(one["letters"] for one in fingerprints) else f"{top['state']} "
    which = "a failure that came back" if top["state"] == "regressed" else f"the most frequent {state}failure"
    why = f"an example of {which}, {_letters(top['letters'])}"
    return [{"command": f"dlq show {shlex.quote(top['example'][:12])}", "why": why}]


TOP = 10
_WAITING = "'none', 'planned', 'returned', 'refused'"
"""States of letters that did not go back and may still."""
_EVERY = "true"
_FACTS = """
    CREATE OR REPLACE TEMP VIEW facts AS
    SELECT * REPLACE (coalesce(cause, 'no_verdict') AS cause, coalesce(advice, 'no_verdict') AS advice,
                      coalesce(replay_state, 'none') AS replay_state)
    FROM _sums WHERE is_letter AND {only}"""
_SPAN = "SELECT coalesce(sum(letters), 0)::BIGINT, epoch(min(first)), epoch(max(last)) FROM facts"
_CAUSES = """
    SELECT cause, sum(letters)::BIGINT AS letters,
           coalesce(sum(letters) FILTER (likely), 0)::BIGINT AS likely, min(first) AS first,
           max(last) AS last, min(example) AS example, list_sort(list(DISTINCT broker_kind)) AS broker_kinds
    FROM facts GROUP BY cause ORDER BY letters DESC, cause"""
_SOURCES = f"""
    SELECT source, any_value(broker_kind) AS broker_kind, sum(letters)::BIGINT AS letters,
           min(first) AS first, max(last) AS last, sum(body_bytes)::BIGINT AS body_bytes,
           sum(still_queued)::BIGINT AS still_queued,
           coalesce(sum(letters) FILTER (is_open), 0)::BIGINT AS open,
           min({brief.DEAD_SINCE}) FILTER (is_open) AS oldest,
           count(DISTINCT fingerprint) FILTER (counts AND state = 'new')::BIGINT AS new_failures,
           count(DISTINCT fingerprint) FILTER (counts AND state = 'regressed')::BIGINT AS regressed
    FROM (SELECT facts.*, coalesce(lives.state, 'new') AS state, replay_state <> 'dismissed' AS counts,
                 replay_state NOT IN ('confirmed', 'dismissed')
                 AND (coalesce(lives.state, '') <> 'snoozed' OR replay_state IN ('sending', 'in_doubt'))
                     AS is_open
          FROM facts LEFT JOIN lives USING (fingerprint))
    GROUP BY source ORDER BY letters DESC, source"""
_MATRIX = """
    SELECT cause, source, sum(letters)::BIGINT AS letters FROM facts GROUP BY ALL ORDER BY ALL"""
_ADVICE = f"""
    SELECT advice, sum(letters)::BIGINT AS letters,
           coalesce(sum(letters) FILTER (replay_state IN ({_WAITING})), 0)::BIGINT AS waiting
    FROM facts GROUP BY advice ORDER BY letters DESC, advice"""
_REPLAY_STATES = """
    SELECT replay_state, sum(letters)::BIGINT AS letters
    FROM facts GROUP BY replay_state ORDER BY letters DESC, replay_state"""
_PLACE = f"list_position({list(ORDER)}, any_value(coalesce(state, 'new')))"
_FINGERPRINTS = f"""
    WITH first_ones AS (
        SELECT fingerprint
        FROM facts LEFT JOIN lives USING (fingerprint) WHERE fingerprint IS NOT NULL
        GROUP BY fingerprint
        ORDER BY {_PLACE}, sum(letters) DESC, fingerprint LIMIT {TOP}),
    top AS (
        SELECT fingerprint, sum(letters)::BIGINT AS letters, min(first) AS first, max(last) AS last,
               min(example) AS example,
               arg_min(source, example) AS lies_in, list_sort(list(DISTINCT source)) AS sources,
               list_sort(list(DISTINCT broker_kind)) AS broker_kinds,
               bool_or(likely) AS likely, any_value(coalesce(state, 'new')) AS state,
               any_value(owner) AS owner,
               {_PLACE} AS place
        FROM facts SEMI JOIN first_ones USING (fingerprint) LEFT JOIN lives USING (fingerprint)
        GROUP BY fingerprint)
    SELECT top.* EXCLUDE (lies_in, place, likely), v.cause, if(likely, 'likely', v.proof) AS proof,
           v.also_possible, v.advice, v.exception_class, v.exception_message,
           v.exception_family, v.outer_exception, v.origin
    FROM top JOIN _told v ON v.record_id = top.example AND v.source = top.lies_in
    ORDER BY place, letters DESC, top.fingerprint"""
_LIVES = """
    CREATE OR REPLACE TEMP TABLE lives AS
    SELECT unnest($1::VARCHAR[]) AS fingerprint, unnest($2::VARCHAR[]) AS state,
           unnest($3::VARCHAR[]) AS owner"""
_BY_STATE = """
    SELECT count(DISTINCT fingerprint) FILTER (coalesce(state, 'new') = 'new')::BIGINT AS new_failures,
           count(DISTINCT fingerprint) FILTER (state = 'regressed')::BIGINT AS regressed
    FROM facts LEFT JOIN lives USING (fingerprint) WHERE replay_state <> 'dismissed'"""
_DUPLICATES = """
    SELECT duplicate_kind AS kind, count(DISTINCT duplicate_group)::BIGINT AS groups,
           count(*)::BIGINT AS letters
    FROM _brief WHERE duplicate_kind IS NOT NULL AND {only} GROUP BY 1 ORDER BY letters DESC, 1"""
_TRANSACTIONS = """
    SELECT state, count(*)::BIGINT AS transactions, sum(coalesce(copies, 1))::BIGINT AS copies,
           max(checks) AS checks, min(first_seen) AS first, max(last_seen) AS last
    FROM transactions GROUP BY 1 ORDER BY 2 DESC, 1"""
# What analyses alone have said of letters that nobody has closed: thresholds and next steps rest on it.
_CLASSIFIED = f"""
    SELECT cause, advice, sum(letters)::BIGINT AS letters,
           coalesce(sum(letters) FILTER (replay_state IN ({_WAITING})), 0)::BIGINT AS waiting
    FROM facts WHERE replay_state <> 'dismissed' GROUP BY ALL"""
_HOW_MANY = f"""
    SELECT (SELECT count(DISTINCT fingerprint) FROM facts
            WHERE replay_state <> 'dismissed') AS fingerprints,
           count(*)::BIGINT AS incidents,
           count(*) FILTER (ongoing)::BIGINT AS ongoing,
           (SELECT coalesce(sum(undated), 0)::BIGINT FROM facts) AS undated,
           (SELECT coalesce(sum(still_queued) FILTER (replay_state = 'confirmed'), 0)::BIGINT FROM facts)
               AS still_queued,
           (SELECT epoch(min({brief.DEAD_SINCE}) FILTER (replay_state NOT IN ('confirmed', 'dismissed')))
            FROM facts) AS oldest
    FROM incidents
    WHERE incident_id IN (
        SELECT incident_id FROM _sums WHERE replay_state IS DISTINCT FROM 'dismissed' AND {{only}})"""
_LISTS: Mapping[str, str] = {
    "causes": _CAUSES,
    "sources": _SOURCES,
    "matrix": _MATRIX,
    "advice": _ADVICE,
    "replay_states": _REPLAY_STATES,
    "fingerprints": _FINGERPRINTS,
    "transactions": _TRANSACTIONS,
}


def gather(
    connection: "duckdb.DuckDBPyConnection", analysis: Analysis | None, lives: Sequence[Document] = ()
) -> Document:
    """Return the whole report of `analysis` (the one that `connection`'s views show; None: no letter is
    classified yet).

    `lives`: failures that somebody spoke of, each with `fingerprint, state, owner`; all others are new.

    `open` and `oldest` of a source leave out letters of snoozed failures that are not in doubt, as alarms do.
    `undated` is of how many letters nothing says when they died, `oldest` when the first of those died that
    did not go back, and are not dismissed (in `counts`: its age); of one of unknown time, when it was
    captured. Times are ISO 8601, UTC.
    """
    brief.sum_up(connection)
    list(run(connection, _FACTS.format(only=_EVERY)).rows)
    (total, first, last) = next(run(connection, _SPAN).rows)
    told = [[row[name] for row in lives] for name in ("fingerprint", "state", "owner")]
    list(run(connection, _LIVES, told).rows)
    document: Document = {
        "analysis": analysis.analysis if analysis else None,
        "created_at": analysis.created_at if analysis else iso(now()),
        "letters": total,
        "first": None if first is None else iso(int(first * 1_000_000)),
        "last": None if last is None else iso(int(last * 1_000_000)),
        **{name: list_objects(connection, sql) for name, sql in _LISTS.items()},
        "duplicates": _list_duplicates(connection),
        "incidents": incidents.gather(connection, TOP, {row["fingerprint"]: row["state"] for row in lives}),
        "timeline": timeline.gather(connection, first, last),
        "client_log": analysis.extra.get("client_log") if analysis else None,
    }
    _explain(document["causes"], "cause", CAUSES, total)
    for row in document["causes"]:
        row["name"] = cause_in_words(row["cause"], row["broker_kinds"], "likely" if row["likely"] else None)
        if row["likely"]:
            row["meaning"] += f" ({row['likely']:,} of them likely, not proven)"
    _explain(document["advice"], "advice", ADVICE, total)
    counted = _count(connection, document["duplicates"])
    document |= {"undated": counted.undated, "oldest": counted.oldest, "counts": counted.counts}
    document["next"] = _next_steps(document, counted.waiting)
    return document


def count_awake(connection: "duckdb.DuckDBPyConnection", asleep: Sequence[str]) -> Document:
    """Return the `counts` of what `gather` was asked last, without letters of these failures, but for those
    in doubt."""
    names = ", ".join(map(sql_literal, asleep))
    only = f"(coalesce(fingerprint NOT IN ({names}), true) OR replay_state IN ('sending', 'in_doubt'))"
    list(run(connection, _FACTS.format(only=only)).rows)
    return _count(connection, _list_duplicates(connection, only), only).counts


def _list_duplicates(connection: "duckdb.DuckDBPyConnection", only: str = _EVERY) -> list[Document]:
    return list_objects(connection, _DUPLICATES.format(only=only))


class _Counted(NamedTuple):
    counts: Document
    waiting: Mapping[str, int]
    """Letters that wait by advice."""
    undated: int
    oldest: str | None


def _count(
    connection: "duckdb.DuckDBPyConnection", duplicates: Sequence[Document], only: str = _EVERY
) -> _Counted:
    """Count the facts."""
    classified, states = (list_objects(connection, sql) for sql in (_CLASSIFIED, _REPLAY_STATES))
    how_many = list_objects(connection, _HOW_MANY.format(only=only))[0]
    undated, oldest = how_many.pop("undated"), how_many.pop("oldest")
    how_many["oldest"] = 0 if oldest is None else max(0, int(now() / 1_000_000 - oldest))
    counts = _counts(classified, states, duplicates)
    return _Counted(
        {**counts, **how_many, **list_objects(connection, _BY_STATE)[0]},
        _total(classified, "advice", "waiting"),
        undated,
        None if oldest is None else iso(int(oldest * 1_000_000)),
    )


def _explain(rows: list[Document], name: str, meanings: Mapping[str, str], total: int) -> None:
    for row in rows:
        row["meaning"] = meanings.get(row[name], "no analysis has seen these letters yet")
        row["share"] = row["letters"] / total


def _total(rows: Sequence[Document], name: str, number: str) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for row in rows:
        total[row[name]] += row[number]
    return total


def _counts(
    classified: Sequence[Document], states: Sequence[Document], duplicates: Sequence[Document]
) -> dict[str, int]:
    """Return what a `--fail-on` expression can name; causes, advice and states that did not occur are 0."""
    by_cause, by_advice = (_total(classified, name, "letters") for name in ("cause", "advice"))
    by_state = {row["replay_state"]: row["letters"] for row in states}
    total = sum(by_state.values()) - by_state.get("dismissed", 0)
    return {
        "total": total,
        "open": total - by_state.get("confirmed", 0),
        "no_verdict": by_cause.get("no_verdict", 0),
        **{cause: by_cause.get(cause, 0) for cause in CAUSES},
        **{advice: by_advice.get(advice, 0) for advice in ADVICE},
        **{state: by_state.get(state, 0) for state in STATES},
        "duplicates": sum(row["letters"] for row in duplicates if row["groups"]),
    }
