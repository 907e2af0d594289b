"""Duplicates among RocketMQ's dead letters, and what made them.

UNIQ_KEY is the producer's; ORIGIN_MESSAGE_ID says which stored message was sent back (an offset id, or
UNIQ_KEY itself when the client fell back to sending). Same key, same origin: delivered twice. Same key,
other origin: the producer's retry, born anew each time, or a half message committed twice, whose time of
birth both real messages keep. Consumers leave no name, so a redelivery cannot be told from a rebalance.
"""

from typing import TYPE_CHECKING

from dlq.analyzers.rules_rocketmq import CONTEXT_TYPE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS = (
    "replay_returned", "double_commit", "producer_resend", "redelivery_or_rebalance", "business_resend",
    "several_groups",
)  # fmt: skip

_BY_ID = "xxhash64('id', broker, dead_letter_queue, message_id)"
_BY_BUSINESS = "xxhash64('key', broker, dead_letter_queue, coalesce(business_key, rocket.keys), body_sha256)"
_KIND = """CASE WHEN ids > 1 AND rocket.replayed THEN 'replay_returned'
    WHEN ids > 1 AND origins > 1 AND all_committed AND births = 1 THEN 'double_commit'
    WHEN ids > 1 AND origins > 1 AND NOT any_fallback THEN 'producer_resend'
    WHEN ids > 1 THEN 'redelivery_or_rebalance'
    WHEN businesses > 1 THEN 'business_resend'
    WHEN groups > 1 THEN 'several_groups' END"""


def find(judged: "DataFrame") -> "DataFrame":
    """Stage 1 rows -> the columns of `duplicates.COLUMNS`, one row for each letter that is one of several."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    is_letter = "broker_kind = 'rocketmq' AND startswith(dead_letter_queue, '%DLQ%')"
    each = (
        judged.filter(is_letter)
        .withColumn("rocket", F.from_json("rocket", CONTEXT_TYPE))
        .withColumn("business_key", F.expr("nullif(key, message_id)"))
        .withColumns({"by_id": F.expr(_BY_ID), "by_business": F.expr(_BY_BUSINESS)})
        .withColumn(
            "age", F.struct(F.coalesce("dead_at", "captured_at").alias("at"), "record_id", "body_sha256")
        )
    )
    of_id = Window.partitionBy("by_id")
    of_business = Window.partitionBy("by_business")
    of_message = Window.partitionBy("broker", "message_id")
    has_id, has_business = (
        F.col("message_id").isNotNull(),
        F.expr("coalesce(business_key, rocket.keys) <> ''"),
    )
    is_fallback = F.expr("rocket.sent_back_by_client OR rocket.origin_id <=> message_id")
    is_committed = F.expr("coalesce(rocket.flags & 12 = 8, false)")
    seen = each.withColumns(
        {
            "ids": F.when(has_id, F.count("*").over(of_id)).otherwise(1),
            "origins": F.size(F.collect_set("rocket.origin_id").over(of_id)),
            "all_committed": F.min(is_committed).over(of_id),
            "births": F.size(F.collect_set("published_at").over(of_id)),
            "any_fallback": F.max(is_fallback).over(of_id),
            "first_by_id": F.min("age").over(of_id),
            "businesses": F.when(has_business, F.count("*").over(of_business)).otherwise(1),
            "first_by_business": F.min("age").over(of_business),
            "groups": F.when(has_id, F.size(F.collect_set("dead_letter_queue").over(of_message))).otherwise(
                1
            ),
        }
    )
    return _shaped(seen.withColumn("duplicate_kind", F.expr(_KIND)).filter("duplicate_kind IS NOT NULL"))


def _shaped(seen: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    first = F.expr("CASE WHEN ids > 1 THEN first_by_id ELSE first_by_business END")
    group = """CASE WHEN duplicate_kind = 'several_groups' THEN NULL
        WHEN businesses > 1 THEN lower(hex(by_business)) ELSE lower(hex(by_id)) END"""
    repeats = "(ids > 1 AND duplicate_kind <> 'replay_returned' AND first_by_id.record_id <> record_id)"
    return seen.select(
        "record_id",
        F.expr(group).alias("duplicate_group"),
        "duplicate_kind",
        (first["record_id"] == F.col("record_id")).alias("first_of_group"),
        F.expr(repeats).alias("repeats_id"),
        F.expr(f"{repeats} AND first_by_id.body_sha256 = body_sha256").alias("exact_copy"),
    )
