"""Small archives for tests: letters, committed segments, analyses."""

from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dlq.archive import analyses, manifests, schema, segments
from dlq.archive.storage.store import Store
from dlq.core.record import Record

MINUTE = 60_000_000
CREATED = "2026-11-21T00:00:00Z"


def letter(number: int, **values: Any) -> Record:
    """A dead letter of the queue orders.dlq, dead since `number` minutes past the epoch."""
    known: dict[str, Any] = {
        "record_id": f"{number:032x}", "source": "orders", "broker": "shop", "broker_kind": "rabbitmq",
        "dead_letter_queue": "orders.dlq", "dead_at": number * MINUTE, "attempts": 1, "origin": "orders",
        "body_sha256": sha256(values.get("body", b"")).hexdigest(),
    }  # fmt: skip
    return Record(**{**known, **values})


def parquet(table: pa.Table) -> memoryview:
    """The table as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return memoryview(sink.getvalue())


def write_segment(store: Store, stem: str, letters: list[Record], committed: bool = True) -> None:
    """A segment, and its manifest unless it is not committed."""
    source = letters[0].source
    name = f"segments/source={source}/date=2026-11-21/{stem}.parquet"
    store.put(name, parquet(schema.to_table(letters)))
    if committed:
        manifest = manifests.Manifest(stem, "p", source, "copy", name, len(letters), "", CREATED)
        manifests.write(store, manifest)


def letters_in(store: Store, source: str | None = None) -> list[Record]:
    """All letters that count."""
    committed = [one for one in manifests.list_committed(store, source) if one.rows]
    return [letter for one in committed for letter in schema.to_records(_table(store, one))]


def change_body(store: Store, record_id: str, body: bytes) -> None:
    """What somebody does who can write into the archive: the letter has another body, and the same id."""
    for one in manifests.list_committed(store):
        letters = list(schema.to_records(_table(store, one))) if one.rows else []
        if record_id in {letter.record_id for letter in letters}:
            changed = {"body": body, "body_size": len(body), "body_sha256": sha256(body).hexdigest()}
            new = [each._replace(**changed) if each.record_id == record_id else each for each in letters]
            store.put(one.segment, parquet(schema.to_table(new)))


def _table(store: Store, manifest: manifests.Manifest) -> pa.Table:
    return segments.read(store, manifest, schema.SEGMENT.names)


def write_analysis(
    store: Store, name: str, verdicts: list[dict[str, Any]], **tables: list[dict[str, Any]]
) -> None:
    """An analysis with these verdicts, on letters of the source orders unless they say another; `incidents`
    and `transactions` by keyword."""
    files: dict[str, tuple[str, ...]] = {}
    verdicts = [{"source": "orders", **row} for row in verdicts]
    for table, schema_ in analyses.TABLES.items():
        rows = {"verdicts": verdicts, **tables}.get(table, [])
        file = f"analyses/{name}/{table}/part-0.parquet"
        store.put(file, parquet(pa.Table.from_pylist(rows, schema_)))
        files[table] = (file,)
    analyses.commit(store, analyses.Analysis(name, len(verdicts), {}, 0.1, CREATED, "", files))
