"""What Artemis' management, or the statistics plugin, says of another type or shape than it should."""

import json
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from support.rows import each_row

from dlq.connectors.activemq.look import statistics
from dlq.connectors.activemq.look.artemis import Management, first_of
from dlq.connectors.activemq.look.effects import Traits, effects
from dlq.connectors.activemq.look.jolokia import Jolokia, QueueFacts
from dlq.connectors.activemq.look.limits import limits
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.prove.routing import Routing
from dlq.connectors.activemq.read.isolated import identify_messages
from dlq.connectors.base import Target
from dlq.core.errors import Unreachable

DEEP = "[" * 10_000
ODD: list[Any] = [None, True, -1, 2**70, 1.5, "x", "9" * 5000, DEEP, [], [[]], [{}], {}, {"data": 5}, "{}"]
ODD += [
    '{"data": [{"name": []}]}', '{"data": [5]}', '[{"messageID": "x"}]',
    '[{"messageID": [], "userID": {}}]',
]  # fmt: skip
ODD += ['{"maxSizeBytes": "x", "addressFullMessagePolicy": "DROP", "maxSizeMessages": []}']


class Odd(Management):
    """It gives the same answer to every question."""

    def __init__(self, odd: Any) -> None:
        super().__init__(ActiveMQBroker("b", "artemis", "stomp://h"))
        self._odd = odd

    def _ask_all(self, questions: Sequence[Any]) -> list[Any]:
        return [self._odd] * len(questions)


@each_row("odd", ODD, ids=repr)
def test_a_management_that_answers_oddly_tells_nothing(odd: Any) -> None:
    told = Odd(odd)
    facts = told.facts("q")
    assert facts is None or all(type(n) is int and n >= 0 for n in facts[:3])
    assert isinstance(told.ways_of_the_dead(), dict)
    assert told.killed_none(["q"]) == {}
    identify_messages(told.messages("q", "x") or [])
    told.address_settings("a")
    told.why_dropped("a")
    told.delivered_classes("q")
    routing, target = Routing(told), Target("queue", "q")
    for ask in (routing.why_missing, routing.receivers, routing.risk, routing.begin):
        ask(target)
    routing.is_divert("q")
    routing.counts([target])


@each_row("odd", ODD, ids=repr)
def test_limits_of_an_odd_management_are_none(odd: Any) -> None:
    told = Odd(odd)
    properties: list[dict[str, str]] = [{}, {"ringSize": "9" * 5000, "messageCount": "-" + "9" * 5000}]
    for own in properties:
        traits = own, told.address_settings("a")
        queues: Any = SimpleNamespace(traits=lambda _, traits=traits: traits, attribute=told.attribute)
        routing: Any = SimpleNamespace(traits=lambda _, traits=traits: [Traits(*traits)])
        limits(routing, queues, Target("queue", "q"))
        assert isinstance(effects(queues, "q", "drain", harms=True), list)
        assert -1 <= Traits(*traits).number("ringSize") < 2**64


@each_row(("told", "count"), [(3, 3), (0, 0), (-1, 0), (2**63 - 1, 2**63 - 1)])
def test_what_jolokia_counts_is_a_count(told: object, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert counted_by_jolokia(told, monkeypatch).depth == count


@each_row("told", [None, True, "3", 1.5, 1e308, math.inf, 2**63, [3]])
def test_what_is_no_count_of_jolokia_s_is_none(told: object, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unreachable, match="does not come from Jolokia"):
        counted_by_jolokia(told, monkeypatch)


def counted_by_jolokia(told: object, monkeypatch: pytest.MonkeyPatch) -> QueueFacts:
    values = {"Name": "q", "QueueSize": told, "ConsumerCount": 0, "InFlightCount": 0}
    monkeypatch.setattr(Jolokia, "ask", lambda *_: {"m": values})
    broker = ActiveMQBroker("b", "activemq", "stomp://h", jolokia_url="http://h")
    return Jolokia(broker, artemis=False).queues()["q"]


@each_row("odd", [*ODD, b"\xff"], ids=repr)
def test_the_plugin_s_answers_are_numbers_or_nothing(odd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = odd, [{"string": odd, "long": odd}]
    for body in (odd, {"map": odd}, *({"map": {"entry": one}} for one in entries)):
        data = odd if isinstance(odd, bytes) else json.dumps(body).encode()
        statistics.values_of(data)
    found = told_by_the_plugin({"size": odd, "consumerCount": odd, "inflightCount": odd}, monkeypatch)
    assert found is None or all(type(n) is int and n >= 0 for n in found[:3])


@pytest.mark.parametrize("untold", ["size", "consumerCount", "inflightCount"])
def test_a_queue_of_which_the_plugin_does_not_tell_one_count_is_not_known(
    untold: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = dict.fromkeys(("size", "consumerCount", "inflightCount"), 1)
    assert told_by_the_plugin(counts, monkeypatch) == QueueFacts(1, 1, 1, {"ConsumerCount": 1})
    del counts[untold]
    assert told_by_the_plugin(counts, monkeypatch) is None


def told_by_the_plugin(named: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> QueueFacts | None:
    monkeypatch.setattr(statistics, "_ask", lambda *_: named)
    monkeypatch.setattr(statistics, "Link", lambda _: SimpleNamespace(close=lambda: None))
    return statistics.facts(ActiveMQBroker("b", "activemq", "stomp://h"), "q")


def test_an_answer_that_is_too_deep_or_too_long_is_none() -> None:
    odd = (DEEP.encode(), b"[" + b"9" * 5000 + b"]", b"[]", b"\xff")
    assert [first_of(data) for data in odd] == [None] * 4
