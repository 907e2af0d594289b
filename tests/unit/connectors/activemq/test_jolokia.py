"""Jolokia: its answers as it writes them, and how one gets on without it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.servers.hostile import Server, answering

from dlq.connectors.activemq.look.jolokia import Jolokia, fix_escapes
from dlq.connectors.activemq.look.queues import Queues
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.core.errors import AccessDenied, Unreachable

FORBIDDEN = json.dumps({"status": 403, "error": "no read"})
NOT_THERE = json.dumps({"status": 404, "error": "No MBean with pattern"})
FAILING = json.dumps({"status": 500, "error": "java.lang.OutOfMemoryError"})
HIDING = json.dumps({"status": 200, "value": {}})
_QUEUE = {"Name": "orders", "QueueSize": 1, "ConsumerCount": 0, "InFlightCount": 0}
_ORDERS = "org.apache.activemq:brokerName={},destinationName=orders,destinationType=Queue,type=Broker"
SEVERAL = json.dumps({"status": 200, "value": {_ORDERS.format(name): _QUEUE for name in ("a", "b")}})
TROUBLES = {
    "a wrong password": (401, "", AccessDenied, "HTTP 401; check user, password"),
    "a wrong path": (404, "", Unreachable, "HTTP 404; is the path right"),
    "a page that is no Jolokia": (200, "<html>", Unreachable, "something that is no JSON; is the path right"),
    "another service's JSON": (200, "[]", Unreachable, "not come from Jolokia; is the path right"),
    "a policy that forbids to read": (200, FORBIDDEN, AccessDenied, "forbids to read"),
    "the agent of something else": (200, NOT_THERE, Unreachable, "no broker that has none; is it this"),
    "one that fails": (200, FAILING, Unreachable, "no broker that has none; is it this"),
    "one of several brokers": (200, SEVERAL, Unreachable, "several brokers, and nothing shows which"),
    "one that hides": (200, HIDING, Unreachable, "no broker that has none; is it this"),
}


def test_control_characters_that_jolokia_writes_wrongly_are_read() -> None:
    written = rb'["a\u001;b\u000<\u0007", "\\u001;", "\"\u00e9"]'
    assert json.loads(fix_escapes(written)) == ["a\x1bb\x0c\x07", "\\u001;", '"é']


@pytest.fixture(params=TROUBLES)
def trouble(request: pytest.FixtureRequest) -> Iterator[tuple[Server, type[Exception], str]]:
    """A web server with one answer for everything."""
    code, body, error, words = TROUBLES[request.param]
    head = f"HTTP/1.1 {code} x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    with Server(answering((head + body).encode())) as agent:
        yield agent, error, words


def queues_of(agent: Server | None, details: bool = False) -> Queues:
    url = f"http://{agent.address if agent else '127.0.0.1:1'}/jolokia/"
    settings: Any = {"url": "stomp://x", "jolokia_url": url, "jolokia_details": details}
    return Queues(ActiveMQBroker("b", "activemq", **settings), "activemq")


def test_a_name_needs_no_jolokia_and_what_is_wrong_with_it_is_found_out_once(
    trouble: tuple[Server, type[Exception], str],
) -> None:
    agent, error, words = trouble
    queues = queues_of(agent)
    assert queues.resolve_names("orders") == ["orders"]
    asked = agent.connections
    assert (queues.facts("orders"), queues.message("orders", "ID:1")) == (None, None)
    assert isinstance(queues.trouble, error)
    assert words in str(queues.trouble)
    assert agent.connections == asked


def test_a_pattern_needs_jolokia_and_so_do_its_details(trouble: tuple[Server, type[Exception], str]) -> None:
    agent, error, words = trouble
    for names, details in (("orders.>", False), ("orders", True)):
        with pytest.raises(error, match=words):
            queues_of(agent, details).resolve_names(names)


def test_nobody_where_jolokia_should_be_is_said() -> None:
    queues = queues_of(None)
    assert queues.names() is None
    assert "b.jolokia_url (127.0.0.1:1): Connection refused" in str(queues.trouble)


@pytest.mark.parametrize(("listed", "is_believed"), [([], True), (["one"], False), (None, False)])
def test_that_there_is_no_queue_is_what_the_broker_s_own_list_says(
    listed: object, is_believed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, Any] = {"Name": {}, "Queues": {"broker": {"Queues": listed}}}
    monkeypatch.setattr(Jolokia, "ask", lambda _, question: answers[question["attribute"][0]])
    queues = queues_of(None)
    assert (queues.names() == []) is is_believed
    assert (queues.trouble is None) is is_believed


def test_a_queue_that_comes_between_two_questions_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = {"Name": "orders", "QueueSize": 1, "ConsumerCount": 0, "InFlightCount": 0}
    seen = iter([{}, {"orders": fresh}])
    monkeypatch.setattr(
        Jolokia,
        "ask",
        lambda _, question: (
            {"broker": {"Queues": ["orders"]}} if question["attribute"] == ["Queues"] else next(seen)
        ),
    )
    assert queues_of(None).names() == ["orders"]
