"""Publishing to RocketMQ, pipelined: several requests in flight, a result code for each.

Messages sent together are stored in any order. Those with a sharding key go one at a time to their queue.
A batch that a broker refuses goes again letter by letter: it may have refused it for one of them.
"""

import re
import select
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from dlq.connectors import deadline
from dlq.connectors.base import UNSENT_SECONDS, Outcome, Outgoing, Sent, Target, Writing
from dlq.connectors.rocketmq.link.cluster import Cluster
from dlq.connectors.rocketmq.link.connection import Link
from dlq.connectors.rocketmq.link.remoting import Frame, RequestCode, ResponseCode, encode_fields
from dlq.connectors.rocketmq.look.routes import Route, WritableQueue, route_to
from dlq.connectors.rocketmq.prove.evidence import Lead
from dlq.connectors.rocketmq.prove.start_offsets import masters
from dlq.connectors.rocketmq.read.queue import MessageQueue
from dlq.connectors.rocketmq.read.snapshot import message_at, own_offsets
from dlq.connectors.rocketmq.records.bodies import COMPRESSED
from dlq.connectors.rocketmq.republish import (
    RESUME,
    SHARDING_KEY,
    Message,
    message_of,
    queue_by_hash,
    why_too_many,
)
from dlq.connectors.sending import RefusedTogether, WindowedPublisher
from dlq.core.errors import ConnectionLost
from dlq.core.record import Record

_GROUP = "dlq-replay"
"""Names us as a producer; brokers keep nothing of it."""
_MOST_LETTERS = 64
_MOST_BYTES = 64 * 1024
_MOST_CHARACTERS = 8_000
"""Of the properties of a message that goes with others: a batch counts them in 15 bits, as UTF-8."""
_INNER = struct.Struct(">iiiii")
_LENGTH = struct.Struct(">h")
_AROUND = _INNER.size + _LENGTH.size


class _SendBatch:
    """Messages for one queue, by the numbers of their letters, that go in one request.

    A batch (code 320) is appended by one copy into the log, each message of it under its own offset, flag and
    properties (CommitLog.asyncPutMessages, MessageExtBatchEncoder); it costs the broker little more than one
    message. A broker that is killed in the middle of that copy keeps the messages before that place, and one
    that ends in zeros there (see `prove`). The compression bits are the request's, so those of a batch are
    alike. Brokers take no batches for retry topics.
    """

    __slots__ = ("messages", "numbers", "place", "room", "since", "tries")

    def __init__(self, place: WritableQueue) -> None:
        self.place = place
        self.numbers: list[int] = []
        self.messages: list[Message] = []
        self.room = _MOST_BYTES
        self.since, self.tries = 0.0, 0

    def add(self, number: int, message: Message) -> None:
        """Add one more letter."""
        self.numbers.append(number)
        self.messages.append(message)
        self.room -= len(message.body)

    @property
    def is_full(self) -> bool:
        """Whether it should be on its way."""
        return self.room <= 0 or len(self.numbers) >= _MOST_LETTERS


def _may_share(message: Message) -> bool:
    """Return whether a message may go with others. Ordered ones go one at a time, and what a broker may
    refuse for itself goes alone."""
    properties = message.properties
    return (
        message.reconsume_limit is None
        and 0 < len(message.body) <= _MOST_BYTES
        and sum(map(len, properties)) + sum(map(len, properties.values())) <= _MOST_CHARACTERS
        and SHARDING_KEY not in properties
    )


def _frame(link: Link, batch: _SendBatch) -> tuple[int, bytes]:
    """Return the request, not sent yet, and its opaque number."""
    first, is_batch = batch.messages[0], len(batch.messages) > 1
    own = {
        "g": first.born or str(time.time_ns() // 1_000_000),
        "i": "" if is_batch else _properties(first),
        "m": "true" if is_batch else "false",
    }
    body = _batch(batch.messages) if is_batch else first.body
    code = RequestCode.SEND_BATCH if is_batch else RequestCode.SEND_V2
    shared = (first.topic, batch.place[1], first.sys_flag, first.flag, first.reconsume_limit)
    if link.signs:
        return link.frame(code, {**_fields(*shared), **own}, body)
    return link.frame_of(code, f"{_encode_shared(*shared)},{encode_fields(own)}", body)


def _properties(message: Message) -> str:
    return "".join([f"{name}\x01{value}\x02" for name, value in message.properties.items()])


def _batch(messages: Sequence[Message]) -> bytes:
    """See MessageDecoder.encodeMessages; magic and checksum are the broker's to fill in."""
    parts: list[bytes] = []
    for message in messages:
        block = _properties(message).encode(errors="replace")
        size = _AROUND + len(message.body) + len(block)
        parts += (
            _INNER.pack(size, 0, 0, message.flag, len(message.body)),
            message.body,
            _LENGTH.pack(len(block)),
            block,
        )
    return b"".join(parts)


def _fields(topic: str, queue: int, sys_flag: int, flag: int, reconsume_limit: int | None) -> dict[str, str]:
    """SEND_MESSAGE_V2's short names. The topic is its own default topic, so that none is made by mistake."""
    fields = {
        "a": _GROUP,
        "b": topic,
        "c": topic,
        "d": "1",
        "e": str(queue),
        "f": str(sys_flag),
        "h": str(flag),
        "j": "0",
        "k": "false",
    }
    return fields if reconsume_limit is None else {**fields, "l": str(reconsume_limit)}


@lru_cache(maxsize=4096)
def _encode_shared(topic: str, queue: int, sys_flag: int, flag: int, reconsume_limit: int | None) -> str:
    return encode_fields(_fields(topic, queue, sys_flag, flag, reconsume_limit))


_FIRST_SAFE = (5, 3, 2)
"""Earlier brokers store the plain body under the compressed flag: the resumed message would be damaged."""


class _Resume:
    """Resumes checks of half messages (323), one at a time: there are few, and each is a decision.

    The broker puts a fresh copy into its half topic, the producer is asked again and decides; success says
    nothing of a commit. Each request adds a copy, so it is sent once, and looked for before it is ever sent
    again.
    """

    def __init__(self, cluster: Cluster, connect: Callable[[str], Link]) -> None:
        self._cluster, self._connect = cluster, connect

    def send(self, letter: Outgoing, writing: Writing) -> Sent:
        """Ask the broker that holds the half message. Raises ConnectionLost, Unreachable."""
        record, number = letter.record, letter.number
        try:
            node, message_id = _node_of(self._cluster, record), record.headers["msgId"]
            if node is None:
                return Sent(number, "unsent", _NO_MASTER.format(record.broker_node or "the broker"))
            if (record.flags or 0) & COMPRESSED and _release(self._cluster.version(node)) < _FIRST_SAFE:
                return Sent(
                    number, "refused", "brokers before 5.3.2 damage a compressed message when they resume it"
                )
            if not self._is_there(node, record):
                return Sent(number, "refused", "it does not lie any more where it was")
            link = self._connect(node)
        except KeyError:
            return Sent(number, "refused", "nothing says where it lies in its broker")
        writing([number])
        try:
            answer = link.call(
                RequestCode.RESUME_CHECK,
                {"msgId": message_id, "topic": record.dead_letter_queue},
            )
        except ConnectionLost as error:
            return Sent(number, "in_doubt", str(error))
        finally:
            link.close()
        outcome, said = outcome_of(answer)
        return Sent(number, outcome, said or "its check is resumed; the producer decides")

    def _is_there(self, node: str, record: Record) -> bool:
        """Return whether a half message lies at its place: a broker resumes whatever it finds there. A letter
        of a plan has what `sent_columns` names, and no more. Raises KeyError."""
        told = [str(record.headers[name]) for name in _PLACE]
        if not all(map(_WHOLE.fullmatch, told)):
            return False
        queue, offset, *unique = map(int, told)
        place = MessageQueue(record.dead_letter_queue, node, queue)
        there = message_at(self._cluster, own_offsets(self._cluster, place), offset)
        return there is not None and unique == [there.commit_log_offset, there.born_at]


_PLACE = ("queueId", "queueOffset", "commitLogOffset", "bornTimestamp")
_WHOLE = re.compile(r"[0-9]{1,18}")
_NO_MASTER = "no master of {} is registered, which holds the half message; start it, then apply again"


def _node_of(cluster: Cluster, record: Record) -> str | None:
    """Return the broker that holds a half message: by its name, as its address may have changed since, or by
    the address of what was imported. None where it is not registered."""
    masters, stored_at = cluster.masters(refresh=True), record.headers["storeHost"]
    if record.broker_node in masters:
        return record.broker_node
    return next((node for node, address in masters.items() if address == stored_at), None)


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


_NOT_SAFE: Mapping[int, str] = {
    ResponseCode.FLUSH_DISK_TIMEOUT: "stored, but the disk was not flushed in time",
    ResponseCode.SLAVE_NOT_AVAILABLE: "stored, but no slave follows",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "stored, but no slave has followed in time",
}
"""The broker holds it, and less safely than it is set to: it may be lost with the broker."""
_NOT_STORED = (
    ResponseCode.ILLEGAL_MESSAGE,
    ResponseCode.NO_PERMISSION,
    ResponseCode.NO_TOPIC,
    ResponseCode.NO_GROUP,
)
_NOT_NOW = (ResponseCode.BUSY, ResponseCode.NOT_SERVING)
"""Of the broker, not of a letter: it looked at none, or its disk is full, or it is being stopped."""
_OUTBOX_BYTES = 64 * 1024
_MOST_REQUESTS = 256
_HEAVY = 256 * 1024
_LIMIT = "maxMessageSize"
_UNLIMITED, _DIGITS = 2**31, 20
BUSY_TRIES = 50
_BUSY_WAIT = 0.05

_Kind = tuple[str, int, str | None]
"""What messages of one batch have in common: topic, compression bits, the broker they came from."""


class _Outbox(NamedTuple):
    """What is sent to one broker together: requests, and what is in them."""

    requests: bytearray
    batches: list[_SendBatch]

    def clear(self) -> None:
        """Forget what is sent."""
        self.requests.clear()
        self.batches.clear()


class RocketPublisher(WindowedPublisher):
    """Sends for one plan. Connections of its own, one for each broker."""

    heavy_bytes = _HEAVY

    def __init__(self, cluster: Cluster, window: int, unsent_seconds: float = UNSENT_SECONDS) -> None:
        super().__init__(window, cluster.name)
        self._cluster, self._unsent_seconds = cluster, unsent_seconds
        self._links: dict[str, Link] = {}
        self._open: dict[_Kind | None, _SendBatch] = {}
        self._waiting: dict[tuple[str, int], _SendBatch] = {}
        self._routes: dict[str, Route] = {}
        self._outbox: dict[str, _Outbox] = {}
        self._busy: list[_SendBatch] = []
        self._unsafe: str | None = None
        self._limits: dict[str, int] = {}
        self._largest: dict[str, int] = {}
        """Topic -> how long a body some broker of its route takes."""
        self._turn = count()
        self._resume = _Resume(cluster, self._connect)
        nodes = cluster.masters(refresh=True)
        self.anchor = {k: n for node in nodes for k, n in masters(cluster, node).write(node).items()}

    def put(self, letter: Outgoing) -> None:
        """Put a letter into a batch, where it may share one, which is sent when it is full."""
        if letter.target.kind == RESUME:
            self.answers.append(self._resume.send(letter, self.announce))
            return
        message, node = message_of(letter), letter.record.broker_node
        # Known routes are looked up here: to begin a look for each letter took a tenth of a replay.
        route = self._routes.get(message.topic) or self._route_to(letter.target, message.topic)
        may_share = _may_share(message)
        if refused := route.closed or self._why_too_large(message, may_share):
            raise ValueError(refused)
        # The access control lists of 4.9 do not look at batches (PlainAccessResource.parse).
        shares = may_share and not self._cluster.signs
        kind = (message.topic, message.sys_flag, node) if shares else None
        batch = self._open.pop(kind, None) or _SendBatch(self._place_for(message, route, node))
        batch.add(letter.number, message)
        if kind is None or batch.is_full:
            self._send(batch)
        else:
            self._open[kind] = batch

    def poll(self, wait: float) -> None:
        """Send all that was taken. After what is stored less safely than asked for nothing more is sent."""
        while self._open:
            self._send(self._open.popitem()[1])
        self._write()
        if self._waiting:
            self._await_answers(wait)
        if self._unsafe is not None and not self._waiting:
            raise ConnectionLost(self._unsafe)

    def has_room(self) -> bool:
        """Return whether another request may go out. A slow broker must keep up: it refuses as too busy what
        has waited 200 ms (waitTimeMillsInSendQueue)."""
        return len(self._waiting) < _MOST_REQUESTS and self._unsafe is None

    def cut(self) -> None:
        """Cut the connection: what the kernel holds is dropped."""
        self.end()

    def end(self) -> None:
        """Drop the connections."""
        for link in self._links.values():
            link.close()

    def _why_too_large(self, message: Message, may_share: bool) -> str | None:
        """Return what no broker of the route takes, where they tell what they take."""
        size, limit = len(message.body), self._largest[message.topic]
        if size > limit:
            return f"its body of {size} bytes is more than {_LIMIT} = {limit} there; raise it in broker.conf"
        return None if may_share else why_too_many(message.properties)

    def _limit_of(self, node: str) -> int:
        """Return how long a body this broker takes, as far as it tells."""
        if node not in self._limits:
            told = self._cluster.configuration(node).get(_LIMIT, "")
            self._limits[node] = int(told) if told.isdecimal() and len(told) < _DIGITS else _UNLIMITED
        return self._limits[node]

    def _place_for(self, message: Message, route: Route, node: str | None) -> WritableQueue:
        """Return the next queue in turn; for a sharding key its own, when nothing is on its way there."""
        key = message.properties.get(SHARDING_KEY)
        if not key:
            near = route.queues_near(node)
            if len(message.body) > _HEAVY:
                places = [place for place in near if len(message.body) <= self._limit_of(place[0])]
                near = places or [p for p in route.places if len(message.body) <= self._limit_of(p[0])]
            return near[next(self._turn) % len(near)]
        place = route.places[queue_by_hash(key, len(route.places))]
        while any(batch.place == place for batch in self._waiting.values()):
            self.poll(self._cluster.timeout)
        return place

    @deadline.with_deadline
    def _route_to(self, target: Target, topic: str) -> Route:
        route = route_to(self._cluster, target, topic)
        nodes = {node for node, _ in route.places}
        self._largest[topic] = max(map(self._limit_of, nodes), default=_UNLIMITED)
        self._routes[topic] = route
        return route

    def _send(self, batch: _SendBatch) -> None:
        """Put it into the outbox; what is put together is sent together."""
        node, _ = batch.place
        if node not in self._links:
            self._links[node] = self._connect(node, brief=True)
            self._links[node].writing = self.announce
        batch.tries += 1
        opaque, data = _frame(self._links[node], batch)
        self._waiting[node, opaque] = batch
        outbox = self._outbox.setdefault(node, _Outbox(bytearray(), []))
        outbox.requests.extend(data)
        outbox.batches.append(batch)
        if len(outbox.requests) > _OUTBOX_BYTES:
            self._write()

    def _connect(self, node: str, brief: bool = False) -> Link:
        """Connect to a node. Raises ConnectionLost where the broker has another master than the anchor names:
        what proves that a letter was not sent must know where it could be."""
        link = self._cluster.new_link(node, brief)
        if not masters(self._cluster, node).master <= Lead.read(self.anchor, node).master:
            link.close()
            raise ConnectionLost(f"{node} has another master by now, at {link.address}; apply the plan again")
        link.guard(self._unsent_seconds)
        return link

    def _write(self) -> None:
        for node, outbox in self._outbox.items():
            if outbox.requests:
                self.announce([number for batch in outbox.batches for number in batch.numbers])
                self._links[node].write(outbox.requests)
                for batch in outbox.batches:
                    batch.since = time.monotonic()
                outbox.clear()

    def _await_answers(self, wait: float) -> None:
        """Take what has been answered. Raises ConnectionLost where nothing is there, and the oldest request
        has waited for too long: the caller may have taken its time."""
        oldest, known = next(iter(self._waiting.values())), len(self.answers)
        self._answers(max(0.0, min(wait, self._time_left(oldest))))
        if len(self.answers) == known and self._time_left(oldest) <= 0:
            raise ConnectionLost(f"{oldest.place[0]} gave no answer within {self._cluster.timeout:g} s")

    def _time_left(self, batch: _SendBatch) -> float:
        """Return how long a request may still wait, in seconds."""
        return batch.since + self._cluster.timeout - time.monotonic()

    def _answers(self, wait: float) -> None:
        """Take what has been answered, waiting up to `wait` seconds for the first."""
        waiting = {node for node, _ in self._waiting}
        ready = {node for node in waiting if self._links[node].has_answer()}
        by_socket = {self._links[node].fileno(): node for node in waiting}
        ready |= {by_socket[n] for n in select.select(list(by_socket), [], [], 0.0 if ready else wait)[0]}
        for node in ready:
            for answer in self._links[node].take_answers():
                if found := self._waiting.pop((node, answer.opaque), None):
                    self._take(found, answer)
        if self._busy:
            self._send_again()

    def _send_again(self) -> None:
        """Send again, a little later, what a broker was too busy to look at."""
        time.sleep(_BUSY_WAIT)
        busy, self._busy = self._busy, []
        for batch in busy:
            self._send(batch)
        self._write()

    def _take(self, batch: _SendBatch, answer: Frame) -> None:
        if answer.code == ResponseCode.BUSY and batch.tries <= BUSY_TRIES:
            self._busy.append(batch)
            return
        outcome, detail = outcome_of(answer, is_empty=not batch.messages[0].body)
        if answer.code in _NOT_SAFE:
            self._unsafe = f"{batch.place[0]}: {detail}; nothing more is sent"
        if outcome == "refused" and answer.code != ResponseCode.NO_TOPIC and len(batch.numbers) > 1:
            self.answers += [RefusedTogether(number, str(detail)) for number in batch.numbers]
        else:
            self.answers += [Sent(number, outcome, detail) for number in batch.numbers]


def outcome_of(answer: Frame, is_empty: bool = False) -> tuple[Outcome, str | None]:
    """Return what a result code says. What is stored less safely than asked for may not stay; an unexplained
    error may mean that it is stored.

    A batch that is too large fails while it is encoded, before anything is stored (MessageExtEncoder).
    """
    if answer.code == ResponseCode.OK:
        return "confirmed", None
    if answer.code in _NOT_SAFE:
        return "in_doubt", _NOT_SAFE[answer.code]
    said = f"code {answer.code}: {' '.join(answer.remark.split())[:200]}"
    if answer.code in _NOT_NOW:
        return "unsent", said
    is_known = (
        answer.code in _NOT_STORED
        or any(text in said for text in ("AclException", "size exceeded"))
        or (is_empty and "NullPointer" in said)
    )
    return ("refused" if is_known else "in_doubt"), said
