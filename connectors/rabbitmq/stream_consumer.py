"""One scan of a RabbitMQ stream by AMQP 0-9-1: it takes nothing away, and goes on behind the last one.

Every letter has an offset, which the broker adds as the header `x-stream-offset`. The end is behind the last
letter of the last chunk, which `x-stream-offset: last` asks for, so what is read up to there is everything.
An acknowledgement is nothing but credit for more letters; a reject or nack would close the connection (540).
"""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pika import spec

from dlq.connectors.base import Batch, Gap, ReadRequest
from dlq.connectors.rabbitmq.amqp import table
from dlq.connectors.rabbitmq.amqp.frames import Delivery
from dlq.connectors.rabbitmq.amqp.link import Link, LinkLostError
from dlq.connectors.rabbitmq.records import record_maker
from dlq.core.errors import ConnectionLost, DlqError

OFFSET = "x-stream-offset"
_PREFETCH, _AT_ONCE = 2_000, 100
_FIRST_SECONDS, _NEXT_SECONDS, _STALLED_SECONDS = 3.0, 0.5, 30.0
"""Until the last chunk comes, if there is one; between its letters; and between those that must come."""
_WAIT_SECONDS = 0.2


class StreamReading:
    """A copy of one stream, by the contract of `Reading`; `request.resume`: where the one before ended."""

    unique_ids = True
    settles_at_once = False

    def __init__(
        self, link: Link, request: ReadRequest, topology: Mapping[str, Any], notes: Sequence[str]
    ) -> None:
        """Learns where the stream begins and ends. Raises ConnectionLost, and what the broker refuses."""
        self._link, self._request = link, request
        self._queue = request.source.queue or ""
        self._make = record_maker(request, link.server_version)
        self._consumers = 0
        self.topology = topology
        self.notes: Sequence[str] = notes
        self.complete = False
        self._received = 0
        with self._losses():
            first, self._end = self._bounds()
        resume = request.resume.get(self._queue, first)
        if resume > self._end:
            another = f"{self._queue} ends before the last copy did: it is another stream, read anew"
            self.notes = [*notes, another]
            resume = first
        self._gaps = [Gap(self._queue, resume, first)] if resume < first else []
        self._start = max(first, resume)
        self.snapshot: int | None = None  # some offsets are the stream's own, none of a letter

    def _bounds(self) -> tuple[int, int]:
        """The first offset that is kept, and the one behind the last; equal where nothing is there."""
        last = self._offsets("last", whole=True)
        return (self._offsets("first", whole=False)[0], max(last) + 1) if last else (0, 0)

    def _offsets(self, where: str, whole: bool) -> list[int]:
        """Those of a chunk: of the `whole`, until the broker pauses, or of some letters."""
        self._consume(where)
        found: list[int] = []
        heard = time.monotonic()
        while time.monotonic() - heard < (_NEXT_SECONDS if found else _FIRST_SECONDS):
            came = self._next()
            if came:
                heard = time.monotonic()
                found += map(offset_of, came)
                self._acknowledge()
            if found and not whole:
                break
        self._stop()
        return found

    def batches(self) -> Iterator[Batch]:
        """Everything up to the end, in order, with its gap first."""
        with self._losses():
            if self._start == self._end:
                self.complete = True
                return
            self._consume(self._start)
            yield from self._scan()
            self._stop()

    def _scan(self) -> Iterator[Batch]:
        most = self._request.limit if self._request.limit is not None else self._end - self._start
        end = min(self._end, self._start + most)
        reached = self._start
        taken: list[Delivery] = []
        heard = yielded = time.monotonic()
        while reached < end and time.monotonic() - heard < _STALLED_SECONDS:
            came = [one for one in self._next() if reached <= offset_of(one) < end]
            if came:
                heard = time.monotonic()
                reached = offset_of(came[-1]) + 1
                taken += came
                self._acknowledge()
            if self._is_full(taken) or reached == end or time.monotonic() - yielded >= 1:
                yielded = time.monotonic()
                yield self._batch(taken, reached)
                taken = []
        self.complete = reached >= self._end

    def _is_full(self, taken: Sequence[Delivery]) -> bool:
        request = self._request
        return len(taken) >= request.batch_rows or sum(len(o.body) for o in taken) >= request.batch_bytes

    def _batch(self, taken: Sequence[Delivery], reached: int) -> Batch:
        self._received += len(taken)
        gaps, self._gaps = self._gaps, []
        records = self._make(taken) if taken else ()
        return Batch(records, self._received, {self._queue: reached}, gaps=gaps)

    def _next(self) -> list[Delivery]:
        """Some of what has come; waits a moment for it."""
        came = self._link.take_deliveries(_AT_ONCE)
        if not came and self._link.receive(_WAIT_SECONDS):
            came = self._link.take_deliveries(_AT_ONCE)
        return came

    def _consume(self, offset: int | str) -> None:
        self._consumers += 1
        self._link.call(spec.Basic.Qos(prefetch_count=_PREFETCH), spec.Basic.QosOk)
        consume = spec.Basic.Consume(
            queue=self._queue, consumer_tag=f"dlq-{self._consumers}", arguments={OFFSET: offset}
        )
        self._link.call(consume, spec.Basic.ConsumeOk)

    def _stop(self) -> None:
        """What is under way is taken and forgotten."""
        self._link.call(spec.Basic.Cancel(consumer_tag=f"dlq-{self._consumers}"), spec.Basic.CancelOk)
        while self._link.take_deliveries(_PREFETCH):
            pass
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Credit for as many letters as have come."""
        self._link.send(spec.Basic.Ack(delivery_tag=0, multiple=True))

    def acknowledge(self, position: int) -> None:
        """Nothing: a stream forgets by its retention alone."""

    def settled(self) -> int:
        """All that came: the checkpoint in the archive is what counts."""
        return self._received

    @contextlib.contextmanager
    def _losses(self) -> Iterator[None]:
        try:
            yield
        except LinkLostError as error:
            where = f"source {self._request.source.name}"
            raise ConnectionLost(f"{where}: the connection ended: {error}") from error

    def close(self) -> None:
        """Let go of the connection. Never raises."""
        if not self._link.dead:
            with contextlib.suppress(LinkLostError, DlqError):
                self._stop()
        self._link.close()


def offset_of(delivery: Delivery) -> int:
    """Where the letter stands in its stream; 0 where the broker does not say it."""
    text = table.decode(delivery.block).headers.get(OFFSET, "")
    return int(text) if text.isascii() and text.isdigit() else 0
