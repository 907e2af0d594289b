"""A pipelined way into RocketMQ: several messages in flight, a result code for each.

Messages sent together are stored in any order. Those with a sharding key go one at a time to their queue.
"""

import select
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import count

from dlq.connectors.base import Outcome, Outgoing, Sent, Target
from dlq.connectors.remoting import Ask, Code, Frame, written
from dlq.connectors.rocketmq_cluster import Cluster
from dlq.connectors.rocketmq_link import Link
from dlq.connectors.rocketmq_resume import Resume
from dlq.connectors.rocketmq_sending import RESUME, SHARDING_KEY, Message, message_of, queue_by_hash
from dlq.connectors.rocketmq_ways import Place, Way, way_to
from dlq.core.errors import ConnectionLost, Unreachable

_GROUP = "dlq-replay"
"""Names us as a producer; brokers keep nothing of it."""
_STORED: Mapping[int, str | None] = {
    Code.OK: None,
    Code.FLUSH_DISK_TIMEOUT: "stored; the disk was not flushed in time",
    Code.SLAVE_NOT_AVAILABLE: "stored; there is no slave",
    Code.FLUSH_SLAVE_TIMEOUT: "stored; the slave did not follow in time",
}
_NOT_STORED = (
    Code.BUSY,
    Code.ILLEGAL_MESSAGE,
    Code.NOT_SERVING,
    Code.NO_PERMISSION,
    Code.NO_TOPIC,
    Code.NO_GROUP,
)
_FILL_SECONDS = 0.005
_OUTBOX_BYTES = 64 * 1024
_BUSY_TRIES = 50
_BUSY_WAIT = 0.05


class _InFlight:
    """A message that waits for its answer."""

    __slots__ = ("data", "number", "place", "since", "tries")

    def __init__(self, number: int, place: Place, message: Message, since: float) -> None:
        self.number, self.place, self.data, self.since, self.tries = number, place, message, since, 0


class RocketPublisher:
    """Sends for one plan. Connections of its own, one for each broker."""

    def __init__(self, cluster: Cluster, window: int) -> None:
        self._cluster, self._window = cluster, window
        self._links: dict[str, Link] = {}
        self._waiting: dict[tuple[str, int], _InFlight] = {}
        self._ways: dict[str, Way] = {}
        self._outbox: dict[str, bytearray] = {}
        self._done: list[Sent] = []
        self._over = False
        self._turn = count()
        self._resume = Resume(cluster)

    def publish(self, outgoing: Iterator[Outgoing]) -> Iterator[Sent]:
        """See `Publisher.publish`."""
        lost: ConnectionLost | None = None
        while lost is None and (not self._over or self._waiting):
            try:
                self._fill(outgoing)
                self._flush()
                self._wait_for_room()
            except ConnectionLost as error:
                lost = error
                self._give_up(str(error))
            done, self._done = self._done, []
            yield from done
        if lost is not None:
            raise lost

    def close(self) -> None:
        """Drop the connections."""
        for link in self._links.values():
            link.close()

    def _fill(self, outgoing: Iterator[Outgoing]) -> None:
        """Take letters while there is room, but not for long: what was taken is to be sent."""
        until = time.monotonic() + _FILL_SECONDS
        while not self._over and len(self._waiting) < self._window and time.monotonic() < until:
            letter = next(outgoing, None)
            if letter is None:
                self._over = True
            else:
                self._accounted(letter)

    def _wait_for_room(self) -> None:
        """Take the answers that are there. A full window is waited for until a quarter of it is free, so
        that many letters are sent together."""
        is_full = len(self._waiting) >= self._window
        enough = self._window * 3 // 4
        if self._waiting:
            self._answers(self._patience() if is_full or self._over else 0.0)
        while is_full and len(self._waiting) > enough:
            self._answers(self._patience())

    def _accounted(self, letter: Outgoing) -> None:
        """Publish one; where that fails before it is in flight, say so before the failure goes on."""
        try:
            self._publish_one(letter)
        except (ConnectionLost, Unreachable) as error:
            if all(waiting.number != letter.number for waiting in self._waiting.values()):
                self._done.append(Sent(letter.number, "in_doubt", str(error)))
            raise ConnectionLost(str(error)) from error

    def _publish_one(self, letter: Outgoing) -> None:
        if letter.target.kind == RESUME:
            self._done.append(self._resume.send(letter))
            return
        message = message_of(letter)
        way = self._way_to(letter.target, message.topic)
        if way.closed is not None:
            self._done.append(Sent(letter.number, "refused", way.closed))
            return
        key = message.properties.get(SHARDING_KEY)
        near = way.places if key else way.near(letter.record.broker_node)
        place = near[queue_by_hash(key, len(near)) if key else next(self._turn) % len(near)]
        while key and any(waiting.place == place for waiting in self._waiting.values()):
            self._flush()
            self._answers(self._patience())
        self._send(_InFlight(letter.number, place, message, time.monotonic()))

    def _way_to(self, target: Target, topic: str) -> Way:
        if topic not in self._ways:
            self._ways[topic] = way_to(self._cluster, target, topic)
        return self._ways[topic]

    def _send(self, waiting: _InFlight) -> None:
        """Put it into the outbox; what is put together is sent together."""
        node, queue = waiting.place
        if node not in self._links:
            self._links[node] = self._cluster.new_link(node, brief=True)
        opaque, data = _frame(self._links[node], waiting.data, queue)
        self._waiting[node, opaque] = waiting
        outbox = self._outbox.setdefault(node, bytearray())
        outbox += data
        if len(outbox) > _OUTBOX_BYTES:
            self._flush()

    def _flush(self) -> None:
        for node, outbox in self._outbox.items():
            if outbox:
                self._links[node].send(outbox)
                outbox.clear()

    def _patience(self) -> float:
        """How long the oldest message in flight may still wait; raises ConnectionLost when that is over."""
        oldest = next(iter(self._waiting.values()))
        left = oldest.since + self._cluster.timeout - time.monotonic()
        if left <= 0:
            raise ConnectionLost(f"{oldest.place[0]} gave no answer within {self._cluster.timeout:g} s")
        return left

    def _answers(self, wait: float) -> None:
        """What has been answered; waits up to `wait` seconds for the first."""
        waiting = {node for node, _ in self._waiting}
        ready = {node for node in waiting if self._links[node].has_answer()}
        by_socket = {self._links[node].fileno(): node for node in waiting}
        ready |= {by_socket[n] for n in select.select(list(by_socket), [], [], 0.0 if ready else wait)[0]}
        for node in ready:
            for answer in self._links[node].received():
                if found := self._waiting.pop((node, answer.opaque), None):
                    self._take(found, answer)

    def _take(self, waiting: _InFlight, answer: Frame) -> None:
        """A broker that was too busy to look at it gets it again."""
        if answer.code == Code.BUSY and waiting.tries < _BUSY_TRIES:
            time.sleep(_BUSY_WAIT)
            waiting.tries, waiting.since = waiting.tries + 1, time.monotonic()
            self._send(waiting)
            self._flush()
            return
        outcome, detail = outcome_of(answer, is_empty=not waiting.data.body)
        self._done.append(Sent(waiting.number, outcome, detail))

    def _give_up(self, why: str) -> None:
        self._done += [Sent(waiting.number, "in_doubt", why) for waiting in self._waiting.values()]
        self._waiting.clear()


def outcome_of(answer: Frame, is_empty: bool = False) -> tuple[Outcome, str | None]:
    """What a result code says. Flush and slave time-outs are stored; an unexplained error may be."""
    if answer.code in _STORED:
        return "confirmed", _STORED[answer.code]
    said = f"code {answer.code}: {' '.join(answer.remark.split())[:200]}"
    is_known = answer.code in _NOT_STORED or "AclException" in said or (is_empty and "NullPointer" in said)
    return ("refused" if is_known else "in_doubt"), said


def _frame(link: Link, message: Message, queue: int) -> tuple[int, bytes]:
    properties = "".join([f"{name}\x01{value}\x02" for name, value in message.properties.items()])
    own = {"g": str(time.time_ns() // 1_000_000), "i": properties}
    shared = (message.topic, queue, message.sys_flag, message.flag, message.reconsume_limit)
    if link.signs:
        return link.frame(Ask.SEND_V2, {**_fields(*shared), **own}, message.body)
    return link.frame_of(Ask.SEND_V2, f"{_written(*shared)},{written(own)}", message.body)


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
        "m": "false",
    }
    return fields if reconsume_limit is None else {**fields, "l": str(reconsume_limit)}


@lru_cache(maxsize=4096)
def _written(topic: str, queue: int, sys_flag: int, flag: int, reconsume_limit: int | None) -> str:
    return written(_fields(topic, queue, sys_flag, flag, reconsume_limit))
