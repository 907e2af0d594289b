"""Reading partitions: all of a plan at once, each in offset order, up to where it ended at the start.

No group is joined, and nothing is committed.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from dlq.connectors.base import Batch, Gap, ReadRequest, Skipped
from dlq.connectors.kafka.look.cluster import Cluster, Place
from dlq.connectors.kafka.read.odd_headers import OddHeaders
from dlq.connectors.kafka.read.pointers import Pointers
from dlq.connectors.kafka.read.snapshot import unread_note
from dlq.connectors.kafka.records.columns import letters_of
from dlq.connectors.kafka.records.messages import record_maker
from dlq.connectors.log import LogReading, OffsetRange, Plan
from dlq.core.errors import OF_ONE_MEMBER, BrokerError, NotFound
from dlq.core.record import Record
from dlq.core.text import for_terminal

_FIRST_FETCH = 32
_QUEUED_KILOBYTES = 16_384
_DELETED = (
    "{} was deleted while it was read, and made again: the letters that it held and that are not in the "
    "archive are gone, and the next pull reads what is there then from its start"
)
_NOT_SHOWN = "{} is not shown any more: it was deleted, or the broker that was asked does not know it yet"
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class _Progress:
    """How far one partition is."""

    def __init__(self, offset_range: OffsetRange[Place]) -> None:
        self.place, self.at, self.end, self.key = offset_range
        self.gaps: list[Gap] = []

    @property
    def left(self) -> int:
        """Offsets that are not known yet."""
        return self.end - self.at


class KafkaReading(LogReading):
    """One scan over the ranges of a plan."""

    def __init__(
        self,
        cluster: Cluster,
        request: ReadRequest,
        plan: Plan[Place],
        topology: Mapping[str, Any],
        topic_ids: Mapping[str, str],
        pointers: Pointers | None,
    ) -> None:
        """`pointers` fetches what dead letters of share groups point to; None leaves them as they are."""
        super().__init__(request, plan, topology, "Kafka")
        self._cluster, self._pointers = cluster, pointers
        self._make = record_maker(request, cluster.id, topic_ids)
        self._ids, self._deleted = topic_ids, set[str]()
        self._topics, self._unread = {one.place.topic for one in plan.ranges}, set[str]()
        self._open: dict[tuple[str, int], _Progress] = {
            one.place: _Progress(one) for one in plan.ranges if one.end > one.start
        }
        if request.mode == "drain":
            empty = {one.key: one.start for one in plan.ranges if one.end <= one.start}
            self._at_once = {**self._at_once, **empty}
        self._headers = OddHeaders(cluster)
        self._taken: dict[Place, _Progress] = {}
        self._largest = 1

    def scan(self) -> Iterator[Batch]:
        """Yield the letters of all partitions, interleaved; then nothing more than the snapshot."""
        if not self._open or self._request.limit == 0:
            return
        self._assign()
        silent_since = time.monotonic()
        while self._open and self._position != self._request.limit:
            found = self._fetch()
            letters = self._letters(found)
            if found:
                silent_since = time.monotonic()
            elif self._cluster.is_silent(silent_since) and not any(
                self._is_another(topic) for topic in {topic for topic, _ in self._open}
            ):
                raise self._cluster.silence()
            yield self._batch(letters)
        for topic in self._topics - self._unread:
            self._is_another(topic)
        if self._taken:
            yield self._batch([])

    def close(self) -> None:
        """Drop the connections; no group was joined, so nobody is told."""
        if "_consumer" in self.__dict__:
            self._consumer.close()
            del self._consumer
        self._headers.close()
        if self._pointers is not None:
            self._pointers.close()

    @cached_property
    def _consumer(self) -> Consumer:
        return self._cluster.consumer({"queued.max.messages.kbytes": _QUEUED_KILOBYTES})

    def _fetch(self) -> list[Any]:
        request = self._request
        left = sum(one.left for one in self._open.values())  # for more it would wait in vain
        most = min(left, request.batch_rows, max(1, request.batch_bytes // self._largest))
        if self._largest == 1:
            most = min(most, _FIRST_FETCH)
        if request.limit is not None:
            most = min(most, request.limit - self._position + len(self._open))
        return self._cluster.fetch(self._consumer, most)

    def _letters(self, messages: list[Any]) -> list[Any]:
        """Return those of the snapshot among what came, no more than the limit has room for."""
        letters: list[Any] = []
        room = None if self._request.limit is None else self._request.limit - self._position
        if self._is_next_run(messages, room):
            return messages
        for message in messages:
            place = message.topic(), message.partition()
            error, progress = message.error(), self._open.get(place)
            if error is not None:
                self._react(error, Place(*place), progress, message.offset())
            elif progress is not None and len(letters) == room:
                self._assign()  # it is behind what is known, and comes again
                break
            elif progress is not None:
                self._largest = max(self._largest, len(message))
                if self._is_letter(progress, message.offset()):
                    letters.append(message)
        return letters

    def _is_next_run(self, messages: Sequence[Any], room: int | None) -> bool:
        """Return whether they are the next letters of one partition without a gap, and more are to come:
        mostly so. They are taken then."""
        if not messages or (room is not None and len(messages) > room) or any(map(Message.error, messages)):
            return False
        places: list[Any] = [
            *zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
        ]
        progress, after = self._open.get(places[0]), messages[0].offset() + len(messages)
        is_run = (
            progress is not None
            and places.count(places[0]) == len(places)
            and progress.at == messages[0].offset()
            and after == messages[-1].offset() + 1 < progress.end
        )
        if progress is not None and is_run:
            self._largest = max(self._largest, *map(len, messages))
            progress.at = after
            self._taken[progress.place] = progress
        return is_run

    def _is_letter(self, progress: _Progress, offset: int) -> bool:
        """Return whether a record is of the snapshot, and is not taken; all before it is known then, too."""
        is_letter = progress.at <= offset < progress.end
        self._move(progress, offset, 1 if is_letter else 0)
        return is_letter

    def _move(self, progress: _Progress, offset: int, letters: int) -> None:
        """Move on: all before `offset` is known, and so many letters from there; the rest were never
        letters."""
        reached = min(offset + letters, progress.end)
        if self.snapshot is not None:
            self.snapshot -= max(0, reached - progress.at - letters)
        progress.at = max(progress.at, reached)
        self._taken[progress.place] = progress
        if not progress.left:
            self._leave(progress)

    def _leave(self, progress: _Progress) -> None:
        del self._open[progress.place]
        self._consumer.incremental_unassign([TopicPartition(*progress.place)])

    def _react(self, error: KafkaError, place: Place, progress: _Progress | None, offset: int | None) -> None:
        """React to an event among the messages. Raises BrokerError."""
        code = error.code()
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED or progress is None:
            return  # no group is joined; or the partition is done with
        if code == KafkaError._PARTITION_EOF:
            at_end = offset is None or offset >= progress.end
            if at_end or not self._is_another(place.topic):
                self._move(progress, progress.end if offset is None else max(offset, progress.at), 0)
        elif code in _GONE:
            self._jump(progress)
        elif not error.retriable():
            failed = self._cluster.trouble(error, str(place))
            if not isinstance(failed, NotFound) or not self._is_another(place.topic):
                self._pass_over(place.topic, failed)

    def _pass_over(self, topic: str, error: BrokerError) -> None:
        """Go on without a topic. Raises the error where it is all that there is."""
        self._unread.add(topic)
        if not isinstance(error, OF_ONE_MEMBER) or self._unread >= self._topics:
            raise error
        self.complete = False
        self.notes = [*self.notes, unread_note(error)]
        for progress in self._open_of(topic):
            self._leave(progress)

    def _open_of(self, topic: str) -> list[_Progress]:
        return [one for one in self._open.values() if one.place.topic == topic]

    def _is_another(self, topic: str) -> bool:
        """Return whether the topic that was begun is not the one that is there. Where another one is, made
        again, what was not read is a gap; of what was read under its name some may be of that one, which is
        read anew. Where none is shown the next pull goes on: that the first one is gone nobody says."""
        found = self._cluster.find_topic(topic)
        if found is None and self._open_of(topic):
            self._pass_over(topic, NotFound(_NOT_SHOWN.format(for_terminal(topic))))
        elif found is not None and found.id != self._ids[topic] and topic not in self._deleted:
            self._deleted.add(topic)
            self.complete, self.notes = False, [*self.notes, _DELETED.format(for_terminal(topic))]
            for progress in self._open_of(topic):
                self._lose(progress, progress.end)
                self._leave(progress)
        return found is None or found.id != self._ids[topic]

    def _jump(self, progress: _Progress) -> None:
        """Retention was faster: what is gone is a gap, and the rest is read."""
        if self._is_another(progress.place.topic):
            return
        [log] = [
            one
            for one in self._cluster.logs([self._cluster.topic(progress.place.topic)])
            if one.place == progress.place
        ]
        if log.start <= progress.at:
            raise BrokerError(
                f"{progress.place} ends at {log.end} and was read to {progress.at}: its end was cut off; "
                "pull again"
            )
        self._lose(progress, min(log.start, progress.end))
        if progress.left:
            self._assign()
        else:
            self._leave(progress)

    def _lose(self, progress: _Progress, end: int) -> None:
        """Go on at `end`: what lies before it is gone."""
        progress.gaps.append(Gap(str(progress.place), progress.at, end, progress.key, is_counted=True))
        progress.at = end
        self._taken[progress.place] = progress

    def _assign(self) -> None:
        self._consumer.assign([TopicPartition(*one.place, one.at) for one in self._open.values()])

    def _batch(self, messages: Sequence[Any]) -> Batch:
        records, skipped = self._records(messages) if messages else ([], [])
        self._position += len(records)
        taken, self._taken = self._taken, {}
        checkpoint = {one.key: one.at for one in taken.values()}
        if self._pointers is not None:
            checkpoint |= self._pointers.first_seen()
        gaps = [gap for one in taken.values() for gap in one.gaps]
        for one in taken.values():
            one.gaps.clear()
        return Batch(records, self._position, checkpoint, skipped, gaps)

    def _records(self, messages: Sequence[Any]) -> tuple[Sequence[Record], Sequence[Skipped]]:
        kept, headers, unsaid = self._headers.readable(messages)
        skipped = [self._of_log(one) for one in unsaid]
        if not kept:
            return [], skipped
        letters = letters_of(kept, headers)
        originals = self._pointers.originals_of(letters) if self._pointers is not None else {}
        return self._make(letters, originals), skipped

    def _of_log(self, unsaid: Skipped) -> Skipped:
        """Name the log that skipped letters lie in. A copy leaves no checkpoint, and the next one looks there
        again."""
        if unsaid.passed is None or self._request.mode != "drain":
            return unsaid._replace(passed=None)
        [log] = [one.key for one in self._taken.values() if str(one.place) == unsaid.passed.place]
        return unsaid._replace(passed=unsaid.passed._replace(log=log))
