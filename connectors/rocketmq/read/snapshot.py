"""What lies in which queue now, and from where to read it: the plan of one reading."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from typing import NamedTuple

from dlq.connectors import deadline
from dlq.connectors.base import Checkpoint
from dlq.connectors.log import Plan, Words, is_another, mark_letter
from dlq.connectors.rocketmq.link.cluster import Cluster, refusal
from dlq.connectors.rocketmq.link.connection import Link
from dlq.connectors.rocketmq.link.message import StoredMessage, parse, queue_offset, split
from dlq.connectors.rocketmq.link.remoting import RequestCode, ResponseCode, long, understood
from dlq.connectors.rocketmq.read.queue import (
    BY_STORE,
    PULLED,
    ROOM,
    MessageQueue,
    PullScan,
    Step,
    pull_fields,
    scan_queue,
)
from dlq.core.errors import AccessDenied, BrokerError, NotFound
from dlq.core.headers.rocketmq_topics import DEAD_LETTERS, RETRY

_IS_PATTERN = frozenset("*?[")
_KEY = re.compile(r"(?P<topic>[^@]*)@(?P<node>.*):(?P<queue>\d{1,9})")
"""Of a checkpoint; more may follow."""

_WORDS = Words(
    begun_anew="{place} has begun anew, or is gone: its broker was replaced, or lost its store, or its topic "
    "was deleted. It is read from its start; letters that came after offset {last} of the old one and were "
    "not pulled are lost",
    gone="{place}: retention had deleted {first} older letters before this pull",
)


class QueueOffsets(NamedTuple):
    """What a queue holds: offsets [lowest, highest). `pullable` is False where its topic may not be read."""

    place: MessageQueue
    lowest: int
    highest: int
    pullable: bool = True


def dead_letter_topics(cluster: Cluster, group: str) -> list[str]:
    """Return the topics of a group, or of all groups that fit a pattern such as `pay_*`."""
    if not _IS_PATTERN & set(group):
        return [f"{DEAD_LETTERS}{group}"]
    wanted = f"{DEAD_LETTERS}{group}"
    return sorted(topic for topic in _known_topics(cluster) if fnmatchcase(topic, wanted))


def _known_topics(cluster: Cluster) -> set[str]:
    """Ask the name servers for topics; they may keep the list to themselves (enableAllTopicList=false)."""
    topics = cluster.topics()
    for node in cluster.masters() if not topics else ():
        answer = cluster.ok(node, RequestCode.TOPIC_CONFIGS, {})
        with understood(node):
            topics |= set(answer.document().get("topicConfigTable") or ())
    return topics


def offsets_of_topic(cluster: Cluster, topic: str) -> Iterator[QueueOffsets]:
    """Yield every queue of `topic` on every master that has it. Raises AccessDenied, BrokerError,
    Unreachable.

    A topic may have more queues to write to than to read from, and brokers serve no pull of those.
    """
    route = cluster.route(topic)
    for node in cluster.masters():
        queues = route.get(node)
        number = max(queues.readable, queues.writable) if queues else 1
        for queue in range(number):
            place = MessageQueue(topic, node, queue)
            is_illegal = queues is not None and queues.readable <= queue
            found = unpulled_offsets(cluster, place) if is_illegal else offsets_of(cluster, place)
            if found is not None:
                yield found


def offsets_of(cluster: Cluster, place: MessageQueue) -> QueueOffsets | None:
    """Return what one queue holds; None where its broker has no such topic."""
    answer = cluster.call(place.node, RequestCode.PULL, pull_fields(place, 0, 1))
    if "minOffset" in answer.fields and answer.code != ResponseCode.NO_PERMISSION:
        with understood(place.node):
            lowest, highest = (long(answer.fields[name]) for name in ("minOffset", "maxOffset"))
            return QueueOffsets(place, max(0, lowest), max(0, highest))
    if answer.code == ResponseCode.NO_TOPIC:
        return None
    if (
        answer.code == ResponseCode.NO_PERMISSION
        and "topic[" in answer.remark
        and "forbidden" in answer.remark
    ):
        return unpulled_offsets(cluster, place)
    raise refusal(place.node, answer)


def own_offsets(cluster: Cluster, place: MessageQueue) -> QueueOffsets:
    """Return what a queue of the broker's own topics holds. 4.x registers the half topic at its first check
    and the op topic never: until then a pull is answered "no such topic", but the index can be read."""
    return offsets_of(cluster, place) or unpulled_offsets(cluster, place)


def unpulled_offsets(cluster: Cluster, place: MessageQueue) -> QueueOffsets:
    """Return the same without a look at the topic's permission; 0 to 0 for a queue that is not there."""
    fields = {"topic": place.topic, "queueId": place.queue, **BY_STORE}
    answers = [
        cluster.ok(place.node, code, fields) for code in (RequestCode.MIN_OFFSET, RequestCode.MAX_OFFSET)
    ]
    with understood(place.node):
        lowest, highest = (long(answer.fields["offset"]) for answer in answers)
    return QueueOffsets(place, max(0, lowest), max(0, highest), pullable=False)


def message_at(cluster: Cluster, offsets: QueueOffsets, offset: int) -> StoredMessage | None:
    """Return the message at one offset of a queue; None where there is none any more. Raises BrokerError."""
    place = offsets.place
    with understood(str(place)):
        if offsets.pullable:
            answer = cluster.call(place.node, RequestCode.PULL, pull_fields(place, offset, 1))
            if answer.code not in PULLED:
                raise refusal(place.node, answer)
            found = split(answer.body) if answer.code == ResponseCode.OK else []
        else:
            steps = scan_queue(cluster.link(place.node), place, offset, offset + 1)
            found = [message for step in steps for message in step.messages]
        return next((parse(message) for message in found if queue_offset(message) == offset), None)


def checkpoint_of(key: str, reached: int, messages: Sequence[bytes]) -> Checkpoint:
    """Return where to go on in a queue after `messages`, and what tells its store from a later one."""
    last = parse(messages[-1]) if messages else None
    return {key: reached, **(mark_letter(key, last.queue_offset, _fingerprint(last)) if last else {})}


def _fingerprint(message: StoredMessage) -> str:
    """Return what slaves and tiered stores keep as it is; where it lies in a log they do not."""
    return f"{message.born_at} {message.stored_at} {message.body_crc} {message.properties.hex()}"


def is_still_there(cluster: Cluster, offsets: QueueOffsets, reached: int, first: bytes | None) -> bool | None:
    """Return whether a queue that was read to `reached`, beginning with the letter `first`, is the same
    queue; None where its topic is not there. A letter that retention has taken meanwhile proves nothing.
    Raises BrokerError."""
    look = offsets_of if offsets.pullable else unpulled_offsets
    now = look(cluster, offsets.place)
    if now is None or first is None:
        return now and now.highest >= reached
    found = message_at(cluster, now, queue_offset(first))
    return now.highest >= reached and (found is None or _fingerprint(found) == _fingerprint(parse(first)))


def begun_anew(cluster: Cluster, found: Sequence[QueueOffsets], resume: Checkpoint) -> set[MessageQueue]:
    """Return queues that hold another letter where the last one was read: a replaced store that has grown as
    far. No clock is asked. Raises BrokerError."""

    def is_anew(offsets: QueueOffsets) -> bool:
        def told_at(offset: int) -> str | None:
            message = message_at(cluster, offsets, offset)
            return message and _fingerprint(message)

        return is_another(str(offsets.place), offsets.lowest, offsets.highest, resume, told_at)

    return {offsets.place for offsets in found if is_anew(offsets)}


def plan_of(
    found: Sequence[QueueOffsets], resume: Checkpoint, anew: Collection[MessageQueue] = ()
) -> Plan[QueueOffsets]:
    """Return where to start in each queue: at the checkpoint, or at what the broker still has.

    `anew`: what `begun_anew` says; a queue that ends before its checkpoint has begun anew, too.
    """
    plan = Plan[QueueOffsets]()
    for offsets in found:
        place, lowest, highest, pullable = offsets
        name, bounds = str(place), (lowest, highest)
        plan.add(offsets, name, name, bounds, resume, _WORDS, anew=place in anew)
        if not pullable and highest:
            plan.notes.append(f"{place} may not be pulled: {_why_not(place)}; it is read through its index")
    return plan


def _why_not(place: MessageQueue) -> str:
    if place.topic.startswith(DEAD_LETTERS):
        return (
            "it is write-only, as brokers up to 4.9.1 make dead-letter topics, or beyond the topic's read "
            "queues (nothing is changed there)"
        )
    return "4.x brokers register this topic late or never"


def steps_of(link: Link, offsets: QueueOffsets, start: int, end: int, room: int) -> Iterable[Step]:
    """Return [start, end) of a queue; `room`: see `PullScan`."""
    if offsets.pullable:
        return PullScan(link, offsets.place, start, end, room)
    return scan_queue(link, offsets.place, start, end)


class NotWhole(BrokerError):
    """A queue does not hold, or does not show, all that may have come to it."""


def all_messages(cluster: Cluster, offsets: QueueOffsets, start: int, end: int) -> Iterator[StoredMessage]:
    """Yield [start, end) of a queue, over a connection of its own. Raises NotWhole where one is missing,
    BrokerError, also where not all come in time, ProtocolError."""
    node = offsets.place.node
    with closing(cluster.new_link(node)) as link:
        for step in steps_of(link, offsets, start, end, ROOM):
            if step.gaps:
                raise NotWhole("it has lost messages")
            deadline.check(node)
            yield from map(parse, step.messages)


def check_group(cluster: Cluster, group: str, found: Sequence[QueueOffsets]) -> list[str]:
    """Return what an empty answer means, in words. Raises NotFound: nothing shows that the group exists."""
    if found:
        return []
    known = _known_topics(cluster)
    retried = any(fnmatchcase(topic, f"{RETRY}{group}") for topic in known) or f"{RETRY}{group}" in known
    masters = ", ".join(cluster.masters())
    if not retried:
        raise NotFound(
            f"no topic {DEAD_LETTERS}{group} and no {RETRY}{group} on {masters}: is the group's name right? "
            "A broker that is down is not asked, so this does not prove that there are no dead letters"
        )
    return [f"no dead letters of {group} on {masters}; a broker that is down is not asked, and may have some"]


def _places_of(resume: Checkpoint) -> set[MessageQueue]:
    """Return the queues that earlier pulls read."""
    found = filter(None, map(_KEY.match, resume))
    return {MessageQueue(one["topic"], one["node"], int(one["queue"])) for one in found}


def passed_over(
    cluster: Cluster,
    wanted: str,
    found: Iterable[QueueOffsets],
    resume: Checkpoint,
    unreadable: dict[str, BrokerError],
) -> Iterator[QueueOffsets]:
    """Yield what else earlier pulls read on masters that are there, of topics that fit `wanted`: queues that
    no topic has any more. They end at 0 where they are gone. Raises BrokerError."""
    for place in sorted(_places_of(resume) - {offsets.place for offsets in found}):
        is_asked = place.node in cluster.masters() and place.topic not in unreadable
        if is_asked and fnmatchcase(place.topic, wanted):
            try:
                yield unpulled_offsets(cluster, place)
            except AccessDenied as error:
                unreadable[place.topic] = error


def unread_nodes(cluster: Cluster, resume: Checkpoint) -> list[str]:
    """Brokers that may hold letters and were not asked, in words."""
    nodes = {place.node for place in _places_of(resume)}
    gone = sorted(nodes - {*cluster.masters(), *cluster.without_master, *cluster.silent})
    return [
        *(f"not read: {node}: {why}" for node, why in cluster.silent.items()),
        *(f"the master of {node} is down and slaves are not asked: nothing of it was read"
          for node in cluster.without_master),
        *(f"{node} was read by an earlier pull and is not registered now: nothing of it was read"
          for node in gone),
    ]  # fmt: skip
