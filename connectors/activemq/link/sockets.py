"""The way to an ActiveMQ broker: where its `url`s point, which host answers, and how a connection ends."""

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from dlq.connectors.activemq.link.refusals import UNSAID, RolledBack
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.local import credentials
from dlq.connectors.net.tls import client_context
from dlq.connectors.wire import Peer, Wire, connect, why_unreachable
from dlq.core.errors import BrokerError, ConfigError, ConnectionLost, Unreachable
from dlq.core.values import units

_STOMP = {"stomp": 61613, "stomp+tls": 61614, "stomp+ssl": 61614}
_OPENWIRE = {"tcp": 61616, "ssl": 61617}
_AMQP = {"amqp": 5672, "amqps": 5671}
"""Schemes and their usual ports; the first is without TLS."""

PATIENCE = 3
"""Time-outs that an answer may take."""
REASON_SECONDS = 0.5


class Address(NamedTuple):
    """What a broker's `url` says."""

    hosts: list[tuple[str, int]]
    user: str
    tls: bool


def is_openwire(broker: ActiveMQBroker) -> bool:
    """Return whether its `url` is one of OpenWire: STOMP is not spoken at all."""
    return urlsplit(broker.url).scheme in _OPENWIRE


def by_openwire(broker: ActiveMQBroker) -> bool:
    """Return whether letters come and go by OpenWire."""
    return broker.openwire_url is not None or is_openwire(broker)


def address_of(broker: ActiveMQBroker) -> Address:
    """Parse `stomp://user@host:port,host:port` (or stomp+tls, tcp, ssl). Raises ConfigError."""
    example = "stomp://user@host:61613 or stomp+tls://host1:61614,host2:61614, on Classic tcp:// or ssl://"
    schemes = _OPENWIRE if is_openwire(broker) else _STOMP
    return _address(f"brokers.{broker.name}.url", broker.url, schemes, example)


def openwire_address_of(broker: ActiveMQBroker) -> Address:
    """Parse `tcp://host:port,host:port` (or ssl); the user is that of `url`. Raises ConfigError."""
    if is_openwire(broker):
        if broker.openwire_url:
            raise ConfigError(f"brokers.{broker.name}: url is of OpenWire, too; take openwire_url out")
        return address_of(broker)
    example = "tcp://host:61616 or ssl://host1:61617,host2:61617"
    return _beside_url(broker, "openwire_url", broker.openwire_url or "", _OPENWIRE, example)


def amqp_address_of(broker: ActiveMQBroker) -> Address | None:
    """Return where AMQP 1.0 may be spoken: `amqp_url`, like `amqp://host:5672,host:5672` (or amqps), or the
    address of `openwire_url`, as an acceptor of Artemis speaks all protocols unless it is told which. The
    user is that of `url`. Raises ConfigError."""
    if not broker.amqp_url:
        return openwire_address_of(broker) if broker.openwire_url else None
    example = "amqp://host:5672 or amqps://host1:5671,host2:5671"
    return _beside_url(broker, "amqp_url", broker.amqp_url, _AMQP, example)


def _beside_url(
    broker: ActiveMQBroker, setting: str, text: str, ports: Mapping[str, int], example: str
) -> Address:
    place = f"brokers.{broker.name}.{setting}"
    found = _address(place, text, ports, example)
    if found.user:
        raise ConfigError(f"{place} names a user; the user of url is taken: write it like {example}")
    return found._replace(user=address_of(broker).user)


def _address(place: str, text: str, ports: Mapping[str, int], example: str) -> Address:
    url = urlsplit(text)
    if url.scheme not in ports or not url.netloc:
        raise ConfigError(f"{place}: write it like {example}")
    user, _, hosts = url.netloc.rpartition("@")
    if ":" in user:
        raise ConfigError(f"{place} holds a password; take it out and use password_file, _command or _env")
    found = [_host(place, host, ports[url.scheme]) for host in hosts.split(",")]
    return Address(found, unquote(user), url.scheme != next(iter(ports)))


def password_for(broker: ActiveMQBroker, user: str) -> str | None:
    """Return the broker's password. Raises ConfigError where there is a user and none."""
    secret = credentials.password(broker)
    if secret is None and user:
        raise ConfigError(f"brokers.{broker.name} has no password; set password_file, _command or _env")
    return secret


def _host(place: str, text: str, port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        name, given = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{place}: {text!r} is no host:port; write one") from error
    if not name:
        raise ConfigError(f"{place} has an empty host name; write one")
    return name, given or port


def first_that_answers(broker: ActiveMQBroker, address: Address, connect: Callable[[Address], None]) -> None:
    """`connect` to one host after the other, until one of them answers: a broker that hangs, or is being
    stopped, may take a connection and say nothing. Raises what the last one raised."""
    for host in address.hosts:
        try:
            credentials.log_in(broker, partial(connect, address._replace(hosts=[host])))
        except (Unreachable, ConnectionLost):
            if host is address.hosts[-1]:
                raise
        else:
            return


def open_socket(broker: ActiveMQBroker, address: Address) -> tuple[socket.socket, str]:
    """Return a connected socket, and its host:port; `address` has one. Raises ConfigError, Unreachable."""
    [(host, port)] = address.hosts
    node = f"{host}:{port}"
    tls = client_context(broker) if address.tls else None
    try:
        return connect(host, port, units.seconds(broker.timeout), tls), node
    except OSError as error:
        why = why_unreachable(error)
        raise Unreachable(f"{broker.name} ({node}): no connection: {why}") from error


class Unanswered(ConnectionLost):
    """The connection is there, and the broker does not do what it was asked for."""


class BrokerWire(Wire):
    """A connection to one host of a broker; its errors name both."""

    def __init__(self, broker: ActiveMQBroker, address: Address, protocol: str, setting: str) -> None:
        """`setting`: which one of the broker names the address. Raises ConfigError, Unreachable."""
        opened, self.node = open_socket(broker, address)
        self.broker, self.timeout = broker, units.seconds(broker.timeout)
        self.unsaid = UNSAID.format(protocol)
        patience = PATIENCE * self.timeout
        named_by = f"brokers.{broker.name}.{setting}"
        super().__init__(opened, Peer(self.node, protocol, named_by, self.timeout, patience, patience))

    @property
    def place(self) -> str:
        """The broker as error texts name it."""
        return f"{self.broker.name} ({self.node})"

    def explain(self, refused: BrokerError, others: Mapping[Any, BrokerError]) -> BrokerError:
        """Return a rollback with its reason. Classic says which letter it refused from another thread, maybe
        after COMMIT's answer: `others`, all refusals until now, grows by what is read."""
        if not isinstance(refused, RolledBack):
            return refused

        def reasons() -> list[BrokerError]:
            return [error for error in others.values() if not isinstance(error, RolledBack)]

        until = time.monotonic() + REASON_SECONDS
        with suppress(BrokerError):  # the reason, which is kept, or the end of the connection
            while not reasons() and time.monotonic() < until:
                self.read(REASON_SECONDS)
        return RolledBack(f"{reasons()[0]} ({refused})") if reasons() else refused

    def tell_end(self, why: str) -> ConnectionLost:
        """See `Wire`."""
        return ConnectionLost(f"{self.place}: the connection ended: {why}")

    def tell_silence(self, why: str) -> Unreachable | Unanswered:
        """See `Wire`."""
        if not self.has_spoken:
            return Unreachable(f"{self.place}: {why}")
        return Unanswered(f"{self.place}: {why}; a memory or store limit holds producers back, or it hangs")
