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
from dlq.archive.analyses import INCIDENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AUDIT_ARRAYS = 33
AUDIT_BITS = 64
AUDIT_PRODUCERS = 64

_FIRST = "the first of its consumer's range, which the listener had in hand at the cut: such letters were often processed"
_BEHIND = (
    "behind the first of its range: such letters were often never processed, but unsent acknowledgements "
    "(optimizeAcknowledge, INDIVIDUAL_ACK) leave processed ones here too"
)
_IMPOSSIBLE = (
    "no audit could have known it: it is further behind its producer's newest id than an audit remembers; "
    "look for another fault"
)
_CROWDED = "its burst has more producers than an audit remembers (64): some of them it cannot have known"


def oldest_known(newest: int) -> int:
    """The lowest sequence id of a producer that an audit can still know after it has seen `newest`."""
    return max(0, (newest // AUDIT_BITS - (AUDIT_ARRAYS - 1)) * AUDIT_BITS)


_OLDEST_KNOWN = f"(newest DIV {AUDIT_BITS} - {AUDIT_ARRAYS - 1}) * {AUDIT_BITS}"
_INCIDENT = "concat('amq-', substring(sha2(concat_ws('|', broker, connection_id), 256), 1, 12))"
_SHOWS = (
    f"CASE WHEN producer_seq < {_OLDEST_KNOWN} THEN {literal(_IMPOSSIBLE)} "
    f"WHEN producers > {AUDIT_PRODUCERS} THEN {literal(_CROWDED)} "
    f"WHEN producer_seq = oldest THEN {literal(_FIRST)} ELSE {literal(_BEHIND)} END"
)
_REASON = (
    "concat('one of ', burst_size, ' letters suppressed on connection ', connection_id, "
    "CASE WHEN consumers > 1 THEN concat(' (', consumers, ' consumers)') ELSE '' END, "
    "CASE WHEN last_seq > first_seq THEN concat('; its producer''s ', first_seq, ' to ', last_seq, ' came without a gap') "
    f"ELSE '' END, '; ', {_SHOWS}, '. The text proves neither: look its business data up before it is sent')"
)


def find(judged: "DataFrame") -> "DataFrame":
    """(record_id, burst_id, burst_reason, burst_size) of every suppressed duplicate whose connection is known."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    letters = judged.filter("cause = 'suppressed_duplicate' AND connection_id IS NOT NULL").withColumn(
        "burst_id", F.expr(_INCIDENT)
    )
    burst = Window.partitionBy("burst_id")
    producer = Window.partitionBy("burst_id", "producer_id", "origin")
    in_order = producer.orderBy("producer_seq")
    numbered = letters.withColumns(
        {
            "burst_size": F.count("*").over(burst),
            "consumers": F.size(F.collect_set("consumer_id").over(burst)),
            "producers": F.size(F.collect_set("producer_id").over(Window.partitionBy("burst_id", "origin"))),
            "newest": F.max("producer_seq").over(producer),
            "oldest": F.min("producer_seq").over(
                Window.partitionBy("burst_id", "producer_id", "origin", "consumer_id")
            ),
            "run": F.col("producer_seq") - F.dense_rank().over(in_order),
        }
    )
    run = Window.partitionBy("burst_id", "producer_id", "origin", "run")
    ranged = numbered.withColumns(
        {"first_seq": F.min("producer_seq").over(run), "last_seq": F.max("producer_seq").over(run)}
    )
    return ranged.select("record_id", "burst_id", F.expr(_REASON).alias("burst_reason"), "burst_size")


def mark(advised: "DataFrame") -> "DataFrame":
    """Sets incident_id and advice_reason of suppressed duplicates; a user's own advice stays."""
    from pyspark.sql import functions as F

    bursts = find(advised).select("record_id", "burst_id", "burst_reason")
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


def incidents(marked: "DataFrame") -> "DataFrame":
    """The incidents' rows of bursts, from marked verdicts. A letter of Classic does not say when it died."""
    from pyspark.sql import functions as F

    grouped = (
        marked.filter("incident_id LIKE 'amq-%'")
        .groupBy("incident_id")
        .agg(
            F.min("dead_at").alias("start"),
            F.min("dead_at").alias("peak"),
            F.max("dead_at").alias("end"),
            F.count("*").alias("size"),
            F.sort_array(F.collect_set("source")).alias("sources"),
            F.sort_array(F.collect_set("cause")).alias("causes"),
            F.min("fingerprint").alias("fingerprint"),
            F.min_by("record_id", "producer_seq").alias("first_record_id"),
            F.lit(False).alias("ongoing"),
            F.lit(True).alias("new"),
        )
    )
    return grouped.select(*INCIDENTS.names)
