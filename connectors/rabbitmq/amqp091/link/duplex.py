"""A link that reads while it writes: a publisher that only wrote would stop the broker's answers.

With large returns, or an alarm, both directions can be full at once; neither side may wait then.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pika

from dlq.connectors.base import UNSENT_SECONDS
from dlq.connectors.rabbitmq.amqp091.codec.frames import HEARTBEAT
from dlq.connectors.rabbitmq.amqp091.link.channel import Link
from dlq.core.errors import DlqError

_WRITE_BYTES = 256 * 1024
_PIECE = 32 * 1024
"""Bytes that are offered to the socket at once; what it does not take of them counts as written, too."""


class DuplexLink(Link):
    """A `Link` with an outbox. Between `start` and `stop` no method that waits for an answer may be used.
    `writing` is told of letters before their first bytes go to the socket."""

    def __init__(
        self,
        choices: Sequence[pika.ConnectionParameters],
        refusal: Callable[[int, str], DlqError],
        unsent_seconds: float = UNSENT_SECONDS,
    ) -> None:
        self._asking = True
        self._outbox = bytearray()
        self._written = 0
        self._letters: deque[tuple[int, int]] = deque()
        """(which byte of all that is written is its first, its number) of letters that wait in the outbox."""
        super().__init__(choices, refusal)
        self.guard(unsent_seconds)

    def start(self) -> None:
        """Start: from now on every method that comes is the caller's, by `take_methods`."""
        self._asking = False
        self._beat_seconds, self.heartbeat = self.heartbeat[0], (math.inf, b"")  # by the outbox

    def stop(self) -> None:
        """Go back to questions and answers; the outbox must be empty."""
        self._asking = True
        self.heartbeat = self._beat_seconds, HEARTBEAT

    def put(self, data: bytes, number: int | None = None) -> None:
        """Put frames to be written by the next turns, perhaps those of the letter with this number."""
        if number is not None:
            self._letters.append((self._written + len(self._outbox), number))
        self._outbox += data

    @property
    def waiting(self) -> int:
        """Letters in the outbox of which nothing was written."""
        return len(self._letters)

    @property
    def unsent(self) -> int:
        """Bytes in the outbox."""
        return len(self._outbox)

    def turn(self, seconds: float, writing: bool = True) -> None:
        """Wait at most `seconds` until something can be read or written; do it. Raises LinkLostError."""
        if not self._outbox and time.monotonic() - self.sent > self._beat_seconds:
            self._outbox += HEARTBEAT
        can_read, can_write = self.ready(seconds, writing and bool(self._outbox))
        if can_write:
            self._write()
        if can_read:
            self.read(0)

    def _write(self) -> None:
        """Write as much as the socket takes at once, up to a limit."""
        end = self._written + _WRITE_BYTES
        while self._outbox and self._written < end and self._write_piece():
            pass

    def _write_piece(self) -> bool:
        """Return whether the socket took all of it."""
        with memoryview(self._outbox)[:_PIECE] as data:
            self._tell(self._written + len(data))
            taken = self.offer(data)
            is_whole = taken == len(data)
        del self._outbox[:taken]
        self._written += taken
        return is_whole

    def _tell(self, end: int) -> None:
        """Tell that the letters which begin before this byte may reach the broker."""
        numbers = []
        while self._letters and self._letters[0][0] < end:
            numbers.append(self._letters.popleft()[1])
        self.writing(numbers)

    def take_methods(self) -> list[Any]:
        """Return the methods that have come, in order."""
        methods = [method for _, method in self._frames.methods]
        self._frames.methods.clear()
        return methods

    def _handle_close(self) -> None:
        if self._asking:
            super()._handle_close()
