"""Reading one queue of Classic by OpenWire, which carries every class of message and names every one.

Acknowledgements are held back until the letters are durable, and sent as ranges of at most a page: a range
names its first and its last letter and how many lie between, so none may hold an id twice (the broker would
find another end), nor a letter that stays. What is not acknowledged goes back by RemoveInfo, which counts no
delivery where it says that none was seen.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlq.connectors.activemq.openwire.codec.messages import Dispatch, UnreadableError
from dlq.connectors.activemq.openwire.link import OpenWireConnection
from dlq.connectors.activemq.records.frames import Maker
from dlq.connectors.activemq.records.openwire import frame_of, message_id, records_of
from dlq.connectors.activemq.stomp.codec import Frame
from dlq.connectors.activemq.stomp.read import PAGE
from dlq.connectors.base import ReadRequest, Skipped
from dlq.connectors.queue import QueueReading, Unsettled
from dlq.core.errors import ConnectionLost, DlqError
from dlq.core.record import Record

CONSUMER, _NUDGE = 1, 2
_MOST_OF_OTHERS = 2**16
"""Letters that may come and are none that were asked for: what was on its way to a browser, say."""


@dataclass
class OpenWireScan:
    """How one queue is read; `start` is given the number of letters that may still be read, and returns a
    connection, how many unacknowledged letters it may hold, and how they become records."""

    request: ReadRequest
    queue: str
    start: Callable[[int | None], tuple[OpenWireConnection, int, Maker]]
    browse: bool
    depth: int | None
    topology: Mapping[str, Any]
    notes: Sequence[str]
    modified: bool
    """Whether the broker shows texts in modified UTF-8 to STOMP clients."""

    def begin(self, limit: int | None) -> "OpenWireReading":
        """Connect, and read at most so many letters. Raises BrokerError."""
        return OpenWireReading(self, limit)


class OpenWireReading(QueueReading[Dispatch, tuple[Dispatch, Frame]]):
    """One scan of one queue; owns its connection."""

    def __init__(self, scan: OpenWireScan, limit: int | None) -> None:
        """Connects. Raises BrokerError."""
        super().__init__(scan.request, scan.depth, limit, scan.browse)
        self._queue, self._modified = scan.queue, scan.modified
        self._connection, self._window, self._make = scan.start(self._goal)
        self._owed = Unsettled[bytes | None]()
        """By their ids; none where a letter between them stays."""
        self._awaited: str | None = None
        """The receipt of the last acknowledgement."""
        self._of_others = 0

    def consume(self) -> None:
        """Consume by one consumer with a window."""
        receipt, writer = self._connection.new_receipt(), self._connection.writer
        self._connection.send(
            writer.consume(CONSUMER, self._queue, self._window, self._browse, None, int(receipt))
        )
        self._connection.wait_for(receipt)

    def receive(self, wait: float) -> Iterable[Dispatch]:
        """Commands that bring a letter, or say that there are no more."""
        return self._connection.receive(wait)

    def unfinished_bytes(self) -> int:
        """Count the bytes that have come of an unfinished command."""
        return self._connection.unfinished_bytes

    def size_of(self, arrived: Dispatch) -> int:
        """Return the bytes of a message, and those that its content is more."""
        return len(arrived.marshalled) + len((arrived.message and arrived.message.content) or b"")

    def make(self, taken: list[tuple[Dispatch, Frame]]) -> Sequence[Record]:
        """Make records of the STOMP frames that these messages would be."""
        return records_of(self._make, taken)

    def wake(self) -> None:
        """Make a consumer come and go: that changes nothing, and the broker pages in (see PAGE)."""
        if self._browse:
            return
        writer = self._connection.writer
        come = writer.consume(_NUDGE, self._queue, 1, browse=False, selector="1=0", receipt=0)
        self._connection.send(come + writer.stop(_NUDGE))

    def sort(self, letter: Dispatch, taken: list[tuple[Dispatch, Frame]], skipped: list[Skipped]) -> None:
        """Leave what cannot be read in its queue."""
        if letter.consumer != CONSUMER or not letter.name:
            self._ended = self._ended or (self._browse and letter.consumer == CONSUMER)
            self._of_others += 1
            if self._of_others > _MOST_OF_OTHERS:
                raise ConnectionLost(f"{self._connection.place}: the broker sends more than it was asked for")
            return
        self.seen += 1
        if self.seen % PAGE == 0 and not self._removed:
            self.wake()
        try:
            self.take(taken, (letter, frame_of(letter, self._modified)), letter.name)
        except UnreadableError as error:
            skipped.append(Skipped(message_id(letter.message_id), str(error)))
            if self._owed:
                self._owed.add(self.position, None)

    def remove(self, names: Sequence[bytes | None]) -> None:
        """Acknowledge these letters; the last one alone, and answered: Classic syncs the disk for every
        letter that an answered acknowledgement covers (KahaDBStore#removeMessage)."""
        if not any(names):
            return
        writer, receipt = self._connection.writer, self._connection.new_receipt()
        self._awaited = receipt
        last = next(n for n in range(len(names) - 1, -1, -1) if names[n] is not None)
        commands = [writer.acknowledge(CONSUMER, self._queue, some) for some in ranges(names[:last])]
        commands += [
            writer.acknowledge(CONSUMER, self._queue, some, int(receipt)) for some in ranges(names[last:])
        ]
        self._connection.send(b"".join(commands))

    def await_removal(self) -> None:
        """Wait for the answer to the last acknowledgement."""
        if self._awaited is not None:
            self._connection.wait_for(self._awaited)
            self._awaited = None

    def close(self) -> None:
        """Give back what was not acknowledged, and disconnect."""
        with contextlib.suppress(DlqError):  # then the broker gives the letters back by itself
            self._connection.send(self._connection.writer.stop(CONSUMER))
        self._connection.close()


def ranges(names: Sequence[bytes | None]) -> Iterator[list[bytes]]:
    """Yield the ids in rows of at most a page; a new one begins after a letter that stays (None), and at an
    id that the row holds already."""
    row: list[bytes] = []
    held: set[bytes] = set()
    for name in names:
        if row and (name is None or name in held or len(row) == PAGE):
            yield row
            row, held = [], set()
        if name is not None:
            row.append(name)
            held.add(name)
    if row:
        yield row
