"""Did a replay arrive? What was stored in its topic since the first letter was sent is looked through for the
replay ids. `bounds` says where each partition ended before that: with it what is not found was not sent."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from dlq.connectors.base import Evidence, Outgoing, Proof, Search
from dlq.connectors.kafka.look.cluster import Cluster, Log, Place, Topic
from dlq.connectors.kafka.prove.evidence import End, TopicEnds, read, write
from dlq.connectors.kafka.prove.wholeness import end_of_epoch, is_compacted_between, stored_end
from dlq.connectors.kafka.read.odd_headers import headers_of
from dlq.connectors.proving import decide, decide_by_place, numbers_of, why_compacted, why_lost
from dlq.core.errors import BrokerError, ConnectionLost, NotFound
from dlq.core.headers.provenance import REPLAY_ID
from dlq.core.runtime import patience

_MARGIN_MS = 600_000
"""How far a broker's clock may be from ours."""
_FETCH = 2000


def bounds(cluster: Cluster, topics: Iterable[str]) -> Evidence:
    """Return where each partition ends now, uncommitted records included, and in which epoch; and how many
    there are, as letters may have gone to one that comes later."""
    found: dict[str, int] = {}
    topics_there = cluster.topics(topics)
    logs = cluster.logs(topics_there.values())
    for name, topic in topics_there.items():
        ends = {log.place.partition: End(log.end, log.epoch) for log in logs if log.place.topic == name}
        found |= write(cluster.id, topic, ends)
    return found


def find(cluster: Cluster, search: Search) -> Proof:
    """Return whether each letter's topic holds it. `not_sent` needs the whole log since before the first was
    sent. Raises BrokerError."""
    return decide_by_place(
        search.letters, lambda letter: letter.target.name, partial(_find_in_topic, cluster, search)
    )


def _find_in_topic(cluster: Cluster, search: Search, name: str, letters: Sequence[Outgoing]) -> Proof:
    wanted = {letter.provenance[REPLAY_ID].encode() for letter in letters}
    try:
        topic = cluster.topic(name)
    except NotFound as error:
        return decide(letters, (), [f"{error}: it may have been deleted since"])
    before = read(search.before, cluster.id, topic)
    starts = _starts(cluster, topic, before, search.since)
    doubts, found = list[str](), _scan(cluster, cluster.logs([topic]), starts, wanted)
    if found != wanted:
        time.sleep(patience.SETTLED)
        held = {place: _ask_end(cluster, place) for place in starts}
        logs = cluster.logs([topic])  # asked after that, or what is shown in between would not be looked at
        found |= _scan(cluster, logs, starts, wanted - found)
        hidden = [why for log in logs for why in _why_hidden(log, held.get(log.place, log.end))]
        doubts = [*_doubts(cluster, topic, before), *hidden]
    return decide(letters, numbers_of(letters, {replay.decode() for replay in found}), doubts)


def _starts(cluster: Cluster, topic: Topic, before: TopicEnds, since: int) -> dict[Place, int]:
    """Return the offset from which each partition is looked through. One that came later is from its start;
    without bounds, from what was stored when the first letter was sent."""
    places = [Place(topic.name, number) for number in range(topic.partitions)]
    if before.ends:
        return {place: before.end_of(place.partition).offset for place in places}
    return cluster.offsets_since(places, since // 1000 - _MARGIN_MS)


def _ask_end(cluster: Cluster, place: Place) -> int | BrokerError:
    """Return where a partition ends on its leader, or why that is not told."""
    try:
        return stored_end(cluster, place)
    except BrokerError as error:
        return error


def _why_hidden(log: Log, held: int | BrokerError) -> list[str]:
    """Return whether its leader held more than it shows: what was sent may be that, and be shown later."""
    if isinstance(held, BrokerError):
        return [f"it is not known whether the leader of {log.place} holds more than it shows: {held}"]
    if held <= log.end:
        return []
    return [
        f"{log.place} ends at {held} on its leader, and what lies from {log.end} on is not shown before its "
        "other replicas have it; ask again then"
    ]


def _doubts(cluster: Cluster, topic: Topic, before: TopicEnds) -> list[str]:
    """Return why what is not in the log may have been there."""
    if before.doubt:
        return [before.doubt]
    doubts = []
    for log in cluster.logs([topic]):
        ended, epoch = before.end_of(log.place.partition)
        doubts += why_lost(log.place, log.start, log.end, ended) or [
            *(_why_regrown(cluster, log, ended, epoch) or _why_led_anew(log, ended, epoch)),
            *_why_cleaned(cluster, log, ended),
        ]
    settings = cluster.configuration(topic.name)
    is_compacted = None if settings is None else "compact" in settings.get("cleanup.policy", "")
    doubts += why_compacted(topic.name, is_compacted, "DESCRIBE_CONFIGS")
    if settings is not None and settings.get("unclean.leader.election.enable") == "true":
        doubts.append(f"{topic.name} allows unclean leader elections, which may have cut it off")
    return doubts


def _why_regrown(cluster: Cluster, log: Log, ended: int, epoch: int) -> list[str]:
    """Return whether a log was cut and has grown as far again: then what was written in that epoch ends
    earlier."""
    if epoch in (-1, log.epoch) or not ended:
        return []
    try:
        kept = end_of_epoch(cluster, log.place, epoch)
    except BrokerError as error:
        return [f"it is not known whether the end of {log.place} was cut off: {error}"]
    if kept >= ended:
        return []
    return [f"{log.place} was cut off at {kept}, before {ended}, and has grown again since"]


def _why_led_anew(log: Log, ended: int, epoch: int) -> list[str]:
    """Return whether its leader began anew since: a leader that was not in sync, or has lost its disk, drops
    what followed the bound, and nothing in the log tells that. A leader of the same epoch drops nothing."""
    if epoch == log.epoch != -1:
        return []
    now, then = ("unknown" if number == -1 else number for number in (log.epoch, epoch))
    return [
        f"the leader of {log.place} began anew since (its epoch was {then}, and is {now}), which may have "
        f"cut off what followed {ended}"
    ]


def _why_cleaned(cluster: Cluster, log: Log, ended: int) -> list[str]:
    """Return whether compaction has taken records since, though the topic may be set otherwise now."""
    try:
        if not is_compacted_between(cluster, log.place, ended, log.end):
            return []
    except (BrokerError, ValueError) as error:
        return [f"it is not known whether {log.place} is whole from {ended} on: {error}"]
    return [f"{log.place} lacks records behind {ended}: it was compacted meanwhile"]


def _scan(
    cluster: Cluster, shown: Iterable[Log], starts: Mapping[Place, int], wanted: Iterable[bytes]
) -> set[bytes]:
    """Return those of the replay ids that lie in logs, as far as these are shown: not in transactions of
    others that were aborted, but behind one that is open."""
    sought = set(wanted)
    logs = [log for log in shown if log.place in starts]
    first = {log.place: max(starts[log.place], log.start) for log in logs}
    committed = {log.place: (first[log.place], log.stable) for log in logs}
    behind = {log.place: (max(first[log.place], log.stable), log.end) for log in logs}
    return find_between(cluster, committed, sought, True) | find_between(cluster, behind, sought, False)


def find_between(
    cluster: Cluster, spans: Mapping[Place, tuple[int, int]], sought: Collection[bytes], committed: bool
) -> set[bytes]:
    """Return those of the replay ids that lie between two offsets of each partition."""
    found = set[bytes]()
    at = {place: first for place, (first, end) in spans.items() if first < end}
    if not at:
        return found
    with closing(cluster.consumer({}, committed)) as consumer:
        consumer.assign([TopicPartition(*place, first) for place, first in at.items()])
        silent_since = time.monotonic()
        until = silent_since + patience.LOOK
        while at:
            if time.monotonic() > until:
                raise ConnectionLost(f"{cluster.name} takes too long to show all that it has")
            messages = cluster.fetch(consumer, _FETCH)
            if messages:
                silent_since = time.monotonic()
            elif cluster.is_silent(silent_since):
                raise cluster.silence()
            for message in messages:
                place = Place(message.topic() or "", message.partition() or 0)
                if message.error() is None:
                    headers = said_headers(message)
                    found |= {value for name, value in headers if name == REPLAY_ID and value in sought}
                    is_done = (message.offset() or 0) + 1 >= spans[place][1]
                else:
                    is_done = ends(message, place, spans.get(place, (0, 0))[1])
                if is_done:
                    at.pop(place, None)
    return found


def said_headers(message: Any) -> Any:
    """Return headers; none that cannot be said, as ours can, or the library would not have sent them."""
    try:
        return headers_of(message)
    except (SystemError, UnicodeError):
        return ()


def ends(message: Any, place: Place, end: int) -> bool:
    """Return whether an event is the end of a partition, which was at `end`: a new leader shows less for a
    moment. Raises BrokerError for a log that cannot be read."""
    error = message.error()
    if error.code() == KafkaError._PARTITION_EOF:
        return message.offset() is None or bool(message.offset() >= end)
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED or error.retriable():
        return False
    raise BrokerError(f"{place} could not be looked through: {error.name()}")
