"""Reading one queue: `take` consumes with acknowledgements held back, `browse` (Classic only) looks.

On Classic acknowledgements are cumulative (`client`), a third of the broker's work, until a letter comes
that must stay, such as one that STOMP cannot carry. A cumulative acknowledgement could not leave it out, so
all is given back from there and read again, each letter to be acknowledged by itself (`client-individual`,
as always on Artemis).
NACK is never sent: in a DLQ it destroys the letter. What is not acknowledged goes back by UNSUBSCRIBE,
which on Artemis (2.56.0) counts no delivery, unlike a DISCONNECT or a cut.
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dlq.connectors.activemq.read.lossy import INNER_NUL
from dlq.connectors.activemq.records.frames import Maker
from dlq.connectors.activemq.stomp.codec import Frame, encode, escape, headers_of
from dlq.connectors.activemq.stomp.link import Link
from dlq.connectors.base import Batch, ReadRequest, Skipped
from dlq.connectors.queue import QueueReading, Unsettled, until_acknowledged
from dlq.core.errors import ConnectionLost, DlqError
from dlq.core.record import Record
from dlq.core.runtime import patience

PAGE = 200
"""Classic pages in 200 letters (maxPageSize) at each event of a queue, such as an acknowledgement or a new
consumer, and then stops, however large the window: seen on 5.18.6 and 6.3.1. So one acknowledgement covers
no more, and until the first one the queue is nudged."""


class Acks:
    """Acknowledgements of one reading: what is owed to the broker, in blocks.

    Positions are the reading's. With `cumulative` an acknowledgement covers all letters before it. The last
    letter's goes alone and with a receipt: Classic syncs the disk for every letter that a receipt covers
    (KahaDBStore#removeMessage), and one sync holds all before it.
    """

    def __init__(self, link: Link, cumulative: bool) -> None:
        self._link, self.cumulative = link, cumulative
        self.owed = Unsettled[bytes]()
        """By their heads."""
        self._unnamed: list[tuple[int, bytes]] = []
        """Those of them that are durable, but that no acknowledgement names nor covers yet."""
        self._awaited: tuple[str, int] | None = None
        self._settled = self._durable_until = 0
        self.begun = False

    def acknowledge(self, position: int) -> bool:
        """Send what is owed up to there; whether that was anything."""
        ids, reached = self._durable(position)
        if not ids:
            return False
        self.begun = True
        self._awaited = (self._link.new_receipt(), reached)
        before = ids[-2 :: -PAGE if self.cumulative else -1][::-1]
        last = b"ACK\nid:%b\nreceipt:%b\n\n\0" % (ids[-1], self._awaited[0].encode())
        self._link.send(b"".join([b"ACK\nid:%b\n\n\0" % ack_id for ack_id in before]) + last)
        return True

    def _durable(self, position: int) -> tuple[list[bytes], int]:
        """Ack ids up to there, and how far they reach: before what they neither name nor cover."""
        ids: list[bytes] = []
        reached = 0
        for place, head in self.owed.take(position):
            self._durable_until = place
            if _is_unnamed(head, self._link.artemis):
                self._unnamed.append((place, head))
                continue
            reached = place
            ids.append(ack_id(head))
            if self.cumulative:
                self._unnamed.clear()
        return ids, min(reached, self._unnamed[0][0] - 1) if self._unnamed else reached

    def settled_position(self) -> int:
        """Wait for the answer; the position that it covers. Raises BrokerError."""
        if self._awaited is not None:
            receipt, position = self._awaited
            self._link.wait_for(receipt)
            self._settled, self._awaited = position, None
        return self._settled

    def has_unnamed(self) -> bool:
        """Return whether some are owed that no acknowledgement can name."""
        return bool(self._unnamed) or any(_is_unnamed(head, self._link.artemis) for head in self.owed)

    def take_unnamed(self, destination: str) -> None:
        """Remove them, once no consumer holds them any more and nothing is pending. Raises BrokerError."""
        if self._unnamed:
            take(self._link, destination, [head for _, head in self._unnamed])
            self._settled = self._durable_until
            self._unnamed.clear()


def ack_id(head: bytes) -> bytes:
    """Return the `ack` header as it came: it goes back escaped as it is. It is the last of several: a
    property may have its name (Artemis 2.56.0); on Classic there is one."""
    begin = head.rfind(b"\nack:") + len(b"\nack:")  # at -1 it is the first line
    end = head.find(b"\n", begin)
    return head[begin:] if end < 0 else head[begin:end]


def is_end_of_browse(head: bytes) -> bool:
    """Return whether Classic says so; a letter has a priority, and may have a property `browser`, too."""
    lines = head.split(b"\n")
    return b"browser:end" in lines and not any(line.startswith(b"priority:") for line in lines)


_NAMED = re.compile(rb"^message-id:[^\n]*\\c-?\d+\\c-?\d+\\c\d+$", re.MULTILINE)
_SELECTOR_BYTES = 9000
"""Classic closes the connection at a header line of more than 10 KiB."""


def _is_unnamed(head: bytes, artemis: bool) -> bool:
    """Return whether no STOMP acknowledgement can name this letter: one of an AMQP producer on Classic.

    Classic (5.18.6, 6.3.1) reads the id of an ACK as one that it has made itself, session, producer and
    number at its end, and an ACK of another id ends the connection. A cumulative ACK of a later letter covers
    it; where none comes, it is archived first and then taken (`take`). Artemis has ids for that alone.
    """
    return not (artemis or _NAMED.search(head))


def take(link: Link, destination: str, heads: Sequence[bytes]) -> None:
    """Remove letters that are archived, and that no consumer holds, by a consumer that acknowledges by
    itself and selects them by id and time, so that no other letter comes to it.

    Raises ConnectionLost when the broker does not give them: another consumer may have them now, and the next
    reading will tell.
    """
    for number, (selector, letters) in enumerate(_selectors([headers_of(head) for head in heads])):
        consumer = f"{link.token}-unnamed-{number}"
        select = {"destination": destination, "id": consumer, "ack": "auto", "selector": selector}
        link.request("SUBSCRIBE", select)
        heard = time.monotonic()
        while letters > 0 and time.monotonic() - heard < patience.REPLY:
            if frames := link.receive(patience.BLINK):
                letters -= len(frames)
                heard = time.monotonic()
        link.request("UNSUBSCRIBE", {"id": consumer})
        if letters > 0:
            why = "the broker did not give them back to be acknowledged, so they stay in the queue"
            raise ConnectionLost(
                f"{link.place}: {letters} letter(s) of AMQP producers are archived, but {why}"
            )


def _selectors(letters: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, int]]:
    """Selectors of a length that the broker takes, and how many letters each selects."""
    clauses: list[str] = []
    size = 0
    for letter in letters:
        clause = _clause(letter)
        own = len(escape(f"{clause} OR ").encode())
        if size + own > _SELECTOR_BYTES and clauses:
            yield " OR ".join(clauses), len(clauses)
            clauses, size = [], 0
        clauses.append(clause)
        size += own
    if clauses:
        yield " OR ".join(clauses), len(clauses)


def _clause(letter: Mapping[str, str]) -> str:
    """Id and time: a letter that was sent meanwhile under an id that its producer uses again must not be
    taken. A user's property may stand in the place of the time; then the id must do."""
    quoted = letter["message-id"].replace("'", "''")
    sent = letter["timestamp"]
    at_that_time = f" AND JMSTimestamp = {sent}" if sent.isascii() and sent.isdecimal() else ""
    return f"(JMSMessageID = '{quoted}'{at_that_time})"


_FULL = 1.0
"""Seconds of silence after which the window is taken to be full of letters that no acknowledgement names."""


class Started(NamedTuple):
    """A connection, what to subscribe with and how often, how its frames become records, why one of them must
    stay in its queue, and what wakes the queue.

    Classic holds what a consumer has not acknowledged in an array, from whose front each acknowledgement
    takes one letter and moves all others (PrefetchSubscription#acknowledge). Where each is acknowledged by
    itself, letters that wait by the thousand for their segment are spread over several consumers, which
    costs the broker a sixth less; one connection keeps the queue's order.
    """

    link: Link
    subscribe: Mapping[str, str]
    make: Maker
    lossy: Callable[[Frame], str | None]
    nudge: bytes = b""
    consumers: int = 1
    cumulative: bool = False


@dataclass
class Scan:
    """How one queue is read; `start` is given the number of letters that may still be read."""

    request: ReadRequest
    queue: str
    start: Callable[[int | None], Started]
    browse: bool
    depth: int | None
    topology: Mapping[str, Any]
    notes: Sequence[str]

    def begin(self, limit: int | None) -> "StompReading":
        """Connect, and read at most so many letters. Raises BrokerError."""
        return StompReading(self, limit)


class StompReading(QueueReading[Frame, Frame]):
    """One scan of one queue; owns its connection."""

    def __init__(self, scan: Scan, limit: int | None) -> None:
        """Connects. Raises BrokerError."""
        super().__init__(scan.request, scan.depth, limit, scan.browse)
        started = scan.start(self._goal)
        self._link, self._subscribe, self._make, self._lossy, self._nudge, self._number, cumulative = started
        self._acks = Acks(self._link, cumulative)
        self._owed = self._acks.owed
        self._consumers: list[str] = []
        self._opened = 0
        self._must_switch = False
        self._stays = 0
        """Letters that are not acknowledged, whatever the caller does."""
        self._held: list[Frame] = []
        """Those of them that are archived."""

    def prepare(self) -> Iterator[Batch]:
        """Open a new window, where nothing more comes by the one that there is."""
        if self._must_switch or self._is_full_of_unnamed():
            yield from self._begin_again()

    def finish(self) -> Iterator[Batch]:
        """Yield the letters with an inner NUL. What no acknowledgement names is taken before."""
        if self._acks.has_unnamed():
            yield from self._release()
        if self._held:
            skipped = [self._skip(frame, INNER_NUL) for frame in self._held]
            yield Batch(self.make(self._held), self.position, skipped=skipped, stays=True)

    def consume(self) -> None:
        """Consume over one or several consumers."""
        self._consumers = [f"{self._link.token}-{self._opened + n}" for n in range(self._number)]
        self._opened += self._number
        for consumer in self._consumers:
            self._link.request("SUBSCRIBE", {**self._subscribe, "id": consumer})

    def _give_back(self) -> None:
        for consumer in self._consumers:
            self._link.request("UNSUBSCRIBE", {"id": consumer})
        self._consumers = []

    def _is_full_of_unnamed(self) -> bool:
        """Return whether it ends here, because letters that stay would come a second time."""
        return self._silence.seconds > _FULL and self._acks.has_unnamed() and not (self._owed or self._stays)

    def _release(self) -> Iterator[Batch]:
        """Give back what is not archived, once all that is archived has been acknowledged."""
        yield from until_acknowledged(lambda: self._owed, self.position)
        if self._owed:
            self._ended = True
            return
        self.settled_position()
        self._give_back()
        self._arrived.clear()
        self._link.discard()
        self._acks.take_unnamed(self._subscribe["destination"])

    def _begin_again(self) -> Iterator[Batch]:
        """Begin again with a new window; after a letter that must stay, each is acknowledged by itself."""
        yield from self._release()
        if self._must_switch:
            self._subscribe = {**self._subscribe, "ack": "client-individual"}
            self._acks.cumulative = self._must_switch = False
        self.hear()
        if not self._ended:
            self.consume()

    def receive(self, wait: float) -> Sequence[Frame]:
        """Frames of this queue."""
        return self._link.receive(wait)

    def unfinished_bytes(self) -> int:
        """Count the bytes that have come of an unfinished frame."""
        return self._link.unfinished_bytes

    def size_of(self, arrived: Frame) -> int:
        """Return the bytes of a frame's body."""
        return len(arrived.body)

    def make(self, taken: list[Frame]) -> Sequence[Record]:
        """Make records as `Started` says."""
        return self._make(taken)

    def wake(self) -> None:
        """Make a consumer come and go (see PAGE)."""
        if self._nudge:
            self._link.send(self._nudge)

    def is_paused(self) -> bool:
        """Return whether reading pauses, also while all has to be given back."""
        return self._must_switch or super().is_paused()

    def sort(self, frame: Frame, taken: list[Frame], skipped: list[Skipped]) -> None:
        """Leave what STOMP cannot carry in its queue."""
        if self._browse and is_end_of_browse(frame.head):
            self._ended = True
            return
        reason = self._lossy(frame)
        if self._acks.cumulative and (reason is not None or frame.inner_nul):
            self._must_switch = True
            return
        self.seen += 1
        if self.seen % PAGE == 0 and not self._acks.begun:
            self.wake()
        if reason is not None:
            self._stays += 1
            skipped.append(self._skip(frame, reason))
        elif frame.inner_nul:
            self._stays += 1
            self._held.append(frame)
        else:
            self.take(taken, frame, frame.head)

    def _skip(self, frame: Frame, reason: str) -> Skipped:
        [record] = self.make([frame])
        return Skipped(record.physical_id or "", reason)

    def acknowledge(self, position: int) -> None:
        """Send what is owed up to there; then the time of silence begins anew."""
        if self._acks.acknowledge(position):
            self.hear()

    def settled_position(self) -> int:
        """Wait for the receipt of the last acknowledgement; the position that it covers."""
        return self._acks.settled_position()

    def close(self) -> None:
        """Give back what was not acknowledged, and disconnect."""
        with contextlib.suppress(DlqError):  # then the broker gives the letters back by itself
            self._give_back()
        self._link.close()


def nudge(destination: Mapping[str, str], token: str) -> bytes:
    """Return an event that changes nothing: a consumer comes, takes nothing, and goes."""
    headers = {**destination, "id": f"{token}-nudge", "ack": "client", "selector": "1=0"}
    return encode("SUBSCRIBE", headers) + encode("UNSUBSCRIBE", {"id": headers["id"]})
