"""One scan of a RabbitMQ stream by AMQP 0-9-1: it takes nothing away, and goes on behind the last one.

Every letter has an offset, which the broker adds as the header `x-stream-offset`. The end is behind the last
letter of the last chunk, which `x-stream-offset: last` asks for, so what is read up to there is everything.
It goes in rounds, each a consumer whose prefetch is how many letters it may get, because one letter more may
be one that closes the connection (541). An acknowledgement is nothing but credit for more letters, and a
reject or nack would close the connection, too (540).
"""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from pika import spec

from dlq.connectors.base import Batch, ReadRequest
from dlq.connectors.log import LogReading, Plan, Words, find_generation, is_another, mark_letter
from dlq.connectors.net.links import LinkLostError, name_losses
from dlq.connectors.rabbitmq.amqp091.codec import table
from dlq.connectors.rabbitmq.amqp091.codec.frames import Delivery
from dlq.connectors.rabbitmq.amqp091.link.channel import Link
from dlq.connectors.rabbitmq.amqp10.read import NOTE, UNSEEN
from dlq.connectors.rabbitmq.records.deliveries import record_maker
from dlq.connectors.rabbitmq.streams.look import OFFSET, Seen, StreamLook
from dlq.core.errors import DlqError, PoisonMessage
from dlq.core.record import Record
from dlq.core.runtime import patience
from dlq.core.text import for_terminal

ROUND, _AT_ONCE = 2_000, 100
_WORDS = Words(
    begun_anew="{place} is not the stream that the last copy read: it ends before offset {reached}, or has "
    "another letter where that ended. It is read anew",
    gone="{place}: retention had deleted what came before offset {first} before this copy",
)


_NOT_SHOWN = (
    "nothing of {} was shown: it was made anew, and is empty, or the node that was asked does not have it "
    "yet. The next copy goes on where the last one ended"
)


class StreamReading(LogReading):
    """A copy of one stream; `request.resume`: where the one before ended."""

    resumes = True

    def __init__(
        self,
        link: Link,
        request: ReadRequest,
        topology: Mapping[str, Any],
        notes: Sequence[str],
        look: StreamLook | None = None,
    ) -> None:
        """Learn where the stream begins and ends, by a `look` where a letter is in the way of 0-9-1. Raises
        ConnectionLost, and what the broker refuses."""
        self._link, self._look = link, look
        self._queue = request.source.queue or ""
        self._make = record_maker(request, link.server_version)
        self._consumers = 0
        reached = self._reached = request.resume.get(find_generation(self._queue, request.resume)[1], 0)
        with name_losses(f"source {request.source.name}"):
            first, self._end = look.bounds() if look else self._bounds()
            anew = is_another(self._queue, first, self._end, request.resume, self._told_at)
        plan = Plan[str](notes=[*notes, *([NOTE] if look else [])])
        bounds = first, self._end
        if reached and not self._end:
            bounds, plan.complete = (reached, reached), False
            plan.notes.append(_NOT_SHOWN.format(for_terminal(self._queue)))
        self._key = plan.add(self._queue, self._queue, self._queue, bounds, request.resume, _WORDS, anew=anew)
        [(_, self._start, _, _)] = plan.ranges
        super().__init__(request, plan, topology, "RabbitMQ")
        self.snapshot = None  # some offsets are the stream's own, none of a letter
        self.complete = False

    def _told_at(self, offset: int) -> str | None:
        letter = self._letter_at(offset)
        return letter and _identity(letter)

    def _letter_at(self, offset: int) -> Record | None:
        """Return the letter there; None where nothing comes."""
        if self._look:
            self._look.begin(offset)
            if shown := next((seen.record for seen in self._look.next_letters(1) if seen.record), None):
                return shown
        self._consume(offset, 1)
        came, asked = list[Delivery](), time.monotonic()
        while not came and time.monotonic() - asked < patience.REPLY:
            came = [one for one in self._next() if offset_of(one) == offset]
        self._stop()
        return self._make(came)[0] if came else None

    def _bounds(self) -> tuple[int, int]:
        """Return the first offset that is kept, and the one behind the last; equal where nothing is there. It
        looks again where that is before what was read: the copy of another node may lag behind."""
        for _ in patience.tries(patience.GIVEN_BACK):
            if (end := self._find_end()) >= max(1, self._reached):
                break
        if not end:
            return 0, 0
        if not (first := self._offsets("first", 1)):
            raise LinkLostError("the last letters came, and not the first")
        return first[0], end

    def _find_end(self) -> int:
        """Return the offset behind the last; 0 where none comes. A chunk may have more letters than are asked
        for at once."""
        came = self._offsets("last", ROUND)
        end = max(came, default=-1) + 1
        while len(came) >= ROUND and (came := self._offsets(end, ROUND)) and max(came) >= end:
            end = max(came) + 1
        return end

    def _offsets(self, where: int | str, most: int) -> list[int]:
        """Return those of a chunk's first letters, until there are enough or the broker pauses."""
        self._consume(where, most)
        found: list[int] = []
        until = time.monotonic() + patience.REPLY
        while len(found) < most and time.monotonic() < until:
            if came := self._next():
                until = time.monotonic() + patience.RECHECK
                found += map(offset_of, came)
        self._stop()
        return found

    def scan(self) -> Iterator[Batch]:
        """Read everything up to the end, in order."""
        with name_losses(f"source {self._request.source.name}"):
            most = self._request.limit if self._request.limit is not None else self._end - self._start
            end = min(self._end, self._start + most)
            yield from self._by_both(self._look, end) if self._look else self._rounds(end)

    def _rounds(self, end: int) -> Iterator[Batch]:
        reached = self._start
        while reached < end:
            before = reached
            for batch in self._round(reached, end, min(ROUND, end - reached)):
                reached = batch.checkpoint[self._key]
                yield batch
            if reached == before:
                return
        self.complete = reached >= end and self._plan.complete

    def _round(self, start: int, end: int, letters: int) -> Iterator[Batch]:
        """Read up to so many letters from `start` on, all before `end`."""
        self._consume(start, letters)
        reached, taken = start, list[Delivery]()
        heard = yielded = time.monotonic()
        while letters > 0 and reached < end and time.monotonic() - heard < patience.RESTART:
            came = [one for one in self._next() if reached <= offset_of(one) < end]
            if came:
                heard = time.monotonic()
                reached, letters = offset_of(came[-1]) + 1, letters - len(came)
                taken += came
            if self._is_full(taken) or time.monotonic() - yielded >= patience.YIELD:
                yielded = time.monotonic()
                yield self._batch(taken, reached)
                taken = []
        self._stop()
        yield self._batch(taken, reached)

    def _by_both(self, look: StreamLook, end: int) -> Iterator[Batch]:
        """Yield what only AMQP 1.0 carries from there, and what lies between over 0-9-1."""
        look.begin(self._start)
        reached, heard = self._start, time.monotonic()
        while reached < end and time.monotonic() - heard < patience.RESTART:
            seen = [one for one in look.next_letters() if one.offset < end]
            if seen:
                heard, reached = time.monotonic(), seen[-1].offset + 1
            else:
                time.sleep(patience.FETCH)
            for is_alone, run in groupby(seen, lambda one: one.record is not None):
                yield from (self._hand_on if is_alone else self._read_again)(list(run))
            self._link.receive(0)  # and a heartbeat, so that it is there when it is needed
        self.complete = reached >= end and self._plan.complete

    def _hand_on(self, run: Sequence[Seen]) -> Iterator[Batch]:
        yield self._batch_of([one.record for one in run if one.record], run[-1].offset + 1)

    def _read_again(self, run: Sequence[Seen]) -> Iterator[Batch]:
        try:
            yield from self._round(run[0].offset, run[-1].offset + 1, len(run))
        except PoisonMessage as error:
            raise PoisonMessage(f"{error}; {UNSEEN}") from error

    def _is_full(self, taken: Sequence[Delivery]) -> bool:
        request = self._request
        return len(taken) >= request.batch_rows or sum(len(o.body) for o in taken) >= request.batch_bytes

    def _batch(self, taken: Sequence[Delivery], reached: int) -> Batch:
        return self._batch_of(self._make(taken) if taken else (), reached)

    def _batch_of(self, records: Sequence[Record], reached: int) -> Batch:
        self._position += len(records)
        checkpoint = {self._key: reached}
        if records:
            checkpoint |= mark_letter(self._key, reached - 1, _identity(records[-1]))
        return Batch(records, self._position, checkpoint)

    def _next(self) -> list[Delivery]:
        """Return some of what has come; waits a moment for it."""
        came = self._link.take_deliveries(_AT_ONCE)
        if not came and self._link.receive(patience.FETCH):
            came = self._link.take_deliveries(_AT_ONCE)
        return came

    def _consume(self, offset: int | str, letters: int) -> None:
        self._consumers += 1
        self._link.call(spec.Basic.Qos(prefetch_count=letters), spec.Basic.QosOk)
        consume = spec.Basic.Consume(
            queue=self._queue, consumer_tag=f"dlq-{self._consumers}", arguments={OFFSET: offset}
        )
        self._link.call(consume, spec.Basic.ConsumeOk)

    def _stop(self) -> None:
        """Stop; what is under way is taken and forgotten."""
        self._link.call(spec.Basic.Cancel(consumer_tag=f"dlq-{self._consumers}"), spec.Basic.CancelOk)
        while self._link.take_deliveries(ROUND):
            pass
        self._link.send(spec.Basic.Ack(delivery_tag=0, multiple=True))

    def close(self) -> None:
        """Let go of the connection. Never raises."""
        if not self._link.dead:
            with contextlib.suppress(LinkLostError, DlqError):
                self._stop()
        self._link.close()
        if self._look:
            self._look.close()


def _identity(letter: Record) -> str:
    """Return what no protocol and no version of the broker tells otherwise."""
    return f"{letter.body_sha256} {letter.message_id} {letter.published_at} {letter.dead_at}"


def offset_of(delivery: Delivery) -> int:
    """Return where the letter stands in its stream; 0 where the broker does not say it."""
    text = table.decode(delivery.block).headers.get(OFFSET, "")
    return int(text) if text.isascii() and text.isdigit() else 0
