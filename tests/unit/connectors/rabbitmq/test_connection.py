"""Settings into connection parameters and credentials, refusals into our errors; no broker."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.brokers.hostile import amqp, listen
from support.rows import each_row
from support.servers.hostile import Server

from dlq.connectors.base import ReadRequest
from dlq.connectors.local import credentials
from dlq.connectors.rabbitmq.link import parameters, refusal
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.errors import (
    AccessDenied,
    BrokerError,
    ConfigError,
    ConnectionLost,
    NodeDown,
    NotFound,
    Unreachable,
    UsageError,
)
from dlq.core.settings import Source


def shop(url: str = "amqp://guest@rabbit.example/", **settings: object) -> RabbitBroker:
    return RabbitBroker(name="shop", kind="rabbitmq", url=url, **settings)  # type: ignore[arg-type]


@each_row(("url", "choices"), [
    ("amqp://guest@rabbit.example", [("rabbit.example", 5672, "/")]),
    ("amqp://guest@rabbit.example/", [("rabbit.example", 5672, "/")]),
    ("amqp://guest@rabbit.example:5673/%2F", [("rabbit.example", 5673, "/")]),
    ("amqp://rabbit.example/a%2Fb%20c", [("rabbit.example", 5672, "a/b c")]),
    ("amqps://guest@[::1]/shop", [("::1", 5671, "shop")]),
    ("amqp://guest@one:1,two,[::1]:3/v", [("one", 1, "v"), ("two", 5672, "v"), ("::1", 3, "v")]),
])  # fmt: skip
def test_a_url_says_hosts_in_their_order_ports_and_a_virtual_host(
    url: str, choices: list[tuple[str, int, str]]
) -> None:
    found = parameters(shop(url))
    assert [(one.host, one.port, one.virtual_host) for one in found] == choices
    assert bool(found[0].ssl_options) == url.startswith("amqps")


@each_row(("url", "told"), [
    *[(url, "brokers.shop") for url in ("", "rabbit.example", "http://rabbit.example", "amqp://",
                                        "amqp://h:port/", "amqp://u:secret@h/")],
    ("amqp://dlq@rabbit.example/", "password_file"),
])  # fmt: skip
def test_a_wrong_url_is_named_without_its_secret_and_a_missing_one_with_its_place(
    url: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        parameters(shop(url))
    assert "secret@" not in str(caught.value)


def test_secrets_come_from_a_file_a_command_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text("from file \n")
    monkeypatch.setenv("SHOP_PASSWORD", "from variable")
    assert credentials.password(shop(password_file=str(file))) == "from file "
    assert credentials.password(shop(password_command=("printf", "from command\n"))) == "from command"
    assert credentials.password(shop(password_env="SHOP_PASSWORD")) == "from variable"
    assert credentials.password(shop()) is None


@each_row(("settings", "reason"), [
    ({"password_file": "/nowhere/secret"}, "No such file"),
    ({"password_command": ("false",)}, "exit code 1"),
    ({"password_command": ("/nowhere/command",)}, "cannot run"),
    ({"password_command": ("printf", r"\377")}, "not UTF-8"),
    ({"password_command": ()}, "is empty"),
    ({"password_env": "DLQ_NO_SUCH_VARIABLE"}, "not set"),
])  # fmt: skip
def test_a_secret_that_cannot_be_had_is_one_line(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"^brokers\.shop\.password_.*{reason}") as caught:
        credentials.password(shop(**settings))
    assert "\n" not in str(caught.value)


@each_row(("code", "text", "kind"), [
    (403, "ACCESS_REFUSED - access to queue 'q' refused", AccessDenied),
    (404, "NOT_FOUND - no queue 'q'", NotFound),
    (404, "NOT_FOUND - home node 'n' of durable queue 'q' is down or inaccessible", NodeDown),
    (404, "NOT_FOUND - failed to perform operation on queue 'q' due to timeout", NodeDown),
    (404, "NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor", NodeDown),
    (405, "RESOURCE_LOCKED - cannot obtain exclusive access", AccessDenied),
    (530, "NOT_ALLOWED - vhost v not found", NotFound),
    (530, "NOT_ALLOWED - access to vhost 'v' refused", AccessDenied),
    (406, "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out", ConnectionLost),
    (320, "CONNECTION_FORCED - broker forced connection closure", ConnectionLost),
    (540, "NOT_IMPLEMENTED - basic.get not supported by stream queues", UsageError),
    (541, "INTERNAL_ERROR", ConnectionLost), (404, "no queue '\x1b[2J'", NotFound),
])  # fmt: skip
def test_a_reply_code_has_its_error_whose_text_steers_no_terminal(
    code: int, text: str, kind: type[BrokerError]
) -> None:
    error = refusal(code, text, shop())
    assert type(error) is kind
    assert ("rabbit.example" in str(error), "\x1b" in str(error)) == (True, False)


LOOKS: dict[str, Callable[[RabbitConnector, Source], Any]] = {
    "doctor": lambda connector, source: connector.inspect(source),
    "pull": lambda connector, source: connector.read(ReadRequest(source, "drain", "pull-1")),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_name_that_is_too_long_is_one_of_no_queue(look: str) -> None:
    with Server(amqp(listen, "Never")) as server, pytest.raises(NotFound, match="at most 255 bytes"):
        LOOKS[look](RabbitConnector(shop(f"amqp://guest@{server.address}/")), Source("o", "shop", "q" * 256))


@pytest.mark.parametrize("look", LOOKS)
def test_a_node_that_takes_the_connection_and_hangs_is_left_for_the_next_after_twice_the_timeout(
    look: str,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hung, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        at = [f"127.0.0.1:{one.getsockname()[1]}" for one in (hung, closed)]
        for nodes, told in ((at, "refused"), (at[:1], r"no answer within 0\.4 s")):
            broker = shop(f"amqp://guest@{','.join(nodes)}/", timeout="200ms")
            with pytest.raises(Unreachable, match=told):
                LOOKS[look](RabbitConnector(broker), Source("o", "shop", "q"))
