"""Bursts of suppressed duplicates: what one failover of one client connection left in the DLQs.

After a reconnect the broker sends again what was not acknowledged; the client's connection audit takes
it for duplicates and poison-acks it. The text is the same for a message that was processed and for one
that never reached the listener, so that no letter proves either: each is told what it shows, and sent
to be looked at. Seen on 5.17, 5.18, 5.19 and 6.3.

The audit's arithmetic (ActiveMQMessageAuditNoSync, BitArrayBin; 2048 ids rounded up to 33 arrays of 64
bits, 64 producers): setting the newest id of a producer forgets all below the arrays that remain. A
letter so far behind cannot have been recognised, so something else is wrong with it.
"""

from typing import TYPE_CHECKING

from dlq.analyzers.rule import literal
from dlq.archive.analyses import BURSTS, INCIDENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AUDIT_ARRAYS = 33
AUDIT_BITS = 64
AUDIT_PRODUCERS = 64
DEFAULT_PREFETCH = 1000
"""ActiveMQPrefetchPolicy, queues: no more can be on their way to one consumer at a cut."""

CUT_SECONDS = 300
"""Suppressions of a connection that lie further apart, by the client's log, are of different reconnects: a
failover connection keeps its id over all of them."""

_STAMP = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
_FIRST = "the first of its consumer's range, which the listener had in hand at the cut: such letters were often processed"
_BEHIND = (
    "behind the first of its range: such letters were often never processed, but unsent acknowledgements "
    "(optimizeAcknowledge, INDIVIDUAL_ACK) leave processed ones here too"
)
_IMPOSSIBLE = (
    "no audit could have known it: it is further behind its producer's newest id than an audit remembers; "
    "look for another fault"
)
_IF_ONE = "if all of its burst died at one reconnect, "
"""Without the client's log nothing tells the reconnects of a connection apart."""
_CROWDED = "its burst has more producers than an audit remembers (64): some of them it cannot have known"


def oldest_known(newest: int) -> int:
    """The lowest sequence id of a producer that an audit can still know after it has seen `newest`."""
    return max(0, (newest // AUDIT_BITS - (AUDIT_ARRAYS - 1)) * AUDIT_BITS)


_OLDEST_KNOWN = f"(newest DIV {AUDIT_BITS} - {AUDIT_ARRAYS - 1}) * {AUDIT_BITS}"
_INCIDENT = "concat('amq-', substring(sha2(concat_ws('|', broker, connection_id, cut), 256), 1, 12))"
_SHOWS = (
    f"CASE WHEN producer_seq < {_OLDEST_KNOWN} "
    f"THEN concat(CASE WHEN log_time IS NULL THEN {literal(_IF_ONE)} ELSE '' END, {literal(_IMPOSSIBLE)}) "
    f"WHEN producers > {AUDIT_PRODUCERS} THEN {literal(_CROWDED)} "
    f"WHEN producer_seq = oldest THEN {literal(_FIRST)} ELSE {literal(_BEHIND)} END"
)
_BY_LOG = (
    "concat('; by the client''s log from ', burst_from, coalesce(concat(', after ', failed, ' had failed'), ''), "
    "coalesce(concat(' and it had reconnected to ', reconnected), ''))"
)
_REASON = (
    "concat('one of ', burst_size, ' letters suppressed on connection ', connection_id, "
    "CASE WHEN consumers > 1 THEN concat(' (', consumers, ' consumers)') ELSE '' END, "
    f"CASE WHEN burst_size > consumers * {DEFAULT_PREFETCH} THEN ', more than the default prefetch, so of several "
    "reconnects or a larger prefetch' ELSE '' END, "
    f"coalesce({_BY_LOG}, ''), "
    "CASE WHEN last_seq > first_seq THEN concat('; its producer''s ', first_seq, ' to ', last_seq, ' came without a gap') "
    f"ELSE '' END, '; ', {_SHOWS}, '. The text proves neither: look its business data up before it is sent')"
)

_RANGE = (
    "IF(first_seq IS NULL, NULL, struct(producer_id, first_seq, concat(producer_id, ':', first_seq, "
    "IF(last_seq > first_seq, concat('-', last_seq), '')) AS text))"
)


def find(judged: "DataFrame", log: "DataFrame | None" = None) -> "DataFrame":
    """(record_id, burst_id, burst_reason, burst_size) of every suppressed duplicate whose connection is known.

    `log`: what `client_log.join` has found, if anything.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    suppressed = judged.filter("cause = 'suppressed_duplicate' AND connection_id IS NOT NULL")
    letters = _by_cut(_with_log(suppressed, log)).withColumn("burst_id", F.expr(_INCIDENT))
    burst = Window.partitionBy("burst_id")
    producer = Window.partitionBy("burst_id", "producer_id", "origin")
    numbered = letters.withColumns(
        {
            "burst_size": F.count("*").over(burst),
            "consumers": F.size(F.collect_set("consumer_id").over(burst)),
            "producers": F.size(F.collect_set("producer_id").over(Window.partitionBy("burst_id", "origin"))),
            "newest": F.max("producer_seq").over(producer),
            "oldest": F.min("producer_seq").over(
                Window.partitionBy("burst_id", "producer_id", "origin", "consumer_id")
            ),
            "burst_from": F.date_format(F.min("log_time").over(burst), _STAMP),
            "failed": F.coalesce("failed_transport", F.min("failed_transport").over(burst)),
            "reconnected": F.coalesce("reconnected_to", F.min("reconnected_to").over(burst)),
        }
    )
    ranged = _with_ranges(numbered, "burst_id")
    return ranged.select("record_id", "burst_id", F.expr(_REASON).alias("burst_reason"), "burst_size")


def _with_ranges(letters: "DataFrame", burst: str) -> "DataFrame":
    """Adds first_seq and last_seq: the range of its producer's letters without a gap that a letter is of."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    of_one = (burst, "producer_id", "origin")
    in_order = Window.partitionBy(*of_one).orderBy("producer_seq")
    run = Window.partitionBy(*of_one, "run")
    return letters.withColumn("run", F.col("producer_seq") - F.dense_rank().over(in_order)).withColumns(
        {"first_seq": F.min("producer_seq").over(run), "last_seq": F.max("producer_seq").over(run)}
    )


def _by_cut(letters: "DataFrame") -> "DataFrame":
    """Adds `cut`: which reconnect of its connection, from 1; null for the first, and where no log tells."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    in_time = Window.partitionBy("broker", "connection_id").orderBy("log_time")
    since = F.unix_seconds("log_time") - F.unix_seconds(F.lag("log_time").over(in_time))
    counted = letters.withColumn("begins", (since > CUT_SECONDS).cast("int"))
    return counted.withColumn("cut", F.nullif(F.sum("begins").over(in_time), F.lit(0)))


def _with_log(letters: "DataFrame", log: "DataFrame | None") -> "DataFrame":
    """Adds log_time, failed_transport and reconnected_to: null without a log or a line in it."""
    from pyspark.sql import functions as F

    added = {"log_time": "timestamp", "failed_transport": "string", "reconnected_to": "string"}
    if log is None:
        return letters.withColumns({name: F.lit(None).cast(kind) for name, kind in added.items()})
    told = log.filter("record_id IS NOT NULL").withColumnRenamed("time", "log_time")
    once = told.groupBy("record_id").agg(*(F.max(name).alias(name) for name in added))
    return letters.join(once, "record_id", "left")


def mark(advised: "DataFrame", log: "DataFrame | None" = None) -> "DataFrame":
    """Sets incident_id and advice_reason of suppressed duplicates; a user's own advice stays.

    `log`: what `client_log.join` has found, if anything.
    """
    from pyspark.sql import functions as F

    bursts = find(advised, log).select("record_id", "burst_id", "burst_reason")
    told = (
        F.col("burst_reason").isNotNull() & F.col("user_rule").isNull() & (F.col("advice") == "check_first")
    )
    joined = advised.join(bursts, "record_id", "left").withColumns(
        {
            "incident_id": F.coalesce("incident_id", "burst_id"),
            "advice_reason": F.when(told, F.col("burst_reason")).otherwise(F.col("advice_reason")),
        }
    )
    return joined.drop("burst_id", "burst_reason")


def incidents(marked: "DataFrame", log: "DataFrame | None" = None) -> "DataFrame":
    """The incidents' rows of bursts, from marked verdicts, their context (source, times) and the client's log.

    A letter of Classic does not say when it died. The client's log does; without it a burst lies between two
    certain times: its newest message was sent before, its first letter was captured after.
    """
    from pyspark.sql import functions as F

    died = F.coalesce("dead_at", "log_time")
    grouped = (
        _with_log(marked.filter("incident_id LIKE 'amq-%'"), log)
        .groupBy("incident_id")
        .agg(
            F.coalesce(F.min(died), F.max("published_at"), F.min("captured_at")).alias("start"),
            F.coalesce(F.max(died), F.greatest(F.min("captured_at"), F.max("published_at"))).alias("end"),
            F.count("*").alias("size"),
            F.sort_array(F.collect_set("source")).alias("sources"),
            F.sort_array(F.collect_set("cause")).alias("causes"),
            F.min("fingerprint").alias("fingerprint"),
            F.min_by("record_id", "producer_seq").alias("first_record_id"),
            F.lit(False).alias("ongoing"),
            F.lit(True).alias("new"),
        )
        .withColumn("peak", F.col("start"))
    )
    return grouped.select(*INCIDENTS.names)


def table(marked: "DataFrame") -> "DataFrame":
    """What only bursts have, beside their incidents: whose letters they are, and which."""
    from pyspark.sql import functions as F

    ranged = _with_ranges(marked.filter("incident_id LIKE 'amq-%'"), "incident_id")
    sets = {"origins": "origin", "consumers": "consumer_id", "producers": "producer_id"}
    grouped = (
        ranged.withColumn("range", F.expr(_RANGE))
        .groupBy("incident_id")
        .agg(
            F.min("broker").alias("broker"),
            F.min("connection_id").alias("connection_id"),
            *(F.sort_array(F.collect_set(column)).alias(name) for name, column in sets.items()),
            F.expr("transform(sort_array(collect_set(range)), one -> one.text)").alias("ranges"),
            F.expr(f"count(*) > size(collect_set(consumer_id)) * {DEFAULT_PREFETCH}").alias(
                "beyond_prefetch"
            ),
        )
    )
    return grouped.select(*BURSTS.names)
