"""The engine of readings of a log: from which offset to which each of its places is read, and what is gone.

A log (a partition of Kafka, a queue of RocketMQ, a stream of RabbitMQ) keeps its letters whoever reads them.
Nothing is acknowledged there: the checkpoint in the manifest is what "drained" means, so it is written once,
as settled.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Generic, NamedTuple, TypeVar

from dlq.connectors.base import NO_CHECKPOINT, Batch, Checkpoint, Gap, Reading, ReadRequest
from dlq.core.record import Record

_Place = TypeVar("_Place")
_LETTER, _DIGEST = "#letter", 2**24
"""Behind a checkpoint's key: where the last letter that was read stands, and below that a digest of it. It
grows with the offset, as checkpoints must."""


class OffsetRange(NamedTuple, Generic[_Place]):
    """What a reading takes of one place: [start, end). `key` names its checkpoint."""

    place: _Place
    start: int
    end: int
    key: str


class Words(NamedTuple):
    """How a broker's losses are told, with {place}, {reached} (by earlier pulls), {last} (before that),
    {first} and {end} (of what is there)."""

    begun_anew: str
    gone: str


_WORDS = Words(
    begun_anew="{place} ends at {end} and was read to {reached}: it is another one, read from its start",
    gone="{place}: what came before offset {first} was gone before this pull",
)


@dataclass
class Plan(Generic[_Place]):
    """All ranges of a reading, and what is to be said about them."""

    ranges: list[OffsetRange[_Place]] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    complete: bool = True
    marks: dict[str, int] = field(default_factory=dict)
    """What checkpoints keep beside what is read, to know each log again; nothing of it needs to be read."""

    @property
    def offsets(self) -> int:
        """How many there are; not each has a letter."""
        return sum(one.end - one.start for one in self.ranges)

    def add(
        self,
        place: _Place,
        name: str,
        key: str,
        bounds: tuple[int, int],
        resume: Checkpoint,
        words: Words = _WORDS,
        *,
        end: int | None = None,
        anew: bool = False,
    ) -> str:
        """Return the range of a place that is called `name` and holds offsets [bounds): from its checkpoint,
        or from what is still there, to the end, or to an earlier `end`, before which letters may be read.
        Returns the key of its checkpoint."""
        key, start = self._find_start(name, key, *bounds, resume, words, anew)
        self.ranges.append(OffsetRange(place, start, max(start, bounds[1] if end is None else end), key))
        return key

    def _find_start(
        self, place: str, key: str, first: int, end: int, resume: Checkpoint, words: Words, anew: bool = False
    ) -> tuple[str, int]:
        """Return the key of the checkpoint of a place that holds [first, end), and the offset where to begin:
        at the checkpoint, or at what is still there. What is gone becomes a gap of the plan, or a note where
        it went before any pull. `anew`: it is another log than the one that was read, although it is as
        long."""
        generation, latest = find_generation(key, resume)
        reached = resume.get(latest, 0)
        told = {"place": place, "reached": reached, "last": reached - 1, "first": first, "end": end}
        if anew or reached > end:
            self.complete = False  # nobody knows what the old log held beyond its checkpoint
            self.gaps.append(Gap(place, reached, None, latest))
            self.notes.append(words.begun_anew.format(**told))
            latest = f"{key}~{generation + 1}"
            self.marks[latest] = first  # though nothing is there to be read: this is told once
            return latest, first
        if reached < first and latest in resume:
            self.gaps.append(Gap(place, reached, first, latest))
        elif reached < first:
            self.notes.append(words.gone.format(**told))
        return latest, max(reached, first)


def find_generation(key: str, resume: Checkpoint) -> tuple[int, str]:
    """Return the newest log that was read at a place, and the key of its checkpoint. One that began anew has
    a key of its own, `KEY~1`."""
    generation, latest = 0, key
    while (following := f"{key}~{generation + 1}") in resume:
        generation, latest = generation + 1, following
    return generation, latest


def mark_letter(key: str, offset: int, told: str) -> Checkpoint:
    """Return what a checkpoint keeps of the last letter before it. `told`: what tells it from another there,
    and is the same whenever and however it is read."""
    return {f"{key}{_LETTER}": offset * _DIGEST + _digest(told)}


def is_another(
    key: str, first: int, end: int, resume: Checkpoint, told_at: Callable[[int], str | None]
) -> bool:
    """Return whether a place that holds [first, end) has another letter where the last one was read: then it
    was made anew, or lost its store, and has grown as far. `told_at` an offset: what `mark_letter` was told
    there; None where nothing is, which proves nothing, as a letter that retention has taken does not."""
    _, latest = find_generation(key, resume)
    offset, digest = divmod(resume.get(f"{latest}{_LETTER}", 0), _DIGEST)
    if not digest or not first <= offset < end:
        return False
    told = told_at(offset)
    return told is not None and _digest(told) != digest


def _digest(told: str) -> int:
    """Return a digest that is never 0, which stands for none."""
    return int.from_bytes(sha256(told.encode()).digest()[:3]) or 1


class LogReading(Reading):
    """See `Reading`; a broker overrides `fetch`, or `scan` where places are not read one after the other."""

    unique_ids = True
    marks_redelivered = resumes = alike = False
    settles_at_once = True

    def __init__(
        self, request: ReadRequest, plan: Plan[Any], topology: Mapping[str, Any], broker: str
    ) -> None:
        """`broker`: the kind, in words."""
        stays = (
            f"{broker} deletes nothing on request: drained messages stay in their topic until retention "
            "takes them; the archive remembers what it has"
        )
        self.snapshot: int | None = plan.offsets
        self.complete = plan.complete
        self.topology = topology
        self.notes = [*plan.notes, *([stays] if request.mode == "drain" else [])]
        self._request, self._plan = request, plan
        self._at_once: Checkpoint = plan.marks if request.mode == "drain" else NO_CHECKPOINT
        """What the first checkpoint says beside what was read."""
        self._position = self._acknowledged = 0

    def fetch(self, place: Any, start: int, most: int) -> tuple[Sequence[Record], int]:
        """Fetch up to so many letters of a place from an offset on, and the offset behind them, waiting a
        second at most. Raises BrokerError."""
        raise NotImplementedError

    def scan(self) -> Iterator[Batch]:
        """Yield the letters, without what the plan tells."""
        limit, rows = self._request.limit, self._request.batch_rows
        for place, start, end, key in self._plan.ranges:
            at = start
            while at < end and self._position != limit:
                room = rows if limit is None else min(rows, limit - self._position)
                records, at = self.fetch(place, at, min(room, end - at))
                self._position += len(records)
                yield Batch(records, self._position, {key: at})

    def batches(self) -> Iterator[Batch]:
        """Yield the letters; what the plan tells comes with the first of them."""
        gaps, checkpoint = self._plan.gaps, self._at_once
        for batch in self.scan():
            yield batch._replace(gaps=[*gaps, *batch.gaps], checkpoint={**checkpoint, **batch.checkpoint})
            gaps, checkpoint = [], NO_CHECKPOINT
        if gaps or checkpoint:
            yield Batch([], self._position, checkpoint, (), gaps)

    def acknowledge(self, position: int) -> None:
        """Acknowledge nothing: there is nothing to tell the broker."""
        self._acknowledged = max(position, self._acknowledged)

    def settled_position(self) -> int:
        """Return what is acknowledged: the checkpoint is durable with its manifest, which is enough."""
        return self._acknowledged

    def close(self) -> None:
        """See `Reading`."""
