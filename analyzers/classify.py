"""Stage 1: each record by itself. Its result is kept, so that a later analysis need not redo it."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from dlq.analyzers import exceptions, frameworks, rules, rules_rocketmq
from dlq.analyzers.reading import spark_schema
from dlq.analyzers.rule import cut
from dlq.analyzers.topology import Facts
from dlq.archive.analyses import VERDICTS
from dlq.archive.schema import SEGMENT
from dlq.core.settings import Rule as UserRule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_VERDICT: Mapping[str, str] = {
    "record_id": "record_id",
    "cause": "cause",
    "mechanism": "mechanism",
    "rule": "rule",
    "evidence": cut("verdict.evidence", 500),
    "stale_evidence": "coalesce(verdict.stale_evidence, false)",
    "attempts": "verdict.attempts",
    "origin_kind": "verdict.origin_kind",
    "origin": "verdict.origin",
    "exception_class": "exception_class",
    "exception_message": "exception_message",
    "exception_family": "exception_family",
    "fingerprint": "fingerprint",
    "fingerprint_version": "fingerprint_version",
    "producer_id": "verdict.producer_id",
    "producer_seq": "verdict.producer_seq",
    "consumer_id": "verdict.consumer_id",
    "connection_id": "verdict.connection_id",
    "transaction_state": "verdict.transaction_state",
    "laps": "laps",
}
CONTEXT: Mapping[str, str] = {
    "user_rule": "user_rule",
    "source": "source",
    "broker": "broker",
    "broker_kind": "broker_kind",
    "broker_node": "broker_node",
    "dead_letter_queue": "dead_letter_queue",
    "message_id": "message_id",
    "key": "key",
    "body_sha256": "body_sha256",
    "body_size": "body_size",
    "published_at": "published_at",
    "dead_at": "dead_at",
    "captured_at": "captured_at",
    "rocket": "rocket",
    "coordinated": "coordinated",
    "replay_of": "replay_of",
}
"""What stage 2 wants to know of a record beside its verdict; a new question is one line here."""
_FIRST: Mapping[str, str] = {
    "laps": "coalesce(try_cast(coalesce(headers['dlq_replay_lap'], properties['dlq_replay_lap']) AS int), 0)",
    "rocket": rules_rocketmq.CONTEXT,
    "coordinated": frameworks.COORDINATED,
    "replay_of": "coalesce(headers['dlq_replay_of'], properties['dlq_replay_of'])",
}
"""What is asked of the large maps, before everything else, so that they go no further than the rules."""

_OF_VERDICTS = {f.name: f for f in VERDICTS}
_OF_RECORDS = {f.name: f for f in SEGMENT}


def judged_schema() -> "StructType":
    """The Spark schema of a stage 1 row: types as in verdicts and records, else text."""
    fields = [
        _OF_VERDICTS.get(n) or _OF_RECORDS.get(n) or pa.field(n, pa.string()) for n in {**_VERDICT, **CONTEXT}
    ]
    return spark_schema(pa.schema(fields))


def classify(
    records: "DataFrame",
    facts: Facts,
    user_rules: tuple[UserRule, ...] = (),
    kinds: Collection[str] | None = None,
) -> "DataFrame":
    """Records (the archive's columns, and `body_text`) -> stage 1 rows; ConfigError for a bad user rule.

    `kinds`: the broker kinds among them, if known.
    """
    from pyspark.sql import functions as F

    asked = records.withColumns({name: F.expr(text) for name, text in _FIRST.items()})
    explained = exceptions.explain(rules.decide(asked, facts, kinds))
    shown = {
        "rule": F.col("verdict.rule"),
        "cause": F.col("verdict.cause"),
        "mechanism": F.col("verdict.mechanism"),
        "failure_text": F.coalesce("failure_text", "error_text"),
        "attempts": F.coalesce("verdict.attempts", "attempts"),
        "origin": F.coalesce("verdict.origin", "origin"),
    }
    judged = rules.with_user_rules(explained.withColumns(shown), user_rules)
    texts = {**_VERDICT, **CONTEXT}
    return judged.select(
        *(F.expr(texts[f.name]).cast(f.dataType).alias(f.name) for f in judged_schema().fields)
    )
