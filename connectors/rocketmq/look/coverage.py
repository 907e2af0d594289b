"""Where what a consumer group gives up leads on RocketMQ, from the settings of groups, topics and brokers
alone (run on 4.9.7 and 5.5.0)."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dlq.connectors.base import NIGHT, Fate
from dlq.connectors.rocketmq.link.cluster import Cluster, refusal
from dlq.connectors.rocketmq.link.remoting import RequestCode, ResponseCode, understood
from dlq.core.headers.rocketmq_topics import DEAD_LETTERS, RETRY
from dlq.core.values.units import human_seconds

CONSUMER = "its consumer"
_READ, _WRITE = 4, 2
_DEFAULT_HOURS = 72
_OWN_GROUPS = ("CID_RMQ_SYS_", "CID_ONS", "CID_SYS_RMQ_")
_TOOLS = {"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP"}
_POPS = (
    "it has consumed by POP ({}): what clients by gRPC give up goes to {}; those of Java by remoting "
    "acknowledge it, and so drop it (ConsumeMessagePopConcurrentlyService)"
)
_Table = Mapping[str, Mapping[str, Any]]


class Definitions(NamedTuple):
    """What one master says: its groups, its topics, and hours that it keeps what it stores."""

    address: str
    name_server: str
    groups: _Table
    topics: _Table
    hours: float
    refused: str = ""
    """Why its groups and topics are not known."""


def fetch(cluster: Cluster) -> dict[str, Definitions]:
    """Ask every master. Raises BrokerError."""
    found: dict[str, Definitions] = {}
    for node, address in cluster.masters(refresh=True).items():
        told = cluster.configuration(node).get("fileReservedTime", "").strip()
        hours = float(told) if told.isdecimal() and len(told) < 7 else float(_DEFAULT_HOURS)
        groups, why = _table(cluster, node, RequestCode.GROUP_CONFIGS, "subscriptionGroupTable")
        topics, why_not = _table(cluster, node, RequestCode.TOPIC_CONFIGS, "topicConfigTable")
        found[node] = Definitions(address, cluster.name_server, groups, topics, hours, why or why_not)
    return found


def _table(cluster: Cluster, node: str, code: int, name: str) -> tuple[_Table, str]:
    answer = cluster.call(node, code, {})
    if answer.code != ResponseCode.OK:
        return {}, str(refusal(node, answer))
    with understood(node):
        told = answer.document().get(name) or {}
        return {str(key): value for key, value in told.items() if isinstance(value, dict)}, ""


def predict(known: Mapping[str, Definitions]) -> list[Fate]:
    """Return what every group gives up, on all masters: lost where one of them loses it."""
    found = [*_of_brokers(known)]
    for group in sorted({group for one in known.values() for group in one.groups}):
        if group in _TOOLS or group.startswith(_OWN_GROUPS):
            continue
        own = {node: one for node, one in known.items() if group in one.groups}
        fates = [_of_group(node, one, group) for node, one in own.items()]
        worst = min(fates, key=lambda fate: ("lost", "unknown", "kept").index(fate.verdict))
        refused = next((one.refused for one in known.values() if one.refused), "")
        if refused and worst.verdict == "kept":  # there it may be lost
            worst = worst._replace(verdict="unknown", leads_to=(), why=refused)
        retries = max(int(one.groups[group].get("retryMaxTimes", 16)) for one in own.values())
        after = f"after {retries} retries, unless its client says otherwise"
        found += [worst, worst.add_remark(after, "delivery limit")]
    return found


def _of_brokers(known: Mapping[str, Definitions]) -> Iterator[Fate]:
    for node, one in known.items():
        if one.refused:
            yield Fate("broker", node, "any", "unknown", (), one.refused)
        if one.hours * 3600 < NIGHT:
            fix = _mqadmin(one, "updateBrokerConfig", "-k fileReservedTime -v 72")
            yield Fate("broker", node, "discard", "lost", (), _keeps(node, one), fix)


def _mqadmin(one: Definitions, command: str, settings: str) -> str:
    return f"mqadmin {command} -n {one.name_server} -b {one.address} {settings}"


def _keeps(node: str, one: Definitions) -> str:
    return f"{node} keeps what it stores for {human_seconds(one.hours * 3600)}"


def _of_group(node: str, one: Definitions, group: str) -> Fate:
    """Tell where a group's dead go, as AbstractSendMessageProcessor#consumerSendMsgBack does."""
    settings, dead = one.groups[group], f"{DEAD_LETTERS}{group}"
    found = Fate("group", group, "give-up", "lost")
    if int(settings.get("retryQueueNums", 1)) <= 0:
        fix = _mqadmin(one, "updateSubGroup", f"-g {shlex.quote(group)} -q 1")
        return found._replace(why=f"it has no retry queue on {node}: what is sent back is dropped", fix=fix)
    retry, topic = one.topics.get(f"{RETRY}{group}"), one.topics.get(dead)
    if retry is not None and not int(retry.get("perm", 6)) & _WRITE:
        why = f"{RETRY}{group} may not be written on {node}: the consumer is refused, and tries again"
        return found._replace(verdict="kept", leads_to=(CONSUMER,), why=why)
    readable = int((topic or {}).get("readQueueNums", 1))
    if topic is not None and not (readable and int(topic.get("perm", 6)) & _READ):
        number = max(1, readable)
        fix = _mqadmin(one, "updateTopic", f"-t {shlex.quote(dead)} -r {number} -w {number} -p 6")
        why = f"{dead} {'may not' if readable else 'has no queue to'} be read on {node}"
        return found._replace(why=f"{why} (by index alone, as dlq pull does)", fix=fix)
    if one.hours * 3600 < NIGHT:
        return found._replace(why=_keeps(node, one))
    if popped := _pop_topic(one, group):
        return found._replace(verdict="unknown", why=_POPS.format(popped, dead))
    return found._replace(verdict="kept", leads_to=(dead,))


def _pop_topic(one: Definitions, group: str) -> str | None:
    """Return a topic that has retries of a group by POP, and none of a group with a longer name."""
    names = (name for mark in "+_" for name in one.topics if name.startswith(f"{RETRY}{group}{mark}"))
    return next((name for name in names if name.removeprefix(RETRY) not in one.groups), None)
