"""Letters that share a key with others: Spark brings together those of one key, `groups.duplicates` says what
they come to.

Duplicates are few, so the keys that are shared are found first; of each only what all its letters come to is
kept, however many they are.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from dlq.analyzers.groups.duplicates import MATCH_KEYS, ROCKETMQ_MATCH_KEYS, TOLD_BY, total
from dlq.analyzers.spark.files import kept_in_memory
from dlq.analyzers.spark.rows import IDENTITY, Row, by_group, judged_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_judged = judged_of(TOLD_BY)
_SHARED = pa.schema(
    [
        ("key", pa.string()),
        ("size", pa.int64()),
        ("first_record_id", pa.string()),
        ("first_body_sha256", pa.string()),
        ("several_origins", pa.bool_()),
        ("one_birth", pa.bool_()),
        ("all_committed", pa.bool_()),
        ("any_fallback", pa.bool_()),
        ("several_places", pa.bool_()),
        ("originals", pa.int64()),
    ]
)


def find_shared(letters: "DataFrame") -> "DataFrame":
    """Letters after step 1 -> IDENTITY and `shared`: what the keys come to that a letter shares with others,
    as an array of `groups.duplicates.Shared`."""
    from pyspark.sql import functions as F

    kind = F.substring_index("key", " ", 1)
    keyed = letters.select(*IDENTITY, F.explode("keys").alias("key")).filter(
        kind.isin(*MATCH_KEYS, *ROCKETMQ_MATCH_KEYS)
    )
    counted = keyed.groupBy("key").agg(F.count("*").alias("letters"))
    repeated = kept_in_memory(counted.filter(F.col("letters") > 1).select("key"))
    each = letters.select(F.explode("keys").alias("of_key"), *TOLD_BY)
    members = each.join(repeated.withColumnRenamed("key", "of_key"), on="of_key")
    totals = kept_in_memory(by_group(members, ("of_key",), (), _total, _SHARED))
    met = keyed.join(totals, on="key")
    return met.groupBy(*IDENTITY).agg(F.collect_list(F.struct(*_SHARED.names)).alias("shared"))


def _total(key: Row, group: Iterator[Row]) -> Iterator[Row]:
    yield total(key[0], (_judged(row[1:]) for row in group))
