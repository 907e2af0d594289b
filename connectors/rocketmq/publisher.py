"""A pipelined way into RocketMQ: several requests in flight, a result code for each.

Messages sent together are stored in any order. Those with a sharding key go one at a time to their queue.
A batch that a broker refuses goes again letter by letter: it may have refused it for one of them.
"""

import select
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from dlq.connectors.base import Outcome, Outgoing, Sent, Target
from dlq.connectors.rocketmq.cluster import Cluster
from dlq.connectors.rocketmq.connection import Link
from dlq.connectors.rocketmq.remoting import Code, Frame
from dlq.connectors.rocketmq.republishing import RESUME, SHARDING_KEY, Message, message_of, queue_by_hash
from dlq.connectors.rocketmq.resume import Resume
from dlq.connectors.rocketmq.routes import Place, Way, way_to
from dlq.connectors.rocketmq.send_batch import Parcel, framed, may_share
from dlq.core.errors import ConnectionLost, Unreachable

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
_MOST_REQUESTS = 256
"""A broker refuses what has waited 200 ms (waitTimeMillsInSendQueue) as too busy: a slow one must keep up."""
_FREE_ENOUGH = 0.75
_BUSY_TRIES = 50
_BUSY_WAIT = 0.05

_Kind = tuple[str, int, str | None]
"""What messages of one batch have in common: topic, compression bits, the broker they came from."""


class RocketPublisher:
    """Sends for one plan. Connections of its own, one for each broker."""

    def __init__(self, cluster: Cluster, window: int) -> None:
        self._cluster, self._window = cluster, window
        self._links: dict[str, Link] = {}
        self._open: dict[_Kind | None, Parcel] = {}
        self._waiting: dict[tuple[str, int], Parcel] = {}
        self._unanswered: set[int] = set()
        self._ways: dict[str, Way] = {}
        self._outbox: dict[str, bytearray] = {}
        self._busy: list[Parcel] = []
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
        while not self._over and self._load() < 1 and time.monotonic() < until:
            letter = next(outgoing, None)
            if letter is None:
                self._over = True
            else:
                self._accounted(letter)

    def _wait_for_room(self) -> None:
        """Take the answers that are there. A full window is waited for until a quarter of it is free, so
        that many letters are sent together."""
        is_full = self._load() >= 1
        if self._waiting:
            self._answers(self._patience() if is_full or self._over else 0.0)
        while is_full and self._load() > _FREE_ENOUGH:
            self._answers(self._patience())

    def _load(self) -> float:
        """Which part of what may be in flight is."""
        return max(len(self._unanswered) / self._window, len(self._waiting) / _MOST_REQUESTS)

    def _accounted(self, letter: Outgoing) -> None:
        """Publish one; where that fails before it is in flight, say so before the failure goes on."""
        try:
            self._publish_one(letter)
        except (ConnectionLost, Unreachable) as error:
            if letter.number not in self._unanswered:
                self._done.append(Sent(letter.number, "in_doubt", str(error)))
            raise ConnectionLost(str(error)) from error

    def _publish_one(self, letter: Outgoing) -> None:
        if letter.target.kind == RESUME:
            self._done.append(self._resume.send(letter))
            return
        message, node = message_of(letter), letter.record.broker_node
        way = self._way_to(letter.target, message.topic)
        if way.closed is not None:
            self._done.append(Sent(letter.number, "refused", way.closed))
            return
        # The access control lists of 4.9 do not look at batches (PlainAccessResource.parse).
        shares = not self._cluster.signs and may_share(message)
        kind = (message.topic, message.sys_flag, node) if shares else None
        parcel = self._open.pop(kind, None) or Parcel(self._place_for(message, way, node))
        parcel.add(letter.number, message)
        self._unanswered.add(letter.number)
        if kind is None or parcel.is_full:
            self._send(parcel)
        else:
            self._open[kind] = parcel

    def _place_for(self, message: Message, way: Way, node: str | None) -> Place:
        """The next queue in turn; for a sharding key its own, when nothing is on its way there."""
        key = message.properties.get(SHARDING_KEY)
        if not key:
            near = way.near(node)
            return near[next(self._turn) % len(near)]
        place = way.places[queue_by_hash(key, len(way.places))]
        while any(parcel.place == place for parcel in self._waiting.values()):
            self._flush()
            self._answers(self._patience())
        return place

    def _way_to(self, target: Target, topic: str) -> Way:
        if topic not in self._ways:
            self._ways[topic] = way_to(self._cluster, target, topic)
        return self._ways[topic]

    def _send(self, parcel: Parcel) -> None:
        """Put it into the outbox; what is put together is sent together."""
        node, _ = parcel.place
        if node not in self._links:
            self._links[node] = self._cluster.new_link(node, brief=True)
        parcel.tries, parcel.since = parcel.tries + 1, time.monotonic()
        opaque, data = framed(self._links[node], parcel)
        self._waiting[node, opaque] = parcel
        outbox = self._outbox.setdefault(node, bytearray())
        outbox += data
        if len(outbox) > _OUTBOX_BYTES:
            self._write()

    def _flush(self) -> None:
        """All that was taken is on its way."""
        while self._open:
            self._send(self._open.popitem()[1])
        self._write()

    def _write(self) -> None:
        for node, outbox in self._outbox.items():
            if outbox:
                self._links[node].send(outbox)
                outbox.clear()

    def _patience(self) -> float:
        """How long the oldest request in flight may still wait; raises ConnectionLost when that is over."""
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
        if self._busy:
            time.sleep(_BUSY_WAIT)
            busy, self._busy = self._busy, []
            self._again(busy)

    def _take(self, parcel: Parcel, answer: Frame) -> None:
        """What a broker was too busy to look at goes again, a little later."""
        if answer.code == Code.BUSY and parcel.tries <= _BUSY_TRIES:
            self._busy.append(parcel)
            return
        outcome, detail = outcome_of(answer, is_empty=not parcel.messages[0].body)
        if outcome == "refused" and answer.code != Code.BUSY and len(parcel.numbers) > 1:
            self._again(parcel.apart())
            return
        self._done += [Sent(number, outcome, detail) for number in parcel.numbers]
        self._unanswered.difference_update(parcel.numbers)

    def _again(self, parcels: Iterable[Parcel]) -> None:
        for parcel in parcels:
            self._send(parcel)
        self._write()

    def _give_up(self, why: str) -> None:
        self._done += [Sent(number, "in_doubt", why) for number in sorted(self._unanswered)]
        self._unanswered.clear()
        self._waiting.clear()


def outcome_of(answer: Frame, is_empty: bool = False) -> tuple[Outcome, str | None]:
    """What a result code says. Flush and slave time-outs are stored; an unexplained error may be.

    A batch that is too large fails while it is encoded, before anything is stored (MessageExtEncoder).
    """
    if answer.code in _STORED:
        return "confirmed", _STORED[answer.code]
    said = f"code {answer.code}: {' '.join(answer.remark.split())[:200]}"
    is_known = (
        answer.code in _NOT_STORED
        or any(text in said for text in ("AclException", "size exceeded"))
        or (is_empty and "NullPointer" in said)
    )
    return ("refused" if is_known else "in_doubt"), said
