"""RocketMQ letters for the analyzer tests, made with as few words as possible."""

from typing import Any

from dlq.core.record import Record

BORN = 1_795_000_000_000
MINUTE = 60_000


def dead(key: str = "K1", group: str = "pay", **properties: str) -> Record:
    """A dead letter of `group`; properties as the broker stores them."""
    given = {"UNIQ_KEY": key, "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": f"at-{key}", **properties}
    return letter(f"%DLQ%{group}", {name: value for name, value in given.items() if value}, times=17)


def letter(
    topic: str, properties: dict[str, str], body: bytes = b"x", times: int = 0, **fields: Any
) -> Record:
    """Any RocketMQ record. `fields`: offset, position, prepared, flags, node, stored (ms after BORN)."""
    stored = BORN + int(fields.get("stored", MINUTE))
    headers = {
        "queueOffset": str(fields.get("offset", 0)),
        "commitLogOffset": str(fields.get("position", 100 * int(fields.get("offset", 0)))),
        "preparedTransactionOffset": str(fields.get("prepared", 0)),
        "reconsumeTimes": str(times),
        "bornHost": "10.0.0.1:5",
    }
    return Record(
        "", "pay", "cluster", "rocketmq", topic, broker_node=fields.get("node", "broker-a"), headers=headers,
        offset=int(fields.get("offset", 0)), flags=fields.get("flags", 0), properties=properties,
        message_id=properties.get("UNIQ_KEY"), key=properties.get("UNIQ_KEY"), body=body, body_size=len(body),
        body_sha256=body.hex(), captured_at=(stored + int(fields.get("seen", 10 * MINUTE))) * 1000,
        published_at=BORN * 1000, dead_at=stored * 1000, origin=properties.get("REAL_TOPIC"),
    )  # fmt: skip
