"""The way of docs/operations.md with a failure on a real RabbitMQ, from new to resolved."""

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support.brokers.rabbitmq.fixtures import Rabbit, on_rabbitmq_4, rabbit, rabbit_node
from support.wire_builders import configure_rabbitmq

__all__ = ["rabbit", "rabbit_node"]

Dlq = Callable[..., Any]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
FAILURE, PLAN = "1f0c2d3e", "PLAN"
"""What the page writes where a fingerprint and a plan belong."""
TRACE = """\
org.springframework.messaging.MessageHandlingException: failed, failedMessage=GenericMessage [payload=x,\
 headers={amqp_receivedExchange=shop, amqp_consumerQueue=QUEUE, amqp_redelivered=false}]
\tat shop.Bank.call(B.java:9)
Caused by: java.net.SocketTimeoutException: Read timed out
\tat shop.Bank.pay(B.java:4)"""
"""As Spring leaves it: nothing else tells the queue of a letter that came by a named exchange."""


def parked(work: str) -> dict[str, str]:
    """Headers with which Spring AMQP parks a message that it consumed from there."""
    return {
        "x-original-exchange": "shop",
        "x-original-routingKey": "order.created",
        "x-exception-message": "Read timed out",
        "x-exception-stacktrace": TRACE.replace("QUEUE", work),
    }


def commands() -> Iterator[list[str]]:
    """The words of each command in the page's example of a failure."""
    example = PAGE.read_text(encoding="utf-8").partition("## Failures and their owners")[2]
    for line in example.partition("```sh\n")[2].partition("```")[0].splitlines():
        yield shlex.split(line, comments=True)[1:]


@on_rabbitmq_4
def test_the_page_leads_from_a_new_failure_to_a_resolved_one_and_a_regression_is_seen(
    rabbit: Rabbit, tmp_path: Path, dlq: Dlq
) -> None:
    letters, work = rabbit.queue(), rabbit.queue()
    headers = parked(work)
    rabbit.fill(letters, 3, b"order %d", headers=headers)
    configure_rabbitmq(tmp_path, rabbit, letters)

    def call(*words: str) -> Any:
        done = dlq(*words, "-o", "json")
        assert done.code == 0, (words, done.err)
        return done.json

    call("pull")
    call("analyze")
    [found] = call("failures")
    assert (found["state"], found["waiting"], found["exception_class"]) == (
        "new", 3, "java.net.SocketTimeoutException",
    )  # fmt: skip
    known = {FAILURE: found["fingerprint"][:8]}
    said = {}
    for words in commands():
        filled = [known.get(word, word) for word in words]
        said[" ".join(words[:2])] = answer = call(*filled)
        if words[:2] == ["replay", "plan"]:
            known[PLAN] = answer["plan"]
    assert list(said) == [
        "failures", "failures assign", "ls --failure", "replay plan", "replay apply", "failures resolve",
    ]  # fmt: skip
    assert (said["replay plan"]["reason"], said["replay apply"]["sent"]) == ("fixed in 2.4.1", 3)
    assert rabbit.depth(work) == 3
    resolved = said["failures resolve"]
    assert (resolved["state"], resolved["waiting"], resolved["note"]) == ("resolved", 0, "fixed in 2.4.1")
    assert [one["action"] for one in resolved["history"]] == ["assign", "resolve", "resolve"]
    assert resolved["owner"] == resolved["history"][0]["actor"]

    rabbit.fill(letters, 1, b"another %d", headers=headers)
    call("pull")
    [regressed] = call("failures")
    assert (regressed["state"], regressed["waiting"]) == ("regressed", 1)
