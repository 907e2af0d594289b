"""Readings of RocketMQ: dead letters of a group, and the topics of its transactions.

RocketMQ acknowledges nothing: the messages stay until retention takes them, and the checkpoint in the
manifest is what "drained" means. An acknowledgement is therefore settled at once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dlq.connectors.base import Batch, Gap, ReadRequest
from dlq.connectors.rocketmq.cluster import Cluster
from dlq.connectors.rocketmq.connection import Link
from dlq.connectors.rocketmq.message import encode, parse, queue_offset
from dlq.connectors.rocketmq.queue_scan import PullScan, Step, scan_queue
from dlq.connectors.rocketmq.records import record_maker
from dlq.connectors.rocketmq.remoting import ProtocolError
from dlq.connectors.rocketmq.snapshot import OffsetRange, Plan, checkpoint_of
from dlq.connectors.rocketmq.transaction_outcomes import Outcomes
from dlq.core.errors import ConnectionLost

STAYS = (
    "RocketMQ deletes nothing on request: drained letters stay in their topic until the broker's retention "
    "takes them; the archive remembers what it has"
)


class RocketReading:
    """One scan over the ranges of a plan, queue after queue."""

    unique_ids = True
    settles_at_once = True

    def __init__(
        self,
        cluster: Cluster,
        request: ReadRequest,
        plan: Plan,
        topology: Mapping[str, Any],
        outcomes: Outcomes | None,
    ) -> None:
        """`outcomes` looks up what became of the transactions that come by; None for dead letters."""
        self.snapshot: int | None = plan.letters
        self.complete = plan.complete
        self.topology = topology
        self.notes = [*plan.notes, *([STAYS] if request.mode == "drain" else [])]
        self._cluster, self._request, self._plan, self._outcomes = cluster, request, plan, outcomes
        self._version = {node: str(facts["version"]) for node, facts in topology["brokers"].items()}
        self._links: dict[tuple[str, bool], Link] = {}
        self._position = self._taken = 0
        self._acknowledged = 0

    def batches(self) -> Iterator[Batch]:
        """The letters, queue by queue in offset order; then nothing more than the snapshot."""
        try:
            yield from self._batches()
        except ProtocolError as error:
            raise ConnectionLost(f"{self._cluster.name} sent what is no message: {error}") from error

    def _batches(self) -> Iterator[Batch]:
        gaps: Sequence[Gap] = self._plan.gaps
        for offset_range in self._plan.ranges:
            for batch in self._scan(offset_range):
                yield batch._replace(gaps=[*gaps, *batch.gaps])
                gaps = ()
                if self._taken == self._request.limit:
                    return
        if gaps:
            yield Batch([], self._position, gaps=gaps)

    def acknowledge(self, position: int) -> None:
        """Nothing to tell the broker."""
        self._acknowledged = max(position, self._acknowledged)

    def settled(self) -> int:
        """The checkpoint is durable with its manifest, and nothing else is needed."""
        return self._acknowledged

    def close(self) -> None:
        """Drop the connections and what is still in flight on them."""
        for link in self._links.values():
            link.close()

    def _scan(self, offset_range: OffsetRange) -> Iterator[Batch]:
        place, request = offset_range.place, self._request
        make = record_maker(request, self._cluster.name, self._version[place.node], place.node)
        for step in _gathered(self._steps(offset_range), request.batch_rows, request.batch_bytes):
            messages, reached = self._within_limit(step)
            self._taken += len(messages)
            records = make([*messages, *self._copies(place.node, messages)])
            self._position += len(records)
            checkpoint = checkpoint_of(offset_range.key, reached, messages)
            gaps = [gap._replace(log=offset_range.key, is_counted=True) for gap in step.gaps]
            yield Batch(records, self._position, checkpoint, (), gaps)
            if self._taken == request.limit:
                return

    def _copies(self, node: str, messages: Sequence[bytes]) -> list[bytes]:
        """The real messages of the transactions in a batch. They are evidence beside the snapshot."""
        if self._outcomes is None or not messages:
            return []
        found = self._outcomes.of(self._link(node, aside=True), node, [*map(parse, messages)])
        return [*map(encode, found)]

    def _within_limit(self, step: Step) -> tuple[Sequence[bytes], int]:
        limit = self._request.limit
        room = len(step.messages) if limit is None else limit - self._taken
        if room >= len(step.messages):
            return step.messages, step.reached
        return step.messages[:room], queue_offset(step.messages[room])

    def _steps(self, offset_range: OffsetRange) -> Iterable[Step]:
        place, start, end, pullable, _ = offset_range
        link = self._link(place.node)
        if pullable:
            return PullScan(link, place, start, end, self._request.batch_bytes)
        return scan_queue(link, place, start, end)

    def _link(self, node: str, aside: bool = False) -> Link:
        """`aside`: a second one, for questions while a scan has requests in flight on the first."""
        if (node, aside) not in self._links:
            self._links[node, aside] = self._cluster.new_link(node)
        return self._links[node, aside]


def _gathered(steps: Iterable[Step], rows: int, size: int) -> Iterator[Step]:
    """Steps put together until they are worth a batch; an empty step passes at once what there is."""
    messages: list[bytes] = []
    gaps: list[Gap] = []
    held = reached = 0
    for step in steps:
        weight = sum(map(len, step.messages))
        fits = len(messages) + len(step.messages) <= rows and held + weight <= size
        if fits:
            messages += step.messages
            held += weight
        for message in () if fits else step.messages:
            if len(messages) >= rows or (messages and held + len(message) > size):
                yield Step(messages, queue_offset(message), gaps)
                messages, gaps, held = [], [], 0
            messages.append(message)
            held += len(message)
        _join(gaps, step.gaps)
        reached = step.reached
        if not step.messages and not step.gaps:
            yield Step(messages, reached, gaps)
            messages, gaps, held = [], [], 0
    if messages or gaps:
        yield Step(messages, reached, gaps)


def _join(gaps: list[Gap], more: Iterable[Gap]) -> None:
    """Neighbours as one gap: what an index lacks comes offset by offset."""
    for gap in more:
        last = gaps[-1] if gaps else None
        if last is not None and (last.place, last.end) == (gap.place, gap.first):
            gaps[-1] = last._replace(end=gap.end)
        else:
            gaps.append(gap)
