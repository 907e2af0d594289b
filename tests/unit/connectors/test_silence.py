"""A connection that the kernel has given up is said to have timed out, not to have been closed."""

import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest

from dlq.connectors.activemq.openwire_connection import OpenWireConnection
from dlq.connectors.activemq.stomp_connection import Link as StompLink
from dlq.connectors.amqp10.session import Session
from dlq.connectors.links import LinkLostError
from dlq.connectors.rabbitmq.amqp.link import Link as AmqpLink
from dlq.connectors.rocketmq.connection import Link as RocketLink


class GivenUp(socket.socket):
    """Its peer has acknowledged nothing for too long: the error comes once."""

    def __init__(self) -> None:
        super().__init__()
        self._errors = [TimeoutError("timed out"), TimeoutError(errno.ETIMEDOUT, "Connection timed out")]

    def recv(self, _most: int, _flags: int = 0) -> bytes:
        if self._errors:
            raise self._errors.pop(0)
        return b""


READ: dict[type[Any], Callable[[Any], object]] = {
    AmqpLink: lambda link: link.receive(0.001),
    Session: lambda session: session.turn(0.001),
    StompLink: lambda link: link._read(0.001),
    OpenWireConnection: lambda connection: connection._read(0.001),
    RocketLink: lambda link: link._read(0.001),
}


@pytest.mark.parametrize("kind", READ)
def test_a_connection_that_the_kernel_gave_up_has_timed_out(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = object.__new__(kind)
    seconds = dict.fromkeys(("_last_sent", "heartbeat", "_beat_seconds", "_timeout", "timeout"), 1e6)
    for name, value in {"_socket": GivenUp(), "_inbox": [], **seconds}.items():
        monkeypatch.setattr(link, name, value, raising=False)
    monkeypatch.setattr(kind, "_check_silence", lambda _link: None, raising=False)
    monkeypatch.setattr(kind, "_lost", lambda _link, why: LinkLostError(str(why)), raising=False)
    assert not READ[kind](link)
    with pytest.raises(LinkLostError, match="timed out"):
        READ[kind](link)
