"""What a broker is asked besides the letters themselves, and what stays unknown where it refuses."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dlq.connectors.rocketmq.cluster import Cluster, refusal
from dlq.connectors.rocketmq.remoting import Ask, Code
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
    groups = {"group": group} if group else {}
    names = [groups, *({**groups, "topic": topic} for topic in topics)]
    questions = {loss: question for known in names for loss, question in _questions(known)}
    return sorted(
        f"{node}: the user may not ask {loss}"
        for node in cluster.masters()
        for loss, (code, fields) in questions.items()
        if _is_refused(cluster, node, code, fields)
    )


def _questions(known: Mapping[str, str]) -> Iterator[tuple[str, tuple[Ask, Mapping[str, object]]]]:
    """What is lost without an answer -> what is asked, where all names that it takes are known."""
    for code, fields, loss in _RIGHTS:
        try:
            asked = {k: v.format(**known) if isinstance(v, str) else v for k, v in fields.items()}
            yield loss.format(**known), (code, asked)
        except KeyError:
            continue


def _is_refused(cluster: Cluster, node: str, code: Ask, fields: Mapping[str, object]) -> bool:
    answer = cluster.call(node, code, fields)
    return answer.code != Code.OK and isinstance(refusal(node, answer), AccessDenied)
