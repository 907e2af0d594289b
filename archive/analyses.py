"""Analyses in the archive: `analyses/<id>/analysis.json` names the tables beside it.

An analysis counts only when its `analysis.json` is there (it is written last); ids sort by time.
The schemas are the contract between the Spark jobs that write and the views and reports that read.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from dlq.archive.manifests import Manifest
from dlq.archive.schema import FORMAT_VERSION, SEGMENT
from dlq.archive.storage import parquet
from dlq.archive.storage.store import LocalStore, Store, build, check_inside
from dlq.core import documents
from dlq.core.errors import ArchiveError

_TIME = pa.timestamp("us", tz="UTC")
_S = pa.string()

VERDICTS = pa.schema(
    [
        ("source", _S),
        ("record_id", _S),
        ("cause", _S),
        ("mechanism", _S),
        ("rule", _S),
        ("evidence", _S),
        ("stale_evidence", pa.bool_()),
        ("proof", _S),
        ("also_possible", pa.list_(_S)),
        ("attempts", pa.int32()),
        ("origin_kind", _S),
        ("origin", _S),
        ("origin_exchange", _S),
        ("origin_routing_key", _S),
        ("exception_class", _S),
        ("exception_message", _S),
        ("exception_family", _S),
        ("outer_exception", _S),
        ("fingerprint", _S),
        ("fingerprint_version", pa.int32()),
        ("producer_id", _S),
        ("producer_seq", pa.int64()),
        ("consumer_id", _S),
        ("connection_id", _S),
        ("duplicate_group", _S),
        ("duplicate_kind", _S),
        ("transaction_state", _S),
        ("incident_id", _S),
        ("laps", pa.int32()),
        ("advice", _S),
        ("advice_reason", _S),
    ]
)
BESIDE = pa.schema(
    [
        ("stem", _S),
        *(
            SEGMENT.field(name)
            for name in (
                "broker_kind", "dead_letter_queue", "message_id", "key", "published_at", "dead_at",
                "captured_at", "body_size",
            )
        ),
    ]
)  # fmt: skip
"""What files of verdicts hold beside these, so that who looks at many letters needs no segment (`brief`):
columns of the record, and in which segment it lay. An older version did not write it."""
IN_FILES = pa.schema([*VERDICTS, *BESIDE])
INCIDENTS = pa.schema(
    [
        ("incident_id", _S),
        ("start", _TIME),
        ("peak", _TIME),
        ("end", _TIME),
        ("size", pa.int64()),
        ("sources", pa.list_(_S)),
        ("causes", pa.list_(_S)),
        ("fingerprint", _S),
        ("first_record_id", _S),
        ("ongoing", pa.bool_()),
        ("new", pa.bool_()),
    ]
)
BURSTS = pa.schema(
    [
        ("incident_id", _S),
        ("broker", _S),
        ("connection_id", _S),
        ("origins", pa.list_(_S)),
        ("consumers", pa.list_(_S)),
        ("producers", pa.list_(_S)),
        ("ranges", pa.list_(_S)),
        ("beyond_prefetch", pa.bool_()),
    ]
)
"""Incidents that are bursts of suppressed duplicates (ActiveMQ Classic). `ranges`: message ids without a gap,
`PRODUCER:40-42`. `beyond_prefetch`: more letters than its consumers can have held by default."""
TRANSACTIONS = pa.schema(
    [
        ("unique_key", _S),
        ("state", _S),
        ("checks", pa.int32()),
        ("topic", _S),
        ("producer_group", _S),
        ("broker_node", _S),
        ("discarded", pa.bool_()),
        ("check_reached_producer", _S),
        ("first_seen", _TIME),
        ("last_seen", _TIME),
        ("copies", pa.int32()),
        ("record_ids", pa.list_(_S)),
        ("real_record_id", _S),
        ("evidence", _S),
        ("source", _S),
    ]
)
_CLIENT_LOG = pa.schema(
    [
        ("state", _S),
        ("record_id", _S),
        ("message_id", _S),
        ("consumer_id", _S),
        ("destination", _S),
        ("time", _TIME),
        ("failed_transport", _S),
        ("reconnected_to", _S),
    ]
)
"""Suppressed duplicates beside the lines of consumers' logs: explained, or one without the other."""
SLOTS = pa.schema(
    [
        ("kind", _S),
        ("fingerprint", _S),
        ("slot", pa.int64()),
        ("letters", pa.int64()),
        ("first_at", _TIME),
        ("first_record_id", _S),
        ("last_at", _TIME),
        ("sources", pa.list_(_S)),
        ("causes", pa.list_(_S)),
        ("transactions_of", _S),
        ("incident_id", _S),
    ]
)
"""How many letters of a failure died in five minutes (`groups.incidents`), and in which incident: no table to
look at, but what the next analysis counts on with. `transactions_of`: the source, where the letters are
records of transactions."""
TOLD = (
    "proof", "also_possible", "exception_class", "exception_message", "exception_family", "outer_exception",
)  # fmt: skip
"""What sums say of their example, beside what all their letters share."""
SUMS = pa.schema(
    [
        *(
            (name, _S)
            for name in (
                "source", "broker_kind", "dead_letter_queue", "origin", "cause", "advice", "fingerprint",
                "incident_id",
            )
        ),
        ("likely", pa.bool_()),
        ("is_letter", pa.bool_()),
        ("letters", pa.int64()),
        ("first", _TIME),
        ("last", _TIME),
        ("undated", pa.int64()),
        ("dead_since", _TIME),
        ("died", pa.int64()),
        ("body_bytes", pa.int64()),
        ("example", _S),
        *(VERDICTS.field(name) for name in TOLD),
    ]
)  # fmt: skip
"""Letters that are alike in all that is counted, a row each (`brief`), so that who looks at the failures of a
million letters reads none of them. An older version did not write it (nor one before that `dead_since`), nor
is it there for few letters."""
MINUTES = pa.schema([("cause", _S), ("minute", pa.int64()), ("letters", pa.int64())])
"""How many letters died of a cause in each minute since the epoch; as `SUMS`."""
KEPT: Mapping[str, pa.Schema] = {"slots": SLOTS, "sums": SUMS, "minutes": MINUTES}
TABLES: Mapping[str, pa.Schema] = {
    "verdicts": VERDICTS,
    "incidents": INCIDENTS,
    "bursts": BURSTS,
    "transactions": TRANSACTIONS,
    "client_log": _CLIENT_LOG,
}


@dataclass(frozen=True)
class Analysis:
    """One finished analysis. `tables` holds, for each of TABLES and KEPT, the file names below the archive,
    some of which an analysis before has written."""

    analysis: str
    records: int
    causes: Mapping[str, int]
    seconds: float
    created_at: str
    rules_digest: str
    tables: Mapping[str, tuple[str, ...]]
    segments: tuple[str, ...] = ()
    """The segments (manifest stems) it has read."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What a kind of analysis adds, e.g. client_log, changed."""


_EXTRA: Mapping[str, Any] = {
    "parts": tuple[Mapping[str, Any], ...],
    "conditions": str,
    "broken": int,
    "changed": Mapping[str, Any],
    "incidents": int,
    "client_log": Mapping[str, int],
    "evidence": Mapping[str, Mapping[str, Any]],
    "nodes": Mapping[str, str],
}
"""What is read of `Analysis.extra`."""


def name_of(analysis: str) -> str:
    """Return the file whose presence makes the analysis count."""
    return f"analyses/{analysis}/analysis.json"


def commit(store: Store, analysis: Analysis) -> None:
    """Make the analysis visible; its tables must be durable by now."""
    document = {"format": FORMAT_VERSION, **asdict(analysis)}
    store.put(name_of(analysis.analysis), json.dumps(document, indent=1).encode())


def load(store: Store, analysis: str) -> Analysis:
    """Return one analysis by id. Raises NotFound-like UsageError from the store when there is none."""
    return build(name_of(analysis), store.get(name_of(analysis)), _build_analysis)


def _build_analysis(document: Mapping[str, Any]) -> Analysis:
    made = documents.build(Analysis, document)
    for name in (name for files in made.tables.values() for name in files):
        check_inside(name)
    if missing := sorted({"verdicts"} - made.tables.keys()):
        raise ValueError(f"it has no table {missing[0]}")
    for name, kind in _EXTRA.items():
        if made.extra.get(name) is not None:
            documents.value(kind, made.extra[name], name)
    for part in made.extra.get("parts") or ():
        check_inside(part.get("file", "none"))
    return made


def ids(store: Store) -> list[str]:
    """Return all finished analyses, oldest first."""
    return sorted(name.split("/")[1] for name in store.list("analyses/") if name.endswith("/analysis.json"))


def latest(store: Store) -> Analysis | None:
    """Return the newest finished analysis."""
    known = ids(store)
    return load(store, known[-1]) if known else None


def list_written(store: Store, prefix: str) -> tuple[str, ...]:
    """Return the Parquet files that an engine has written, durable by now."""
    names = tuple(name for name in store.list(prefix) if name.endswith(".parquet") and "/." not in name)
    if isinstance(store, LocalStore):
        for name in names:
            store.folder.sync(name)
    return names


class Damaged(ArchiveError):
    """A file that an analysis has written cannot be read."""


class _Files(Protocol):
    """Where files are read from: a `Store`, or what another process knows of one."""

    def parquet(self, name: str) -> Any:
        """Return what pyarrow reads `name` from; raises OSError when there is none."""
        ...


def open_table(
    store: _Files, name: str, schema: pa.Schema, columns: Collection[str] | None = None
) -> pq.ParquetFile:
    """Return a file that an analysis has written, of which `columns` (None: all) are going to be read. Raises
    OSError, pa.ArrowException, also where it is another table: to be used inside `parquet.readable`."""
    file = parquet.open_parquet(store.parquet(name), columns=schema.names if columns is None else columns)
    there = {field.name: field.type for field in file.schema_arrow}
    if strange := [field.name for field in schema if not _is_like(there.get(field.name), field.type)]:
        raise pa.ArrowInvalid(f"it has no column {strange[0]} of the type that this table has")
    return file


def _is_like(one: pa.DataType | None, other: pa.DataType) -> bool:
    """Compare types: Spark and Arrow name the elements of lists, and what is never missing, differently."""
    if one is None or not pa.types.is_list(other):
        return bool(one == other)
    return bool(pa.types.is_list(one)) and _is_like(one.value_type, other.value_type)


def table(store: Store, name: str, schema: pa.Schema) -> pa.Table:
    """Return a file of an analysis, whole. Raises Damaged."""
    try:
        with parquet.readable(name):
            return open_table(store, name, schema).read(columns=schema.names).cast(schema)
    except ArchiveError as error:
        raise Damaged(str(error)) from error


def unread(store: Store, committed: Iterable[Manifest]) -> list[Manifest]:
    """Return those of these segments with letters that the latest analysis has not read, nor had been read
    before they were compacted."""
    last = latest(store)
    read = set(last.segments) if last else set()
    return [m for m in committed if m.rows and m.stem not in read and read.isdisjoint(m.replaces)]
