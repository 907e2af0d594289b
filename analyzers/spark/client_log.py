"""Consumers' logs, read by Spark piece by piece; `groups.client_log` says what a line holds."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlq.analyzers.groups.client_log import (
    ACKED,
    BEFORE_USER_TEXT,
    CONSUMER_ID,
    CUT_SHORT,
    DESTINATION,
    DISPATCH,
    FAILED,
    MESSAGE_ID,
    OUT_TIMES,
    RECONNECTED,
    STATES,
)
from dlq.analyzers.spark.files import literal, read_files, save, spark_url
from dlq.archive.analyses import CLIENT_LOG, written
from dlq.archive.store import Store
from dlq.core.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UNREADABLE = re.compile(r"error while reading file (?:file://)?(\S+?)\.?(?:\s|$)")
"""Spark's FAILED_READ_FILE."""


def lines(spark: "SparkSession", paths: Sequence[str]) -> "DataFrame":
    """One row a poison ack: log_message_id, log_consumer_id, log_destination, log_time (last dispatch), and
    the addresses of the failed transport and of the reconnect before it in its file, where it has them."""
    from pyspark.sql import functions as F

    found = _relevant(spark, paths)
    dispatch = F.regexp_extract("value", DISPATCH, 1)
    known = F.regexp_extract(dispatch, BEFORE_USER_TEXT, 1)
    out_times = [
        F.regexp_extract(text, pattern, 1) for text, pattern in zip((known, dispatch), OUT_TIMES, strict=True)
    ]
    fields = found.filter("is_ack").select(
        F.regexp_extract(known, MESSAGE_ID, 1).alias("log_message_id"),
        F.regexp_extract(known, CONSUMER_ID, 1).alias("log_consumer_id"),
        F.regexp_extract(known, DESTINATION, 1).alias("log_destination"),
        F.coalesce(*[time.try_cast("bigint") for time in out_times]).alias("out_ms"),
        "failed",
        "reconnected",
    )
    grouped = fields.filter(F.col("log_message_id") != "").groupBy("log_message_id", "log_consumer_id")
    return grouped.agg(
        F.first("log_destination").alias("log_destination"),
        F.timestamp_millis(F.max("out_ms")).alias("log_time"),
        F.max_by("failed", "out_ms").alias("log_failed"),
        F.max_by("reconnected", "out_ms").alias("log_reconnected"),
    )


def _relevant(spark: "SparkSession", paths: Sequence[str]) -> "DataFrame":
    """The lines that tell something (value, is_ack), each with what its file said last before it (failed,
    reconnected). Only these few are sorted; the logs themselves are read in parallel, piece by piece."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    text = spark.read.text([literal(spark_url(path)) for path in paths])
    is_ack = F.col("value").contains("MessageDispatch") & F.col("value").rlike(ACKED)
    told = text.select(
        "value",
        is_ack.alias("is_ack"),
        *(
            F.when(~is_ack, F.nullif(F.regexp_extract("value", pattern, 1), F.lit(""))).alias(name)
            for name, pattern in {"failed_here": FAILED, "reconnected_here": RECONNECTED}.items()
        ),
        F.col("_metadata.file_path").alias("file"),
        F.struct("_metadata.file_block_start", F.monotonically_increasing_id()).alias("place"),
    ).filter(F.col("is_ack") | F.col("failed_here").isNotNull() | F.col("reconnected_here").isNotNull())
    before = Window.partitionBy("file").orderBy("place")
    return told.withColumns(
        {
            "failed": F.last("failed_here", ignorenulls=True).over(before),
            "reconnected": F.last("reconnected_here", ignorenulls=True).over(before),
        }
    )


def join(judged: "DataFrame", found: "DataFrame") -> "DataFrame":
    """Letters and lines side by side: state, record_id, message_id, consumer_id, destination, time (the
    broker's, of the last dispatch), failed_transport, reconnected_to."""
    from pyspark.sql import functions as F

    suppressed = judged.filter(F.col("cause") == "suppressed_duplicate")
    letters = suppressed.select("record_id", "message_id", "consumer_id")
    same = (F.col("message_id") == F.col("log_message_id")) & (
        F.col("consumer_id").isNull() | (F.col("consumer_id") == F.col("log_consumer_id"))
    )
    state = (
        F.when(F.col("log_message_id").isNull(), "letters_without_line")
        .when(F.col("record_id").isNull(), "lines_without_letter")
        .otherwise("explained")
    )
    return letters.join(found, same, "full_outer").select(
        state.alias("state"),
        "record_id",
        F.coalesce("message_id", "log_message_id").alias("message_id"),
        F.coalesce("consumer_id", "log_consumer_id").alias("consumer_id"),
        F.col("log_destination").alias("destination"),
        F.col("log_time").alias("time"),
        F.col("log_failed").alias("failed_transport"),
        F.col("log_reconnected").alias("reconnected_to"),
    )


def counts(joined: "DataFrame") -> dict[str, int]:
    """How many letters and lines have each state."""
    found = {row["state"]: int(row["count"]) for row in joined.groupBy("state").count().collect()}
    return {state: found.get(state, 0) for state in STATES}


def write(
    spark: "SparkSession", store: Store, judged: "DataFrame", paths: Sequence[str], folder: str
) -> dict[str, int] | None:
    """Write the join as a table of the analysis, and return its counts; None without logs."""
    if not paths:
        return None
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        save(store, join(judged, lines(spark, paths)), folder)
    except (Py4JJavaError, PySparkException) as error:
        broken = _UNREADABLE.search(str(error))
        if broken is None:
            raise
        raise UsageError(f"--client-log {broken[1]}: {CUT_SHORT}") from error
    return counts(read(spark, store, folder))


def read(spark: "SparkSession", store: Store, folder: str) -> "DataFrame":
    """What `write` has written."""
    return read_files(spark, store, written(store, f"{folder}/"), CLIENT_LOG)
