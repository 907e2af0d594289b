"""RocketMQ transactions: did the money move?

A transaction is known by its unique key on one broker node: its half message, the copies that every check
puts back, the op record that says one of them has ended (commit and rollback alike), the real message that a
commit wrote, and the broker's note that it gave up asking. Brokers are never mixed: offsets are a node's own;
only that a twin was committed on another node is told. Nor are sources: each has its own view of a broker.
"""

from typing import TYPE_CHECKING

from dlq.analyzers.reading import spark_schema
from dlq.analyzers.rules_rocketmq import CONTEXT_TYPE, DISCARDED, FINISHED, HALF
from dlq.analyzers.transaction_facts import NodeFacts
from dlq.analyzers.transaction_sql import GATHERED, LETTER, REASON, STEPS
from dlq.archive.analyses import TRANSACTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NODE = ("source", "broker", "broker_node")
_COLUMNS = (
    "record_id", *_NODE, "message_id", "captured_at", "dead_at", "published_at", "origin", "rocket"
)  # fmt: skip
_ROLE = f"""CASE dead_letter_queue WHEN '{HALF}' THEN 'half' WHEN '{DISCARDED}' THEN 'discarded'
    WHEN '{FINISHED}' THEN 'finished'
    ELSE CASE WHEN NOT startswith(dead_letter_queue, '%') AND rocket.flags & 12 = 8 THEN 'real' END END"""
# A half message without a unique key (very old clients) is known by what all its copies share.
_UNIQUE_KEY = "coalesce(message_id, concat_ws('|', rocket.born_host, published_at, origin, body_sha256))"


def members(judged: "DataFrame") -> "DataFrame":
    """Stage 1 rows -> those that belong to transactions, with `role` (half, finished, discarded, real),
    `unique_key` and the struct `rocket`."""
    from pyspark.sql import functions as F

    rocket = judged.filter("broker_kind = 'rocketmq'")
    parsed = rocket.withColumn("rocket", F.from_json("rocket", CONTEXT_TYPE))
    known = parsed.withColumns({"role": F.expr(_ROLE), "unique_key": F.expr(_UNIQUE_KEY)})
    named = known.withColumn("broker_node", F.coalesce("broker_node", F.lit("")))
    return named.filter("role IS NOT NULL").select(*_COLUMNS, "role", "unique_key")


def ended_halves(parts: "DataFrame") -> "DataFrame":
    """record_id of a half copy, `ended_at`, and `end_seen_at`: when a pull brought the op record.

    An op record names offsets (`7`, or `7,12,` since 5.1). A broker that lost its store counts from 0 again,
    so an offset means the newest copy there that is older than the op record.
    """
    from pyspark.sql import functions as F

    each = parts.filter("role = 'finished'").withColumn("text", F.explode(F.split("rocket.finished", ",")))
    ends = each.select(
        *_NODE,
        F.expr("try_cast(trim(text) AS bigint)").alias("offset"),
        F.col("dead_at").alias("ended_at"),
        F.col("captured_at").alias("end_seen_at"),
    )
    halves = parts.filter("role = 'half'").select(*_NODE, "record_id", "dead_at", "rocket.offset")
    met = halves.join(ends, on=[*_NODE, "offset"], how="inner").filter("coalesce(dead_at <= ended_at, true)")
    newest = met.groupBy(*_NODE, "offset", "ended_at").agg(
        F.max_by("record_id", F.struct("dead_at", "record_id")).alias("record_id"),
        F.max("end_seen_at").alias("end_seen_at"),
    )
    return newest.groupBy("record_id").agg(
        F.min("ended_at").alias("ended_at"), F.max("end_seen_at").alias("end_seen_at")
    )


def resolve(judged: "DataFrame", facts: "DataFrame") -> "DataFrame":
    """Stage 1 rows and `facts_frame` -> a row for each transaction: TRANSACTIONS and what `settle` needs."""
    from pyspark.sql import functions as F

    parts = members(judged)
    marked = parts.join(ended_halves(parts), on="record_id", how="left").filter("role <> 'finished'")
    gathered = (F.expr(text).alias(name) for name, text in GATHERED.items())
    known = marked.groupBy(*_NODE, "unique_key").agg(*gathered)
    known = known.join(F.broadcast(facts), on=["source", "broker_node"], how="left")
    for name, text in STEPS.items():
        known = known.withColumn(name, F.expr(text))
    shape = spark_schema(TRANSACTIONS)
    columns = (F.col(field.name).cast(field.dataType).alias(field.name) for field in shape.fields)
    return known.select(*columns, "letter", "skipped")


def settle(judged: "DataFrame", transactions: "DataFrame") -> "DataFrame":
    """Stage 1 rows with what their transactions make of them.

    One record stands for a transaction that is open or was given up; the copies beside it, and the op
    records, are no letters: their cause is null.
    """
    from pyspark.sql import functions as F

    each = transactions.withColumn("record_id", F.explode("record_ids"))
    made = each.select("record_id", *(F.expr(text).alias(name) for name, text in LETTER.items()))
    is_note = f"(broker_kind = 'rocketmq' AND dead_letter_queue = '{FINISHED}')"
    is_settled = f"(of_transaction IS NOT NULL OR {is_note})"
    changed = {
        "cause": f"CASE WHEN user_rule IS NULL AND {is_settled} THEN settled_cause ELSE cause END",
        "mechanism": "coalesce(settled_mechanism, mechanism)",
        "transaction_state": "of_transaction",
        "evidence": "substring(coalesce(transaction_evidence, evidence), 1, 500)",
        "beside_the_letter": f"{is_settled} AND NOT coalesce(stands_for_it, false)",
    }
    joined = judged.join(made, on="record_id", how="left")
    return joined.withColumns({name: F.expr(text) for name, text in changed.items()}).drop(*LETTER)


def with_reasons(advised: "DataFrame") -> "DataFrame":
    """Tells where to look a discarded transaction up, and what the two ways back mean."""
    from pyspark.sql import functions as F

    return advised.withColumn("advice_reason", F.expr(REASON))


def facts_frame(spark: "SparkSession", facts: tuple[NodeFacts, ...]) -> "DataFrame":
    """What is known of the brokers, one row for each source and node."""
    return spark.createDataFrame(
        [tuple(node) for node in facts],
        "source string, broker_node string, looked_at timestamp, reserved_hours int, "
        "check_interval_ms bigint, settles_after_ms bigint, indexed boolean",
    )
