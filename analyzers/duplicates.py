"""Duplicates: letters that are, or may be, the same message again.

Letters are compared within one broker, and by where they died: the same message dead at two
consumers' queues is each consumer's own letter (`several_groups`, a note), not a duplicate; the same
message in two dead-letter queues, dead at one queue, is. A letter without an id never groups by id.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# A replayed message that died again is a new lap of its original, not a duplicate of it.
_PLACE = "coalesce(origin, ''), laps"
# What a coordinated message tells of is named by its work, whatever its producer calls the message.
_KEY = """coalesce(get_json_object(coordinated, '$.work'),
    CASE WHEN key <> '' AND NOT key <=> message_id THEN key END)"""
_KNOWN_ORIGIN = "message_id <> '' AND origin IS NOT NULL"
SIGNS: Mapping[str, str] = {
    "same_message_id": f"CASE WHEN message_id <> '' THEN xxhash64('id', broker, message_id, {_PLACE}) END",
    "same_key": f"CASE WHEN {_KEY} IS NOT NULL THEN xxhash64('key', broker, {_KEY}, {_PLACE}) END",
    "same_body": f"CASE WHEN body_size > 0 THEN xxhash64('body', broker, body_sha256, {_PLACE}) END",
    "several_groups": f"CASE WHEN {_KNOWN_ORIGIN} THEN xxhash64('elsewhere', broker, message_id) END",
}
"""Kind -> the hash that duplicates share; stronger kinds first. Null: it says nothing of this letter."""

_OF_COORDINATED: Mapping[str, str] = {"same_message_id": "producer_resend", "same_key": "business_resend"}
"""What a coordinator does on purpose: it sends again under the same id until the broker confirms."""

_GROUPS = ("same_key", "same_message_id", "same_body")
"""The widest relation names the group: a business key spans resends under new message ids."""

KINDS = ("rabbitmq", "activemq", "artemis", "memory")
"""Broker kinds whose letters are compared here; others bring their own kinds of duplicates."""

COLUMNS = ("record_id", "duplicate_group", "duplicate_kind", "first_of_group", "repeats_id", "exact_copy")


def find(judged: "DataFrame", few: bool = True) -> "DataFrame":
    """Stage 1 rows -> COLUMNS, one row for each letter that shares a sign with another.

    `first_of_group`: it is the oldest; `repeats_id`: an older letter has its message id, `exact_copy`:
    and the same body. Duplicates are few, so the signs that are shared are found first, by their hashes
    alone.
    """
    from pyspark.sql import functions as F

    letters = judged.filter(F.col("broker_kind").isin(*KINDS))
    signs = F.array(
        *(F.struct(F.lit(kind).alias("kind"), F.expr(text).alias("sign")) for kind, text in SIGNS.items())
    )
    every = letters.select(F.explode(signs).alias("s")).select("s.sign").filter("sign IS NOT NULL")
    repeated = every.groupBy("sign").agg(F.count("*").alias("size")).filter("size > 1").select("sign")
    age = F.struct(F.coalesce("dead_at", "captured_at").alias("at"), F.col("record_id"), F.col("body_sha256"))
    each = (
        letters.select("record_id", "origin", "coordinated", age.alias("age"), F.explode(signs).alias("s"))
        .select("record_id", "origin", "coordinated", "age", "s.kind", "s.sign")
        .join(repeated if few else known(repeated), on="sign", how="inner")
    )
    shared = each.groupBy("sign").agg(
        F.min("age").alias("first"), F.min("origin").alias("lowest"), F.max("origin").alias("highest")
    )
    met = each.join(shared, on="sign", how="inner").filter("kind <> 'several_groups' OR lowest <> highest")
    signs_of = met.groupBy("record_id").agg(
        F.map_from_entries(F.collect_list(F.struct("kind", F.struct("sign", "first")))).alias("met"),
        F.min("age").alias("age"),
        F.max(F.col("coordinated").isNotNull()).alias("is_coordinated"),
    )
    return _judge(signs_of) if few else known(_judge(signs_of))


def known(frame: "DataFrame") -> "DataFrame":
    """Computed now and kept: a join that knows how small one side is need not sort the other."""
    frame.persist().count()
    return frame


def _judge(signs_of: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    kind = F.coalesce(*(F.when(F.col("met")[k].isNotNull(), _name(k)) for k in SIGNS))
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


def _name(kind: str) -> "Column":
    from pyspark.sql import functions as F

    return F.when(F.col("is_coordinated"), _OF_COORDINATED.get(kind, kind)).otherwise(kind)
