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
from dlq.connectors.rabbitmq.look.topology import Topology, limit_in_force, version_of
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


@pytest.mark.parametrize(("url", "host", "port", "vhost"), [
    ("amqp://guest@rabbit.example", "rabbit.example", 5672, "/"),
    ("amqp://guest@rabbit.example/", "rabbit.example", 5672, "/"),
    ("amqp://guest@rabbit.example:5673/%2F", "rabbit.example", 5673, "/"),
    ("amqp://rabbit.example/a%2Fb%20c", "rabbit.example", 5672, "a/b c"),
    ("amqps://guest@[::1]/shop", "::1", 5671, "shop"),
])  # fmt: skip
def test_a_url_says_host_port_and_virtual_host(url: str, host: str, port: int, vhost: str) -> None:
    [found] = parameters(shop(url))
    assert (found.host, found.port, found.virtual_host) == (host, port, vhost)
    assert bool(found.ssl_options) == url.startswith("amqps")


def test_several_hosts_are_tried_in_order() -> None:
    found = parameters(shop("amqp://guest@one:1,two,[::1]:3/v"))
    assert [(choice.host, choice.port) for choice in found] == [("one", 1), ("two", 5672), ("::1", 3)]


@pytest.mark.parametrize(
    "url", ["", "rabbit.example", "http://rabbit.example", "amqp://", "amqp://h:port/", "amqp://u:secret@h/"]
)
def test_a_wrong_url_is_named_without_its_secret(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parameters(shop(url))
    assert "brokers.shop" in str(caught.value)
    assert "secret@" not in str(caught.value)


def test_a_user_without_password_is_told_where_to_put_it() -> None:
    with pytest.raises(ConfigError, match="password_file"):
        parameters(shop("amqp://dlq@rabbit.example/"))


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


@pytest.mark.parametrize(("settings", "reason"), [
    ({"password_file": "/nowhere/secret"}, "No such file"),
    ({"password_command": ("false",)}, "exit code 1"),
    ({"password_command": ("/nowhere/command",)}, "cannot run"),
    ({"password_command": ("printf", r"\377")}, "not UTF-8"),
    ({"password_command": ()}, "is empty"),
    ({"password_env": "DLQ_NO_SUCH_VARIABLE"}, "not set"),
])  # fmt: skip
def test_a_secret_that_cannot_be_had_is_one_line(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        credentials.password(shop(**settings))
    assert str(caught.value).startswith("brokers.shop.password_")
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
    (541, "INTERNAL_ERROR", ConnectionLost),
])  # fmt: skip
def test_a_reply_code_has_its_error(code: int, text: str, kind: type[BrokerError]) -> None:
    error = refusal(code, text, shop())
    assert type(error) is kind
    assert "rabbit.example" in str(error)


def test_texts_of_the_broker_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in str(refusal(404, "no queue '\x1b[2J'", shop()))


@each_row(("kind", "argument", "policy", "version", "limit"), [
    ("classic", 5, None, "4.3.6", None), ("quorum", None, None, "3.10.8", None),
    ("quorum", None, None, "4.0.5", 20), ("quorum", 5, 3, "3.10.8", 3), ("quorum", 5, 9, "4.3.6", 5),
    ("quorum", -1, None, "4.3.6", None), ("quorum", -1, 7, "4.3.6", 7), ("quorum", -1, None, "3.10.8", -1),
])  # fmt: skip
def test_the_delivery_limit_in_force(
    kind: str, argument: int | None, policy: int | None, version: str, limit: int | None
) -> None:
    arguments = {} if argument is None else {"x-delivery-limit": argument}
    policies = {} if policy is None else {"delivery-limit": policy}
    assert limit_in_force(kind, arguments, policies, version_of(version)) == limit


def test_the_smaller_of_an_argument_and_a_policy_is_in_force() -> None:
    both = Topology(arguments={"x-message-ttl": 500, "x-overflow": "drop-head"}, policy={"message-ttl": 90})
    assert (both.setting("message-ttl"), both.setting("overflow"), both.setting("expires")) == (
        90,
        "drop-head",
        None,
    )


LOOKS: dict[str, Callable[[RabbitConnector, Source], Any]] = {
    "doctor": lambda connector, source: connector.inspect(source),
    "pull": lambda connector, source: connector.read(ReadRequest(source, "drain", "pull-1")),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_name_that_is_too_long_is_one_of_no_queue(look: str) -> None:
    with Server(amqp(listen, "Never")) as server, pytest.raises(NotFound, match="at most 255 bytes"):
        LOOKS[look](RabbitConnector(shop(f"amqp://guest@{server.address}/")), Source("o", "shop", "q" * 256))


@pytest.mark.parametrize("look", LOOKS)
def test_the_next_node_is_tried_when_one_takes_the_connection_and_hangs(look: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hung, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nodes = ",".join(f"127.0.0.1:{one.getsockname()[1]}" for one in (hung, closed))
        with pytest.raises(Unreachable, match="refused"):
            LOOKS[look](
                RabbitConnector(shop(f"amqp://guest@{nodes}/", timeout="200ms")), Source("o", "shop", "q")
            )


@pytest.mark.parametrize("look", LOOKS)
def test_a_node_that_takes_the_connection_and_hangs_is_unreachable_after_twice_the_timeout(look: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hung:
        broker = shop(f"amqp://guest@127.0.0.1:{hung.getsockname()[1]}/", timeout="200ms")
        with pytest.raises(Unreachable, match=r"no answer within 0\.4 s"):
            LOOKS[look](RabbitConnector(broker), Source("orders", "shop", queue="orders.dlq"))
