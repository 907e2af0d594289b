"""Letters to look at inside an HTML report: some of every kind, so that a search finds each of them.

A report of a million letters stays small: of every source, cause and fingerprint it holds the latest
ones, and of some of them the whole story. It says how many that are.
"""

import base64
import json
from collections.abc import Collection, Iterator
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from dlq.archive.user_sql import run
from dlq.core.brokers import plugin_of
from dlq.core.causes import cause_in_words
from dlq.core.documents import Document
from dlq.reports.letters import stack, unpacking
from dlq.reports.letters.body import preview
from dlq.reports.letters.letter import end_of
from dlq.reports.letters.masking import Masker
from dlq.reports.summary import TOP

if TYPE_CHECKING:
    import duckdb

LETTERS = 2_000
_OF_A_KIND = 200
_STORIES = 100
_LETTERS_BYTES = 1_200_000
_STORIES_BYTES = 400_000
"""With the chart library a report stays under 2 MB, whatever is in the letters."""
_TEXT = 240
_HEADERS = 60
_TRACE = 40
_LONG_TEXT = 4_000
_BODY = 1_500
_WHOLE_BODY = 2**20
"""The shape of JSON needs a body whole."""
_CUT = {
    **dict.fromkeys(("exception_message", "advice_reason", "evidence", "message_id", "key"), _TEXT),
    "failure_text": _LONG_TEXT,
}

_CHOOSE = f"""
    CREATE TEMP TABLE sample AS
    SELECT source, record_id, min(place) AS place, min(kind) AS kind FROM (
        SELECT source, unnest(chosen) AS record_id, generate_subscripts(chosen, 1) AS place, kind FROM (
            SELECT source, arg_max(record_id, coalesce(dead_at, TIMESTAMPTZ 'epoch'), {_OF_A_KIND}) AS chosen,
                   row_number() OVER (ORDER BY count(*) DESC) AS kind
            FROM letters GROUP BY source, cause, fingerprint)
        UNION ALL SELECT source, record_id, 0, 0 FROM letters WHERE record_id IN (SELECT unnest(?)))
    GROUP BY source, record_id ORDER BY place, kind LIMIT ?"""
_ROWS = """
    SELECT l.record_id, l.source, broker_kind, dead_letter_queue, origin, cause, proof, mechanism, advice,
           attempts, fingerprint, incident_id, exception_class, exception_message, advice_reason, evidence,
           message_id, key, published_at, dead_at AS died, body_size, laps, replay_state,
           transaction_state, analysis
    FROM letters l JOIN sample s ON s.record_id = l.record_id AND s.source = l.source
    ORDER BY s.place, s.kind"""
_TOLD = f"""l.record_id, failure_text, deaths, headers, properties, content_type, content_encoding,
           broker_kind, flags, base64(body[:{_WHOLE_BODY}]) AS body_base64, body_size"""
_STORY = f"""
    SELECT {_TOLD}
    FROM letters l
    JOIN (SELECT * FROM sample ORDER BY place, kind LIMIT {_STORIES}) s
        ON s.record_id = l.record_id AND s.source = l.source
    ORDER BY s.place, s.kind"""

_FAILURES = f"""
    SELECT l.fingerprint, {_TOLD}, evidence, message_id, key
    FROM letters l
    JOIN (SELECT fingerprint, count(*) AS letters,
                 arg_max({{s: source, r: record_id}}, coalesce(dead_at, TIMESTAMPTZ 'epoch')) AS latest
          FROM letters WHERE fingerprint IS NOT NULL
          GROUP BY fingerprint ORDER BY letters DESC, fingerprint LIMIT {TOP}) f
        ON l.record_id = f.latest.r AND l.source = f.latest.s
    ORDER BY f.letters DESC, l.fingerprint"""


def gather(
    connection: "duckdb.DuckDBPyConnection", masker: Masker | None = None, named: Collection[str] = ()
) -> Document:
    """Return `{letters: [row], stories: [story], failures: [story and fingerprint, message_id, key]}`.

    A story is deaths, headers, failure text, trace and body of a letter; a trace is lines, each with its kind
    (`stack.Line`). There is one of each frequent failure. All of it is masked before it is cut. The letters
    that the report names are among them.
    """
    list(run(connection, _CHOOSE, [list(named), LETTERS]).rows)

    def rows(sql: str) -> Iterator[Document]:
        for row in run(connection, sql).objects():
            yield _cut(_add_trace(masker.document(row) if masker else row))

    return {
        "letters": _fit(_LETTERS_BYTES, [_row(row) for row in rows(_ROWS)]),
        "stories": _fit(_STORIES_BYTES, [_story(row, masker is not None) for row in rows(_STORY)]),
        "failures": [_story(row, masker is not None) for row in rows(_FAILURES)],
    }


def _row(row: Document) -> Document:
    died_of = cause_in_words(row["cause"], [row["broker_kind"]], row["proof"]) if row["cause"] else None
    return {**row, "end": end_of(row), "died_of": died_of}


def _add_trace(row: Document) -> Document:
    if "headers" not in row:
        return row
    trace = stack.trace_of(row)
    lines = stack.read(trace)[:_TRACE] if trace else []
    return {**row, "trace": [[line.kind, line.text[:_TEXT]] for line in lines]}


def _cut(row: Document) -> Document:
    return {name: value[: _CUT[name]] if name in _CUT and value else value for name, value in row.items()}


def _fit(budget: int, rows: list[Document]) -> list[Document]:
    """Keep as many of the first rows as fit into `budget` bytes of JSON."""
    sizes = accumulate(len(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace")) for row in rows)
    return rows[: sum(size <= budget for size in sizes)]


def _story(row: Document, masked: bool) -> Document:
    body = base64.b64decode(row.pop("body_base64") or "")
    row.pop("properties")
    kind, flags = plugin_of(row["broker_kind"]), row.pop("flags") or 0
    said = {name: value or "" for name, value in (row["headers"] or {}).items()}
    encoding = kind.packing(flags) or unpacking.packing_of(row["content_encoding"], said)
    packed = (None, None) if masked else (encoding, kind.why_no_text(flags))
    shown = preview(body[:_BODY], *packed)
    if len(body) > _BODY:
        shown = shown._replace(note=f"{shown.note}; its beginning".strip("; "))
    headers = {name[:_TEXT]: value[:_TEXT] for name, value in islice(said.items(), _HEADERS)}
    return {**row, "headers": headers, "body": shown.text, "body_kind": shown.kind, "body_note": shown.note}
