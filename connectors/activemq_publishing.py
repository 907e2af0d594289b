"""Publishing in STOMP transactions of about a hundred, each with a marker.

BEGIN, the SENDs and the marker go out at once; COMMIT only when the marker's receipt says that the broker
took all of them. A receipt on every SEND would be six to ten times slower. When the broker refuses one, the
transaction is given up and its letters are sent again one by one, so that only the culprit is refused.
"""

import time
from collections.abc import Iterator, Sequence

from dlq.connectors.activemq_hygiene import wire
from dlq.connectors.activemq_link import Link
from dlq.connectors.activemq_marker import marker
from dlq.connectors.base import Outgoing, Sent
from dlq.connectors.stomp_frames import encode
from dlq.core.errors import BrokerError, ConnectionLost
from dlq.core.settings import Broker

BATCH = 100
_BATCH_BYTES = 4 * 2**20
_BATCH_SECONDS = 0.5
"""A slow giver (a rate limit) must not keep letters waiting until a hundred are together."""
_PIECE = 64 * 2**10
_USED_ID = "AMQ339013"
"""Artemis at COMMIT: a `_AMQ_DUPL_ID` was used before, and nothing of the transaction is routed."""


class StompPublisher:
    """One connection that sends; see `Publisher`."""

    def __init__(self, broker: Broker, plan: str, window: int) -> None:
        self._broker, self._plan = broker, plan
        self._batch = max(1, min(BATCH, window))
        self._link = Link(broker)
        self._transaction = ""

    def publish(self, outgoing: Iterator[Outgoing]) -> Iterator[Sent]:
        """See `Publisher`."""
        while True:
            letters: list[Outgoing] = []
            done: list[Sent] = []
            lost = self._try(outgoing, letters, done)
            answered = {sent.number for sent in done}
            yield from done
            yield from [Sent(o.number, "in_doubt", str(lost)) for o in letters if o.number not in answered]
            if lost is not None:
                raise lost
            if not letters:
                return

    def _try(
        self, outgoing: Iterator[Outgoing], letters: list[Outgoing], done: list[Sent]
    ) -> ConnectionLost | None:
        """Send one transaction's letters; what is certain is in `done`, also when the connection is lost."""
        try:
            try:
                self._fill(outgoing, letters)
                if letters:
                    self._commit(letters, done)
            except ConnectionLost:
                raise
            except BrokerError as error:
                self._apart(letters, done, error)
        except ConnectionLost as error:
            return error
        return None

    def _fill(self, outgoing: Iterator[Outgoing], letters: list[Outgoing]) -> None:
        """Send letters as they are given, the broker working alongside, until the transaction is full."""
        self._transaction = self._link.new_receipt()
        data = bytearray(encode("BEGIN", {"transaction": self._transaction}))
        began, size = time.monotonic(), 0
        for letter in outgoing:
            letters.append(letter)
            data += self._frame(letter)
            size += letter.record.body_size
            if len(data) >= _PIECE:
                self._link.send(bytes(data))
                data.clear()
            is_old = time.monotonic() - began > _BATCH_SECONDS
            if len(letters) >= self._batch or size >= _BATCH_BYTES or is_old:
                break
        if letters:
            self._link.send(bytes(data))

    def _frame(self, letter: Outgoing) -> bytes:
        return wire(letter.record, letter.target, letter.provenance, letter.keep_headers, self._transaction)

    def _commit(self, letters: Sequence[Outgoing], done: list[Sent]) -> None:
        """Marker, COMMIT, and the answers. A BrokerError means that nothing of the transaction is there."""
        ids = [letter.provenance["dlq_replay_id"] for letter in letters]
        taken, finished = self._link.new_receipt(), self._link.new_receipt()
        self._link.send(marker(self._plan, ids, self._transaction, taken, self._link.artemis))
        self._link.wait_for(taken)
        self._link.send(encode("COMMIT", {"transaction": self._transaction, "receipt": finished}))
        try:
            self._link.wait_for(finished)
        except ConnectionLost:
            raise
        except BrokerError as error:
            if _USED_ID in str(error):
                raise
            raise ConnectionLost(
                f"COMMIT was answered by an error, so its outcome is unknown: {error}"
            ) from error
        done += [Sent(letter.number, "confirmed") for letter in letters]

    def _apart(self, letters: Sequence[Outgoing], done: list[Sent], error: BrokerError) -> None:
        """One by one on fresh connections, so that only the culprit is refused. Raises ConnectionLost."""
        self._reconnect()
        if len(letters) == 1:
            done.append(_alone(letters[0], error))
            return
        for letter in letters:
            try:
                self._fill(iter([letter]), [])
                self._commit([letter], done)
            except ConnectionLost:
                raise
            except BrokerError as refusal:
                self._reconnect()
                done.append(_alone(letter, refusal))

    def _reconnect(self) -> None:
        """Closing the old connection gives up its transaction."""
        self._link.close()
        try:
            self._link = Link(self._broker)
        except BrokerError as error:
            raise ConnectionLost(str(error)) from error

    def close(self) -> None:
        """See `Publisher`."""
        self._link.close()


def _alone(letter: Outgoing, error: BrokerError) -> Sent:
    """What an error means for the only letter of a transaction."""
    if _USED_ID in str(error):
        return Sent(letter.number, "confirmed", "the broker had taken this replay before (duplicate id)")
    return Sent(letter.number, "refused", str(error))
