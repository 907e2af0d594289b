"""What is recognised as an envelope of a failure, and what is an order of somebody's."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
from support.rows import each_row

from dlq.core.failure_headers import strip_failure
from dlq.core.record import Record
from dlq.replay.enveloped import memory_in_body

STAMPED = (
    rb"O:36:\"Symfony\\Component\\Messenger\\Envelope\":2:{s:44:\"\0Symfony\\Component\\Messenger\\Envelope\0stamps\";"
    rb"s:67:\"\0Symfony\\Component\\Messenger\\Stamp\\%b\";%b}"
)
FAILED = STAMPED % (rb"ErrorDetailsStamp\0exceptionClass", rb"s:15:\"DomainException\";")
RETRIED = STAMPED % (rb"RedeliveryStamp\0retryCount", b"i:2;")
BY_HAND = {
    "originalTopic": "orders",
    "originalPartition": 0,
    "retryCount": 2,
    "error": {"type": "Declined", "message": "no stock"},
    "payload": "e30=",
    "headers": {"tenant": "7"},
}
TASK = {"task": "charge", "id": "1", "args": [], "kwargs": {}, "retries": 3}


def told(body: bytes | Mapping[str, Any], headers: Mapping[str, str] | None = None) -> str | None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return memory_in_body(Record("", "", "", "", "")._replace(body=data, headers=headers or {}))


@pytest.mark.parametrize(("body", "what"), [
    (BY_HAND, "around the message"),
    ({"original_queue": "q", "attempts": 3, "exception": "E", "original_message": {"a": 1}}, "around"),
    (TASK, "3 retries"),
    (RETRIED, "Symfony"),
    (base64.b64encode(FAILED), "Symfony"),
])  # fmt: skip
def test_a_failure_that_a_body_remembers_is_told(body: Any, what: str) -> None:
    assert what in (told(body) or "")


@each_row(
    "body",
    [
        b"", b"{", b"Tz!", b"O:8:\"stdClass\":0:{}",
        STAMPED % (rb"BusNameStamp\0busName", rb's:3:\"bus\";'), {"error": "declined", "amount": 7},
        {"payload": {"retries": 2}, "return": "x"}, {"orderId": 1, "message": "thanks", "originalPrice": 5},
        {"message": "gift", "attempts": 1, "origin": "shop"}, {**TASK, "retries": 0},
    ],
)  # fmt: skip
def test_an_order_is_no_envelope(body: Any) -> None:
    assert told(body) is None


def test_an_envelope_whose_names_are_escaped_is_one() -> None:
    body = b'{"sourceTopic": "orders", "\\u0065rror": "no stock", "payload": "e30="}'
    assert "around the message" in (told(body) or "")


def test_a_task_whose_headers_count_is_mended_there() -> None:
    assert told(TASK, {"task": "charge", "id": "1", "retries": "3"}) is None


def test_the_count_of_kafkajs_async_retry_does_not_go_back() -> None:
    headers = {"tenant": "7", "asyncRetry": '{"ttl":1795920029269,"top":"orders","att":2}'}
    assert strip_failure(headers) == ({"tenant": "7"}, ["asyncRetry"])
