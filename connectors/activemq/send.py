"""What a replay needs of a connection, whatever it speaks, and how it is said in STOMP."""

from collections.abc import Sequence
from typing import Protocol

from dlq.connectors.activemq.prove.markers import Trail, leave_anchor, marker, remove, trail
from dlq.connectors.activemq.republish import wire
from dlq.connectors.activemq.stomp.codec import encode
from dlq.connectors.activemq.stomp.link import Link
from dlq.connectors.base import Outgoing, Writing


class Sender(Protocol):
    """A connection that sends transactions; each command is made first, then sent with others.

    A *receipt* is asked for with a command and comes when the broker has done it and all before it.
    `send` and `wait_for` raise ConnectionLost, and BrokerError for what the broker refuses.
    """

    writing: Writing
    """Asked before anything goes to the socket."""

    @property
    def artemis(self) -> bool:
        """Whether the other side is Artemis."""

    @property
    def node(self) -> str:
        """host:port of the other side."""

    def begin_run(self, plan: str, anchor: str) -> None:
        """Leave an anchor of this name, before a letter is sent, and make sure that it will be found. Raises
        BrokerError, ConfigError."""

    def new_receipt(self) -> str:
        """Return an id for a command's receipt."""

    def begin(self, transaction: str) -> bytes:
        """Return the command that begins a transaction; its name is a number. Raises ConnectionLost."""

    def letter(self, letter: Outgoing, transaction: str) -> bytes:
        """Return the command that sends a letter. Raises ValueError, with the reason, before anything of it
        is written: it is refused then."""

    def marker(self, plan: str, bodies: Sequence[bytes], transaction: str, receipt: str) -> bytes:
        """Return the commands that send a transaction's marker and its link (see `prove`), with a receipt."""

    def commit(self, transaction: str, receipt: str) -> bytes:
        """Return the command that commits."""

    def trail(self, plan: str) -> Trail:
        """Return what the plan's markers say, while no transaction is open. Raises BrokerError."""

    def forget(self, plan: str) -> None:
        """Take the plan's markers away. Raises BrokerError."""

    def guard(self, unsent_seconds: float) -> None:
        """See `outbound.guard`."""

    def send(self, data: bytes) -> None:
        """Write commands."""

    def wait_for(self, receipt: str) -> None:
        """Wait until this receipt is here, or anything was refused."""

    def was_refused(self, receipt: str) -> bool:
        """Return whether it was the command with this receipt that was refused."""

    def close(self) -> None:
        """Let go of the connection; never raises."""


class StompSender(Link):
    """A STOMP connection that sends transactions."""

    def begin_run(self, plan: str, anchor: str) -> None:
        """Write to the plan's queue of markers."""
        leave_anchor(self, plan, anchor)

    def trail(self, plan: str) -> Trail:
        """Open the trail over this connection."""
        return trail(self, plan)

    def forget(self, plan: str) -> None:
        """Acknowledge them."""
        remove(self, plan)

    def begin(self, transaction: str) -> bytes:
        """Return a BEGIN frame."""
        return encode("BEGIN", {"transaction": transaction})

    def letter(self, letter: Outgoing, transaction: str) -> bytes:
        """Return a SEND frame with the headers as they were archived, but for what must not be sent again."""
        return wire(letter, transaction, self.artemis)

    def marker(self, plan: str, bodies: Sequence[bytes], transaction: str, receipt: str) -> bytes:
        """SEND frames to the plan's queue."""
        *others, last = bodies
        first = [marker(plan, body, transaction, "", self.artemis) for body in others]
        return b"".join([*first, marker(plan, last, transaction, receipt, self.artemis)])

    def commit(self, transaction: str, receipt: str) -> bytes:
        """Return a COMMIT frame with a receipt."""
        return encode("COMMIT", {"transaction": transaction, "receipt": receipt})
