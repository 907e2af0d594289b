"""The messages of an Artemis queue that came by AMQP 1.0, read by it as they are; others are left to STOMP.

Artemis keeps both kinds in one queue. To STOMP it converts those of AMQP 1.0, and over one that it cannot
convert (a property of type UUID, or a time; a map that holds a list) it removes the consumer without a word
(2.56.0), and counts a delivery for each letter in flight. So a selector keeps the kinds apart: only messages
of AMQP 1.0 have the property `_AMQ_AD`, in which Artemis keeps their address.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from dlq.connectors.activemq.amqp.link import open_session
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.amqp10.codec import frames
from dlq.connectors.amqp10.codec.values import NULL, mapping, string, symbol
from dlq.connectors.amqp10.link.session import Delivery
from dlq.connectors.amqp10.link.transactions import Transactions
from dlq.connectors.amqp10.read import SessionReading, runs
from dlq.connectors.base import Batch, ReadRequest, Skipped
from dlq.connectors.net.links import LinkLostError, name_losses
from dlq.connectors.queue import until_acknowledged
from dlq.core.record import Record

OF_AMQP, OTHERS = "_AMQ_AD IS NOT NULL", "_AMQ_AD IS NULL"
"""Selectors."""
_FILTER = symbol("apache.org:selector-filter:string")


class ArtemisReading(SessionReading):
    """Read what came by AMQP 1.0."""

    wanted = (mapping([_FILTER + b"\0" + _FILTER + string(OF_AMQP)]), NULL, NULL, symbol("queue"))
    """Called a queue, as of a subscription Artemis takes no other filter than that with which it was made
    (DefaultSenderController#getMatchingQueue); so is one that it makes for the dead by itself."""
    quiet_seconds = 0.5
    """A large message is sent behind Artemis' word that there is no more for now, so it is asked again."""

    def __init__(
        self,
        broker: ActiveMQBroker,
        request: ReadRequest,
        address: str,
        make: Callable[[bytes], Record],
        goal: int | None,
    ) -> None:
        """Connect. Raises BrokerError."""
        losses = partial(name_losses, broker.name, "the connection of AMQP 1.0")
        super().__init__(open_session(broker), request, None, goal, losses)
        self.address, self._make_record = address, make
        self._transactions: Transactions | None = None
        self._committing: int | None = None
        """The number of a commit."""

    def sort(self, letter: Delivery, taken: list[Record], skipped: list[Skipped]) -> None:
        """Take what can be read; the rest stays."""
        self.count(letter)
        try:
            self.take(taken, self._make_record(letter.message), letter.number)
        except ValueError as error:
            self._others.append(letter.number)
            why = f"a message of AMQP 1.0 that cannot be read: {error}"
            skipped.append(Skipped(f"number {self.seen} of AMQP 1.0", why))

    def finish(self) -> Iterator[Batch]:
        """Wait in a drain until what was brought is acknowledged, before it goes on elsewhere."""
        if self._request.mode == "drain":
            for batch in until_acknowledged(lambda: self._owed, self.position):
                self.stay_alive()
                yield batch

    def remove(self, numbers: Sequence[int]) -> None:
        """Accept them in a transaction, whose commit the broker answers when it is on its disk."""
        self.await_removal()
        transactions = self._transactions = self._transactions or Transactions(self._session)
        transaction = transactions.begin()
        self._settle(numbers, frames.in_transaction(transaction, frames.ACCEPTED))
        self._committing = transactions.end(transaction)

    def await_removal(self) -> None:
        """Wait until the commit is answered."""
        if self._committing is not None and self._transactions is not None:
            outcome = self._transactions.outcome_of(self._committing)
            if outcome.code != frames.ACCEPTED:
                raise LinkLostError(f"the broker did not take the acknowledgements: {outcome.detail}")
            self._committing = None

    def give_back(self, numbers: Iterable[int]) -> None:
        """Release them, which Artemis does not answer."""
        self._settle(numbers, frames.state(frames.RELEASED))

    def _settle(self, numbers: Iterable[int], state: bytes) -> None:
        for first, last in runs(numbers):
            self._session.settle_unanswered(first, last, state)
