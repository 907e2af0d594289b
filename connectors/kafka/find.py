"""Did a replay arrive? What was stored in its topic since the first letter was sent is looked through for the
replay ids. `bounds` says where each partition ended before that: with it what is not found was not sent."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from dlq.connectors.base import Checkpoint, Outgoing, Presence
from dlq.connectors.kafka.cluster import Cluster, Log, Place, Topic
from dlq.connectors.kafka.snapshot import checkpoint_key
from dlq.core.errors import BrokerError, NotFound
from dlq.core.provenance import REPLAY_ID

_SETTLED = 3.0
"""Seconds after which a request whose connection has ended is stored, or dropped."""
_MARGIN_MS = 600_000
"""How far a broker's clock may be from ours."""
_FETCH = 2000
_WAIT = 0.2


def bounds(cluster: Cluster, topics: Iterable[str]) -> Checkpoint:
    """Where each partition ends now, uncommitted records included."""
    found = cluster.topics(topics)
    return {
        checkpoint_key(cluster.id, found[log.place.topic], log.place.partition): log.end
        for log in cluster.logs(found.values())
    }


def find(
    cluster: Cluster, outgoing: Sequence[Outgoing], since: int, before: Checkpoint, obstacles: list[str]
) -> dict[int, Presence]:
    """number -> whether its topic holds it. `not_sent` needs the whole log since before the first was sent;
    what keeps it from being proven is added to `obstacles`, in words. Raises BrokerError."""
    shown: dict[int, Presence] = {}
    by_topic: dict[str, list[Outgoing]] = {}
    for letter in outgoing:
        by_topic.setdefault(letter.target.name, []).append(letter)
    for name, letters in by_topic.items():
        shown |= _in_topic(cluster, name, letters, since, before, obstacles)
    return shown


def _in_topic(
    cluster: Cluster,
    name: str,
    letters: Sequence[Outgoing],
    since: int,
    before: Checkpoint,
    obstacles: list[str],
) -> dict[int, Presence]:
    numbers = {letter.provenance[REPLAY_ID].encode(): letter.number for letter in letters}
    try:
        topic = cluster.topic(name)
    except NotFound as error:
        obstacles.append(f"{error}: it may have been deleted since")
        return dict.fromkeys(numbers.values(), "unknown")
    starts = _starts(cluster, topic, since, before)
    found = _seen(cluster, topic, starts, numbers.keys())
    if found != numbers.keys():
        time.sleep(_SETTLED)
        found |= _seen(cluster, topic, starts, numbers.keys() - found)
    doubts = _doubts(cluster, topic, before) if found != numbers.keys() else []
    obstacles += doubts
    absent: Presence = "unknown" if doubts else "not_sent"
    return {number: "sent" if replay in found else absent for replay, number in numbers.items()}


def _starts(cluster: Cluster, topic: Topic, since: int, before: Checkpoint) -> dict[Place, int]:
    """From where each partition is looked through. One that came later is from its start; without bounds,
    from what was stored when the first letter was sent."""
    places = [Place(topic.name, number) for number in range(topic.partitions)]
    keys = {place: checkpoint_key(cluster.id, topic, place.partition) for place in places}
    if any(key in before for key in keys.values()):
        return {place: before.get(key, 0) for place, key in keys.items()}
    return cluster.offsets_since(places, since // 1000 - _MARGIN_MS)


def _doubts(cluster: Cluster, topic: Topic, before: Checkpoint) -> list[str]:
    """Why what is not in the log may have been there."""
    same_name = {key for key in before if key.startswith(f"{topic.name}@{cluster.id}/")}
    mine = {key for key in same_name if key.startswith(f"{topic.name}@{cluster.id}/{topic.id}:")}
    if not mine and not same_name:
        return [f"nothing says where {topic.name} ended before the first letter was sent"]
    if mine != same_name:
        return [f"{topic.name} was deleted and made again since"]
    doubts = []
    for log in cluster.logs([topic]):
        ended = before.get(checkpoint_key(cluster.id, topic, log.place.partition), 0)
        doubts += _lost(log, ended)
    settings = cluster.configuration(topic.name)
    if settings is None:
        doubts.append(f"the user may not read whether {topic.name} is compacted (DESCRIBE_CONFIGS)")
    elif "compact" in settings.get("cleanup.policy", ""):
        doubts.append(f"{topic.name} is compacted, which may have removed it")
    if settings is not None and settings.get("unclean.leader.election.enable") == "true":
        doubts.append(f"{topic.name} allows unclean leader elections, which may have cut it off")
    return doubts


def _lost(log: Log, ended: int) -> list[str]:
    if log.start > ended:
        return [f"{log.place} begins at {log.start}: retention has taken what followed {ended}"]
    if log.end < ended:
        return [f"{log.place} ends at {log.end}, before {ended}: its end was cut off"]
    return []


def _seen(cluster: Cluster, topic: Topic, starts: Mapping[Place, int], wanted: Iterable[bytes]) -> set[bytes]:
    """Those of the replay ids that lie in the topic, as far as it goes now; also in open or aborted
    transactions of others, which hold none of ours."""
    sought, found = set(wanted), set[bytes]()
    logs = {log.place: log for log in cluster.logs([topic])}
    at = {place: max(start, logs[place].start) for place, start in starts.items()}
    at = {place: first for place, first in at.items() if first < logs[place].end}
    if not at:
        return found
    consumer = cluster.consumer({}, committed=False)
    try:
        consumer.assign([TopicPartition(*place, first) for place, first in at.items()])
        silent_since = time.monotonic()
        while at:
            messages = consumer.consume(_FETCH, _WAIT)
            if messages:
                silent_since = time.monotonic()
            elif time.monotonic() - silent_since > cluster.timeout:
                raise cluster.silence()
            for message in messages:
                place = Place(message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is None:
                    headers: Any = message.headers() or ()
                    found |= {value for name, value in headers if name == REPLAY_ID and value in sought}
                    is_done = (message.offset() or 0) + 1 >= logs[place].end
                else:
                    is_done = _ends(error, place)
                if is_done:
                    at.pop(place, None)
    finally:
        consumer.close()
    return found


def _ends(error: KafkaError, place: Place) -> bool:
    """Whether an event is the end of a partition. Raises BrokerError for a log that cannot be read."""
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED or error.retriable():
        return False
    raise BrokerError(f"{place} could not be looked through: {error.name()}")
