"""The demo's two RocketMQ transactions, as a broker leaves them. Always the same.

The payment service died between its database and its commit: nobody answered any of 15 checks, and the
broker gave the message up. For the other order the commit came in time, but for an older copy of the half
message: the money moved, and the broker gave up all the same.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

_HALF, _OP_TOPIC, _DISCARDED = (
    "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
)  # fmt: skip
_TOPIC = "payments"

_SENT = int(datetime(2026, 11, 2, 3, 10, tzinfo=UTC).timestamp() * 1000)
_CHECKS, _EVERY_MS = 15, 30_000
_COMMITTED = 8
"""The bits of sysFlag that a commit sets."""


def records() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield topic and JSONL object: half messages and copies, what ended them, and what gave them up."""
    yield from _checked_to_the_end(0, "7F00000117A518B4AAC2000000000001", "order-4801")
    yield from _checked_to_the_end(1, "7F00000117A518B4AAC2000000000002", "order-4802")
    committed = _message(1, "7F00000117A518B4AAC2000000000002", "order-4802", 1)
    yield _TOPIC, _stamp(committed, _SENT + 40_000, 0, sysFlag=_COMMITTED, preparedTransactionOffset=100)
    yield _OP_TOPIC, _stamp({"broker_kind": "rocketmq", "body_text": "1,"}, _SENT + 43_000, 0)


def _checked_to_the_end(number: int, key: str, order: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each check puts a copy back behind the others."""
    for check in range(_CHECKS + 1):
        at, offset = _SENT + check * _EVERY_MS + number, 2 * check + number
        yield _HALF, _stamp(_message(number, key, order, check), at, offset, commitLogOffset=100 * offset)
    given_up = _message(number, key, order, _CHECKS)
    yield _DISCARDED, _stamp(given_up, _SENT + (_CHECKS + 1) * _EVERY_MS, number)


def _message(number: int, key: str, order: str, checks: int) -> dict[str, Any]:
    properties = {
        "UNIQ_KEY": key,
        "KEYS": order,
        "PGROUP": "payment-service",
        "REAL_TOPIC": _TOPIC,
        "REAL_QID": "0",
        "TRAN_MSG": "true",
    }
    counted = {"TRANSACTION_CHECK_TIMES": str(checks)} if checks else {}
    body = {"order": order, "amount": 19.9 + number}
    return {"broker_kind": "rocketmq", "properties": properties | counted, "body_text": json.dumps(body)}


def _stamp(message: dict[str, Any], at: int, offset: int, **fields: int) -> dict[str, Any]:
    headers = {"bornTimestamp": _SENT, "bornHost": "10.0.0.7:41000", "storeTimestamp": at}
    return message | {"headers": {**headers, "queueOffset": offset, "queueId": 0, "sysFlag": 0, **fields}}
