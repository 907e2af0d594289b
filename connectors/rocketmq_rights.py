"""What a broker is asked besides the letters themselves, and what stays unknown where it refuses."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dlq.connectors.remoting import Ask, Code
from dlq.connectors.rocketmq_cluster import Cluster, refusal
from dlq.core.errors import AccessDenied


class _Right(NamedTuple):
    """`{topic}` is one that letters come from, `{group}` who could not consume them."""

    code: Ask
    fields: Mapping[str, object]
    loss: str


_RIGHTS: Sequence[_Right] = (
    _Right(Ask.BROKER_CONFIG, {}, "its settings: retention is taken as 72 hours"),
    _Right(Ask.RUNTIME_INFO, {}, "since when it runs: a replay in doubt may stay in doubt"),
    _Right(
        Ask.TOPIC_GROUPS,
        {"topic": "{topic}"},
        "who consumes {topic}: a plan does not name them, and a ramp goes by what comes back",
    ),
    _Right(
        Ask.QUERY_MESSAGE,
        {"topic": "{topic}", "key": "-", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 0},
        "for a message of {topic} by its key: a replay in doubt stays in doubt",
    ),
    _Right(
        Ask.CONSUMER_CONNECTIONS,
        {"consumerGroup": "{group}"},
        "for the consumers of {group}: a ramp to the group goes by what comes back",
    ),
)


def losses(cluster: Cluster, group: str | None, topics: Iterable[str]) -> list[str]:
    """What brokers refuse to tell this user, in words. Raises BrokerError where one cannot be reached."""
    found = {
        f"{node}: the user may not ask {loss}"
        for node in cluster.masters()
        for known in _names(group, topics)
        for loss in _refused(cluster, node, known)
    }
    return sorted(found)


def _names(group: str | None, topics: Iterable[str]) -> list[Mapping[str, str]]:
    groups = {"group": group} if group else {}
    return [groups, *({**groups, "topic": topic} for topic in topics)]


def _refused(cluster: Cluster, node: str, known: Mapping[str, str]) -> Iterator[str]:
    for code, fields, loss in _RIGHTS:
        try:
            asked = {k: v.format(**known) if isinstance(v, str) else v for k, v in fields.items()}
            said = loss.format(**known)
        except KeyError:  # nothing is known that it could be asked of
            continue
        answer = cluster.call(node, code, asked)
        if answer.code != Code.OK and isinstance(refusal(node, answer), AccessDenied):
            yield said
