"""Did a replay arrive? Messages are found by their unique key, and ours by the replay id they carry."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing

from dlq.connectors.base import Outgoing, Presence
from dlq.connectors.lenient_json import loads
from dlq.connectors.rocketmq.cluster import Cluster
from dlq.connectors.rocketmq.connection import Link
from dlq.connectors.rocketmq.message import StoredMessage, decode, parse, parse_properties
from dlq.connectors.rocketmq.queue_scan import MessageQueue, PullScan, Step, scan_queue
from dlq.connectors.rocketmq.remoting import ProtocolError, RequestCode, ResponseCode, understood
from dlq.connectors.rocketmq.republishing import RESUME, UNIQUE_KEY, unique_key_of
from dlq.connectors.rocketmq.snapshot import QueueOffsets, offsets_of_topic, own_offsets
from dlq.connectors.rocketmq.transaction_outcomes import query_answer, query_fields
from dlq.core.errors import BrokerError, ConnectionLost
from dlq.core.provenance import REPLAY_ID
from dlq.core.rocketmq_topics import HALF, RETRY

_MARGIN_MS = 600_000
"""How far a broker's clock may be from ours."""
_MOST = 500_000
"""Messages that are read: ten seconds or so."""
_ROOM = 2**24


def stored_since(
    cluster: Cluster, nodes: Collection[str], topics: Iterable[str], since: int
) -> Iterator[StoredMessage]:
    """The messages of `topics` on `nodes` from a while before `since` (microseconds) on.

    For what an index does not tell: a broker that was killed rebuilds its queues from the commit log when it
    starts, and its index may have holes.

    Raises BrokerError where these cannot be all, or are too many: by then some may have been given.
    """
    for node in nodes:
        _check_age(cluster, node, since)
    start = since // 1000 - _MARGIN_MS
    found = [
        offsets for topic in topics for offsets in _offsets_of(cluster, topic) if offsets.place.node in nodes
    ]
    ranges = [(offsets, max(offsets.lowest, _offset_at(cluster, offsets, start))) for offsets in found]
    if sum(offsets.highest - first for offsets, first in ranges) > _MOST:
        raise BrokerError(f"more than {_MOST} messages were stored since then")
    for offsets, first in ranges:
        for step in _steps(cluster, offsets, first):
            if step.gaps:
                raise BrokerError(f"{offsets.place} has lost messages")
            yield from map(parse, step.messages)


def runtime_facts(cluster: Cluster, node: str) -> dict[str, str]:
    """What a broker tells of itself; nothing when we may not ask. Raises BrokerError."""
    answer = cluster.call(node, RequestCode.RUNTIME_INFO, {})
    with understood(node):
        return dict(loads(answer.body.decode()).get("table") or {}) if answer.code == ResponseCode.OK else {}


def _check_age(cluster: Cluster, node: str, since: int) -> None:
    """A store whose first message is younger has been replaced since then, or has deleted some."""
    first = runtime_facts(cluster, node).get("commitLogMinOffset", "none")
    answer = cluster.call(node, RequestCode.VIEW_MESSAGE, {"offset": first}) if first.isdigit() else None
    messages = list(decode(answer.body)) if answer is not None and answer.code == ResponseCode.OK else []
    if not any(message.stored_at * 1000 < since for message in messages):
        raise BrokerError(f"the store of {node} does not reach back to that time")


def _offsets_of(cluster: Cluster, topic: str) -> Iterable[QueueOffsets]:
    if topic == HALF:
        return [own_offsets(cluster, MessageQueue(HALF, node, 0)) for node in cluster.masters()]
    return offsets_of_topic(cluster, topic)


def _offset_at(cluster: Cluster, offsets: QueueOffsets, moment: int) -> int:
    """The offset of the first message that was stored at `moment` (milliseconds) or later, or one before."""
    place = offsets.place
    fields = {"topic": place.topic, "queueId": place.queue, "timestamp": moment}
    answer = cluster.ok(place.node, RequestCode.OFFSET_AT, fields)
    with understood(place.node):
        return int(answer.fields["offset"])


def _steps(cluster: Cluster, offsets: QueueOffsets, first: int) -> Iterator[Step]:
    link = cluster.new_link(offsets.place.node)
    try:
        scan = PullScan(link, offsets.place, first, offsets.highest, _ROOM)
        yield from scan if offsets.pullable else scan_queue(link, offsets.place, first, offsets.highest)
    finally:
        link.close()


_SETTLED = 3.0
"""Seconds after which a request whose connection has ended is stored and indexed, or dropped."""
_IN_FLIGHT = 64


def find(
    cluster: Cluster, outgoing: Sequence[Outgoing], since: int, obstacles: list[str]
) -> dict[int, Presence]:
    """number -> whether a broker holds it. `not_sent` needs the word of all that could have taken it.
    What keeps it from being proven is added to `obstacles`, in words.

    A broker that is down proves nothing. One that was restarted after `since` (microseconds), or keeps no
    index, is looked through: that proves it as long as its store goes back to that time.
    """
    masters = dict(cluster.masters(refresh=True))
    nodes = list(masters)
    found, _ = _looked_up(cluster, nodes, outgoing, since)
    missing = _without(outgoing, found)
    if not missing:
        return dict.fromkeys((letter.number for letter in outgoing), "sent")
    time.sleep(_SETTLED)
    late, silent = _looked_up(cluster, nodes, missing, since)
    missing = _without(missing, late)
    doubts = {node: silent.get(node) or _doubt(cluster, node, since) for node in nodes}
    others = {node: doubt for node, doubt in doubts.items() if doubt}
    seen, unread = _looked_through(cluster, list(others), missing, since)
    if unread:
        obstacles += [f"{node}: {doubt}" for node, doubt in others.items()]
        obstacles.append(f"what is stored does not prove it either: {unread}")
    else:
        obstacles += [f"{node} has no master that answers" for node in _away(cluster, masters, missing)]
    at_home = {letter.number for letter in missing if _is_home_here(cluster, masters, letter)}
    absent = set() if obstacles else at_home
    if not obstacles and len(at_home) < len(missing):
        obstacles.append("the broker that a letter came from, which may have it, is not registered")
    sent = found | late | seen
    return {n: "sent" if n in sent else "not_sent" if n in absent else "unknown" for n, *_ in outgoing}


def _without(letters: Iterable[Outgoing], found: Collection[int]) -> list[Outgoing]:
    return [letter for letter in letters if letter.number not in found]


def _looked_up(
    cluster: Cluster, nodes: Sequence[str], outgoing: Sequence[Outgoing], since: int
) -> tuple[set[int], dict[str, str]]:
    """Numbers of the letters that the indexes know, and why a broker did not answer all questions."""
    found: set[int] = set()
    silent: dict[str, str] = {}
    for node in nodes:
        try:
            with closing(cluster.new_link(node)) as link:
                found |= _seen_on(link, node, _without(outgoing, found), since)
        except BrokerError as error:
            silent[node] = str(error)
    return found, silent


def _seen_on(link: Link, node: str, outgoing: Sequence[Outgoing], since: int) -> set[int]:
    found: set[int] = set()
    for i in range(0, len(outgoing), _IN_FLIGHT):
        asked: dict[int, tuple[Outgoing, str, str]] = {}
        for letter in outgoing[i : i + _IN_FLIGHT]:
            topic, key = _topic_of(letter), unique_key_of(letter)
            asked[link.ask(RequestCode.QUERY_MESSAGE, query_fields(topic, key))] = letter, topic, key
        for _ in range(len(asked)):
            answer = link.receive()
            if answer is None:
                raise ConnectionLost(f"{node} has stopped answering")
            with understood(node):
                letter, topic, key = asked[answer.opaque]
            if any(_is_ours(message, letter, since) for message in query_answer(node, answer, topic, key)):
                found.add(letter.number)
    return found


def _topic_of(letter: Outgoing) -> str:
    topics = {"group": f"{RETRY}{letter.target.name}", RESUME: HALF}
    return topics.get(letter.target.kind, letter.target.name)


def _is_ours(message: StoredMessage, letter: Outgoing, since: int) -> bool:
    properties = parse_properties(message.properties)
    if letter.target.kind == RESUME:
        return properties.get("TRANSACTION_CHECK_TIMES") == "0" and message.stored_at * 1000 >= since
    return properties.get(REPLAY_ID) == letter.provenance[REPLAY_ID]


def _looked_through(
    cluster: Cluster, nodes: Sequence[str], letters: Sequence[Outgoing], since: int
) -> tuple[set[int], str]:
    """Numbers of the letters that lie on `nodes`, and why that does not prove that the others do not."""
    if not nodes or not letters:
        return set(), ""
    wanted: dict[tuple[str, str | None], list[Outgoing]] = {}
    for letter in letters:
        wanted.setdefault((_topic_of(letter), unique_key_of(letter)), []).append(letter)
    found: set[int] = set()
    try:
        for message in stored_since(cluster, nodes, sorted({topic for topic, _ in wanted}), since):
            key = parse_properties(message.properties).get(UNIQUE_KEY)
            same = wanted.get((message.topic, key), ())
            found |= {letter.number for letter in same if _is_ours(message, letter, since)}
    except (BrokerError, ProtocolError) as error:
        return found, str(error)
    return found, ""


def _away(cluster: Cluster, masters: Mapping[str, str], letters: Iterable[Outgoing]) -> list[str]:
    """Brokers that have the topics, or had, and could not be asked."""
    topics = {_topic_of(letter) for letter in letters if letter.target.kind != RESUME}
    routed = {node for topic in topics for node in cluster.route(topic)}
    return sorted({*cluster.without_master, *(routed - masters.keys())})


def _is_home_here(cluster: Cluster, masters: Mapping[str, str], letter: Outgoing) -> bool:
    """The broker that a letter came from was asked: it takes it back where it can (`Way.near`), and it alone
    can resume a half message."""
    record = letter.record
    is_foreign = record.broker != cluster.name or record.broker_node is None
    store = record.headers.get("storeHost") if letter.target.kind == RESUME else None
    return (is_foreign or record.broker_node in masters) and (store is None or store in masters.values())


def _doubt(cluster: Cluster, node: str, since: int) -> str:
    """Why a broker's index proves nothing: it has not run since then, keeps none, or does not tell."""
    try:
        booted = runtime_facts(cluster, node).get("bootTimestamp")
        is_indexed = cluster.configuration(node).get("messageIndexEnable")
    except BrokerError as error:
        return str(error)
    doubts = {
        "it does not tell since when it runs": booted is None,
        "it was started after the first of them was sent": booted is not None and int(booted) * 1000 >= since,
        "the user may not read whether it keeps an index of messages": is_indexed is None,
        "it keeps no index of messages (messageIndexEnable = false)": is_indexed not in (None, "true"),
    }
    return "; ".join(doubt for doubt, holds in doubts.items() if holds)
