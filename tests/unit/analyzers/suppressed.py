"""Letters of suppressed duplicates, as an analysis has judged them."""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from dlq.analyzers import bursts

PRODUCER = "ID:shop-36041-1795195175398-1:75:1:1"
CONSUMER = "ID:vm-33407-1795194807825-3:1:1:1"
COLUMNS = (
    "record_id string, source string, broker string, cause string, connection_id string, consumer_id string, "
    "producer_id string, producer_seq bigint, origin string, message_id string, fingerprint string, "
    "dead_at timestamp, published_at timestamp, captured_at timestamp, "
    "user_rule string, advice string, advice_reason string, incident_id string"
)


def suppressed(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "record_id": f"r{number}",
        "source": "legacy",
        "broker": "amq",
        "cause": "suppressed_duplicate",
        "connection_id": "ID:vm-33407-1795194807825-3:1",
        "consumer_id": CONSUMER,
        "producer_id": PRODUCER,
        "producer_seq": number,
        "origin": "orders",
        "message_id": f"{PRODUCER}:{number}",
        "advice": "check_first",
        "advice_reason": "before",
        **changes,
    }


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> Any:
    names = [column.split()[0] for column in COLUMNS.split(", ")]
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], COLUMNS)


def marked(spark: SparkSession, rows: list[dict[str, Any]], log: Any = None) -> dict[str, dict[str, Any]]:
    return {row.record_id: row.asDict() for row in bursts.mark(frame(spark, rows), log).collect()}


def at(second: int) -> datetime:
    return datetime(2026, 11, 20, 22, 0, second, tzinfo=UTC)
