"""What remembers its failure in its body reaches the consumer as the message that is in it."""

import base64
import json
import os
from pathlib import Path

import pytest
from support.brokers.kafka.fixtures import KafkaPlace
from support.brokers.rabbitmq.fixtures import PASSWORD_VARIABLE, Rabbit
from support.wire_builders import configure, configure_rabbitmq, dlq

ORDER = b'{"id": 7,  "price": 1.10}'
BY_HAND = {
    "originalTopic": "orders",
    "originalPartition": 0,
    "retryCount": 2,
    "error": {"type": "Declined", "message": "no stock"},
    "payload": base64.b64encode(ORDER).decode(),
    "headers": {"tenant": "7"},
}
ODD = {**BY_HAND, "payload": "test"}
ERROR = {
    "RoutingKey": "orders",
    "Exchange": "",
    "Queue": "orders",
    "Exception": "System.Exception: no stock",
    "Message": ORDER.decode(),
    "BasicProperties": {
        "Type": "Shop.Order, Shop", "ContentType": "application/json", "DeliveryMode": 2,
        "Headers": {"tenant": base64.b64encode(b"7").decode()},
    },
}  # fmt: skip
TASK = {"task": "pay", "id": "1", "args": [], "kwargs": {"retries": 4}, "retries": 2}


def planned(folder: Path, to: str, unwrapped: int) -> str:
    """The plan that sends what lies in the archive, of which one letter stays."""
    dlq(folder, "pull")
    words = ("replay", "plan", "--any-advice", "--to", to)
    assert dlq(folder, *words)["left_out"] == {"risky": unwrapped + 1}
    made = dlq(folder, *words, "--unwrap")
    counts = (made["selected"], made["edited"], made["unwrapped"], made["left_out"])
    assert counts == (unwrapped, 0, unwrapped, {"risky": 1})
    assert any("may be encoded in a way that is not told" in said for said in made["warnings"])
    return str(made["plan"])


@pytest.mark.kafka
def test_an_envelope_goes_back_to_its_topic_as_the_message_with_its_headers(
    kafka: KafkaPlace, tmp_path: Path
) -> None:
    driver, topic = kafka.driver, kafka.topic
    for name in (topic, f"{topic}-dlt"):
        driver.create_topic(name, retention_ms=-1)
    bodies = [json.dumps(body).encode() for body in (BY_HAND, ODD)]
    driver.send_all(f"{topic}-dlt", [(body, b"k", [("of-the-dlt", b"x")]) for body in bodies])
    configure(tmp_path, f'kind = "kafka"\nurl = "{kafka.node.url}"', f'topic = "{topic}-dlt"\nmode = "drain"')
    applied = dlq(tmp_path, "replay", "apply", planned(tmp_path, f"topic:{topic}", 1))
    assert applied["states"]["confirmed"] == 1
    [found] = driver.records(topic, 1)
    headers = dict(found.headers() or [])
    assert (found.value(), found.key(), headers["tenant"]) == (ORDER, b"k", b"7")
    assert "of-the-dlt" not in headers


def test_on_rabbitmq_an_error_an_envelope_and_a_task_go_back_as_the_messages_in_them(
    rabbit: Rabbit, tmp_path: Path
) -> None:
    work, letters = rabbit.queue(), rabbit.queue()
    error_type = "EasyNetQ.SystemMessages.Error, EasyNetQ"
    rabbit.publish(letters, [json.dumps(ERROR).encode()], type=error_type, headers={"of-the-dlq": 1})
    rabbit.publish(letters, [json.dumps(body).encode() for body in (BY_HAND, TASK, ODD)])
    configure_rabbitmq(tmp_path, rabbit, letters)
    try:
        plan = planned(tmp_path, f"queue:{work}", 3)
        assert dlq(tmp_path, "replay", "apply", plan)["states"]["confirmed"] == 3
    finally:
        os.environ.pop(PASSWORD_VARIABLE, None)
    (_, error, first), (_, by_hand, second), (_, _, third) = rabbit.take(work, 3)
    assert (first, second) == (ORDER, ORDER)
    assert third == json.dumps({**TASK, "retries": 0}).encode()
    assert (error.type, error.content_type, error.headers["tenant"]) == (
        "Shop.Order, Shop",
        "application/json",
        "7",
    )
    assert ("of-the-dlq" not in error.headers, by_hand.headers["tenant"]) == (True, "7")
