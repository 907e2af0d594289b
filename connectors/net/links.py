"""What connections whose frames we read ourselves have in common."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from dlq.core.errors import ConnectionLost


class FrameError(ValueError):
    """The bytes are not of the protocol, or more than may come."""


class LinkLostError(Exception):
    """The connection ended without the broker's saying why."""


class ConsumerEndedError(LinkLostError):
    """The broker ended the consumer, over a connection that lives."""


class SilentLinkError(LinkLostError):
    """It is there, and the broker does not do what it was asked for, or takes nothing: it would do no better
    over another one."""


@contextmanager
def name_losses(place: str, connection: str = "the connection") -> Iterator[None]:
    """Turn a link that is lost meanwhile into a ConnectionLost that says where."""
    try:
        yield
    except LinkLostError as error:
        raise ConnectionLost(f"{place}: {connection} ended: {error}") from error


class _Closing(Protocol):
    """What has to be closed."""

    def close(self) -> None:
        """Let go of it."""


@contextmanager
def close_on_failure(connection: _Closing) -> Iterator[None]:
    """Close it where it is not handed on because something fails before: as long as somebody keeps the error
    it would stay open, and the broker would hold letters for it."""
    try:
        yield
    except BaseException:
        connection.close()
        raise
