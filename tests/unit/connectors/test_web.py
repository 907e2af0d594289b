"""What the management of RabbitMQ and Jolokia are asked with, against servers that mean harm."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from support.hostile_contract import Meeting, check_left
from support.rows import each_row
from support.servers.hostile import Behaviour, Server, answering, certificate, dripping, endless, speaking_tls
from support.waiting import UNHURRIED

from dlq.connectors.activemq.look.jolokia import Jolokia, QueueFacts
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.base import Target
from dlq.connectors.net import web
from dlq.connectors.rabbitmq.amqp091.link.questions import Refused
from dlq.connectors.rabbitmq.look.management import Management
from dlq.connectors.rabbitmq.look.receivers import consumers_of
from dlq.connectors.rabbitmq.look.topology import learn
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.errors import BrokerError, ConfigError

Ask = Callable[..., object]


def rabbit(url: str, **more: Any) -> RabbitBroker:
    known = {"password_env": "WEB", "management_url": url, "timeout": UNHURRIED}
    return RabbitBroker("b", "rabbitmq", "amqp://u@h", **{**known, **more})


def artemis(url: str, **more: Any) -> ActiveMQBroker:
    known = {"password_env": "WEB", "jolokia_url": url, "timeout": UNHURRIED}
    return ActiveMQBroker("b", "activemq", "stomp://u@h", **{**known, **more})


def ask_management(url: str, **more: Any) -> object:
    return Management(rabbit(url, **more)).get("overview")


def ask_jolokia(url: str, **more: Any) -> object:
    return Jolokia(artemis(url, **more), artemis=False).queues()


@pytest.fixture(params=[ask_management, ask_jolokia], ids=["management", "jolokia"])
def ask(request: pytest.FixtureRequest) -> Ask:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB", "s3cret")


def http(body: bytes, head: str = "") -> bytes:
    return f"HTTP/1.1 200 OK\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def redirect(to: str, code: int) -> bytes:
    return f"HTTP/1.1 {code} Elsewhere\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()


@each_row("code", [301, 302, 303, 307, 308])
def test_a_redirect_takes_no_password_to_another_host(ask: Ask, code: int) -> None:
    with Server(answering(http(b"{}")), "127.0.0.2") as thief:
        lure = answering(redirect(f"http://{thief.address}/api", code))
        with Server(lure) as server, pytest.raises(BrokerError, match=f"HTTP {code}, a redirect") as said:
            ask(f"http://{server.address}/api")
        assert thief.connections == 0
        assert "s3cret" not in str(said.value)


def test_a_redirect_takes_no_password_out_of_tls(ask: Ask, tmp_path: Path) -> None:
    pem = certificate(tmp_path, "IP:127.0.0.1")
    with Server(answering(http(b"{}"))) as plain:
        lure = answering(redirect(f"http://{plain.address}/api", 302))
        with Server(lure, tls=speaking_tls(pem)) as server, pytest.raises(BrokerError, match="a redirect"):
            ask(f"https://{server.address}/api", ca_file=str(pem))
        assert plain.connections == 0


def test_a_certificate_of_another_host_is_refused(ask: Ask, tmp_path: Path) -> None:
    pem, words = certificate(tmp_path, "DNS:elsewhere.example"), "TLS failed: IP address mismatch.*; give"
    lure = Server(answering(http(b"{}")), tls=speaking_tls(pem))
    with lure as server, pytest.raises(BrokerError, match=words):
        ask(f"https://{server.address}/api", ca_file=str(pem))


def test_the_environment_s_proxy_is_not_told_the_password(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(answering(b"")) as proxy, Server(answering(http(b"[]"))) as server:
        monkeypatch.setenv("http_proxy", f"http://{proxy.address}")
        with pytest.raises(BrokerError):
            ask(f"http://{server.address}/api")
        assert (proxy.connections, server.connections) == (0, 1)


LATE, WRONG = "within 1.8 s|timed out", "no JSON|not come from Jolokia"
"""What is said of who does not end (on a busy machine also of who says too little), and of no document."""
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"8000\r\n" + b"[" * 2**15 + b"\r\n"
HARM: Mapping[str, tuple[Behaviour, str]] = {
    "a body without end": (endless(OK + b"\r\n", b"[[" * 2**15), "more than 32 MiB"),
    "chunks without end": (endless(CHUNKED, CHUNK), "more than 32 MiB"),
    "headers without end": (endless(OK, b"a: b\r\n"), "headers"),
    "a header line without end": (endless(OK + b"a: ", b"b" * 2**15), "more than 65536 bytes"),
    "a status without end": (endless(b"HTTP/1.1 200 ", b"b" * 2**15), "more than 65536 bytes"),
    "first answers without end": (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), LATE),
    "headers byte by byte": (dripping(OK + b"a: "), LATE),
    "a body byte by byte": (dripping(OK + b"\r\n"), LATE),
    "a body shorter than it says": (answering(OK + b"Content-Length: 9\r\n\r\n{}"), LATE),
    "a body longer than memory": (answering(OK + b"Content-Length: 1e18\r\n\r\n{}"), "."),
    "a length below zero": (answering(OK + b"Content-Length: -5\r\n\r\n{}"), "."),
    "a chunk of a length that is none": (answering(CHUNKED + b"zz\r\n"), "."),
    "200,000 brackets": (answering(http(b"[" * 200_000)), WRONG),
    "200,000 objects": (answering(http(b'{"a":' * 200_000)), WRONG),
    "a million digits": (answering(http(b'{"status":200,"value":' + b"9" * 10**6 + b"}")), WRONG),
    "11 million objects": (
        answering(http(b"[" + b"{}," * (2**25 // 3 - 9) + b"{}]")),
        "2,097,152 values",
    ),
    "no HTTP at all": (answering(b"AMQP\0\0\x09\x01" * 9), "."),
    "no UTF-8": (answering(http(b'{"status":"\xff"}')), WRONG),
    "nothing at all": (lambda peer: None, "."),
}


@pytest.mark.parametrize("harm", HARM)
def test_an_answer_that_means_harm_ends_soon_in_one_line(ask: Ask, harm: str) -> None:
    behaviour, words = HARM[harm]

    def meet(address: str, timeout: str) -> None:
        with pytest.raises(BrokerError, match=words) as said:
            ask(f"http://{address}/api", timeout=timeout)
        assert re.search(r"b\.(management|jolokia)_url", str(said.value))
        raise said.value

    timeout = "300ms" if words in (LATE, ".") else UNHURRIED
    check_left(Meeting(lambda harm: harm, meet), behaviour, timeout)


def test_what_texts_hold_is_no_value() -> None:
    text = ',[{"' * web.MOST_VALUES
    assert web.document(json.dumps([text, text]).encode()) == [text, text]


SHAPES = ("5", "true", '"x"', "1e999", "[5]", "[[]]", '[{"name":[]}]', "{}", '{"source":1}')
INNER = ("null", "5", "[1]", '{"a":[]}', '"x"', "1e999", "-1", str(2**64 - 1))
_KEYS = (
    "effective_policy_definition", "arguments", "type", "name", "source", "destination", "routing_key",
    "messages_unacknowledged", "policy", "definition", "destination_type",
)  # fmt: skip
TABLES = ["[{" + ",".join(f'"{key}":{value}' for key in _KEYS) + "}]" for value in INNER]
DENIED = Mock(queue=Mock(side_effect=Refused(403, "no right")))
"""Whoever asks by AMQP has no right to."""


@each_row("content", [*SHAPES, *TABLES])
def test_answers_of_another_shape_are_no_reason_to_fall_over(content: str) -> None:
    one = content.removeprefix("[").removesuffix("]") if content.startswith("[{") else content

    def behave(peer: Any) -> None:
        while data := peer.recv(2**16):
            is_list = b"columns" in data or b"bindings" in data or b"policies" in data
            peer.sendall(http((content if is_list else one).encode()))

    with Server(behave) as server:
        broker = rabbit(f"http://{server.address}")
        learn(broker, "q", "3.13.7", lambda: DENIED).document()
        try:
            consumers_of(broker, [Target("exchange", "e/k")])
        except BrokerError as error:
            assert "answers something that is no" in str(error)  # noqa: PT017 - some shapes mean nothing


@each_row("value", [*SHAPES, *(f'{{"m":{{"Name":{v},"QueueSize":{v}}}}}' for v in INNER)])
def test_so_it_is_with_jolokia(value: str) -> None:
    with Server(answering(http(f'{{"status":200,"value":{value}}}'.encode()))) as server:
        jolokia = Jolokia(artemis(f"http://{server.address}/"), artemis=False)
        says = "shows no queue" if value == "{}" else "not come from Jolokia"
        with pytest.raises(BrokerError, match=says):
            jolokia.queues()


def test_a_url_with_a_password_or_without_a_host_is_refused(ask: Ask) -> None:
    for url in ("http://u:s3cret@h:1/", "ftp://h", "http://", "http://h:99999"):
        with pytest.raises(ConfigError) as said:
            ask(url)
        assert "s3cret" not in str(said.value)


def test_an_ordinary_answer_is_read(ask: Ask) -> None:
    queue = {"Name": "q", "QueueSize": 1, "ConsumerCount": 0, "InFlightCount": 0}
    content = {"status": 200, "value": {"mbean": queue}}
    with Server(answering(http(json.dumps(content).encode(), "X: y\r\n"))) as server:
        assert ask(f"http://{server.address}/api") in (content, {"q": QueueFacts(1, 0, 0, queue)})
    assert web.LARGEST > 2**20
