"""What RabbitMQ's outcomes of AMQP 1.0 mean: refused is only what no queue can have."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pika import spec
from support.brokers.hostile_amqp10 import LETTER, Taking, became, letter
from support.rows import each_row
from support.sending_contract import until_it_ends
from support.servers.hostile import Server

from dlq.connectors.amqp10.codec import frames
from dlq.connectors.amqp10.codec.values import NULL, described_value, sequence
from dlq.connectors.base import Sent, Target
from dlq.connectors.rabbitmq.amqp10 import send
from dlq.connectors.rabbitmq.amqp10.send import Amqp10Publisher
from dlq.connectors.rabbitmq.look import topology
from dlq.connectors.rabbitmq.look.topology import Topology
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker

LETTERS = 3
FULL, OTHER, SEVERAL = Target("queue", "full"), Target("queue", "q"), Target("exchange", "full", "k")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTILE", "s3cret")
    monkeypatch.setattr(send, "rejects_when_full", lambda _broker, queue: queue in ("full", "down"))
    full = lambda _broker, rejecting, queue: rejecting(queue) and queue == "full"  # noqa: E731
    monkeypatch.setattr(send, "may_be_full", full)


def published(state: bytes, target: Target) -> tuple[list[Sent], Exception | None]:
    with Server(Taking({LETTER: lambda _peer, frame: became(frame, state)})) as server:
        broker = RabbitBroker("b", "rabbitmq", f"amqp://u@{server.address}", password_env="HOSTILE")
        publisher = Amqp10Publisher(broker, "plan", 1)
        return until_it_ends(publisher, (letter(n)._replace(target=target) for n in range(LETTERS)))


REFUSED = described_value(frames.REJECTED, sequence([NULL]))


DOUBTS: Mapping[str, tuple[bytes, Target]] = {
    "a queue that does not reject": (REFUSED, OTHER),
    "a queue that rejects, on a node that is down": (REFUSED, Target("queue", "down")),
    "one queue of several": (REFUSED, SEVERAL),
    "modified": (frames.state(frames.MODIFIED), FULL),
    "received": (described_value(0x23, sequence([])), FULL),
    "unknown": (described_value(0x99, sequence([])), FULL),
    "none": (NULL, FULL),
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_what_a_queue_may_have_is_in_doubt_and_nothing_more_goes(doubt: str) -> None:
    sent, error = published(*DOUBTS[doubt])
    assert "b (" in str(error)
    assert [(one.number, one.outcome) for one in sent] == [(0, "in_doubt")]


@pytest.mark.parametrize(("state", "target", "outcome"), [
    (REFUSED, FULL, "refused"), (frames.state(frames.ACCEPTED), OTHER, "confirmed"),
    (frames.state(frames.RELEASED), OTHER, "returned"),
])  # fmt: skip
def test_what_a_full_queue_rejects_or_is_taken_or_routed_nowhere_holds_up_nothing(
    state: bytes, target: Target, outcome: str
) -> None:
    sent, error = published(state, target)
    assert error is None
    assert [one.outcome for one in sent] == [outcome] * LETTERS


LIMITED = Topology("classic", {"x-max-length": 5})


@each_row(("found", "letters", "consumers", "is_full"), [
    (None, 5, 0, False),
    (LIMITED, 5, 0, True),
    # It failed alone, and is there again: what it has not answered it may have stored.
    (LIMITED, 4, 0, False),
    (LIMITED, 4, 1, True),  # who consumes makes room
    (replace(LIMITED, kind="quorum"), 4, 0, True),
    (Topology("classic", {"x-max-length-bytes": 5}), 1, 0, True),
])  # fmt: skip
def test_a_queue_that_has_room_is_not_full(
    found: Topology | None, letters: int, consumers: int, is_full: bool
) -> None:
    says = spec.Queue.DeclareOk("q", letters, consumers)
    asking = nullcontext(SimpleNamespace(queue=lambda _: says))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topology, "questions", lambda *_: asking)
        assert topology.may_be_full(RabbitBroker("b", "rabbitmq"), lambda _: found, "q") is is_full
