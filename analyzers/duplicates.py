"""Duplicates: letters that are, or may be, the same message again.

Letters are compared within one broker, and by where they died: the same message dead at two
consumers' queues is each consumer's own letter (`several_groups`, a note), not a duplicate; the same
message in two dead-letter queues, dead at one queue, is. A letter without an id never groups by id.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A replayed message that died again is a new lap of its original, not a duplicate of it.
_PLACE = "coalesce(origin, ''), laps"
_HAS_KEY = "key <> '' AND NOT key <=> message_id"
_KNOWN_ORIGIN = "message_id <> '' AND origin IS NOT NULL"
SIGNS: Mapping[str, str] = {
    "same_message_id": f"CASE WHEN message_id <> '' THEN xxhash64('id', broker, message_id, {_PLACE}) END",
    "same_key": f"CASE WHEN {_HAS_KEY} THEN xxhash64('key', broker, key, {_PLACE}) END",
    "same_body": f"CASE WHEN body_size > 0 THEN xxhash64('body', broker, body_sha256, {_PLACE}) END",
    "several_groups": f"CASE WHEN {_KNOWN_ORIGIN} THEN xxhash64('elsewhere', broker, message_id) END",
}
"""Kind -> the hash that duplicates share; stronger kinds first. Null: it says nothing of this letter."""

_GROUPS = ("same_key", "same_message_id", "same_body")
"""The widest relation names the group: a business key spans resends under new message ids."""

KINDS = ("rabbitmq", "activemq", "artemis", "memory")
"""Broker kinds whose letters are compared here; others bring their own kinds of duplicates."""

COLUMNS = ("record_id", "duplicate_group", "duplicate_kind", "first_of_group", "repeats_id", "exact_copy")


def find(judged: "DataFrame") -> "DataFrame":
    """Stage 1 rows -> COLUMNS, one row for each letter that shares a sign with another.

    `first_of_group`: it is the oldest; `repeats_id`: an older letter has its message id, `exact_copy`:
    and the same body.
    """
    from pyspark.sql import functions as F

    signs = F.array(
        *(F.struct(F.lit(kind).alias("kind"), F.expr(text).alias("sign")) for kind, text in SIGNS.items())
    )
    age = F.struct(F.coalesce("dead_at", "captured_at").alias("at"), F.col("record_id"), F.col("body_sha256"))
    each = (
        judged.filter(F.col("broker_kind").isin(*KINDS))
        .select("record_id", "origin", age.alias("age"), F.explode(signs).alias("s"))
        .select("record_id", "origin", "age", "s.kind", "s.sign")
        .filter("sign IS NOT NULL")
    )
    shared = each.groupBy("sign").agg(
        F.count("*").alias("size"),
        F.min("age").alias("first"),
        F.min("origin").alias("lowest"),
        F.max("origin").alias("highest"),
    )
    shared = shared.filter("size > 1").withColumn("origins", F.expr("lowest <> highest"))
    met = each.join(shared, on="sign", how="inner").filter("kind <> 'several_groups' OR origins")
    signs_of = met.groupBy("record_id").agg(
        F.map_from_entries(F.collect_list(F.struct("kind", F.struct("sign", "first")))).alias("met"),
        F.min("age").alias("age"),
    )
    return _judge(signs_of)


def _judge(signs_of: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    kind = F.coalesce(*(F.when(F.col("met")[k].isNotNull(), F.lit(k)) for k in SIGNS))
    group = F.coalesce(*(F.col("met")[k] for k in _GROUPS))
    first = F.col("met")["same_message_id"]["first"]
    repeats = F.coalesce(first["record_id"] != F.col("record_id"), F.lit(False))
    return signs_of.select(
        "record_id",
        F.lower(F.hex(group["sign"])).alias("duplicate_group"),
        kind.alias("duplicate_kind"),
        (group["first"]["record_id"] == F.col("record_id")).alias("first_of_group"),
        repeats.alias("repeats_id"),
        (repeats & (first["body_sha256"] == F.col("age")["body_sha256"])).alias("exact_copy"),
    )
