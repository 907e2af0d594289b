"""What stores outside say of the letters: their consumers' dedup records, their producers' coordinators.

The stores' snapshots lie in the archive; the join with the letters is Spark's, not a look-up for each.
"""

from collections.abc import Sequence
from fnmatch import translate
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from dlq.analyzers.evidence_kinds import FOUND, KINDS, STATES
from dlq.analyzers.reading import read_files, spark_schema
from dlq.analyzers.rule import literal
from dlq.analyzers.rules_rocketmq import CONTEXT_TYPE
from dlq.archive.evidence import FACTS, Snapshot
from dlq.archive.store import Store
from dlq.core.clock import iso
from dlq.core.settings import Evidence, Settings
from dlq.core.units import human_seconds, seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = ("record_id", "store_state", "told_transaction", "told")


def answers(
    spark: "SparkSession", store: Store, judged: "DataFrame", settings: Settings, taken: Sequence[Snapshot]
) -> "DataFrame":
    """Stage 1 rows -> record_id, store_state, told_transaction, told (for people); a row for each letter that
    a store may know. There is at least one snapshot."""
    from pyspark.sql import functions as F

    each = [_of_store(spark, store, judged, settings.evidence[one.name], one) for one in taken]
    strongest = f"array_position(array({', '.join(map(literal, STATES))}), store_state)"
    return (
        reduce(lambda one, other: one.unionByName(other), each)
        .groupBy("record_id")
        .agg(
            F.expr(f"max_by(store_state, {strongest})").alias("store_state"),
            F.max("told_transaction").alias("told_transaction"),
            F.expr("array_join(sort_array(collect_list(told)), '; ')").alias("told"),
        )
    )


def summary(taken: Sequence[Snapshot]) -> dict[str, dict[str, dict[str, object]]]:
    """{"evidence": {store: what it gave, or why it gave nothing}}, or nothing where none was asked."""
    said: dict[str, dict[str, object]] = {}
    for one in taken:
        error = {} if one.error is None else {"error": one.error}
        said[one.name] = {"taken_at": iso(one.taken_at), "rows": one.rows, **error}
    return {"evidence": said} if said else {}


def _of_store(
    spark: "SparkSession", store: Store, judged: "DataFrame", settings: Evidence, taken: Snapshot
) -> "DataFrame":
    from pyspark.sql import functions as F

    kind = KINDS[settings.kind]
    letters = _letters(judged, settings, taken).filter(f"cause IS NOT NULL AND {kind.letters}")
    name = literal(f"{settings.name}: ")
    if taken.error is not None:
        unasked = ("'unasked'", "CAST(NULL AS string)", f"concat({name}, 'did not answer')")
        return letters.select("record_id", *map(F.expr, unasked)).toDF(*_COLUMNS)
    shape = spark_schema(FACTS)
    facts = read_files(spark, store, taken.files, shape) if taken.files else spark.createDataFrame([], shape)
    keyed = letters.select("record_id", F.explode(F.expr(kind.keys)).alias("key"))
    found = keyed.join(facts, on="key", how="inner").groupBy("record_id")
    known = letters.join(
        found.agg(*(F.expr(text).alias(name) for name, text in FOUND.items())), on="record_id", how="left"
    )
    for column, text in (("store_state", kind.state), ("told_transaction", kind.transaction)):
        known = known.withColumn(column, F.expr(text))
    told = F.expr(f"concat({name}, {kind.words})")
    return known.select("record_id", "store_state", "told_transaction", told).toDF(*_COLUMNS)


def _letters(judged: "DataFrame", settings: Evidence, taken: Snapshot) -> "DataFrame":
    """The letters of a store's sources, with what its questions need."""
    from pyspark.sql import functions as F

    is_mine = reduce(or_, (F.col("source").rlike(translate(pattern)) for pattern in settings.sources))
    kept = seconds(settings.window)
    asked_at = F.timestamp_micros(F.lit(taken.taken_at))
    return judged.filter(is_mine).select(
        "record_id", "cause", "broker_kind", "dead_letter_queue", "message_id", "key", "origin",
        F.coalesce("dead_at", "captured_at").alias("died_at"),
        F.from_json("rocket", CONTEXT_TYPE)["tag"].alias("tag"),
        F.get_json_object("coordinated", "$.coordinator").alias("coordinator"),
        F.get_json_object("coordinated", "$.work").alias("work"),
        F.lit(settings.application).cast("string").alias("application"),
        F.lit(human_seconds(kept)).alias("kept_for"),
        asked_at.alias("asked_at"),
        F.timestamp_micros(F.lit(taken.taken_at - int(kept * 1e6))).alias("window_start"),
    )  # fmt: skip


def with_answers(judged: "DataFrame", told: "DataFrame | None") -> "DataFrame":
    """Adds `store_state`, and what the stores told to `evidence` and `transaction_state`."""
    from pyspark.sql import functions as F

    if told is None:
        return judged.withColumn("store_state", F.lit(None).cast("string"))
    changed = {
        "transaction_state": "coalesce(transaction_state, told_transaction)",
        "evidence": """CASE WHEN told IS NULL THEN evidence
            ELSE concat_ws('; ', substring(evidence, 1, 300), substring(told, 1, 198)) END""",
    }
    joined = judged.join(told, on="record_id", how="left")
    return joined.withColumns({name: F.expr(text) for name, text in changed.items()}).drop(
        "told_transaction", "told"
    )
