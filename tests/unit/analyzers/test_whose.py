"""Whose failure it is belongs into the fingerprint, where the exception does not stand on the letter."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.analyzers.letters import imported
from support.rows import each_row

from dlq.analyzers.rules import Facts, judge

Line = dict[str, Any]
REJECTED = [{"reason": "rejected", "queue": "work", "exchange": "", "routing-keys": ["work"], "count": 1}]


def rabbit(body: Any = None, **headers: Any) -> Line:
    text = body if isinstance(body, str) else json.dumps(body or [[], {}, {}])
    return {"broker_kind": "rabbitmq", "queue": "work.dlq", "headers": {"x-death": REJECTED, **headers}, "body_text": text}  # fmt: skip


def dramatiq(actor: str) -> Line:
    told = {"queue_name": "q", "actor_name": actor, "args": [], "kwargs": {}, "options": {}, "message_id": "1"}  # fmt: skip
    return {**rabbit(told), "queue": "q.XQ"}


def artemis(subscription: str) -> Line:
    where = {"_AMQ_ORIG_ADDRESS": "news", "_AMQ_ORIG_QUEUE": subscription, "_AMQ_ORIG_ROUTING_TYPE": "0"}
    known = {"message-id": "1", "destination": "DLQ", "_AMQ_ORIG_MESSAGE_ID": "7", **where}
    return {"broker_kind": "artemis", "queue": "DLQ", "headers": known}


def rocket(group: str) -> Line:
    return {"broker_kind": "rocketmq", "queue": f"%DLQ%{group}", "properties": {"RETRY_TOPIC": "orders"}}


def share_group(name: str) -> Line:
    told = {"__dlq.errors.topic": "orders", "__dlq.errors.partition": "0", "__dlq.errors.offset": "1"}
    return {"broker_kind": "kafka", "topic": "dead", "headers": {**told, "__dlq.errors.group": name}}


def binder(group: str) -> Line:
    told = {"x-original-topic": "orders", "x-original-partition": "0", "x-original-offset": "1"}
    trace = f"headers={{kafka_offset=1, kafka_groupId={group}, deliveryAttempt=3}}"
    return {"broker_kind": "kafka", "topic": "dead", "headers": {**told, "x-exception-stacktrace": trace}}


OTHERS = {
    "Celery": (rabbit(task="shop.pay", id="1"), rabbit(task="shop.mail", id="2")),
    "Celery's first protocol": (rabbit({"task": "pay", "id": "1"}), rabbit({"task": "mail", "id": "2"})),
    "taskiq": (rabbit(task_name="pay", task_id="1"), rabbit(task_name="mail", task_id="2")),
    "Dramatiq": (dramatiq("pay"), dramatiq("mail")),
    "Nest's events": (rabbit({"pattern": "paid", "data": 1}), rabbit({"pattern": "mailed", "data": 1})),
    "Nest's commands": (rabbit({"pattern": {"cmd": "pay"}, "data": 1, "id": "1"}),
     rabbit({"pattern": {"cmd": "mail"}, "data": 1, "id": "2"})),
    "Laravel": (rabbit({"uuid": "1", "displayName": "App\\Jobs\\Pay", "job": "x"}, laravel={"attempts": 1}),
     rabbit({"uuid": "2", "displayName": "App\\Jobs\\Mail", "job": "x"}, laravel={"attempts": 1})),
    "RocketMQ": (rocket("pay"), rocket("mail")),
    "Kafka": (share_group("pay"), share_group("mail")),
    "Spring Cloud Stream": (binder("pay"), binder("mail")),
    "Artemis": (artemis("pay"), artemis("mail")),
}  # fmt: skip


def fingerprint(line: Line) -> str:
    return judge(imported(line), Facts()).fingerprint


@each_row("framework", OTHERS)
def test_two_whose_letters_died_in_one_queue_have_each_a_failure_of_its_own(framework: str) -> None:
    one, other = OTHERS[framework]
    assert fingerprint(one) == fingerprint(one) != fingerprint(other)


def test_a_message_that_is_no_task_is_no_member_and_an_exception_is_one_failure_whoever_had_it() -> None:
    of_tasks = [fingerprint(line) for line in OTHERS["Celery"] + OTHERS["Nest's events"]]
    for stray in (
        rabbit("no JSON"),
        rabbit({"pattern": "of a shirt", "size": 7}),
        rabbit({"task": "tidy up"}),
    ):
        assert fingerprint(stray) not in of_tasks
        assert fingerprint(stray) == fingerprint(rabbit("another"))
    trace = {"x-exception-stacktrace": "com.shop.Boom: no\n\tat com.shop.Pay.run(Pay.java:5)"}
    one, other = (rabbit(task=task, id="1", **trace) for task in ("pay", "mail"))
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize("dead", [artemis, share_group, binder])
def test_what_lived_with_a_connection_has_another_name_each_time(dead: Callable[[str], Line]) -> None:
    names = ("0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7")
    assert fingerprint(dead(f"anonymous.{names[0]}")) == fingerprint(dead(f"anonymous.{names[1]}"))
