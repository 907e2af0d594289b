"""Scans of one queue of one broker, in offset order, several requests in flight.

Both yield steps: messages and how far the queue is known by now. Offsets that have no message any more are
gaps. A pull's progress is what the broker says (nextBeginOffset), never offset plus count; where an answer
stops short of what was predicted, its rest is asked again.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dlq.connectors.base import Gap
from dlq.connectors.rocketmq.link import remoting
from dlq.connectors.rocketmq.link.cluster import refusal
from dlq.connectors.rocketmq.link.connection import Link
from dlq.connectors.rocketmq.link.message import encode, expand, is_batch, parse, queue_offset, split
from dlq.core.errors import ConnectionLost
from dlq.core.runtime import patience

_GROUP = "TOOLS_CONSUMER"
"""Registered on every broker and used by mqadmin; any other group would be created there and stay."""
BY_STORE = {"lo": False}
"""The queue is one of the broker's own, and not one of a static topic, whose numbers and offsets run over all
brokers and leave some out (5.x, RpcRequestHeader)."""
_PER_ANSWER = 32
"""More is never sent (maxTransferCountOnMessageInMemory)."""
_BYTES_PER_ANSWER = 2**18
_DEPTH = 16
_ENTRIES, _FIRST_ENTRIES = 64, 8
ROOM = 2**24
"""Bytes of messages that are asked for together where each has to be asked for by itself."""


class MessageQueue(NamedTuple):
    """One queue. Its text is the checkpoint's key: the broker's name, because its address may change."""

    topic: str
    node: str
    queue: int

    def __str__(self) -> str:
        """E.g. %DLQ%pay@broker-a:0."""
        return f"{self.topic}@{self.node}:{self.queue}"


class Step(NamedTuple):
    """Some messages in a row, as they are stored; all below `reached` is delivered, or in a gap. Empty:
    nothing came yet."""

    messages: Sequence[bytes]
    reached: int
    gaps: Sequence[Gap] = ()


def pull_fields(place: MessageQueue, offset: int, count: int) -> dict[str, object]:
    """Return a pull without a heartbeat: it has the subscription (sysFlag 4) and commits nothing."""
    return {
        "consumerGroup": _GROUP,
        "topic": place.topic,
        "queueId": place.queue,
        "queueOffset": offset,
        "maxMsgNums": count,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subVersion": 0,
        "subscription": "*",
        "expressionType": "TAG",
        **BY_STORE,
    }


@dataclass
class _Slice:
    """Predicted offsets [at, stop): one request at a time, until all of it is known. It has what came and was
    not handed on yet."""

    at: int
    stop: int
    messages: list[bytes] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    size: int = 0
    is_asked: bool = False
    stuck_since: float = 0.0

    def hand_on(self) -> Step:
        """Return what came, and how far it reaches."""
        step = Step(self.messages, self.at, self.gaps)
        self.messages, self.gaps, self.size = [], [], 0
        return step


class PullScan:
    """Reads [start, end) of a queue by PULL_MESSAGE. Iterate it once."""

    def __init__(self, link: Link, place: MessageQueue, start: int, end: int, room: int) -> None:
        """`room`: bytes that may be in flight, or wait here for what comes before them."""
        self._link, self._place, self._next, self._end, self._room = link, place, start, end, room
        self._slices: deque[_Slice] = deque()
        self._asked: dict[int, _Slice] = {}
        self._per_answer = _PER_ANSWER
        self._largest = 1
        self._outgoing: list[bytes] = []

    def __iter__(self) -> Iterator[Step]:
        """Yield the steps, in offset order. Raises ConnectionLost, BrokerError."""
        silent_since = time.monotonic()
        while self._slices or self._next < self._end:
            self._predict()
            answer = self._link.receive(patience.RECHECK)
            if answer is None:
                if time.monotonic() - silent_since > self._link.timeout:
                    raise ConnectionLost(f"{self._link.address} has stopped answering")
                yield Step((), self._slices[0].at)
                continue
            if answer.opaque in self._asked:
                self._take(answer)
                yield from self._ready_steps()
                silent_since = time.monotonic()  # the caller has taken its time, too
            elif time.monotonic() - silent_since > self._link.timeout:
                raise ConnectionLost(f"{self._link.address} answers only what was not asked")

    def _ready_steps(self) -> Iterator[Step]:
        """Yield what came, as far as nothing is missing before it."""
        while self._slices:
            first = self._slices[0]
            if first.messages or first.gaps:
                yield first.hand_on()
            elif first.stuck_since:
                yield Step((), first.at)
            if first.at < first.stop:
                return
            self._slices.popleft()

    def _predict(self) -> None:
        """Ask for what is not known; behind the first only while what came of the others is not too much."""
        depth = max(1, min(_DEPTH, self._room // max(_BYTES_PER_ANSWER, self._largest)))
        while self._next < self._end and len(self._slices) < depth:
            found = _Slice(self._next, min(self._next + self._per_answer, self._end))
            self._next = found.stop
            self._slices.append(found)
        held = sum(found.size for found in self._slices)
        for number, found in enumerate(self._slices):
            is_wanted = not found.is_asked and found.at < found.stop
            if is_wanted and (number == 0 or held < self._room):
                self._ask(found)
        if self._outgoing:
            self._link.write(b"".join(self._outgoing))
            self._outgoing.clear()

    def _ask(self, found: _Slice) -> None:
        fields = pull_fields(self._place, found.at, found.stop - found.at)
        opaque, data = self._link.frame(remoting.RequestCode.PULL, fields)
        self._asked[opaque], found.is_asked = found, True
        self._outgoing.append(data)

    def _take(self, answer: remoting.Frame) -> None:
        found = self._asked.pop(answer.opaque)
        found.is_asked = False
        if answer.code not in _PROGRESS:
            raise refusal(self._place.node, answer)
        asked = found.at
        messages = _messages(answer, self._place)
        with remoting.understood(self._place.node):
            reached = remoting.long(answer.fields.get("nextBeginOffset", asked))
        self._fill(found, messages, asked if answer.code == remoting.ResponseCode.BUSY else reached)
        if found.at == asked:
            self._wait(found, answer)
        else:
            found.stuck_since = 0.0
        if found.at < found.stop:
            self._learn(len(messages), found)
        else:
            self._per_answer = min(_PER_ANSWER, 2 * self._per_answer)

    def _fill(self, found: _Slice, messages: Sequence[bytes], reached: int) -> None:
        if reached < found.at:  # the broker has lost the end of its queue
            reached = found.stop
        found.size += sum(map(len, messages))
        if _is_run(messages, found.at, found.stop):
            found.messages += messages
            found.at += len(messages)
            self._largest = max(self._largest, max(map(len, messages)))
            messages = ()
        for message in messages:
            offset = queue_offset(message)
            if found.at <= offset < found.stop:
                self._skip(found, offset)
                found.messages.append(message)
                found.at += 1
                self._largest = max(self._largest, len(message))
        self._skip(found, min(reached, found.stop))

    def _wait(self, found: _Slice, answer: remoting.Frame) -> None:
        """Ask again later. What a broker has no time to send is no gap: those letters are there."""
        now = time.monotonic()
        found.stuck_since = found.stuck_since or now
        waited = now - found.stuck_since
        if waited > self._link.timeout:
            said = f"code {answer.code} {answer.remark[:200]}"
            raise ConnectionLost(f"{self._place} gives nothing at offset {found.at}: {said}")
        time.sleep(min(patience.FETCH, 0.01 + waited / 10))

    def _skip(self, found: _Slice, to: int) -> None:
        if to > found.at:
            found.gaps.append(Gap(str(self._place), found.at, to))
            found.at = to

    def _learn(self, got: int, found: _Slice) -> None:
        """Cold data comes eight to an answer, large messages fewer: predict what comes."""
        if 0 < got < self._per_answer and found.stop < self._end:
            self._per_answer = got


def _is_run(messages: Sequence[bytes], first: int, stop: int) -> bool:
    """Return the usual answer: every offset from `first` on, none beyond `stop`."""
    offsets = [*map(queue_offset, messages)]
    return bool(offsets) and offsets[-1] < stop and offsets == list(range(first, first + len(offsets)))


PULLED = (
    remoting.ResponseCode.OK,
    remoting.ResponseCode.PULL_NOT_FOUND,
    remoting.ResponseCode.PULL_AGAIN,
    remoting.ResponseCode.PULL_MOVED,
)
"""A pull was looked at: what does not come with it is not there."""
_PROGRESS = (*PULLED, remoting.ResponseCode.BUSY)


def _messages(answer: remoting.Frame, place: MessageQueue) -> list[bytes]:
    if answer.code != remoting.ResponseCode.OK:
        return []
    with remoting.understood(str(place)):
        found = split(answer.body)
        if any(map(is_batch, found)):
            return [inner for message in found for inner in _expand_batch(message)]
        return found


def _expand_batch(message: bytes) -> list[bytes]:
    """Return the messages in a batch; one that cannot be taken apart is a letter as it is stored."""
    try:
        return [encode(inner) for inner in expand(parse(message))]
    except remoting.ProtocolError:
        return [message]


def scan_queue(link: Link, place: MessageQueue, start: int, end: int) -> Iterator[Step]:
    """Reads [start, end) of a queue that must not be pulled: its index (321), then message by message (33).

    Neither looks at the topic's permission, and both work for topics that 4.x does not register.
    """
    at, count = start, _FIRST_ENTRIES
    while at < end:
        positions, first = _positions(link, place, at, min(count, end - at))
        gaps = [Gap(str(place), at, min(first, end))] if first > at else []
        at = min(first, end)
        if not positions:
            yield Step((), end, [*gaps, Gap(str(place), at, end)] if at < end else gaps)
            return
        messages = _view(link, place, positions[: min(count, end - at)])
        largest = max(1, *(len(message or b"") for message in messages))
        count = max(1, min(_ENTRIES, 2 * count, ROOM // largest))
        found = [m for i, m in enumerate(messages) if m is not None and _is_at(m, place, at + i)]
        present = {*map(queue_offset, found)}
        end_of_step = at + len(messages)
        gaps += [Gap(str(place), n, n + 1) for n in range(at, end_of_step) if n not in present]
        at = end_of_step
        yield Step(found, at, gaps)


def _is_at(stored: bytes, place: MessageQueue, offset: int) -> bool:
    message = parse(stored)
    return (message.topic, message.queue_id, message.queue_offset) == (place.topic, place.queue, offset)


def _positions(link: Link, place: MessageQueue, at: int, count: int) -> tuple[list[int], int]:
    """Commit log offsets of some queue entries, and the offset of the first of them."""
    fields = {"topic": place.topic, "queueId": place.queue, "index": at, "count": count}
    answer = link.call(remoting.RequestCode.QUERY_QUEUE, fields)
    _check_looked_up(place, answer)
    with remoting.understood(place.node):
        document = answer.document()
        positions = [remoting.long(entry["physicOffset"]) for entry in document.get("queueData") or ()]
        return positions, max(at, remoting.long(document.get("minQueueIndex") or 0)) if not positions else at


def _check_looked_up(place: MessageQueue, answer: remoting.Frame) -> None:
    """Raise BrokerError for an error that does not say that something is gone: a broker is busy, or does not
    know our key any more, and has what it was asked for."""
    is_gone = answer.code == remoting.ResponseCode.SYSTEM_ERROR and any(s in answer.remark for s in _GONE)
    if answer.code != remoting.ResponseCode.OK and not is_gone:
        raise refusal(place.node, answer)


_GONE = "can not find message by the offset", "is not exist!"
"""What brokers remark of a message, or a queue, that is not there (QueryMessageProcessor,
AdminBrokerProcessor)."""


def _view(link: Link, place: MessageQueue, positions: Sequence[int]) -> list[bytes | None]:
    asked = {
        link.ask(remoting.RequestCode.VIEW_MESSAGE, {"offset": p, "topic": place.topic}): i
        for i, p in enumerate(positions)
    }
    found: list[bytes | None] = [None] * len(positions)
    for number, answer in link.answers(asked):
        _check_looked_up(place, answer)
        messages = _messages(answer, place)
        found[number] = messages[0] if len(messages) == 1 else None
    return found
