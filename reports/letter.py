"""Everything about one letter, as one JSON-able document."""

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlq.archive import short_ids
from dlq.archive.user_sql import run
from dlq.core.causes import ADVICE, CAUSES
from dlq.core.rocketmq_topics import DISCARDED, HALF, OP_TOPIC

if TYPE_CHECKING:
    import duckdb

_LISTED = 20

Document = dict[str, Any]


def gather(connection: "duckdb.DuckDBPyConnection", prefix: str) -> Document:
    """The letter that `prefix` (8 or more of its id's digits) addresses: its columns, what belongs to it, and
    what to do next. `body` and `raw_properties` are base64. Raises UsageError for none or several."""
    record_id = short_ids.record_id(connection, prefix)
    sql = """
        SELECT * EXCLUDE (body, raw_properties), base64(body) AS body_base64,
               base64(raw_properties) AS raw_properties_base64
        FROM letters WHERE record_id = ?"""
    letter = _objects(connection, sql, record_id)[0]  # an export that was imported here lies here twice
    letter |= {
        "cause_meaning": CAUSES.get(letter["cause"] or ""),
        "advice_meaning": ADVICE.get(letter["advice"] or ""),
        "replays": _objects(
            connection, "SELECT * FROM replays WHERE record_id = ? ORDER BY updated_at", record_id
        ),
        "duplicates": _duplicates(connection, record_id, letter["duplicate_group"]),
        "incident": next(iter(_incident(connection, letter["incident_id"])), None),
        "transactions": _transactions(connection, record_id),
    }
    return letter | {"next": next_steps(letter)}


def _objects(connection: "duckdb.DuckDBPyConnection", sql: str, *parameters: Any) -> list[Document]:
    found = run(connection, sql, parameters)
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def _duplicates(connection: "duckdb.DuckDBPyConnection", record_id: str, group: str | None) -> list[Document]:
    if group is None:
        return []
    sql = f"""
        SELECT record_id, source, dead_at, replay_state FROM letters
        WHERE duplicate_group = ? AND record_id <> ? ORDER BY dead_at LIMIT {_LISTED}"""
    return _objects(connection, sql, group, record_id)


def _incident(connection: "duckdb.DuckDBPyConnection", incident_id: str | None) -> list[Document]:
    if incident_id is None:
        return []
    return _objects(connection, "SELECT * FROM incidents WHERE incident_id = ?", incident_id)


def _transactions(connection: "duckdb.DuckDBPyConnection", record_id: str) -> list[Document]:
    sql = "SELECT * FROM transactions WHERE list_contains(record_ids, ?) OR real_record_id = ?"
    return _objects(connection, sql, record_id, record_id)


def is_analysed(letter: Mapping[str, Any]) -> bool:
    """Whether an analysis has seen it: it has a cause, or it is evidence of a letter beside it."""
    return any(letter[name] is not None for name in ("cause", "rule", "transaction_state"))


def end_of(letter: Mapping[str, Any]) -> str:
    """How it came to lie where it lies. A transaction's messages do not die: they are stored, until the
    broker gives one up."""
    lives = letter["dead_letter_queue"] in (HALF, OP_TOPIC) or letter["transaction_state"]
    return "given up" if letter["dead_letter_queue"] == DISCARDED else "stored" if lives else "died"


def next_steps(letter: Document) -> Sequence[dict[str, str]]:
    """What replay would do with this letter, as commands to copy, each with its reason."""
    record_id, advice = letter["record_id"], letter["advice"]
    if letter["replay_state"] == "dismissed":
        return [
            {"command": f"dlq dismiss {record_id[:12]} --undo", "why": "it is closed; this opens it again"}
        ]
    plan = f"dlq replay plan {record_id[:12]}"
    if not is_analysed(letter):
        return [{"command": "dlq analyze", "why": "no analysis has seen this letter yet"}]
    if letter["cause"] is None:
        return []  # evidence beside a letter, and nothing that goes anywhere
    if letter["replay_state"] == "confirmed":
        return [{"command": "dlq verify", "why": "it went back already, and the broker confirmed it"}]
    if letter["replay_state"] in ("in_doubt", "sending"):
        why = "it may have gone back already; find out before anything else"
        return [{"command": f"dlq replay reconcile {letter['replays'][-1]['plan']}", "why": why}]
    by_decision = f"only by your decision: the advice is {advice}; "
    if letter["dead_letter_queue"] in (HALF, DISCARDED):
        leave = "" if advice in ("replay", "fix_first") else by_decision
        why = f"{leave}its producer is asked again and decides; --to origin publishes it unasked"
        return [{"command": f"{plan} --to resume", "why": why}]
    if advice in ("replay", "fix_first"):
        first = "once the cause is mended, " if advice == "fix_first" else ""
        return [
            {
                "command": plan,
                "why": f"{first}plan its way back to {destination(letter)}; nothing is sent yet",
            }
        ]
    return [
        {
            "command": plan,
            "why": f"{by_decision}a plan of its own takes it in",
        }
    ]


def destination(letter: Document) -> str:
    """Where a replay goes by default, in words."""
    if letter["origin_group"]:
        return f"the consumer group {letter['origin_group']}"
    if letter["origin"]:
        return f"the {letter['origin_kind'] or 'queue'} {letter['origin']}"
    return "nowhere by itself: nothing says where it came from, so name it with --to"


def with_readable_body(letter: Document) -> Document:
    """The document with `body_text` in the place of `body_base64` where the body is UTF-8."""
    try:
        text = base64.b64decode(letter["body_base64"] or "").decode("utf-8")
    except UnicodeDecodeError:
        return letter
    return {name: value for name, value in letter.items() if name != "body_base64"} | {"body_text": text}
