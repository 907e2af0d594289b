"""Everything about one letter, as one JSON-able document."""

import base64
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dlq.archive.user_sql import list_objects, run
from dlq.core.causes import ADVICE, CAUSES
from dlq.core.documents import Document
from dlq.core.headers.rocketmq_topics import DISCARDED, HALF, OP_TOPIC
from dlq.core.values.units import human_bytes
from dlq.reports.letters.body import Preview

if TYPE_CHECKING:
    import duckdb

_LISTED = 20


def gather(connection: "duckdb.DuckDBPyConnection", record_id: str, lies: str) -> Document:
    """Return the letter of this id: its columns, what belongs to it, and what to do next. `body` and
    `raw_properties` are base64. `lies`: where, as a condition (`views.on_page`)."""
    sql = f"""
        SELECT * EXCLUDE (body, raw_properties, segment_file, segment_row), base64(body) AS body_base64,
               base64(raw_properties) AS raw_properties_base64
        FROM _placed WHERE {lies}"""
    letter = list_objects(connection, sql)[0]  # an export that was imported here lies here twice
    letter |= {
        "cause_meaning": CAUSES.get(letter["cause"] or ""),
        "advice_meaning": ADVICE.get(letter["advice"] or ""),
        "replays": list_objects(
            connection, "SELECT * FROM replays WHERE record_id = ? ORDER BY updated_at", [record_id]
        ),
        "duplicates": _duplicates(connection, record_id, letter["duplicate_group"]),
        "incident": next(iter(_incident(connection, letter["incident_id"])), None),
        "transactions": _transactions(connection, record_id),
    }
    step = _next_step(letter)
    return letter | {"next": [{"command": step[0], "why": step[1]}] if step else []}


def list_copies(connection: "duckdb.DuckDBPyConnection", record_id: str) -> list[str]:
    """Return the letter of this id and its duplicates."""
    groups = [*run(connection, "SELECT duplicate_group FROM _brief WHERE record_id = ?", [record_id]).rows]
    copies = "SELECT record_id FROM _brief WHERE duplicate_group = ?"
    return [
        record_id,
        *(one for group in groups if any(group) for (one,) in run(connection, copies, group).rows),
    ]


def _duplicates(connection: "duckdb.DuckDBPyConnection", record_id: str, group: str | None) -> list[Document]:
    if group is None:
        return []
    sql = f"""
        SELECT record_id, source, dead_at, replay_state FROM _brief
        WHERE duplicate_group = ? AND record_id <> ? ORDER BY dead_at LIMIT {_LISTED}"""
    return list_objects(connection, sql, [group, record_id])


def _incident(connection: "duckdb.DuckDBPyConnection", incident_id: str | None) -> list[Document]:
    if incident_id is None:
        return []
    return list_objects(connection, "SELECT * FROM incidents WHERE incident_id = ?", [incident_id])


def _transactions(connection: "duckdb.DuckDBPyConnection", record_id: str) -> list[Document]:
    sql = "SELECT * FROM transactions WHERE list_contains(record_ids, ?) OR real_record_id = ?"
    return list_objects(connection, sql, [record_id, record_id])


def list_way(letter: Mapping[str, Any]) -> Iterator[tuple[str | None, str, str]]:
    """Yield when, what happened, and where, from a letter's publishing to its capture; the record has the
    latest death first."""
    yield letter["published_at"], "published", _address(letter)
    for death in reversed(letter["deaths"] or []):
        yield death["time"], _times(death), _describe_death(death)
    if not letter["deaths"]:
        yield letter["dead_at"], end_of(letter), f"in {letter['origin']}" if letter["origin"] else ""
    count = letter["attempts"]
    attempts = "" if count is None else f", {count} delivery {'attempt' if count == 1 else 'attempts'}"
    yield None, "lies in", f"{letter['dead_letter_queue'] or ''} on {letter['broker'] or ''}{attempts}"
    yield letter["captured_at"], "captured", f"by {letter['mode'] or ''}, pull {letter['pull_id'] or ''}"


def _address(letter: Mapping[str, Any]) -> str:
    exchange, key = letter["origin_exchange"], letter["origin_routing_key"]
    if exchange is None and key is None:
        return f"to {letter['origin']}" if letter["origin"] else ""
    return f"to exchange {exchange or '(default)'}, routing key {key or ''}"


def _times(death: Mapping[str, Any]) -> str:
    count = death["count"] or 1
    return f"{death['reason'] or 'died'}{f' x{count:,}' if count > 1 else ''}"


def _describe_death(death: Mapping[str, Any]) -> str:
    expiration = death["original_expiration"]
    return f"in {death['queue'] or ''}{f', expiration was {expiration} ms' if expiration else ''}"


def identify(letter: Mapping[str, Any]) -> Document:
    """Return what its producer and its broker call it, and where it belongs."""
    names = (
        "message_id", "key", "physical_id", "correlation_id", "queue_id", "offset", "incident_id", "laps",
    )  # fmt: skip
    return {name: letter[name] for name in names if letter[name] not in (None, "")}


def describe_body(letter: Mapping[str, Any], body: Preview) -> str:
    """Return its type, its size, and what was done to show it."""
    size = human_bytes(letter["body_size"] or 0)
    said = (letter["content_type"], size, "" if body.kind == "empty" else body.kind, body.note)
    return ", ".join(part for part in said if part)


def is_analysed(letter: Mapping[str, Any]) -> bool:
    """Return whether an analysis has seen it: it has a cause, or it is evidence of a letter beside it."""
    return any(letter[name] is not None for name in ("cause", "rule", "transaction_state"))


def end_of(letter: Mapping[str, Any]) -> str:
    """Return how it came to lie where it lies. A transaction's messages do not die: they are stored, until
    the broker gives one up."""
    lives = letter["dead_letter_queue"] in (HALF, OP_TOPIC) or letter["transaction_state"]
    return "given up" if letter["dead_letter_queue"] == DISCARDED else "stored" if lives else "died"


_IN_DOUBT = ("", "it may have gone back already; find out before anything else")
_UNDECIDED: Mapping[str, tuple[str, str]] = {
    "in_doubt": _IN_DOUBT,
    "sending": _IN_DOUBT,
    "held": (
        " --not-sent {}",
        "it is set aside, and no plan takes it in; this lets it go, if it did not arrive",
    ),
}
"""State of a replay of which nobody knows the end -> options of `dlq replay reconcile`, and why."""


def _next_step(letter: Document) -> tuple[str, str] | None:
    """Return what replay would do with this letter, as a command to copy, with its reason."""
    record_id, advice = letter["record_id"], letter["advice"]
    quoted = shlex.quote(record_id[:12])
    if letter["replay_state"] == "dismissed":
        return f"dlq dismiss {quoted} --undo", "it is closed; this opens it again"
    plan = f"dlq replay plan {quoted}"
    if not is_analysed(letter):
        return "dlq analyze", "no analysis has seen this letter yet"
    if letter["cause"] is None:
        return None  # evidence beside a letter, and nothing that goes anywhere
    if letter["replay_state"] == "confirmed":
        return "dlq verify", "it went back already, and the broker confirmed it"
    if letter["replay_state"] in _UNDECIDED:
        options, why = _UNDECIDED[letter["replay_state"]]
        reconcile = f"dlq replay reconcile {shlex.quote(letter['replays'][-1]['plan'])}"
        return reconcile + options.format(quoted), why
    by_decision = f"only by your decision: the advice is {advice}; "
    if letter["dead_letter_queue"] in (HALF, DISCARDED):
        leave = "" if advice in ("replay", "fix_first") else by_decision
        why = f"{leave}its producer is asked again and decides; --to origin publishes it unasked"
        return f"{plan} --to resume", why
    if advice in ("replay", "fix_first"):
        first = "once the cause is fixed, " if advice == "fix_first" else ""
        return plan, f"{first}plan its way back to {_destination(letter)}; nothing is sent yet"
    return plan, f"{by_decision}a plan of its own takes it in"


def _destination(letter: Document) -> str:
    """Return where a replay goes by default, in words."""
    if letter["origin_group"]:
        return f"the consumer group {letter['origin_group']}"
    if letter["origin"]:
        return f"the {letter['origin_kind'] or 'queue'} {letter['origin']}"
    return "nowhere by itself: nothing says where it came from, so name it with --to"


def with_readable_body(letter: Document) -> Document:
    """Return the document with `body_text` in the place of `body_base64` where the body is UTF-8."""
    try:
        text = base64.b64decode(letter["body_base64"] or "").decode("utf-8")
    except UnicodeDecodeError:
        return letter
    return {name: value for name, value in letter.items() if name != "body_base64"} | {"body_text": text}
