"""Bursts of suppressed duplicates: Spark counts and numbers the letters of each connection, and of each of
its reconnects where the client's log tells them apart; `groups.bursts` says what a letter's place shows."""

from typing import TYPE_CHECKING

from dlq.analyzers.groups.bursts import CUT_SECONDS, DEFAULT_PREFETCH, Standing
from dlq.analyzers.spark.duplicates import IDENTITY
from dlq.archive.analyses import BURSTS, INCIDENTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CONNECTION = ("broker", "connection_id")


def standing(letters: "DataFrame", log: "DataFrame | None" = None) -> "DataFrame":
    """Every suppressed duplicate of a known connection, with its burst (`burst_id`) and its place in it: the
    columns of `groups.bursts.Standing`.

    `log`: what `client_log.join` has found, if anything.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    is_suppressed = (F.col("cause") == "suppressed_duplicate") & F.col("connection_id").isNotNull()
    placed = _by_cut(_with_log(letters.filter(is_suppressed), log)).withColumn("burst_id", _burst_id())
    burst, queue = Window.partitionBy("burst_id"), Window.partitionBy("burst_id", "origin")
    producer = Window.partitionBy("burst_id", "producer_id", "origin")
    consumer = Window.partitionBy("burst_id", "producer_id", "origin", "consumer_id")
    in_order = producer.orderBy("producer_seq")
    numbered = placed.withColumns(
        {
            "burst_size": F.count("*").over(burst),
            "consumers": F.size(F.collect_set("consumer_id").over(burst)),
            "producers": F.size(F.collect_set("producer_id").over(queue)),
            "newest": F.max("producer_seq").over(producer),
            "oldest": F.min("producer_seq").over(consumer),
            "burst_from": F.min("log_time").over(burst),
            "failed": F.coalesce("failed_transport", F.min("failed_transport").over(burst)),
            "reconnected": F.coalesce("reconnected_to", F.min("reconnected_to").over(burst)),
            "run": F.col("producer_seq") - F.dense_rank().over(in_order),
        }
    )
    run = Window.partitionBy("burst_id", "producer_id", "origin", "run")
    ends = {"first_seq": F.min("producer_seq").over(run), "last_seq": F.max("producer_seq").over(run)}
    return numbered.withColumns(ends)


def _burst_id() -> "Column":
    from pyspark.sql import functions as F

    named = F.concat_ws("|", *_CONNECTION, F.col("cut").cast("string"))
    return F.concat(F.lit("amq-"), F.substring(F.sha2(named, 256), 1, 12))


def _by_cut(letters: "DataFrame") -> "DataFrame":
    """Adds `cut`: which reconnect of its connection, from 1; null for the first, and where no log tells."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    in_time = Window.partitionBy(*_CONNECTION).orderBy("log_time")
    since = F.unix_seconds("log_time") - F.unix_seconds(F.lag("log_time").over(in_time))
    counted = letters.withColumn("begins", (since > CUT_SECONDS).cast("int"))
    return counted.withColumn("cut", F.nullif(F.sum("begins").over(in_time), F.lit(0)))


def _with_log(letters: "DataFrame", log: "DataFrame | None") -> "DataFrame":
    """Adds log_time, failed_transport and reconnected_to: null without a log or a line in it."""
    from pyspark.sql import functions as F

    added = {"log_time": "timestamp", "failed_transport": "string", "reconnected_to": "string"}
    if log is None:
        return letters.withColumns({name: F.lit(None).cast(kind) for name, kind in added.items()})
    told = log.filter(F.col("record_id").isNotNull()).withColumnRenamed("time", "log_time")
    once = told.groupBy("record_id").agg(*(F.max(name).alias(name) for name in added))
    return letters.join(once, "record_id", "left")


def places(standing: "DataFrame") -> "DataFrame":
    """What a letter is told: its burst, and the fields of Standing; times in microseconds since the epoch."""
    from pyspark.sql import functions as F

    times = {name: F.unix_micros(name) for name in ("log_time", "burst_from")}
    return standing.withColumns(times).select(*IDENTITY, "burst_id", *Standing._fields)


def incidents(standing: "DataFrame") -> "DataFrame":
    """The incidents' rows of bursts.

    A letter of Classic does not say when it died. The client's log does; without it only the times of
    publishing are known, or none: when letters were captured says nothing of when they died.
    """
    from pyspark.sql import functions as F

    died = F.coalesce("dead_at", "log_time")
    grouped = standing.groupBy(F.col("burst_id").alias("incident_id")).agg(
        F.coalesce(F.min(died), F.min("published_at")).alias("start"),
        F.coalesce(F.max(died), F.max("published_at")).alias("end"),
        F.count("*").alias("size"),
        F.sort_array(F.collect_set("source")).alias("sources"),
        F.sort_array(F.collect_set("cause")).alias("causes"),
        F.min("fingerprint").alias("fingerprint"),
        F.min_by("record_id", "producer_seq").alias("first_record_id"),
        F.lit(False).alias("ongoing"),
        F.lit(True).alias("new"),
    )
    return grouped.withColumn("peak", F.col("start")).select(*INCIDENTS.names)


def table(standing: "DataFrame") -> "DataFrame":
    """What only bursts have, beside their incidents: whose letters they are, and which."""
    from pyspark.sql import functions as F

    sets = {"origins": "origin", "consumers": "consumer_id", "producers": "producer_id"}
    texts = F.transform(F.sort_array(F.collect_set(_range())), lambda one: one["text"])
    crowd = F.size(F.collect_set("consumer_id")) * DEFAULT_PREFETCH
    grouped = standing.groupBy(F.col("burst_id").alias("incident_id")).agg(
        F.min("broker").alias("broker"),
        F.min("connection_id").alias("connection_id"),
        *(F.sort_array(F.collect_set(column)).alias(name) for name, column in sets.items()),
        texts.alias("ranges"),
        (F.count("*") > crowd).alias("beyond_prefetch"),
    )
    return grouped.select(*BURSTS.names)


def _range() -> "Column":
    """`PRODUCER:40-42`, to be sorted by producer and number."""
    from pyspark.sql import functions as F

    to = F.when(F.col("last_seq") > F.col("first_seq"), F.concat(F.lit("-"), "last_seq")).otherwise(F.lit(""))
    text = F.concat("producer_id", F.lit(":"), "first_seq", to)
    return F.when(F.col("first_seq").isNotNull(), F.struct("producer_id", "first_seq", text.alias("text")))
