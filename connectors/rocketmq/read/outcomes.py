"""What became of transactions: the real messages that a commit wrote, found by their unique key; where the
index knows of none and the transaction has ended, in the queue itself.

A commit writes the real message on the broker that holds the half message, and an op record after it. So
with the half topic's end taken first, then the op topic's, every ended transaction of a reading has its real
message by the time its op record is read. Rollbacks write none.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from dlq.connectors import deadline
from dlq.connectors.rocketmq.link.cluster import Cluster, refusal
from dlq.connectors.rocketmq.link.connection import Link
from dlq.connectors.rocketmq.link.message import (
    COMMITTED,
    TRANSACTION,
    StoredMessage,
    decode,
    parse,
    parse_properties,
)
from dlq.connectors.rocketmq.link.remoting import Frame, RequestCode, ResponseCode, long, understood
from dlq.connectors.rocketmq.read.commits import Ended, committed_among
from dlq.connectors.rocketmq.read.queue import PULLED, MessageQueue, PullScan, Step, pull_fields, scan_queue
from dlq.core.headers.rocketmq_topics import DISCARDED, HALF, OP_TOPIC

_IN_FLIGHT = 64
_REMEMBERED = 200_000
_FOR_EVER = 2**62
_OFFSET = re.compile(rb"[0-9]{1,19}")
_T = TypeVar("_T")
Key = tuple[str, str]
"""(real topic, unique key)."""


class Outcomes:
    """Looks up each transaction of a reading once, and once more when it has ended."""

    def __init__(self, cluster: Cluster, brought: Mapping[str, tuple[int, int]]) -> None:
        """`brought`: broker -> before which offset earlier pulls brought half messages, and from which on
        this one does."""
        self._cluster, self._brought = cluster, brought
        self._is_found: dict[tuple[str, Key], bool] = {}
        self.untold: set[str] = set()
        """Brokers where a transaction has ended of which nothing shows how."""

    def real_messages(self, link: Link, node: str, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        """Return the real messages of the transactions that `messages` of the half, op or discard topic
        belong to.

        Raises AccessDenied where a real topic may not be queried: without it a commit looks like a rollback.
        """
        halves = [m for m in messages if m.topic in (HALF, DISCARDED)]
        ops = [m for m in messages if m.topic == OP_TOPIC]
        ends = {offset: m.commit_log_offset for m in ops for offset in finished_offsets(m.body)}
        ended = [m for m in _at_offsets(link, node, sorted(ends)) if m.queue_offset in ends]
        reached, start = self._brought.get(node, (0, 0))  # none: its master has just come
        if any(not reached <= offset < start for offset in ends.keys() - {m.queue_offset for m in ended}):
            self.untold.add(node)  # with a half message that the archive has, what lay behind it may be gone
        if len(self._is_found) > _REMEMBERED:
            self._is_found.clear()
        keys = {(node, key) for key in map(_key, [*halves, *ended]) if key} - self._is_found.keys()
        self._is_found |= dict.fromkeys(keys, False)
        asked = by_unique_key(link, node, sorted(key for _, key in keys), lambda key: key)
        found = [m for _, m in asked if _is_committed(m)]
        self._keep(node, found)
        more = self._look(node, [Ended(m, ends[m.queue_offset]) for m in ended])
        self._keep(node, more)
        return [*found, *more]

    def _keep(self, node: str, found: Iterable[StoredMessage]) -> None:
        for m in found:
            self._is_found[node, (m.topic, parse_properties(m.properties).get("UNIQ_KEY", ""))] = True

    def _look(self, node: str, ended: Sequence[Ended]) -> list[StoredMessage]:
        """Look in the queues, for those that the index does not know."""
        silent = [one for one in ended if (key := _key(one.half)) and not self._is_found[node, key]]
        found, is_all = committed_among(self._cluster, node, silent)
        if not is_all:
            self.untold.add(node)
        return [m for m in found if _is_committed(m)]


def untold_key(node: str) -> str:
    """Return the checkpoint's key by which later pulls know it: without it what is not there would look
    rolled back."""
    return f"{MessageQueue(OP_TOPIC, node, 0)}#untold"


def finished_offsets(body: bytes) -> list[int]:
    """Return the half offsets that an op record ends: `7` up to 5.0, `7,12,` since 5.1."""
    return [int(part) for part in body.split(b",") if _OFFSET.fullmatch(part.strip())]


def _key(message: StoredMessage) -> Key | None:
    properties = parse_properties(message.properties)
    topic, unique = properties.get("REAL_TOPIC"), properties.get("UNIQ_KEY")
    return (topic, unique) if topic and unique else None


def _at_offsets(link: Link, node: str, offsets: Sequence[int]) -> Iterator[StoredMessage]:
    """Half messages that op records of this reading name. Most were read by an earlier pull."""
    place = MessageQueue(HALF, node, 0)
    for first, last in _runs(offsets):
        answer = link.call(RequestCode.PULL, pull_fields(place, first, 1))
        with understood(node):
            lowest, highest = (long(answer.fields.get(name, 0)) for name in ("minOffset", "maxOffset"))
        steps: Iterable[Step] = ()
        if answer.code == ResponseCode.NO_TOPIC:
            steps = scan_queue(link, place, first, last + 1)
        elif answer.code not in PULLED:
            raise refusal(node, answer)
        elif first < highest and last >= lowest:
            steps = PullScan(link, place, max(first, lowest), min(last + 1, highest), 2**24)
        for step in steps:
            yield from map(parse, step.messages)


def _runs(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Offsets as runs without holes of more than a few answers."""
    start = 0
    for i, offset in enumerate(offsets):
        if i + 1 == len(offsets) or offsets[i + 1] - offset > 64:
            yield offsets[start], offset
            start = i + 1


def by_unique_key(
    link: Link, node: str, wanted: Sequence[_T], key_of: Callable[[_T], Key]
) -> Iterator[tuple[_T, StoredMessage]]:
    """Yield what is wanted with each message that an index has under its topic and unique key, several
    look-ups in flight; the index keeps hashes, so that is checked. Raises BrokerError."""
    for i in range(0, len(wanted), _IN_FLIGHT):
        keys = [(one, *key_of(one)) for one in wanted[i : i + _IN_FLIGHT]]
        asked = {link.ask(RequestCode.QUERY_MESSAGE, query_fields(*key[1:])): key for key in keys}
        for (one, topic, key), answer in link.answers(asked):
            deadline.check(node)
            found = messages_in(node, answer, topic)
            yield from ((one, m) for m in found if parse_properties(m.properties).get("UNIQ_KEY") == key)


def query_fields(topic: str, key: str) -> dict[str, object]:
    """Return a look-up by UNIQ_KEY or one of KEYS. Without the unique flag one signature fits all ACLs."""
    return {"topic": topic, "key": key, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": _FOR_EVER}


def messages_in(node: str, answer: Frame, topic: str) -> list[StoredMessage]:
    """Return the messages of a topic in the answer to a look-up by key. Raises BrokerError."""
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return []
    if answer.code != ResponseCode.OK:
        raise refusal(node, answer)
    with understood(node):
        return [m for m in decode(answer.body) if m.topic == topic]


def _is_committed(message: StoredMessage) -> bool:
    return message.sys_flag & TRANSACTION == COMMITTED
