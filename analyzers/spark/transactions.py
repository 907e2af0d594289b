"""RocketMQ's transactions: Spark brings the records of one unique key together, `groups.transactions` says
what they mean."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from dlq.analyzers.groups.transactions import (
    Member,
    Node,
    Transaction,
    conclude,
    ended_copies,
    offsets,
    resolve,
)
from dlq.analyzers.spark.rows import Row, by_group, through_python
from dlq.archive.analyses import TRANSACTIONS, VERDICTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_S, _TIME = pa.string(), pa.timestamp("us", tz="UTC")
_KEY = ("source", "broker", "unique_key")
_NODE = ("source", "broker", "broker_node", "unique_key")
_PLACE = ("source", "broker", "broker_node", "offset")
_STORED = ("offset", "position", "prepared", "checks", "immunity", "producer_group")
"""Of a member: what lies in the struct `rocket`."""
_END = pa.schema([("source", _S), ("record_id", _S), ("ended_at", _TIME), ("end_seen_at", _TIME)])
_OP_OFFSET = pa.schema(
    [*((name, _S) for name in _PLACE[:3]), ("offset", pa.int64()), ("dead_at", _TIME), ("captured_at", _TIME)]
)
RESOLVED = pa.schema([*TRANSACTIONS, ("broker", _S), ("letter", _S), ("skipped", pa.bool_())])
"""The archive's table, and what `concluded_letters` needs."""
_CONCLUDED = pa.schema(
    [
        ("source", _S),
        ("record_id", _S),
        ("cause", _S),
        ("mechanism", _S),
        ("transaction_state", _S),
        ("evidence", VERDICTS.field("evidence").type),
        ("beside_the_letter", pa.bool_()),
    ]
)


def _members(letters: "DataFrame") -> "DataFrame":
    """The records of transactions, op records among them; a missing node is one like any other."""
    from pyspark.sql import functions as F

    named = letters.filter(F.col("role").isNotNull())
    return named.withColumn("broker_node", F.coalesce("broker_node", F.lit("")))


def resolve_transactions(letters: "DataFrame", nodes: Mapping[str, Mapping[str, Node]]) -> "DataFrame":
    """Letters after step 1 -> RESOLVED, a row for each transaction."""
    from pyspark.sql import functions as F

    parts = _members(letters)
    ended = parts.filter(F.col("role") != "finished").join(
        _ends(parts), on=["source", "record_id"], how="left"
    )
    columns = [F.col(f"rocket.{name}" if name in _STORED else name) for name in Member._fields]

    def meaning(key: Row, group: Iterator[Row]) -> Iterator[Row]:
        source, broker, unique_key = key
        records = (Member(*row[len(_KEY) :]) for row in group)
        for one in resolve(unique_key, records, nodes.get(source, {})):
            said = {**one._asdict(), "source": source, "broker": broker}
            yield tuple(said[name] for name in RESOLVED.names)

    sent = ended.select(*_KEY, *columns)
    return by_group(sent, _KEY, ("broker_node", "dead_at", "offset", "record_id"), meaning, RESOLVED)


def _ends(parts: "DataFrame") -> "DataFrame":
    """Half copies that have ended, by the op records that name their offset on their node."""
    from pyspark.sql import functions as F

    notes = parts.filter(F.col("role") == "finished")
    named = notes.select(*_PLACE[:3], "rocket.ended_offsets", "dead_at", "captured_at")
    ends = through_python(named, _each_offset, _OP_OFFSET).select(
        "*", F.lit(None).cast("string").alias("record_id")
    )
    halves = parts.filter(F.col("role") == "half").withColumn("offset", F.col("rocket.offset"))
    both = ends.unionByName(halves.select(*ends.columns))
    return by_group(both, _PLACE, ("record_id",), _ended, _END)


def _each_offset(notes: Iterable[Row]) -> Iterator[Row]:
    for *place, named, dead_at, captured_at in notes:
        yield from ((*place, offset, dead_at, captured_at) for offset in offsets(named))


def _ended(key: Row, group: Iterator[Row]) -> Iterator[Row]:
    copies, ends = [], []
    for *_place, dead_at, captured_at, record_id in group:
        if record_id is None:
            ends.append((dead_at, captured_at))
        else:
            copies.append((record_id, dead_at))
    return ((key[0], *one) for one in ended_copies(copies, ends))


def concluded_letters(letters: "DataFrame", transactions: "DataFrame") -> "DataFrame":
    """Letters, and RESOLVED -> CONCLUDED, a row for each record of a transaction and each op record."""
    from pyspark.sql import functions as F

    parts = _members(letters).select("role", "record_id", *_NODE)
    of_op = F.when(F.col("role") != "finished", F.col("unique_key"))
    joined = parts.withColumn("unique_key", of_op).join(transactions, on=list(_NODE), how="left")
    return through_python(joined.select("record_id", *RESOLVED.names), _concluded, _CONCLUDED)


def _concluded(rows: Iterator[Row]) -> Iterator[Row]:
    for record_id, *row in rows:
        said = dict(zip(RESOLVED.names, row, strict=True))
        source, state = said.pop("source"), said["state"]
        del said["broker"]
        made = conclude(None if state is None else Transaction(**said), record_id)
        yield (source, record_id, *made)
