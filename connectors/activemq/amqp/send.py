"""Replays by AMQP 1.0, of messages that came to Artemis by it: in transactions, each with a marker, as by
STOMP.

What is given to `letter` and `marker` goes to the socket at once: the size of a frame, and how many the
broker takes, are the session's. Markers are looked for by STOMP, so what is sent there must be found here.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from dlq.connectors.activemq.amqp.link import opened_at, refusal
from dlq.connectors.activemq.link.refusals import RolledBack
from dlq.connectors.activemq.link.sockets import Unanswered
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.prove import markers
from dlq.connectors.activemq.records.amqp10 import message_to_send
from dlq.connectors.amqp10.codec import frames, message
from dlq.connectors.amqp10.codec.values import TRUE, binary, described_value, sequence, symbol
from dlq.connectors.amqp10.link.session import Link, Outcome
from dlq.connectors.amqp10.link.transactions import Transactions
from dlq.connectors.base import Outgoing, Target, Writing
from dlq.connectors.net.links import SilentLinkError, name_losses
from dlq.core.errors import AccessDenied, BrokerError, ConnectionLost
from dlq.core.text import for_terminal, shorten

_Told = TypeVar("_Told")
_CAPABILITIES = {"queue": symbol("queue"), "topic": symbol("topic")}
_ANCHORING = "0"
_ROLLED_BACK = ("amqp:transaction:rollback", "amqp:transaction:timeout")
"""What a commit is rejected with where nothing of it is there (part 4, section 4.5.8). Artemis says "failed"
of any exception (ProtonTransactionHandler#onMessage), also of one that came behind the commit."""


class Amqp10Sender:
    """One connection; see `dlq.connectors.activemq.send.Sender`."""

    artemis = True

    def __init__(self, broker: ActiveMQBroker) -> None:
        """Connects. Raises BrokerError."""
        self._broker = broker
        self._session, self.node = opened_at(broker)
        self.place = f"{broker.name} ({self.node})"
        self._transactions = self._call(lambda: Transactions(self._session))
        self._links: dict[Target, Link] = {}
        self._ids: dict[str, bytes] = {}
        self._sent: dict[str, list[int]] = {}
        """Transaction -> its id, and the numbers of what was sent in it and is not answered."""
        self._awaited: dict[str, list[int]] = {}
        """Receipt -> the numbers whose outcomes it stands for."""
        self._refused: dict[str, BrokerError] = {}
        self._commits: set[str] = set()
        """Receipts of commits."""
        self._receipts = 0

    @property
    def writing(self) -> Writing:
        """See `Sender`."""
        return self._session.writing

    @writing.setter
    def writing(self, writing: Writing) -> None:
        self._session.writing = writing

    def guard(self, unsent_seconds: float) -> None:
        """See `Sender`."""
        self._session.guard(unsent_seconds)

    def begin_run(self, plan: str, anchor: str) -> None:
        """Leave the anchor by AMQP; STOMP must find it. Raises ConfigError."""
        done = self.new_receipt()
        self.begin(_ANCHORING)
        self.marker(plan, [markers.marker_body(anchor)], _ANCHORING, self.new_receipt())
        self.commit(_ANCHORING, done)
        self.wait_for(done)
        setting = "amqp_url" if self._broker.amqp_url else "openwire_url"
        markers.check_anchor(self._broker, plan, anchor, self.node, setting)

    def new_receipt(self) -> str:
        """See `Sender`."""
        self._receipts += 1
        return str(self._receipts)

    def begin(self, transaction: str) -> bytes:
        """Begin a transaction of the broker's, which gives its id. Raises ConnectionLost, whatever the broker
        says: it refuses no letter, and its session is over."""
        try:
            self._ids[transaction] = self._call(self._transactions.begin)
        except ConnectionLost:
            raise
        except BrokerError as error:
            raise ConnectionLost(str(error)) from error
        self._sent[transaction] = []
        return b""

    def letter(self, letter: Outgoing, transaction: str) -> bytes:
        """Send the message, its bare message as it was."""
        link = self._call(lambda: self._link_to(letter.target))
        try:
            encoded = message_to_send(letter.record, letter.provenance, letter.keep_headers)
        except ValueError as error:
            raise ValueError(f"it cannot be encoded: {error}") from error
        if len(encoded) > link.most_bytes:
            raise ValueError(f"{len(encoded)} bytes are more than {self.place} takes ({link.most_bytes})")
        self._give(link, encoded, transaction)
        return b""

    def marker(self, plan: str, bodies: Sequence[bytes], transaction: str, receipt: str) -> bytes:
        """Persistent messages into the plan's queue."""
        header = described_value(message.HEADER, sequence([TRUE]))
        for body in bodies:
            link = self._call(lambda: self._link_to(Target("queue", markers.marker_queue(plan))))
            self._give(link, header + described_value(message.DATA, binary(body)), transaction)
        self._awaited[receipt] = self._sent.pop(transaction)
        return b""

    def commit(self, transaction: str, receipt: str) -> bytes:
        """Ask for the commit."""
        ended = self._call(lambda: self._transactions.end(self._ids.pop(transaction)))
        self._awaited[receipt] = [ended]
        self._commits.add(receipt)
        return b""

    def _give(self, link: Link, encoded: bytes, transaction: str) -> None:
        state = frames.in_transaction(self._ids[transaction])
        self._sent[transaction].append(self._call(lambda: self._session.send(link, encoded, state)))

    def _link_to(self, target: Target) -> Link:
        """Return the link to a target, with credit."""
        if target not in self._links:
            there = frames.terminus(frames.SENDER, target.name, _CAPABILITIES[target.kind])
            self._links[target] = self._session.attach_to(frames.SENDER, there)
        link = self._links[target]
        try:
            self._session.wait_until(lambda: link.credit > 0)
        except SilentLinkError as error:
            raise SilentLinkError(f"it takes nothing for {target}: {error}") from error
        return link

    def send(self, data: bytes) -> None:
        """Send nothing: everything was sent when it was made."""

    def wait_for(self, receipt: str) -> None:
        """Wait until all that the receipt stands for is answered. Raises what the broker refused, each
        time; an error that ends its side says nothing of a commit."""
        if receipt in self._refused:
            raise self._refused[receipt]
        numbers = self._awaited.pop(receipt)
        try:
            outcomes = self._call(lambda: self._transactions.outcomes_of(numbers))
        except BrokerError as error:
            if receipt not in self._commits:
                raise
            raise ConnectionLost(str(error)) from error
        odd = next((outcome for outcome in outcomes if outcome.code != frames.ACCEPTED), None)
        if odd is None:
            return
        if receipt in self._commits and not (odd.code == frames.REJECTED and odd.condition in _ROLLED_BACK):
            said = shorten(for_terminal(odd.detail or odd.condition), 300) or f"{odd.code:#x}"
            raise ConnectionLost(f"{self.place}: a commit is answered by {said}, which says nothing")
        self._refused[receipt] = self._refusal(odd)
        raise self._refused[receipt]

    def _refusal(self, outcome: Outcome) -> BrokerError:
        said = outcome.detail or f"outcome {outcome.code:#x}"
        error = refusal(self.place, outcome.condition, said)
        meaning = AccessDenied if isinstance(error, AccessDenied) else RolledBack
        return meaning(str(error))

    def was_refused(self, receipt: str) -> bool:
        """Return whether it was the command with this receipt that was refused."""
        return receipt in self._refused

    def _call(self, step: Callable[[], _Told]) -> _Told:
        try:
            with name_losses(self.place, "the connection of AMQP 1.0"):
                return step()
        except ConnectionLost as error:
            if isinstance(error.__cause__, SilentLinkError):
                raise Unanswered(str(error)) from error
            raise

    def trail(self, plan: str) -> markers.Trail:
        """Open the trail over a connection by STOMP."""
        return markers.trail_by_stomp(self._broker, plan)

    def forget(self, plan: str) -> None:
        """Acknowledge them, by STOMP."""
        markers.remove_by_stomp(self._broker, plan)

    def close(self) -> None:
        """Let go of the connection, and of transactions that are open; never raises."""
        self._session.close()
