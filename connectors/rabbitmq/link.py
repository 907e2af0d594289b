"""How to reach a RabbitMQ node, and what its refusals mean in our words.

Everything that talks to RabbitMQ starts here: `parameters` for a connection, `refusal` for a reply
code of the broker, `as_our_error` for an exception of pika.
"""

import contextlib
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import pika
from pika import SelectConnection, exceptions
from pika.adapters.utils.connection_workflow import AMQPConnectorException, AMQPConnectorStackTimeout
from pika.exceptions import AMQPConnectionError, AMQPError, InvalidFrameError

from dlq.connectors import looks
from dlq.connectors.local import credentials as secrets
from dlq.connectors.net.tls import client_context
from dlq.connectors.rabbitmq.amqp091.codec.frames import MAX_FRAME
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core import units
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
from dlq.core.protocols import name_protocol
from dlq.core.text import for_terminal

_MOST_BYTES = 16 * 2**20
_SECONDS = 60.0


class _BoundedConnection(SelectConnection):  # type: ignore[misc]
    """For questions and small things: so many bytes and seconds in all, then it ends."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._taken = 0
        super().__init__(*arguments, **options)
        self._adapter_call_later(_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if not self.is_closed:
            self._terminate_stream(AMQPConnectionError(f"no answer within {_SECONDS:.0f} s"))

    def _on_data_available(self, data_in: bytes) -> None:
        """What is raised here ends the connection, and whoever waits for it gets the error."""
        self._taken += len(data_in)
        if self._taken == len(data_in) and (name := name_protocol(data_in)) not in (None, "AMQP"):
            raise InvalidFrameError(f"the port speaks {name}, not AMQP")
        if self._taken > _MOST_BYTES:
            raise InvalidFrameError(f"the broker answers a question with more than {_MOST_BYTES >> 20} MiB")
        try:
            super()._on_data_available(data_in)
            size = int.from_bytes(self._frame_buffer[3:7], "big")
            if size > MAX_FRAME:
                raise InvalidFrameError(f"a frame of {size} bytes, more than was agreed on")
        except AMQPError:
            raise
        except Exception as error:
            # KeyError, struct.error, AssertionError, RecursionError, ...: pika believes what it reads.
            hint = "" if self.is_open else "; is this the AMQP port?"
            said = f"what the broker sends cannot be read ({type(error).__name__}){hint}"
            raise InvalidFrameError(said) from error


_HEARTBEAT = 120
"""Seconds. The broker gives up after two of them without a byte, so a slow disk has four minutes."""

_PORTS = {"amqp": 5672, "amqps": 5671}
_STACK = 2
"""Times `timeout`, for TCP, TLS and AMQP's handshake together."""
_TCP = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


def parameters(broker: RabbitBroker) -> list[pika.ConnectionParameters]:
    """Where and how to connect, one for each host of `url`, to be tried in order. Raises ConfigError."""
    place = f"brokers.{broker.name}.url"
    url = urlsplit(broker.url)
    if url.scheme not in _PORTS or not url.netloc:
        raise ConfigError(
            f"{place} = {_shown(broker.url)!r}: write it like amqp://user@host:5672/vhost (or amqps)"
        )
    user, _, hosts = url.netloc.rpartition("@")
    if ":" in user:
        raise ConfigError(f"{place} holds a password; take it out and use password_file, _command or _env")
    context = client_context(broker) if url.scheme == "amqps" else None
    login = login_of(broker)
    return [_one(broker, host, login, url.path, url.scheme, context) for host in hosts.split(",")]


def login_of(broker: RabbitBroker) -> pika.PlainCredentials:
    """Who connects next. Asked for once, however many hosts there are. Raises ConfigError."""
    user = unquote(urlsplit(broker.url).netloc.rpartition("@")[0])
    secret = secrets.password(broker)
    if secret is None and user not in ("", "guest"):
        raise ConfigError(f"brokers.{broker.name} has no password; set password_file, _command or _env")
    return pika.PlainCredentials(user or "guest", "guest" if secret is None else secret)


def named_parameters(broker: RabbitBroker, name: str) -> list[pika.ConnectionParameters]:
    """The same for a connection that the broker's lists are to show by a name."""
    choices = parameters(broker)
    for choice in choices:
        choice.client_properties = {**choice.client_properties, "connection_name": name}
    return choices


def _one(
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
        tcp_options=_TCP,
    )


def _shown(url: str) -> str:
    """A URL without what stands before its @."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.rpartition("@")[2]


def place_of(broker: RabbitBroker) -> str:
    """The broker as error texts name it: shop (rabbit.example:5672, virtual host /)."""
    url = urlsplit(broker.url)
    vhost = unquote(url.path[1:]) or "/"
    return f"{broker.name} ({url.netloc.rpartition('@')[2]}, virtual host {for_terminal(vhost)})"


def connect(broker: RabbitBroker) -> pika.BlockingConnection:
    """A connection for questions and small things. Raises a DlqError that names the broker."""
    return secrets.log_in(broker, lambda: _connected(broker))


def _connected(broker: RabbitBroker) -> pika.BlockingConnection:
    try:
        return pika.BlockingConnection(parameters(broker), _impl_class=_BoundedConnection)
    except (exceptions.AMQPError, AMQPConnectorException, OSError) as error:
        raise as_our_error(error, broker) from error


_CLOSED = re.compile(r"\((\d{3})\) [\"'](.*)[\"']")


@contextlib.contextmanager
def open_connection(broker: RabbitBroker) -> Iterator[pika.BlockingConnection]:
    """A connection for some questions, closed after them; what pika raises within is translated."""
    connection = connect(broker)
    try:
        yield connection
    except exceptions.AMQPError as error:
        raise as_our_error(error, broker) from error
    finally:
        with contextlib.suppress(exceptions.AMQPError):
            connection.close()


def new_channel(connection: pika.BlockingConnection) -> Any:
    """A channel for another question of a look. Raises BrokerError where that takes too long as a whole."""
    looks.check_time("RabbitMQ")
    return connection.channel()


@contextlib.contextmanager
def one_channel(connection: pika.BlockingConnection) -> Iterator[Any]:
    """A channel for some questions, closed after them: a user, or a connection, may have very few."""
    channel = new_channel(connection)
    try:
        yield channel
    finally:
        if channel.is_open:
            channel.close()


def may(new_channel: Callable[[], Any], attempt: Callable[[Any], object]) -> bool:
    """Whether the broker lets the user do this: any answer but 403."""
    channel = new_channel()
    try:
        attempt(channel)
    except exceptions.ChannelClosedByBroker as refused:
        return bool(refused.reply_code != 403)
    channel.close()
    return True


_NODE_IS_DOWN = re.compile("is down or inaccessible|due to timeout|process is stopped")
"""3.10 says so at once, 4.3 after a minute in which it might have come back, the last while a node ends."""
_IN_USE = "exclusive use"
"""With a 403: another consumer has the queue for itself alone."""
_LIES_ON_A_NODE = "the node that it lies on is down or cut off; its letters are there again when that is back"

_LOST = (exceptions.ConnectionWrongStateError, exceptions.ConnectionClosed, exceptions.StreamLostError)
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
    """What to do about a refusal, as the end of its sentence."""
    remedy = next((remedy for said, remedy in _LIMITS.items() if said in text), None)
    remedy = remedy or _HINTS.get(405 if _IN_USE in text else code)
    return (f"; {remedy}" if remedy else "") + (secrets.blanks(broker) if _LOGIN_REFUSED in text else "")


def refusal(code: int, text: str, broker: RabbitBroker) -> DlqError:
    """The reply code and text of a connection.close or channel.close as one of our errors."""
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
    """The same of AMQP 1.0's name and text of an error."""
    first = text.strip().partition("\n")[0]  # Erlang's traces follow
    said = " ".join(for_terminal(part) for part in (first, f"({condition})") if part)
    limited = any(limit in text for limit in _LIMITS)
    kind = AccessDenied if limited else _BY_CONDITION.get(condition, ConnectionLost)
    hint = _hint(403, text, broker) if kind is AccessDenied else ""
    blanks = secrets.blanks(broker) if condition == "amqp:unauthorized-access" and not limited else ""
    return kind(f"{place_of(broker)}: {said}{hint}{blanks}")


def as_our_error(error: BaseException, broker: RabbitBroker) -> DlqError:
    """An exception of pika or of the socket as one of our errors; raise it `from error`."""
    if isinstance(error, exceptions.ConnectionClosedByBroker | exceptions.ChannelClosedByBroker):
        return refusal(error.reply_code, error.reply_text, broker)
    inner = _innermost(error)
    if isinstance(inner, exceptions.ConnectionClosedByBroker):
        return refusal(inner.reply_code, inner.reply_text, broker)
    where = place_of(broker)
    if isinstance(error, exceptions.NoFreeChannels):
        return AccessDenied(f"{where}: the node allows no more channels; {_LIMITS['channel_max']}")
    if isinstance(error, exceptions.ProbableAuthenticationError | exceptions.ProbableAccessDeniedError):
        said = _CLOSED.search(str(error))  # pika keeps the code and the text of the refusal as text only
        if said:
            return refusal(int(said[1]), said[2], broker)
        return AccessDenied(f"{where}: the broker refused the user, the password or the virtual host")
    if isinstance(inner, ssl.SSLError):
        return Unreachable(f"{where}: TLS failed: {_reason(inner)}; is ca_file right, and is it a TLS port?")
    if isinstance(inner, AMQPConnectorStackTimeout):
        seconds = _STACK * units.seconds(broker.timeout)
        return Unreachable(f"{where}: no connection: no answer within {seconds:g} s (is it AMQP's port?)")
    if isinstance(error, _LOST):
        return ConnectionLost(f"{where}: the connection ended: {_reason(inner)}")
    return Unreachable(f"{where}: no connection: {_reason(inner)}")


def _innermost(error: BaseException) -> BaseException:
    """The exception that pika wrapped, however deep, as far as its arguments hold it."""
    for _ in range(5):
        inner = getattr(error, "exception", None) or next(
            (a for a in error.args if isinstance(a, BaseException)), None
        )
        if inner is None:
            return error
        error = inner
    return error


_ANOTHER_PROTOCOL = re.compile(r"the port speaks [\w. ]+, not AMQP")


def _reason(error: BaseException) -> str:
    if told := _ANOTHER_PROTOCOL.search(str(error)):  # pika keeps it within the text of its own errors
        return f"{told[0]}; look at the address"
    if isinstance(error, ssl.SSLError):
        return for_terminal(getattr(error, "verify_message", "") or error.reason or str(error))
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return for_terminal(str(error)) or type(error).__name__
