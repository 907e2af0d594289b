"""Letters that share a match key with others: Spark finds them by hashes, `groups.duplicates` says what they
mean.

Duplicates are few, so the match keys that are shared are found first, by their hashes alone; of each only
what all its letters come to is kept, however many they are.
"""

from typing import TYPE_CHECKING

from dlq.analyzers.groups.duplicates import Shared
from dlq.analyzers.spark.files import kept_in_memory
from dlq.core.brokers import kinds
from dlq.core.rocketmq_topics import DEAD_LETTERS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

IDENTITY = ("source", "record_id")
"""A letter that was imported under a second source is there twice."""


def shared(letters: "DataFrame") -> "DataFrame":
    """Letters after step 1 -> IDENTITY and `shared`: the match keys that a letter shares with others, as an
    array of `groups.duplicates.Shared`. Of a match key Spark keeps a row, however many letters have it."""
    from pyspark.sql import functions as F

    facts = (column.alias(name) for name, column in _facts().items())
    each = letters.select(*IDENTITY, F.inline(_match_keys()), *facts).filter(F.col("match_key").isNotNull())
    repeated = each.groupBy("match_key").agg(F.count("*").alias("size")).filter(F.col("size") > 1)
    each = each.join(kept_in_memory(repeated.select("match_key")), on="match_key", how="inner")
    met = each.withColumns(_totals()).filter(F.col("size") > 1)
    return met.groupBy(*IDENTITY).agg(F.collect_list(F.struct(*Shared._fields)).alias("shared"))


def _match_keys() -> "Column":
    """What letters may share. A replayed message that died again is a new lap of its original, not a
    duplicate of it; a coordinated message is named by its work, whatever its producer calls the message."""
    from pyspark.sql import functions as F

    def match_key(name: str, tag: str, known: "Column", *parts: "Column | str") -> "Column":
        hashed = F.when(known, F.xxhash64(F.lit(tag), *parts))
        return F.struct(F.lit(name).alias("kind"), hashed.alias("match_key"))

    place = (F.coalesce("origin", F.lit("")), "laps")
    has_id, key = F.col("message_id") != "", _key()
    queue = ("broker", "dead_letter_queue")
    business = F.coalesce(F.nullif("key", "message_id"), "rocket.keys")
    anywhere = F.array(
        match_key("same_message_id", "id", has_id, "broker", "message_id", *place),
        match_key("same_key", "key", key.isNotNull(), "broker", key, *place),
        match_key("same_body", "body", F.col("body_size") > 0, "broker", "body_sha256", *place),
        match_key(
            "several_groups", "elsewhere", has_id & F.col("origin").isNotNull(), "broker", "message_id"
        ),
    )
    rocketmq = F.array(
        match_key("by_id", "id", F.col("message_id").isNotNull(), *queue, "message_id"),
        match_key("by_business", "key", business != "", *queue, business, "body_sha256"),
        match_key("of_message", "message", F.col("message_id").isNotNull(), "broker", "message_id"),
    )
    alike = [name for name, kind in kinds().items() if kind.duplicates == "anywhere"]
    is_dead_letter = F.col("dead_letter_queue").startswith(DEAD_LETTERS)
    return F.when(F.col("broker_kind").isin(*alike), anywhere).when(is_dead_letter, rocketmq)


def _key() -> "Column":
    from pyspark.sql import functions as F

    own = F.when((F.col("key") != "") & ~F.col("key").eqNullSafe(F.col("message_id")), F.col("key"))
    return F.coalesce("work", own)


def _facts() -> "dict[str, Column]":
    """What the groups are told apart by."""
    from pyspark.sql import functions as F

    rocket = F.col("rocket")
    is_original = ~F.coalesce(rocket["replayed"], F.lit(False))

    def of_originals(fact: "Column") -> "Column":
        return F.when(is_original, fact)

    return {
        "original": is_original,
        "age": F.struct(F.coalesce("dead_at", "captured_at").alias("at"), "record_id", "body_sha256"),
        "place": F.when(rocket.isNotNull(), F.col("dead_letter_queue")).otherwise(F.col("origin")),
        "origin_id": of_originals(rocket["origin_id"]),
        "published_at": of_originals(F.col("published_at")),
        "committed": of_originals(F.coalesce(rocket["flags"].bitwiseAND(12) == 8, F.lit(False))),
        "fallback": of_originals(
            rocket["sent_back_by_client"] | rocket["origin_id"].eqNullSafe(F.col("message_id"))
        ),
    }


def _totals() -> "dict[str, Column]":
    """What the letters of one match key come to."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    same_key = Window.partitionBy("match_key")

    def several(name: str) -> "Column":
        return F.coalesce(F.min(name).over(same_key) != F.max(name).over(same_key), F.lit(False))

    oldest, one_birth = (
        F.min("age").over(same_key),
        F.min("published_at").over(same_key) == F.max("published_at").over(same_key),
    )
    return {
        "size": F.count("*").over(same_key),
        "first_record_id": oldest["record_id"],
        "first_body_sha256": oldest["body_sha256"],
        "several_origins": several("origin_id"),
        "one_birth": F.coalesce(one_birth, F.lit(False)),
        "all_committed": F.coalesce(F.min("committed").over(same_key), F.lit(False)),
        "any_fallback": F.max("fallback").over(same_key),
        "several_places": several("place"),
        "originals": F.count(F.when(F.col("original"), True)).over(same_key),
    }
