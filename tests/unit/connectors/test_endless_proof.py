"""A reconcile asks brokers for proof: one that never stops showing things does not hold it up."""

from types import SimpleNamespace
from typing import Any

import pytest

from dlq.connectors.rabbitmq.prove import witness
from dlq.connectors.rocketmq.prove import search
from dlq.connectors.rocketmq.prove.start_offsets import Range
from dlq.connectors.rocketmq.read.queue import MessageQueue
from dlq.connectors.rocketmq.read.snapshot import QueueOffsets
from dlq.core.runtime import patience


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LOOK", 0.2)


def busy(*_: object) -> bool:
    return True


def test_a_witness_of_which_no_letter_comes_is_left_though_the_broker_is_never_silent() -> None:
    link: Any = SimpleNamespace(call=busy, take_deliveries=lambda _most: [], receive=busy)
    assert list(witness.read_headers(link, "q", 2**32 - 1)) == []
    session: Any = SimpleNamespace(
        attach=lambda *_: SimpleNamespace(drained=True), ask=busy, wait_until=busy, take=list, turn=busy
    )
    assert list(witness.read_by_1_0(session, "q", 2**32 - 1)) == []


def test_queues_of_absurd_ends_are_not_looked_through() -> None:
    ends = 10**18, -(10**18)
    ranges = [Range(QueueOffsets(MessageQueue("t", "b", n), 0, end), 0) for n, end in enumerate(ends)]
    nothing: Any = None
    known = search._Known(nothing, nothing)
    assert "more than" in known._read(ranges, [])[0]
