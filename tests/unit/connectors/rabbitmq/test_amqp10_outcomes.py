"""What RabbitMQ's outcomes of AMQP 1.0 mean: refused is only what no queue can have."""

from collections.abc import Mapping

import pytest
from support.brokers.hostile_amqp10 import LETTER, Taking, became, letter
from support.sending_contract import until_it_ends
from support.servers.hostile import Server

from dlq.connectors.amqp10.codec import frames
from dlq.connectors.amqp10.codec.values import NULL, described_value, sequence
from dlq.connectors.base import Sent, Target
from dlq.connectors.rabbitmq.amqp10 import send
from dlq.connectors.rabbitmq.amqp10.send import Amqp10Publisher
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker

LETTERS = 3
FULL, OTHER, SEVERAL = Target("queue", "full"), Target("queue", "q"), Target("exchange", "full", "k")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTILE", "s3cret")
    monkeypatch.setattr(send, "rejects_when_full", lambda _broker, queue: queue in ("full", "down"))
    monkeypatch.setattr(send, "answers", lambda _broker, queue: queue == "full")


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
