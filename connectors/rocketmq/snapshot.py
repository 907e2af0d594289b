"""What lies in which queue now, and from where to read it: the plan of one reading."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from dlq.connectors import lenient_json
from dlq.connectors.base import Checkpoint, Gap
from dlq.connectors.rocketmq.cluster import Cluster, refusal
from dlq.connectors.rocketmq.message import StoredMessage, parse, queue_offset, split
from dlq.connectors.rocketmq.queue_scan import Place, pull_fields, queue_walk
from dlq.connectors.rocketmq.records import DEAD_LETTERS, RETRY
from dlq.connectors.rocketmq.remoting import Ask, Code, ProtocolError, understood
from dlq.core.errors import BrokerError, ConnectionLost, NotFound

_IS_PATTERN = frozenset("*?[")
_MOST_QUEUES = 2**15
"""Of a topic on one broker, whose usual number is 8 (defaultTopicQueueNums)."""
_STORED = "#stored"
"""Behind a checkpoint's key: when the last letter before it was stored, in milliseconds."""


class Extent(NamedTuple):
    """What a queue holds: offsets [lowest, highest). `pullable` is False where its topic may not be read."""

    place: Place
    lowest: int
    highest: int
    pullable: bool = True


class Stretch(NamedTuple):
    """What a reading takes of one queue: [start, end). `key` names its checkpoint."""

    place: Place
    start: int
    end: int
    pullable: bool
    key: str


@dataclass
class Plan:
    """All stretches of a reading, and what is to be said about them."""

    stretches: list[Stretch] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    complete: bool = True

    @property
    def letters(self) -> int:
        """How many there are, unless retention is faster."""
        return sum(stretch.end - stretch.start for stretch in self.stretches)


def dead_letter_topics(cluster: Cluster, group: str) -> list[str]:
    """The topics of a group, or of all groups that fit a pattern such as `pay_*`."""
    if not _IS_PATTERN & set(group):
        return [f"{DEAD_LETTERS}{group}"]
    wanted = f"{DEAD_LETTERS}{group}"
    return sorted(topic for topic in _known_topics(cluster) if fnmatchcase(topic, wanted))


def _known_topics(cluster: Cluster) -> set[str]:
    """From the name servers; they may keep the list to themselves (enableAllTopicList=false)."""
    topics = cluster.topics()
    for node in cluster.masters() if not topics else ():
        answer = cluster.ok(node, Ask.TOPIC_CONFIGS, {})
        with understood(node):
            topics |= set(lenient_json.loads(answer.body.decode()).get("topicConfigTable") or ())
    return topics


def extents(cluster: Cluster, topic: str) -> Iterator[Extent]:
    """Every queue of `topic` on every master that has it. Raises AccessDenied, BrokerError, Unreachable.

    A topic may have more queues to write to than to read from, and brokers serve no pull of those.
    """
    route = cluster.route(topic)
    for node in cluster.masters():
        queues = route.get(node)
        number = max(queues.readable, queues.writable) if queues else 1
        if number > _MOST_QUEUES:
            raise BrokerError(
                f"a name server says that {topic} has {number} queues on {node}: that cannot be true"
            )
        for queue in range(number):
            place = Place(topic, node, queue)
            is_illegal = queues is not None and 0 < queues.readable <= queue
            found = unpulled_extent(cluster, place) if is_illegal else extent_of(cluster, place)
            if found is not None:
                yield found


def extent_of(cluster: Cluster, place: Place) -> Extent | None:
    """What one queue holds; None where its broker has no such topic."""
    answer = cluster.call(place.node, Ask.PULL, pull_fields(place, 0, 1))
    if "minOffset" in answer.fields and answer.code != Code.NO_PERMISSION:
        with understood(place.node):
            return Extent(place, int(answer.fields["minOffset"]), int(answer.fields["maxOffset"]))
    if answer.code == Code.NO_TOPIC:
        return None
    if answer.code == Code.NO_PERMISSION and "topic[" in answer.remark and "forbidden" in answer.remark:
        return unpulled_extent(cluster, place)
    raise refusal(place.node, answer)


def own_extent(cluster: Cluster, place: Place) -> Extent:
    """What a queue of the broker's own topics holds. 4.x registers the half topic at its first check and the
    op topic never: until then a pull is answered "no such topic", but the index can be read."""
    return extent_of(cluster, place) or unpulled_extent(cluster, place)


def unpulled_extent(cluster: Cluster, place: Place) -> Extent:
    """The same without a look at the topic's permission; 0 to 0 for a queue that is not there."""
    fields = {"topic": place.topic, "queueId": place.queue}
    answers = [cluster.ok(place.node, code, fields) for code in (Ask.MIN_OFFSET, Ask.MAX_OFFSET)]
    with understood(place.node):
        lowest, highest = (int(answer.fields["offset"]) for answer in answers)
    return Extent(place, max(0, lowest), max(0, highest), pullable=False)


def message_at(cluster: Cluster, extent: Extent, offset: int) -> StoredMessage | None:
    """The message at one offset of a queue; None where there is none any more. Raises BrokerError."""
    place = extent.place
    try:
        if extent.pullable:
            answer = cluster.call(place.node, Ask.PULL, pull_fields(place, offset, 1))
            found = split(answer.body) if answer.code == Code.OK else []
        else:
            steps = queue_walk(cluster.link(place.node), place, offset, offset + 1)
            found = [message for step in steps for message in step.messages]
        return next((parse(message) for message in found if queue_offset(message) == offset), None)
    except ProtocolError as error:
        raise ConnectionLost(f"{place} sent what is no message: {error}") from error


def checkpoint_of(key: str, reached: int, messages: Sequence[bytes]) -> Checkpoint:
    """Where to go on in a queue after `messages`, and what tells its store from one that replaced it."""
    return {key: reached, **({f"{key}{_STORED}": parse(messages[-1]).stored_at} if messages else {})}


def begun_anew(cluster: Cluster, found: Sequence[Extent], resume: Checkpoint) -> set[Place]:
    """Queues that hold another letter where the last one was read: a replaced store that has grown as far.

    It was stored later than anything that was read before. A letter that retention has taken proves nothing.
    """
    anew = set()
    for extent in found:
        key, reached = _latest(extent.place, resume)
        stored_at = resume.get(f"{key}{_STORED}")
        if stored_at is not None and extent.lowest < reached <= extent.highest:
            there = message_at(cluster, extent, reached - 1)
            if there is not None and there.stored_at > stored_at:
                anew.add(extent.place)
    return anew


def plan_of(found: Sequence[Extent], resume: Checkpoint, anew: Collection[Place] = ()) -> Plan:
    """Where to start in each queue: at the checkpoint, or at what the broker still has.

    `anew`: what `begun_anew` says; a queue that ends before its checkpoint has begun anew, too.
    """
    plan = Plan()
    for extent in found:
        key, start = _generation(extent, resume, extent.place in anew)
        if key != str(extent.place) and key not in resume:
            _note_new_store(plan, extent, _latest(extent.place, resume)[1])
        elif start < extent.lowest:
            _note_loss(plan, extent, start, key in resume)
        start = max(start, extent.lowest)
        plan.stretches.append(Stretch(extent.place, start, max(start, extent.highest), extent.pullable, key))
        if not extent.pullable:
            plan.notes.append(
                f"{extent.place} may not be pulled: {_why_not(extent.place)}; it is read through its index"
            )
    return plan


def _why_not(place: Place) -> str:
    if place.topic.startswith(DEAD_LETTERS):
        return (
            "it is write-only, as brokers up to 4.9.1 make dead-letter topics, or beyond the topic's read "
            "queues (nothing is changed there)"
        )
    return "4.x brokers register this topic late or never"


def _note_new_store(plan: Plan, extent: Extent, reached: int) -> None:
    """Nobody knows what the old store held beyond its checkpoint, so this reading is not all there was."""
    if reached > extent.highest:
        plan.gaps.append(Gap(str(extent.place), extent.highest, reached))
    plan.complete = False
    plan.notes.append(
        f"{extent.place} has begun anew: its broker was replaced, or lost its store. It is read from its "
        f"start; letters that came after offset {reached - 1} of the old one and were not pulled are lost"
    )


def _note_loss(plan: Plan, extent: Extent, start: int, was_read: bool) -> None:
    if was_read:
        plan.gaps.append(Gap(str(extent.place), start, extent.lowest))
    else:
        plan.notes.append(
            f"{extent.place}: retention had deleted {extent.lowest} older letters before this pull"
        )


def _latest(place: Place, resume: Checkpoint) -> tuple[str, int]:
    """The newest checkpoint of a queue. One that has begun anew has a key of its own, `…~1`."""
    key, generation = str(place), 0
    while f"{place}~{generation + 1}" in resume:
        generation += 1
        key = f"{place}~{generation}"
    return key, resume.get(key, 0)


def _generation(extent: Extent, resume: Checkpoint, is_anew: bool) -> tuple[str, int]:
    key, reached = _latest(extent.place, resume)
    if reached <= extent.highest and not is_anew:
        return key, reached
    generation = int(key.rpartition("~")[2]) if "~" in key.rpartition(":")[2] else 0
    return f"{extent.place}~{generation + 1}", extent.lowest


def check_group(cluster: Cluster, group: str, found: Sequence[Extent]) -> list[str]:
    """What an empty answer means, in words. Raises NotFound when nothing shows that the group exists."""
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


def unread_nodes(cluster: Cluster, resume: Checkpoint) -> list[str]:
    """Brokers that may hold letters and were not asked, in words."""
    nodes = {key.rpartition("@")[2].rpartition(":")[0] for key in resume}
    gone = sorted(nodes - {*cluster.masters(), *cluster.headless})
    return [
        *(f"the master of {node} is down and slaves are not asked: nothing of it was read"
          for node in cluster.headless),
        *(f"{node} was read by an earlier pull and is not registered now: nothing of it was read"
          for node in gone),
    ]  # fmt: skip
