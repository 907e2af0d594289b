"""Letters of suppressed duplicates, as an analysis has classified them."""

from datetime import UTC, datetime
from typing import Any

PRODUCER = "ID:shop-36041-1795195175398-1:75:1:1"
CONSUMER = "ID:vm-33407-1795194807825-3:1:1:1"


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


def at(second: int) -> datetime:
    return datetime(2026, 11, 20, 22, 0, second, tzinfo=UTC)
