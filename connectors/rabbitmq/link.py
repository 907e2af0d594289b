"""How to reach a RabbitMQ node, and what its refusals mean in our words.

Everything that talks to RabbitMQ starts here: `parameters` for a connection, `refusal` for a reply code of
the broker, `connecting` and `connection_lost` for what the socket met with.
"""

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

import pika

from dlq.connectors.local import credentials as secrets
from dlq.connectors.net.links import LinkLostError
from dlq.connectors.net.tls import client_context
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.wire import why_unreachable
from dlq.core.errors import (
    AccessDenied,
    BrokerError,
    ConfigError,
    ConnectionLost,
    DlqError,
    NodeDown,
    NotFound,
    Unreachable,
    UsageError,
)
from dlq.core.text import for_terminal
from dlq.core.values import units

_HEARTBEAT = 120
"""Seconds. The broker gives up after two of them without a byte, so a slow disk has four minutes."""

_PORTS = {"amqp": 5672, "amqps": 5671}
_STACK = 2
"""Times `timeout`, for TCP, TLS and AMQP's handshake together."""


def parameters(broker: RabbitBroker) -> list[pika.ConnectionParameters]:
    """Return where and how to connect: each host of `url`, to be tried in order. Raises ConfigError."""
    place = f"brokers.{broker.name}.url"
    url = urlsplit(broker.url)
    if url.scheme not in _PORTS or not url.netloc:
        raise ConfigError(
            f"{place} = {_redact(broker.url)!r}: write it like amqp://user@host:5672/vhost (or amqps)"
        )
    user, _, hosts = url.netloc.rpartition("@")
    if ":" in user:
        raise ConfigError(f"{place} holds a password; remove it, and set password_file, _command or _env")
    context = client_context(broker) if url.scheme == "amqps" else None
    login = login_of(broker)
    return [_parameters(broker, host, login, url.path, url.scheme, context) for host in hosts.split(",")]


def login_of(broker: RabbitBroker) -> pika.PlainCredentials:
    """Return who connects next. Asked for once, however many hosts there are. Raises ConfigError."""
    user = unquote(urlsplit(broker.url).netloc.rpartition("@")[0])
    secret = secrets.password(broker)
    if secret is None and user not in ("", "guest"):
        raise ConfigError(f"brokers.{broker.name} has no password; set password_file, _command or _env")
    return pika.PlainCredentials(user or "guest", "guest" if secret is None else secret)


def named_parameters(broker: RabbitBroker, name: str) -> list[pika.ConnectionParameters]:
    """Return the same for a connection that the broker's lists are to show by a name."""
    choices = parameters(broker)
    for choice in choices:
        choice.client_properties = {**choice.client_properties, "connection_name": name}
    return choices


def _parameters(
    broker: RabbitBroker,
    address: str,
    login: pika.PlainCredentials,
    path: str,
    scheme: str,
    context: ssl.SSLContext | None,
) -> pika.ConnectionParameters:
    try:
        host = urlsplit(f"//{address}")
        name, port = host.hostname, host.port or _PORTS[scheme]
    except ValueError as error:
        raise ConfigError(f"brokers.{broker.name}.url: {address!r} is no host:port; write one") from error
    if not name:
        raise ConfigError(f"brokers.{broker.name}.url has an empty host name; write one")
    timeout = units.seconds(broker.timeout)
    return pika.ConnectionParameters(
        host=name,
        port=port,
        virtual_host=unquote(path[1:]) or "/",
        credentials=login,
        ssl_options=pika.SSLOptions(context, name) if context else None,
        heartbeat=_HEARTBEAT,
        socket_timeout=timeout,
        stack_timeout=_STACK * timeout,
        blocked_connection_timeout=None,
        client_properties={"connection_name": "dlq", "product": "dlq"},
    )


def _redact(url: str) -> str:
    """Return a URL without what stands before its @."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.rpartition("@")[2]


def place_of(broker: RabbitBroker) -> str:
    """Return the broker as error texts name it: shop (rabbit.example:5672, virtual host /)."""
    url = urlsplit(broker.url)
    vhost = unquote(url.path[1:]) or "/"
    return f"{broker.name} ({url.netloc.rpartition('@')[2]}, virtual host {for_terminal(vhost)})"


_NODE_IS_DOWN = re.compile("is down or inaccessible|due to timeout|process is stopped")
"""3.10 says so at once, 4.3 after a minute in which it might have come back, the last while a node ends."""
_IN_USE = "exclusive use"
"""With a 403: another consumer has the queue for itself alone."""
_LIES_ON_A_NODE = "the node that it lies on is down or cut off; its letters are there again when that is back"

_BY_CODE: Mapping[int, type[BrokerError]] = {
    402: AccessDenied, 403: AccessDenied, 404: NotFound, 405: AccessDenied, 530: AccessDenied,
}  # fmt: skip
_HINTS = {
    403: "check the user, the password and its rights (rabbitmqctl list_permissions)",
    405: "another connection holds it exclusively; read it from there or wait until that one ends",
    320: "the broker is shutting down or an operator closed the connection",
    541: "the broker failed inside; see its log (4.3 does over a refusal longer than 255 bytes with a name "
    "beyond ASCII: then a right is missing, or the queue is exclusive or not there)",
}
_LIMITS = {
    "user connection limit": "end some of the user's connections, or raise its max-connections (rabbitmqctl "
    "set_user_limits); dlq has up to 3 at a time",
    "channels opened for user": "end some of the user's connections, or raise its max-channels (rabbitmqctl "
    "set_user_limits); dlq has one a connection",
    "node connection limit": "end some connections, or raise connection_max of the node",
    "connection limit": "end some of the virtual host's connections, or raise its max-connections "
    "(rabbitmqctl set_vhost_limits); dlq has up to 3 at a time",
    "channels opened on node": "end some connections, or raise channel_max_per_node of the node",
    "channel_max": "raise channel_max of the node",
    "queue limit": "delete queues, raise max-queues (rabbitmqctl set_vhost_limits), or go without a witness, "
    "which is a queue",
    "exchange limit": "delete exchanges, raise cluster_exchange_limit, or go without a witness, which is one",
    "consumers per channel": "raise consumer_max_per_channel of the node",
}
"""What a refusal says of a limit (seen on 3.10.8 and 4.3.6) -> what to do; the first that fits."""
_LOGIN_REFUSED = "Login was refused"


def _hint(code: int, text: str, broker: RabbitBroker) -> str:
    """Return what to do about a refusal, as the end of its sentence."""
    remedy = next((remedy for said, remedy in _LIMITS.items() if said in text), None)
    remedy = remedy or _HINTS.get(405 if _IN_USE in text else code)
    return (f"; {remedy}" if remedy else "") + (secrets.blanks(broker) if _LOGIN_REFUSED in text else "")


def refusal(code: int, text: str, broker: RabbitBroker) -> DlqError:
    """Return the reply code and text of a connection.close or channel.close as one of our errors."""
    said = for_terminal(text).strip()
    where = place_of(broker)
    if code == 530 and "not found" in text:
        return NotFound(f"{where}: there is no such virtual host: {said}")
    if code == 404 and _NODE_IS_DOWN.search(text):
        return NodeDown(f"{where}: {said}; {_LIES_ON_A_NODE}")
    if code == 540:
        return UsageError(
            f"{where}: the broker cannot do this with a queue of this type (a stream?): {said}"
            "; choose another queue"
        )
    if code == 406 and "timed out" in text:
        return ConnectionLost(
            f"{where}: the broker's consumer timeout ran out before the letters were acknowledged; "
            f"use a smaller --limit or a longer consumer_timeout: {said}"
        )
    kind = AccessDenied if any(limit in text for limit in _LIMITS) else _BY_CODE.get(code, ConnectionLost)
    return kind(f"{where}: {said} ({code}){_hint(code, text, broker)}")


_BY_CONDITION: Mapping[str, type[BrokerError]] = {
    "amqp:unauthorized-access": AccessDenied,
    "amqp:not-allowed": AccessDenied,
    "amqp:resource-locked": AccessDenied,
    "amqp:not-found": NotFound,
    "amqp:resource-deleted": NotFound,
}


def refusal_10(condition: str, text: str, broker: RabbitBroker) -> DlqError:
    """Return the same of AMQP 1.0's name and text of an error."""
    first = text.strip().partition("\n")[0]  # Erlang's traces follow
    said = " ".join(for_terminal(part) for part in (first, f"({condition})") if part)
    limited = any(limit in text for limit in _LIMITS)
    kind = AccessDenied if limited else _BY_CONDITION.get(condition, ConnectionLost)
    hint = _hint(403, text, broker) if kind is AccessDenied else ""
    blanks = secrets.blanks(broker) if condition == "amqp:unauthorized-access" and not limited else ""
    return kind(f"{place_of(broker)}: {said}{hint}{blanks}")


@contextmanager
def connecting(broker: RabbitBroker) -> Iterator[None]:
    """Make one of our errors of what a socket meets with before there is a connection."""
    try:
        yield
    except (OSError, LinkLostError) as error:
        why = why_unreachable(error) if isinstance(error, OSError) else error
        raise Unreachable(f"{place_of(broker)}: no connection: {why}") from error


def connection_lost(error: LinkLostError, broker: RabbitBroker) -> ConnectionLost:
    """Return how it ended; raise it `from error`."""
    return ConnectionLost(f"{place_of(broker)}: the connection ended: {error}")
