"""One scan of a RabbitMQ queue: exact at the snapshot, nothing rejected, nothing acknowledged early.

The scan goes in windows. A window is a consumer, which the broker gives what its prefetch allows and what
is acknowledged of it; acknowledgements stop short by the prefetch, so it gets exactly the window. Then it
is cancelled, with nothing in flight, and the next one begins. The sum of the windows is the snapshot. In
a drain a window is many prefetches, in a copy, which acknowledges nothing, just one; and where letters
are alike, one that is acknowledged when all of it is durable. All of it
happens on one channel that consumes nothing else, so a delivery tag is the letter's position, and what
was not acknowledged goes back with one basic.nack (a reject, a close or a crash would count as a failed
delivery on quorum queues, and a limit kills what has failed too often).
"""

import contextlib
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pika import spec

from dlq.connectors.base import Batch, ReadRequest
from dlq.connectors.net.links import ConsumerEndedError, LinkLostError
from dlq.connectors.queue import IdleTimer
from dlq.connectors.rabbitmq.amqp091.codec.frames import Delivery
from dlq.connectors.rabbitmq.amqp091.codec.table import delivery_count
from dlq.connectors.rabbitmq.amqp091.link.channel import Link
from dlq.connectors.rabbitmq.amqp091.link.questions import Refused
from dlq.connectors.rabbitmq.records.deliveries import record_maker
from dlq.core import errors
from dlq.core.runtime import patience
from dlq.core.text import for_terminal

_FIRST_PREFETCH = 64
_FEW = 32
"""Letters that a cut connection may cost where the limit of deliveries is not known."""
_GROWTH = 16
_SLIDE = 8
"""Prefetches to a window: then sizes are looked at again."""
_MOST_LETTERS = 6_000
_MOST_BYTES = 64 * 2**20
_STREAM_OFFSET = b"\x0fx-stream-offset"
"""The name of a header, as a table has it."""
_LOCKED, _OF_ANOTHER_KIND, _FAILED = 405, 540, 541
_NEAR_LIMIT = (
    "{} letters of {} were near its delivery limit, by attempts that failed before: they were taken one at a "
    "time"
)


def is_empty(link: Link, queue: str) -> bool:
    """Return whether the leader of a quorum queue says so: it is asked for a letter, and one that comes goes
    back. The link is of no use for a reading afterwards. Raises NoLeader where no leader answers, and what
    the link makes of another refusal.

    A queue with a single active consumer refuses, and so does a stream: that is an answer, too.
    """
    usual, link.refusal = link.refusal, Refused
    try:
        found = link.call(spec.Basic.Get(queue=queue), (spec.Basic.GetEmpty, spec.Basic.GetOk))
    except Refused as refused:
        if refused.code == _FAILED:  # it waited for a leader
            raise errors.NoLeader(f"the queue {for_terminal(queue)} has no leader that answers") from refused
        if refused.code not in (_LOCKED, _OF_ANOTHER_KIND):
            raise usual(refused.code, refused.text) from refused
        return True
    finally:
        link.refusal = usual
    if isinstance(found, spec.Basic.GetOk):
        link.send(spec.Basic.Nack(delivery_tag=found.delivery_tag, requeue=True))
        return False
    return True


def keeps_marks(topology: Mapping[str, Any]) -> bool:
    """Return whether a queue remembers what it has delivered, which a classic one of RabbitMQ 4 does not when
    its node was restarted in order [ran 4.3.6]."""
    return bool(topology.get("queue_type") == "quorum")


class RabbitReading:
    """A pull of one queue, window by window, by the contract of `Reading`."""

    unique_ids = False
    settles_at_once = resumes = alike = False

    def __init__(
        self,
        link: Link,
        request: ReadRequest,
        snapshot: int,
        topology: Mapping[str, Any],
        notes: Sequence[str],
    ) -> None:
        self.snapshot: int | None = snapshot
        self.complete = False
        self.topology = topology
        self.notes = notes
        self.marks_redelivered = keeps_marks(topology)
        self._link = link
        self._request = request
        self._queue = request.source.queue or ""
        self._wanted = snapshot if request.limit is None else min(snapshot, request.limit)
        self._make = record_maker(request, link.server_version)
        self._windows = 0
        self._start = self._end = self._prefetch = 0
        self._consuming = False
        self._taken: list[Delivery] = []
        self._received = 0
        self._size = self._yielded_size = 0
        self._yielded = time.monotonic()
        self._durable = 0
        self._acknowledged = self._settled = 0
        self._before_window = 0
        """Letters that were acknowledged when the window was opened."""
        self._over = False
        limit = topology.get("delivery_limit") if topology.get("queue_type") == "quorum" else None
        self._last_but_one = limit - 1 if isinstance(limit, int) and request.mode == "drain" else None
        """A letter that was given back so often may be lost by the next failure but one."""
        self._near_limit = 0
        kind, seen = topology.get("queue_type"), topology.get("policies_known")
        self._holds_few = request.mode == "drain" and kind in (None, "quorum") and not seen
        self._stays = request.mode == "drain" and kind is None
        """It may go with its last consumer (auto-delete), so there is one until all is durable."""

    @property
    def position(self) -> int:
        """The position of the last letter received."""
        return self._received

    @property
    def seen(self) -> int:
        """See `dlq.connectors.chain.Part`: every letter is delivered."""
        return self._received

    def batches(self) -> Iterator[Batch]:
        """See `Reading.batches`. When the connection ends, what had come by then is yielded first."""
        try:
            try:
                yield from self._scan()
                self.complete = self._received >= self._wanted
            except (LinkLostError, errors.DlqError):
                yield from self._rest()
                raise
        except LinkLostError as error:
            raise self._translate(error) from error
        finally:
            self._finish()

    def _scan(self) -> Iterator[Batch]:
        silence = IdleTimer()
        while self._received < self._wanted and silence.seconds < patience.REPLY:
            if self._is_window_over() and not (yield from self._begin_window()):
                continue
            if self._is_starved():
                yield from self._await_ack()
                continue
            before, asked = self._received, time.monotonic()
            self._link.receive(patience.FETCH)
            waited = time.monotonic() - asked
            while self._take():
                if self._is_full():
                    yield self._batch()
            if self._received > before:
                silence.hear()
            else:
                silence.wait(waited, self._link.unfinished_bytes)
            if time.monotonic() - self._yielded >= patience.YIELD:
                yield self._batch()
        yield from self._stay_until_durable()
        self._stop_consuming()
        if self._near_limit:
            self.notes = [*self.notes, _NEAR_LIMIT.format(self._near_limit, for_terminal(self._queue))]
        yield from self._rest()

    def _stay_until_durable(self) -> Iterator[Batch]:
        while self._stays and self._consuming and self._durable < self._received:
            yield from self._await_ack()

    def _take(self) -> bool:
        """Take what has come, as far as the batch has room."""
        came = self._link.take_deliveries(self._request.batch_rows - len(self._taken))
        if came and not self._received:
            self._refuse_stream(came[0])
        self._taken += came
        self._received += len(came)
        self._spare(came)
        self._size += sum([len(delivery.body) for delivery in came])
        return bool(came)

    def _spare(self, came: Sequence[Delivery]) -> None:
        """Ask for one delivery at a time from the first letter whose deliveries run out: each is archived and
        acknowledged before the next, so that whatever ends the drain costs one letter a delivery, not
        thousands."""
        if self._last_but_one is None:
            return
        near = sum(delivery_count(delivery.block) >= self._last_but_one for delivery in came)
        if near and not self._near_limit:
            self._request = replace(self._request, careful=True)
        self._near_limit += near

    def _refuse_stream(self, first: Delivery) -> None:
        """Refuse a stream: it forgets nothing, so a drain would never end; without rights only its header
        tells."""
        if self.topology.get("queue_type") is None and _STREAM_OFFSET in first.block:
            raise errors.UsageError(
                f"source {self._request.source.name}: {self._queue} is a stream; set "
                "management_url, then pull it with --mode copy"
            )

    def _goes_by_windows(self) -> bool:
        return self.alike and self._request.mode == "drain" and not self._stays

    def _is_window_over(self) -> bool:
        if self._goes_by_windows() and self._is_starved():
            self._end = self._received  # nothing more is on its way
        return self._received == self._end

    def _begin_window(self) -> Generator[Batch, None, bool]:
        """Begin the next window, if what waits for its acknowledgement allows it; return whether it has."""
        before = self._acknowledged
        self._stop_consuming()
        if self._received - self._acknowledged > self._most_before_window():
            yield from self._await_ack()
            return False
        if self._goes_by_windows() and self._acknowledged > before:
            yield self._batch()  # behind which the caller settles
        self._open_window()
        return True

    def _most_before_window(self) -> int:
        """Return how many may wait for their acknowledgement when a window begins; a copy gives none."""
        if self._request.mode == "drain" and (self._request.careful or self._goes_by_windows()):
            return 0
        return 1 if self._holds_few else self._wanted

    def _is_full(self) -> bool:
        size = self._size - self._yielded_size
        return len(self._taken) >= self._request.batch_rows or size >= self._request.batch_bytes

    def _batch(self) -> Batch:
        taken, self._taken = self._taken, []
        self._yielded, self._yielded_size = time.monotonic(), self._size
        return Batch(self._make(taken) if taken else (), self._received)

    def _rest(self) -> Iterator[Batch]:
        while self._take():
            if self._is_full():
                yield self._batch()
        if self._taken:
            yield self._batch()

    def _is_starved(self) -> bool:
        return self._received - max(self._acknowledged, self._start) >= self._prefetch

    def _await_ack(self) -> Iterator[Batch]:
        """Yield the rest, and an empty batch: only an acknowledgement of the caller's can bring more."""
        yield from self._rest()
        time.sleep(patience.BLINK)
        yield self._batch()

    def _open_window(self) -> None:
        before, self._prefetch = self._prefetch, self._next_prefetch()
        slides = self._request.mode == "drain" and 1 < self._prefetch < before * _GROWTH
        is_only = self._stays or (self._holds_few and self._last_but_one is None)
        if self._goes_by_windows():
            slides = is_only = False
        window = self._wanted if is_only else self._prefetch * (_SLIDE if slides else 1)
        self._windows += 1
        self._link.call(spec.Basic.Qos(prefetch_count=self._prefetch), spec.Basic.QosOk)
        consume = spec.Basic.Consume(queue=self._queue, consumer_tag=self._consumer_tag())
        self._link.call(consume, spec.Basic.ConsumeOk)
        self._start, self._end = self._received, min(self._received + window, self._wanted)
        self._consuming, self._before_window = True, self._acknowledged

    def _consumer_tag(self) -> str:
        """Return a tag that sorts like the windows: letters of several go back in the order of their tags."""
        return f"dlq-{self._windows:08d}"

    def _next_prefetch(self) -> int:
        """Return how many may wait for their acknowledgement: by the sizes seen so far, carefully grown."""
        rest = self._wanted - self._received
        if self._request.careful:
            return 1
        if not self._received and self._last_but_one is not None:
            return 1  # the first letter tells how many deliveries are left
        if self._holds_few:
            return min(_FEW - (self._received - self._acknowledged), rest)
        if not self._received:
            return min(_FIRST_PREFETCH, rest)
        fitting = _MOST_BYTES // max(1, self._size // self._received)
        return max(1, min(fitting, _MOST_LETTERS, self._prefetch * _GROWTH, rest))

    def _stop_consuming(self) -> None:
        if self._consuming:
            self._link.call(spec.Basic.Cancel(consumer_tag=self._consumer_tag()), spec.Basic.CancelOk)
            self._consuming = False
            self._release()

    def _finish(self) -> None:
        """Stop, however the scan ended: no more letters are wanted, so all acknowledgements may go."""
        if not self._link.dead:
            with contextlib.suppress(LinkLostError, errors.DlqError):
                self._stop_consuming()
        self._over = not self._link.dead

    def acknowledge(self, position: int) -> None:
        """See `Reading.acknowledge`. What would let the broker exceed the window waits for its end."""
        self._durable = position
        try:
            self._release()
        except LinkLostError as error:
            raise self._translate(error) from error

    def _release(self) -> None:
        is_held = self._goes_by_windows() and (self._consuming or self._durable < self._delivered)
        if is_held or self._is_lost():
            return
        most = max(self._start, self._end - self._prefetch)
        tag = min(self._durable, most) if self._consuming else self._durable
        if tag > self._acknowledged:
            self._link.send(spec.Basic.Ack(delivery_tag=tag, multiple=True))
            self._acknowledged = tag

    @property
    def _delivered(self) -> int:
        """The position of the last letter that has come, taken or not."""
        return self._received + self._link.untaken

    def settled_position(self) -> int:
        """See `Reading.settled_position`. Only a classic queue proves it by any answer."""
        if self._is_lost():
            return self._settled
        try:
            if self.topology.get("queue_type") == "classic":
                self._link.find_queue(self._queue)
            elif not self._is_committed():
                self._settled = max(self._settled, self._proven_by_letters())
                return self._settled
        except LinkLostError as error:
            raise self._translate(error) from error
        except errors.NotFound:
            if not (self._stays and self._over):  # else it went with our consumer, and nothing comes back
                raise
        self._settled = self._acknowledged
        return self._settled

    def _proven_by_letters(self) -> int:
        """Return up to where acknowledgements must be committed, or fewer letters had come: a window's first
        comes behind what was acknowledged before, and each beyond its prefetch behind another one."""
        if self._received == self._start:
            return 0
        position = self._received - self._prefetch
        return position if position > self._start else self._before_window

    def _is_committed(self) -> bool:
        """Return whether a quorum queue has committed all acknowledgements.

        A declare is answered by its leader alone, although that is cut off from the others, and where there
        is none by the node: no letters, no consumers. But the leader tells only what is committed, and counts
        a consumer that was cancelled until its letters are acknowledged [ran 3.10.8, 4.3.6]. Where that
        proves nothing a letter is asked for, once nothing more is read: the answer comes behind a commit.
        """
        is_whole = not self._consuming and self._acknowledged == self._delivered
        if not (is_whole or self._over):
            return False
        for _ in patience.tries(patience.RECHECK if is_whole else 0, patience.BLINK):
            found = self._link.find_queue(self._queue)
            if not found.message_count:
                break
            if not found.consumer_count:
                return True
        if self._over and self._acknowledged > self._settled:
            is_empty(self._link, self._queue)
        return self._over

    def _is_lost(self) -> bool:
        """Return whether the scan is about to say how its connection ended."""
        return self._link.dead and not self._over

    def _translate(self, error: LinkLostError) -> errors.ConnectionLost:
        kind = errors.ConsumerEnded if isinstance(error, ConsumerEndedError) else errors.ConnectionLost
        return kind(f"source {self._request.source.name}: the connection ended: {error}")

    def close(self) -> None:
        """End the consumer and give back what was not acknowledged, with requeue."""
        self._finish()
        if not self._link.dead:
            with contextlib.suppress(LinkLostError, errors.DlqError):
                self._link.send(spec.Basic.Nack(delivery_tag=0, multiple=True, requeue=True))
        self._link.close()
