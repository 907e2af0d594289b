"""A RabbitMQ stream as AMQP 1.0 shows it: where it begins and ends, and the letters that 0-9-1 cannot carry.

RabbitMQ closes every 0-9-1 connection that would get such a letter (541), so a copy that met one looks ahead
by AMQP 1.0. Only those letters are taken from there: of others it leaves out tables and arrays in headers.
"""

import time
from typing import NamedTuple
from urllib.parse import quote

from dlq.connectors.amqp10.codec import frames, message
from dlq.connectors.amqp10.link.session import Link, Session
from dlq.connectors.base import ReadRequest
from dlq.connectors.net.links import LinkLostError
from dlq.connectors.rabbitmq.look.topology import version_of
from dlq.connectors.rabbitmq.records.amqp10 import is_carried_by_0_9_1, record_maker
from dlq.core.record import Record
from dlq.core.runtime import patience

OFFSET = "x-stream-offset"
_LETTERS = 200
"""That are looked at in one go: the broker, and we, hold them."""


class Seen(NamedTuple):
    """A letter's offset, and its record where only AMQP 1.0 carries it."""

    offset: int
    record: Record | None


class StreamLook:
    """A stream by AMQP 1.0, on a session of its own. Every method may raise LinkLostError, or what the broker
    refuses."""

    def __init__(self, session: Session, request: ReadRequest, broker_version: str) -> None:
        self._session = session
        self._address = f"/queues/{quote(request.source.queue or '', safe='')}"
        self._make, self._version = record_maker(request, broker_version), version_of(broker_version)
        self._link = self._attach("first")

    def bounds(self) -> tuple[int, int]:
        """Return the first offset that is kept, and the one behind the last; equal where nothing is there. It
        comes before anything else is asked."""
        first = self.next_letters(1)
        self.begin("last")
        end = 0
        while last := self.next_letters():
            end = last[-1].offset + 1
        return (first[0].offset, end) if first else (0, 0)

    def begin(self, offset: int | str) -> None:
        """Begin at an offset, or at the `first` or the `last` chunk."""
        self._session.detach(self._link)
        self._link = self._attach(offset)

    def _attach(self, offset: int | str) -> Link:
        return self._session.attach(frames.RECEIVER, self._address, frames.from_offset(offset))

    def next_letters(self, most: int = _LETTERS) -> list[Seen]:
        """Return the next letters, as far as there are."""
        self._session.ask(self._link, most)
        asked = time.monotonic()
        while not self._link.drained:
            self._session.turn(patience.FETCH)
            if time.monotonic() - asked > self._session.patience:
                raise LinkLostError(f"no answer within {self._session.patience:g} s")
        taken = self._session.take()
        if taken:
            first = taken[0].number
            self._session.settle(first, first + len(taken) - 1, frames.ACCEPTED)
            self._session.wait_until(lambda: bool(self._session.outcomes()))
        return [self._parse(letter.message) for letter in taken]

    def _parse(self, encoded: bytes) -> Seen:
        """Read what a message shows. Raises LinkLostError where the broker's annotation, which comes first,
        cannot be read."""
        try:
            parts = message.parts(message.split(encoded)[0])
            [offset, *_] = [value.value for key, value in parts.annotations if key.value == OFFSET]
            alone = not is_carried_by_0_9_1(parts, self._version)
            return Seen(int(offset), self._make(encoded) if alone else None)
        except ValueError as error:
            raise LinkLostError(f"a letter of the stream cannot be read: {error}") from error

    def close(self) -> None:
        """Let go of the connection. Never raises."""
        self._session.close()
