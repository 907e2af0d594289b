"""Readings of RocketMQ: dead letters of a group, and the topics of its transactions."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from dlq.connectors.base import NO_CHECKPOINT, Batch, Checkpoint, Gap, ReadRequest
from dlq.connectors.log import LogReading, OffsetRange, Plan, find_generation
from dlq.connectors.rocketmq.link.cluster import Cluster
from dlq.connectors.rocketmq.link.connection import Link
from dlq.connectors.rocketmq.link.message import encode, parse, queue_offset
from dlq.connectors.rocketmq.link.remoting import ProtocolError
from dlq.connectors.rocketmq.read.outcomes import Outcomes, untold_key
from dlq.connectors.rocketmq.read.queue import Step
from dlq.connectors.rocketmq.read.snapshot import QueueOffsets, checkpoint_of, is_still_there, steps_of
from dlq.connectors.rocketmq.records.messages import record_maker
from dlq.core.errors import ConnectionLost, NotFound
from dlq.core.runtime import patience

_UNTOLD = (
    "{}: of transactions that have ended its index knows no message, and their topics' queues could not be "
    "looked through to the end: nothing shows that they were rolled back"
)
_DELETED = (
    "{} was deleted while it was read, and perhaps made again: what it held from offset {} on is gone, and "
    "the next pull reads what is there then from its start"
)


class RocketReading(LogReading):
    """One scan over the ranges of a plan, queue after queue."""

    def __init__(
        self,
        cluster: Cluster,
        request: ReadRequest,
        plan: Plan[QueueOffsets],
        topology: Mapping[str, Any],
        outcomes: Outcomes | None,
    ) -> None:
        """`outcomes` looks up what became of the transactions that come by; None for dead letters."""
        super().__init__(request, plan, topology, "RocketMQ")
        self._cluster, self._outcomes = cluster, outcomes
        self._version = {node: str(facts["version"]) for node, facts in topology["brokers"].items()}
        self._links: dict[tuple[str, bool], Link] = {}

    def scan(self) -> Iterator[Batch]:
        """Yield the letters, queue by queue in offset order; then nothing more than the snapshot."""
        try:
            for offset_range in self._plan.ranges:
                yield from self._scan(offset_range)
                if self._position == self._request.limit:
                    return
        except ProtocolError as error:
            raise ConnectionLost(f"{self._cluster.name} sent what is no message: {error}") from error

    def close(self) -> None:
        """Drop the connections and what is still in flight on them."""
        for link in self._links.values():
            link.close()

    def _scan(self, offset_range: OffsetRange[QueueOffsets]) -> Iterator[Batch]:
        (place, *_), request = offset_range.place, self._request
        make = record_maker(request, self._version[place.node], place.node)
        reached, first = offset_range.start, None
        steps = _while_there(self._steps(offset_range))
        for step in gather(steps, request.batch_rows, request.batch_bytes):
            messages, reached, missing = self._within_limit(step)
            first = first or next(iter(messages), None)
            self._position += len(messages)
            records = make([*messages, *self._copies(place.node, messages)])
            checkpoint = {**checkpoint_of(offset_range.key, reached, messages), **self._untold(place.node)}
            gaps = [gap._replace(log=offset_range.key, is_counted=True) for gap in missing]
            yield Batch(records, self._position, checkpoint, (), gaps)
            if self._position == request.limit:
                break
        if offset_range.start < offset_range.end:
            yield from self._look_again(offset_range, reached, first)

    def _look_again(
        self, offset_range: OffsetRange[QueueOffsets], reached: int, first: bytes | None
    ) -> Iterator[Batch]:
        """Look whether the topic was deleted meanwhile, and made again: what was read may be of two queues
        then, and the next reading begins at the start of what is there."""
        place, key = offset_range.place.place, offset_range.key
        if is_still_there(self._cluster, offset_range.place, reached, first):
            if reached < offset_range.end and self._position != self._request.limit:
                raise ConnectionLost(f"{place} was not there for a moment")
            return
        self.complete, self.notes = False, [*self.notes, _DELETED.format(place, reached)]
        end = offset_range.end if reached < offset_range.end else None
        generation, _ = find_generation(str(place), {**self._request.resume, key: reached})
        begin_anew = {f"{place}~{generation + 1}": 0}
        yield Batch([], self._position, begin_anew, (), [Gap(str(place), reached, end, key, end is not None)])

    def _copies(self, node: str, messages: Sequence[bytes]) -> list[bytes]:
        """Return the real messages of the transactions in a batch. They are evidence beside the snapshot."""
        if self._outcomes is None or not messages:
            return []
        found = self._outcomes.real_messages(self._link(node, aside=True), node, [*map(parse, messages)])
        return [*map(encode, found)]

    def _untold(self, node: str) -> Checkpoint:
        """Return what pulls remember of a broker of whose transactions nothing shows how they ended."""
        known = self.topology["brokers"][node]
        if self._outcomes is None or (known["index"] is not False and node not in self._outcomes.untold):
            return NO_CHECKPOINT
        if known["index"] is not False:
            known["index"] = False
            self.notes = [*self.notes, _UNTOLD.format(node)]
        return {untold_key(node): 1}

    def _within_limit(self, step: Step) -> Step:
        limit = self._request.limit
        room = len(step.messages) if limit is None else limit - self._position
        if room >= len(step.messages):
            return step
        reached = queue_offset(step.messages[room])
        return Step(step.messages[:room], reached, _gaps_before(reached, step.gaps))

    def _steps(self, offset_range: OffsetRange[QueueOffsets]) -> Iterable[Step]:
        offsets, start, end, _ = offset_range
        return steps_of(self._link(offsets.place.node), offsets, start, end, self._request.batch_bytes)

    def _link(self, node: str, aside: bool = False) -> Link:
        """`aside`: a second one, for questions while a scan has requests in flight on the first."""
        if (node, aside) not in self._links:
            self._links[node, aside] = self._cluster.new_link(node)
        return self._links[node, aside]


def _while_there(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield those that come before the topic is gone."""
    with suppress(NotFound):
        yield from steps


def gather(steps: Iterable[Step], rows: int, size: int) -> Iterator[Step]:
    """Steps put together until they are worth a batch, or a second old; an empty step passes at once
    what there is."""
    messages: list[bytes] = []
    gaps: list[Gap] = []
    held = reached = 0
    yielded = time.monotonic()
    for step in steps:
        weight = sum(map(len, step.messages))
        fits = len(messages) + len(step.messages) <= rows and held + weight <= size
        if fits:
            messages += step.messages
            held += weight
        _join(gaps, step.gaps)
        for message in () if fits else step.messages:
            if len(messages) >= rows or (messages and held + len(message) > size):
                at = queue_offset(message)
                yield Step(messages, at, told := _gaps_before(at, gaps))
                messages, gaps, held = [], gaps[len(told) :], 0
            messages.append(message)
            held += len(message)
        reached = step.reached
        if not (step.messages or step.gaps) or time.monotonic() - yielded > patience.YIELD:
            yield Step(messages, reached, gaps)
            messages, gaps, held = [], [], 0
            yielded = time.monotonic()
    if messages or gaps:
        yield Step(messages, reached, gaps)


def _gaps_before(offset: int, gaps: Iterable[Gap]) -> list[Gap]:
    return [gap for gap in gaps if gap.first < offset]


def _join(gaps: list[Gap], more: Iterable[Gap]) -> None:
    """Neighbours as one gap: what an index lacks comes offset by offset."""
    for gap in more:
        last = gaps[-1] if gaps else None
        if last is not None and (last.place, last.end) == (gap.place, gap.first):
            gaps[-1] = last._replace(end=gap.end)
        else:
            gaps.append(gap)
