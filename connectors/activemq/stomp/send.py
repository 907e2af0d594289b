"""Publishing in transactions of a hundred letters and a marker, three at a time; on Artemis of two hundred.

BEGIN, the SENDs and the marker go out at once; COMMIT only when the marker's receipt says that the broker
took all of them, and when the transaction before is committed, which keeps the order. A broker does one
thing at a time for a connection, so transactions take two in turn: while it commits on one, it reads the
next from the other. A receipt on every SEND would be six to ten times slower. When the broker refuses
something, or ends a connection, all that is not being committed is given up and sent again, in the end one
by one, so that only the culprit is refused. A connection that ends takes what is not committed with it, so
only a letter whose COMMIT may have been sent may be at the broker.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dlq.connectors.activemq.link.refusals import CommitFailed, RolledBack
from dlq.connectors.activemq.link.sockets import Unanswered
from dlq.connectors.activemq.prove.evidence import Run
from dlq.connectors.activemq.prove.markers import marker_bodies, marker_queue, new_run
from dlq.connectors.activemq.prove.routing import Routing
from dlq.connectors.activemq.send import Sender
from dlq.connectors.base import Outgoing, SendRequest, Sent, Writing, keep_no_mark
from dlq.core.errors import BrokerError, ConnectionLost, DlqError, SendingEnded
from dlq.core.headers.provenance import REPLAY_ID
from dlq.core.runtime import patience

_CLASSIC, _ARTEMIS = (3, 100), (1, 200)
"""Transactions under way, and letters of each: one being committed, one that the broker has taken, one being
filled. On Artemis one alone, behind which its management is asked: it closes the connection at any error,
which would leave a COMMIT of another transaction unanswered."""
_CONNECTIONS = 2
_BATCH_BYTES = 4 * 2**20
_PIECE = 28 * 2**10
"""So many bytes and a usual letter are two parts of what goes to a socket at once, and no third small one."""
_TAKEN = "the broker had taken this replay before (duplicate id)"
_USED_UP = (
    "no marker of this plan says that it was taken: what another plan sent, and no queue got, may have used "
    "up its id (clearDuplicateIdCache of the address frees it)"
)
_DEADLY = "each time that it was sent the connection ended"


class _AnswerLost(ConnectionLost):
    """COMMIT may have been done."""


_ENDS = (_AnswerLost, Unanswered, SendingEnded)
"""Errors after which nothing is sent again."""


class _Transaction(NamedTuple):
    """`taken` and `finished` are the receipts of its marker and of its COMMIT."""

    sender: Sender
    name: str
    taken: str
    finished: str
    letters: list[Outgoing]

    def add(self, letter: Outgoing, done: list[Sent]) -> bytes:
        """Take a letter in; return the command that sends it, and nothing where it is refused."""
        self.letters.append(letter)
        try:
            return self.sender.letter(letter, self.name)
        except ValueError as error:
            done.append(Sent(self.letters.pop().number, "refused", str(error)))
            return b""


class TransactionPublisher:
    """Up to two connections that send; see `Publisher`."""

    def __init__(
        self,
        connect: Callable[[], Sender],
        request: SendRequest,
        routing: Routing | None = None,
    ) -> None:
        """Connects, and leaves the run's anchor. Raises BrokerError, also where that may not be written.
        `routing`: what Artemis tells of the targets."""
        self._connect, self._plan, self._routing = connect, request.plan, routing
        self._unsent_seconds = request.unsent_seconds
        self._writing: Writing = keep_no_mark
        self._anchor = new_run()
        """What proves afterwards that the markers of this run are all there (see `prove`)."""
        self._run = self._anchor.rpartition("/")[0]
        self._node = ""
        """Where the anchor is; a later connection must not lead elsewhere."""
        self._senders = deque([self._first()])
        run = Run(self._anchor, routing.node if routing else "")
        self.anchor = run.write(marker_queue(request.plan))
        most, letters = _ARTEMIS if self._senders[0].artemis else _CLASSIC
        self._under_way = min(most, request.window)
        self._batch = max(1, min(letters, request.window // self._under_way))
        self._open: deque[_Transaction] = deque()
        """In order; of the first COMMIT may have been sent, of the others it has not."""
        self._committing = False
        self._connections = _CONNECTIONS
        self._begun = 0
        """Number of the last transaction. Short: every letter bears it."""
        self._committed = "0"
        """The last one that was committed; 0 is the anchor."""
        self._ending: float | None = None
        """Since when connections end, and nothing was committed."""

    def publish(self, outgoing: Iterator[Outgoing], writing: Writing = keep_no_mark) -> Iterator[Sent]:
        """Publish in transactions; what is in one is answered together, when it has committed."""
        self._writing = writing
        for sender in self._senders:
            sender.writing = writing
        done: list[Sent] = []
        given = outgoing if self._routing is None else _resolve_targets(outgoing, self._routing)
        more = True
        while more:
            try:
                more = self._step(given, done)
            except ConnectionLost as error:
                yield from done
                in_doubt = list(self._in_doubt(error, {sent.number for sent in done}))
                self._open.clear()
                self._committing = False
                yield from in_doubt
                raise
            yield from done
            done.clear()

    def _in_doubt(self, error: ConnectionLost, answered: set[int]) -> Iterator[Sent]:
        letters = [letter for transaction in self._open for letter in transaction.letters]
        return (Sent(o.number, "in_doubt", str(error)) for o in letters if o.number not in answered)

    def _step(self, outgoing: Iterator[Outgoing | Sent], done: list[Sent]) -> bool:
        """Send one transaction's letters, then let the broker commit the one before. False at the end.

        Letters of a slow giver, and the last ones, are committed at once.
        """
        newest, goes_on = self._new(), True
        self._open.append(newest)
        try:
            before = self._open[-2].name if len(self._open) > 1 else self._committed
            is_full = self._fill(newest, outgoing, before, done)
            goes_on = bool(newest.letters or done)
            if not newest.letters:
                self._open.pop()
            while self._open and (not is_full or len(self._open) >= self._under_way):
                self._commit_first()
                self._confirm_first(done)
            if len(self._open) > 1:
                self._commit_first()
        except _ENDS:
            raise
        except BrokerError as error:
            self._give_up_and_resend(error, done)
        return goes_on

    def _new(self) -> _Transaction:
        """Begin a transaction on the connection that was not used last; the second is made when it is of
        use."""
        if self._open and len(self._senders) < self._connections:
            self._connect_once_more()
        self._senders.rotate()
        sender = self._senders[0]
        self._begun += 1
        return _Transaction(sender, str(self._begun), sender.new_receipt(), sender.new_receipt(), [])

    def _fill(
        self, transaction: _Transaction, outgoing: Iterator[Outgoing | Sent], before: str, done: list[Sent]
    ) -> bool:
        """Send letters as they are given, the broker working alongside, and the marker; nothing without
        letters. What is answered unsent fills it, too. `before`: the transaction that will have been
        committed before this one. False when the giver was slow or has no more, or nothing is to be sent."""
        sender, name, letters = transaction.sender, transaction.name, transaction.letters
        data = bytearray(sender.begin(name))
        began, size = time.monotonic(), 0
        is_full = is_old = False
        for taken, given in enumerate(outgoing, 1):
            if isinstance(given, Sent):
                done.append(given)
            else:
                data += transaction.add(given, done)
                size += given.record.body_size
            if len(data) >= _PIECE:
                sender.send(bytes(data))
                data.clear()
            is_full = taken >= self._batch or size >= _BATCH_BYTES
            is_old = time.monotonic() - began > patience.YIELD
            if is_full or is_old:
                break
        if letters:
            ids = [letter.provenance[REPLAY_ID] for letter in letters]
            bodies = marker_bodies(f"{self._run}/{name}", f"{self._run}/{before}", ids)
            data += sender.marker(self._plan, bodies, name, transaction.taken)
            sender.send(bytes(data))
        return bool(letters) and is_full and not is_old

    def _commit_first(self) -> None:
        if not self._committing:
            self._commit(self._open[0])
            self._committing = True

    def _confirm_first(self, done: list[Sent]) -> None:
        if self._committing:
            refusal = self._confirm(self._open[0], done)
            self._open.popleft()
            self._committing = False
            if refusal is not None:
                raise refusal

    def _commit(self, transaction: _Transaction) -> None:
        """COMMIT, once the broker has taken the marker and so all that was sent before it."""
        sender = transaction.sender
        sender.wait_for(transaction.taken)
        self._writing([letter.number for letter in transaction.letters])
        sender.send(sender.commit(transaction.name, transaction.finished))

    def _confirm(self, transaction: _Transaction, done: list[Sent]) -> BrokerError | None:
        """Wait for COMMIT's answer; returns the ERROR that another command was answered with meanwhile.

        A BrokerError that is raised means that nothing of this transaction is there.
        """
        of_another, began = None, time.monotonic()
        while True:
            try:
                transaction.sender.wait_for(transaction.finished)
                break
            except ConnectionLost as error:
                raise _AnswerLost(str(error)) from error
            except BrokerError as error:
                if not transaction.sender.was_refused(transaction.finished):
                    of_another = error
                    if time.monotonic() - began > patience.ENDLESS:
                        raise _AnswerLost(f"nothing but errors came behind COMMIT: {error}") from error
                elif isinstance(error, RolledBack | CommitFailed):
                    raise
                else:
                    said = f"COMMIT was answered by an error, so its outcome is unknown: {error}"
                    raise _AnswerLost(said) from error
        self._committed, self._ending = transaction.name, None
        done += self._answers(transaction.letters)
        return of_another

    def _answers(self, letters: Sequence[Outgoing]) -> list[Sent]:
        """Return the answers for letters that are committed."""
        if self._routing is None:
            return [Sent(letter.number, "confirmed") for letter in letters]
        return self._routing.answers([(letter.number, letter.target) for letter in letters])

    def _give_up_and_resend(self, error: BrokerError, done: list[Sent]) -> None:
        """Give up what is not being committed after an ERROR or the end of a connection, and send it
        again."""
        try:
            self._confirm_first(done)
        except ConnectionLost:
            raise
        except BrokerError:
            pass  # nothing of it is there, or it concerns what is given up now
        self._endure(error)
        self._reconnect()
        self._committing = False
        while self._open:
            self._resend(self._open[0].letters, done)
            self._open.popleft()

    def _resend(self, letters: Sequence[Outgoing], done: list[Sent], tries: int = 2) -> None:
        """Send letters again in transactions that are waited for; when one is refused, each of its letters
        alone. One with which the connection ends is tried once more, as that may have been the network's
        doing."""
        rest = iter(letters)
        while True:
            transaction = self._new()
            try:
                self._fill(transaction, rest, self._committed, done)
                if not transaction.letters:
                    return
                self._commit(transaction)
                self._confirm(transaction, done)
            except _ENDS:
                raise
            except BrokerError as error:
                self._endure(error)
                self._reconnect()
                if len(letters) == 1 and transaction.letters:
                    if isinstance(error, ConnectionLost) and tries > 1:
                        self._resend(letters, done, tries - 1)
                    else:
                        done.append(self._alone(letters[0], error))
                    return
                for letter in transaction.letters:  # none where it was not even begun
                    self._resend([letter], done)

    def _endure(self, error: BrokerError) -> None:
        """Raise the error where it is the end of a connection, and connections have gone on ending for too
        long."""
        if isinstance(error, ConnectionLost):
            self._ending = self._ending or time.monotonic()
            if time.monotonic() - self._ending > patience.ENDLESS:
                raise error

    def _alone(self, letter: Outgoing, error: BrokerError) -> Sent:
        """Return what an error means for the only letter of a transaction. Artemis answers a COMMIT of an id
        that was used before as it answers any other failure, so a marker must show that it was; and what it
        has routed to no queue, or dropped, has used up its id, too."""
        if isinstance(error, ConnectionLost):
            return Sent(letter.number, "refused", f"{_DEADLY}: {error}")
        if not isinstance(error, CommitFailed):
            return Sent(letter.number, "refused", str(error))
        known = _USED_UP
        try:
            if letter.provenance[REPLAY_ID] in self._senders[0].trail(self._plan).sent:
                if self._routing is None or self._routing.may_hold(letter):
                    return Sent(letter.number, "confirmed", _TAKEN)
                known = f"{_TAKEN}, and it is not at its target now: consumed since, or routed nowhere then"
        except BrokerError as silent:
            known = str(silent)
        return Sent(letter.number, "in_doubt", f"{error}; {known}")

    def _first(self) -> Sender:
        """Connect, more than once: where few are allowed, a connection that ended counts a moment longer."""
        for _ in patience.tries(patience.REPLY, longest=patience.YIELD):
            with contextlib.suppress(ConnectionLost):
                return self._new_sender()
        return self._new_sender()

    def _new_sender(self) -> Sender:
        """Connect. Raises ConnectionLost where another broker answers than that which has the anchor."""
        sender = self._connect()
        try:
            if not self._node:
                sender.begin_run(self._plan, self._anchor)
                self._node = sender.node
            elif sender.node != self._node:
                raise ConnectionLost(f"{self._node} is not there any more, and {sender.node} answers instead")
        except DlqError:
            sender.close()
            raise
        sender.guard(self._unsent_seconds)
        sender.writing = self._writing
        return sender

    def _reconnect(self) -> None:
        """Closing the old connections gives up their transactions."""
        self.close()
        try:
            self._senders = deque([self._first()])
        except DlqError as error:
            raise ConnectionLost(str(error)) from error

    def _connect_once_more(self) -> None:
        """Connect once more. A broker that allows no second connection gets everything over the first."""
        try:
            self._senders.append(self._new_sender())
        except DlqError:
            self._connections = 1

    def close(self) -> None:
        """Close the connections of all senders."""
        for sender in self._senders:
            sender.close()


def _resolve_targets(outgoing: Iterator[Outgoing], routing: Routing) -> Iterator[Outgoing | Sent]:
    """Yield the letters with the places that their targets mean; of what no queue would get, which is not
    sent, the answer."""
    for letter in outgoing:
        target = routing.resolve_target(letter.target, letter.record)
        if (nowhere := routing.begin(letter.target)) is None:
            yield letter if target == letter.target else letter._replace(target=target)
        else:
            yield Sent(letter.number, "returned", nowhere)
