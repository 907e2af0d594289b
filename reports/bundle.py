"""A bundle for the post-mortem: what is known of some letters, and who did what to them, in one zip file.

Each member is JSON lines in a fixed order, and `manifest.json`, the last one, has the digest of each: the
same archive and ledger give the same bytes. Names of members are fixed, so that nothing a letter or a plan
says becomes a path.
"""

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

from dlq.archive import analyses, manifests
from dlq.archive.storage.store import Store
from dlq.archive.user_sql import run
from dlq.core.failures import Event, by_fingerprint
from dlq.replay.plans import planfile

if TYPE_CHECKING:
    import duckdb

    from dlq.reports.letters.masking import Masker

_FORMAT = 1
_MANIFEST = "manifest.json"
_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The time of each member, which a zip file cannot leave out."""
_OWNER_ALONE = 0o600 << 16
_BATCH = 10_000
_EXACT = ("digest", "segments", "segment", "subject")
"""Digests and names of our own making, which masking must not spoil."""
_CLASSIFIED = ", ".join(f'"{name}"' for name in (*analyses.VERDICTS.names, "replay_state", "analysis"))

_Rows = Iterator[Mapping[str, Any]]
_Member = tuple[str, Iterable[bytes]]


def members(
    store: Store,
    connection: "duckdb.DuckDBPyConnection",
    said: Sequence[Event],
    letters: Iterable[bytes],
    masker: "Masker | None",
) -> Iterator[_Member]:
    """Yield the members of a bundle, each read before the next is asked for.

    `connection` is narrowed to the letters that it is about (`archive.views.narrow`), `letters` are their
    lines, `said` is all that the ledger keeps of what people said.
    """
    yield "letters.jsonl", letters
    plans: list[str] = []
    for name, rows in (
        (
            "verdicts.jsonl",
            _rows(connection, f"SELECT {_CLASSIFIED} FROM letters ORDER BY source, record_id"),
        ),
        ("incidents.jsonl", _rows(connection, "FROM incidents ORDER BY incident_id")),
        ("planned.jsonl", _planned_letters(store, connection, plans)),
        ("plans.jsonl", (asdict(planfile.load(store, plan)) for plan in plans)),
        ("replays.jsonl", _rows(connection, _REPLAYS)),
        ("audit.jsonl", _audit(connection, said, plans)),
        ("segments.jsonl", _segments(store, connection)),
    ):
        yield name, (_line(row, masker) for row in rows)


def write(sink: BinaryIO, about: Mapping[str, Any], found: Iterable[_Member]) -> Mapping[str, int]:
    """Write a bundle; `about` opens its manifest. Returns how many lines each member has."""
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as bundle:
        files = [_write_member(bundle, name, lines) for name, lines in found]
        document = {"format": _FORMAT, **about, "files": files}
        _write_member(bundle, _MANIFEST, [json.dumps(document, indent=2).encode() + b"\n"])
    return {file["name"]: file["lines"] for file in files}


def _write_member(bundle: zipfile.ZipFile, name: str, lines: Iterable[bytes]) -> dict[str, Any]:
    member = zipfile.ZipInfo(name, _EARLIEST)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = _OWNER_ALONE
    digest, size, count = sha256(), 0, 0
    with bundle.open(member, "w", force_zip64=True) as file:
        for line in lines:
            file.write(line)
            digest.update(line)
            size, count = size + len(line), count + 1
    return {"name": name, "lines": count, "bytes": size, "sha256": digest.hexdigest()}


def _line(row: Mapping[str, Any], masker: "Masker | None") -> bytes:
    if masker is not None:
        row = {**masker.document(row), **{name: row[name] for name in _EXACT if name in row}}
    return json.dumps(row).encode() + b"\n"


_REPLAYS = """
    FROM replays SEMI JOIN _chosen USING (record_id) ORDER BY record_id, updated_at, plan, lap, key"""


def _rows(connection: "duckdb.DuckDBPyConnection", sql: str, parameters: Sequence[Any] = ()) -> _Rows:
    """Yield the rows of a statement, which runs when the first is asked for."""
    yield from run(connection, sql, parameters).objects()


def _planned_letters(store: Store, connection: "duckdb.DuckDBPyConnection", plans: list[str]) -> _Rows:
    """Yield what plans hold of these letters; the plans that hold any are noted in `plans`."""
    for plan in planfile.ids(store):
        letters = planfile.letters(store, plan)
        while some := list(islice(letters, _BATCH)):
            asked = [[letter.record_id for letter in some]]
            sql = "SELECT DISTINCT record_id FROM _chosen WHERE record_id IN (SELECT unnest(?))"
            ours = {row["record_id"] for row in _rows(connection, sql, asked)}
            if ours and plan not in plans:
                plans.append(plan)
            yield from ({"plan": plan, **one._asdict()} for one in some if one.record_id in ours)


def _audit(connection: "duckdb.DuckDBPyConnection", said: Sequence[Event], plans: Sequence[str]) -> _Rows:
    """Yield who did what to these letters, to their failures, and to the plans that hold any."""
    said_of = by_fingerprint(said)
    failures = _rows(connection, "SELECT DISTINCT fingerprint FROM letters WHERE fingerprint IS NOT NULL")
    subjects = {event.subject for row in failures for event in said_of.get(row["fingerprint"], ())}
    yield from _rows(
        connection,
        """
        FROM audit WHERE subject IN (SELECT unnest(?))
            OR (about = 'letter' AND subject IN (SELECT record_id FROM _chosen))
        ORDER BY done_at, about, subject, action, actor""",
        [[*sorted(subjects), *plans]],
    )


def _segments(store: Store, connection: "duckdb.DuckDBPyConnection") -> _Rows:
    """Yield where these letters lie in the archive, with the digests by which `dlq verify` knows a change."""
    sql = "SELECT DISTINCT stem FROM _stored JOIN _segments USING (segment_file)"
    stems = {row["stem"] for row in _rows(connection, sql)}
    for manifest in manifests.list_committed(store):
        if manifest.stem in stems:
            yield {name: getattr(manifest, name) for name in ("segment", "source", "rows", "digest")}
