"""Letters of suppressed duplicates, as an analysis has judged them."""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

PRODUCER = "ID:shop-36041-1795195175398-1:75:1:1"
CONSUMER = "ID:vm-33407-1795194807825-3:1:1:1"
COLUMNS = (
    "record_id string, source string, broker string, cause string, connection_id string, consumer_id string, "
    "producer_id string, producer_seq bigint, origin string, message_id string, fingerprint string, "
    "dead_at timestamp, published_at timestamp, captured_at timestamp"
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
        "fingerprint": "f",
        **changes,
    }


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> Any:
    names = [column.split()[0] for column in COLUMNS.split(", ")]
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], COLUMNS)


def at(second: int) -> datetime:
    return datetime(2026, 11, 20, 22, 0, second, tzinfo=UTC)
