"""Did a replay arrive? Messages are found by their unique key, and ours by the replay id they carry."""

import time
from collections.abc import Iterable, Mapping, Sequence

from dlq.connectors.base import Outgoing, Presence
from dlq.connectors.lenient_json import loads
from dlq.connectors.remoting import Ask, Code
from dlq.connectors.rocket_message import StoredMessage, parse_properties
from dlq.connectors.rocketmq_cluster import Cluster
from dlq.connectors.rocketmq_link import Link
from dlq.connectors.rocketmq_outcomes import query_answer, query_fields
from dlq.connectors.rocketmq_records import HALF, RETRY
from dlq.connectors.rocketmq_sending import REPLAY_ID, RESUME, unique_key_of
from dlq.core.errors import BrokerError, ConnectionLost

_SETTLED = 3.0
"""Seconds after which a request whose connection has ended is stored and indexed, or dropped."""
_IN_FLIGHT = 64


def find(cluster: Cluster, outgoing: Sequence[Outgoing], since: int) -> dict[int, Presence]:
    """number -> whether a broker holds it. `not_sent` needs the word of all that could have taken it.

    A broker that is down, was restarted after `since` (microseconds), or keeps no index proves nothing.
    """
    nodes = list(cluster.masters(refresh=True))
    found = _seen(cluster, nodes, outgoing, since)
    missing = [letter for letter in outgoing if letter.number not in found]
    if missing:
        time.sleep(_SETTLED)
        found |= _seen(cluster, nodes, missing, since)
    absent: Presence = "not_sent" if _can_prove_absence(cluster, nodes, missing, since) else "unknown"
    return {letter.number: "sent" if letter.number in found else absent for letter in outgoing}


def _seen(cluster: Cluster, nodes: Sequence[str], outgoing: Sequence[Outgoing], since: int) -> set[int]:
    found: set[int] = set()
    for node in nodes:
        open_still = [letter for letter in outgoing if letter.number not in found]
        try:
            link = cluster.new_link(node)
        except BrokerError:
            continue
        try:
            found |= _seen_on(link, node, open_still, since)
        except BrokerError:
            continue
        finally:
            link.close()
    return found


def _seen_on(link: Link, node: str, outgoing: Sequence[Outgoing], since: int) -> set[int]:
    found: set[int] = set()
    for i in range(0, len(outgoing), _IN_FLIGHT):
        asked: dict[int, tuple[Outgoing, str, str]] = {}
        for letter in outgoing[i : i + _IN_FLIGHT]:
            topic, key = _topic_of(letter), unique_key_of(letter)
            asked[link.ask(Ask.QUERY_MESSAGE, query_fields(topic, key))] = letter, topic, key
        for _ in range(len(asked)):
            answer = link.receive()
            if answer is None:
                raise ConnectionLost(f"{node} has stopped answering")
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


def _can_prove_absence(
    cluster: Cluster, nodes: Sequence[str], missing: Iterable[Outgoing], since: int
) -> bool:
    """Every registered broker answers, indexes, and has run since; and the topics' routes name no other."""
    topics = {_topic_of(letter) for letter in missing if letter.target.kind != RESUME}
    routed = {node for topic in topics for node in cluster.route(topic)}
    return routed <= set(nodes) and all(_is_witness(cluster, node, since) for node in nodes)


def _is_witness(cluster: Cluster, node: str, since: int) -> bool:
    try:
        answer = cluster.call(node, Ask.RUNTIME_INFO, {})
        facts: Mapping[str, str] = (
            loads(answer.body.decode()).get("table") or {} if answer.code == Code.OK else {}
        )
        is_indexed = cluster.configuration(node).get("messageIndexEnable", "true") == "true"
    except BrokerError:
        return False
    booted = facts.get("bootTimestamp")
    return booted is not None and int(booted) * 1000 < since and is_indexed
