"""Reading one queue of Classic by OpenWire, which carries every class of message and names every one.

Acknowledgements are held back until the letters are durable, and sent as ranges of at most a page: a range
names its first and its last letter and how many lie between, so none may hold an id twice (the broker would
find another end), nor a letter that stays. What is not acknowledged goes back by RemoveInfo, which counts no
delivery where it says that none was seen.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlq.connectors.activemq.openwire_connection import OpenWireConnection
from dlq.connectors.activemq.openwire_messages import Dispatch, UnreadableError
from dlq.connectors.activemq.openwire_records import frame_of, message_id, records_of
from dlq.connectors.activemq.records import Maker
from dlq.connectors.activemq.stomp import Frame
from dlq.connectors.activemq.stomp_consumer import (
    BATCH_ROWS,
    IDLE_END,
    PAGE,
    POLL,
    STALLED_END,
    UNACKED_END,
)  # fmt: skip
from dlq.connectors.base import Batch, ReadRequest, Skipped
from dlq.core.errors import BrokerError
from dlq.core.record import Record

_CONSUMER, _NUDGE = 1, 2


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


class OpenWireReading:
    """One scan of one queue; owns its connection. Positions count from 1."""

    def __init__(self, scan: OpenWireScan, limit: int | None) -> None:
        """Connects. Raises BrokerError."""
        self._scan = scan
        bounds = [bound for bound in (scan.depth, limit) if bound is not None]
        self._goal = min(bounds) if bounds else None
        self._connection, self._window, self._make = scan.start(self._goal)
        self._arrived: deque[Dispatch] = deque()
        self._owed: deque[tuple[int, bytes | None]] = deque()
        """Position and id of what is to be acknowledged; no id where a letter between them stays."""
        self._awaited: tuple[str, int] | None = None
        self._settled = 0
        self._quiet = 0.0
        self._ended = self._acknowledged = False
        self.complete = False
        self.seen = self.position = 0

    def batches(self) -> Iterator[Batch]:
        """See `Reading`."""
        if self._goal != 0:
            self._consume()
            while not self._is_over():
                records, skipped = self._some()
                yield Batch(records, self.position, skipped=skipped)
        self.complete = not self._scan.browse if self._goal is None else self.seen >= self._goal

    def _consume(self) -> None:
        receipt = self._connection.new_receipt()
        queue, browse = self._scan.queue, self._scan.browse
        self._connection.send(
            self._connection.writer.consume(_CONSUMER, queue, self._window, browse, None, int(receipt))
        )
        self._connection.wait_for(receipt)

    def _some(self) -> tuple[Sequence[Record], list[Skipped]]:
        """Letters until a batch is full or the broker pauses."""
        request = self._scan.request
        taken: list[tuple[Dispatch, Frame]] = []
        skipped: list[Skipped] = []
        size = 0
        while len(taken) < min(request.batch_rows, BATCH_ROWS) and size < request.batch_bytes:
            if self._reached() or not (self._arrived or self._wait()):
                break
            letter = self._arrived.popleft()
            size += len(letter.marshalled) + len((letter.message and letter.message.content) or b"")
            self._take(letter, taken, skipped)
        return records_of(self._make, taken) if taken else (), skipped

    def _wait(self) -> bool:
        asked = time.monotonic()
        self._arrived.extend(self._connection.receive(POLL))
        if not self._arrived and not self._scan.browse:
            self._nudge()
        self._quiet = 0.0 if self._arrived else self._quiet + time.monotonic() - asked
        return bool(self._arrived)

    def _nudge(self) -> None:
        """A consumer comes and goes: that changes nothing, and the broker pages in (see PAGE)."""
        writer = self._connection.writer
        come = writer.consume(_NUDGE, self._scan.queue, 1, browse=False, selector="1=0", receipt=0)
        self._connection.send(come + writer.stop(_NUDGE))

    def _take(self, letter: Dispatch, taken: list[tuple[Dispatch, Frame]], skipped: list[Skipped]) -> None:
        if letter.consumer != _CONSUMER:
            return
        if not letter.name:
            self._ended = self._scan.browse
            return
        self.seen += 1
        if self.seen % PAGE == 0 and not (self._acknowledged or self._scan.browse):
            self._nudge()
        try:
            taken.append((letter, frame_of(letter, self._scan.modified)))
        except UnreadableError as error:
            skipped.append(Skipped(message_id(letter.message_id), str(error)))
            self._owed.append((self.position, None))
            return
        self.position += 1
        if self._scan.request.mode == "drain":
            self._owed.append((self.position, letter.name))

    def _reached(self) -> bool:
        return self._ended or (self._goal is not None and self.seen >= self._goal)

    def _is_over(self) -> bool:
        silence = IDLE_END if self._scan.depth is None else STALLED_END
        return self._reached() or self._quiet > (UNACKED_END if self._owed else silence)

    def acknowledge(self, position: int) -> None:
        """Send what is owed up to there. The last letter's goes alone and is answered: Classic syncs the disk
        for every letter that an answered acknowledgement covers (KahaDBStore#removeMessage)."""
        names: list[bytes | None] = []
        while self._owed and self._owed[0][0] <= position:
            names.append(self._owed.popleft()[1])
        if not any(names):
            return
        writer, receipt = self._connection.writer, self._connection.new_receipt()
        last = next(n for n in range(len(names) - 1, -1, -1) if names[n] is not None)
        commands = [writer.acknowledge(_CONSUMER, self._scan.queue, some) for some in ranges(names[:last])]
        commands += [
            writer.acknowledge(_CONSUMER, self._scan.queue, some, int(receipt))
            for some in ranges(names[last:])
        ]
        self._connection.send(b"".join(commands))
        self._awaited = receipt, position
        self._acknowledged, self._quiet = True, 0.0

    def settled(self) -> int:
        """Wait for the answer to the last acknowledgement; the position that it covers."""
        if self._awaited is not None:
            receipt, position = self._awaited
            self._connection.wait_for(receipt)
            self._settled, self._awaited = position, None
        return self._settled

    def close(self) -> None:
        """Give back what was not acknowledged, and disconnect."""
        with contextlib.suppress(BrokerError):  # then the broker gives the letters back by itself
            self._connection.send(self._connection.writer.stop(_CONSUMER))
        self._connection.close()


def ranges(names: Sequence[bytes | None]) -> Iterator[list[bytes]]:
    """The ids in rows of at most a page; a new one begins after a letter that stays (None), and at an id that
    the row holds already."""
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
