"""Where each kind of death leads on Kafka, from the settings of topics and groups alone (run on 4.4.0)."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka.admin import ResourceType

from dlq.connectors.base import NIGHT, Fate
from dlq.connectors.kafka.look.cluster import Cluster, number_in
from dlq.core.errors import AccessDenied, NotFound
from dlq.core.values.units import human_seconds

_DLQ = "errors.deadletterqueue."
_Settings = Mapping[str, str] | None
"""None: they may not be read."""
_NO_RIGHT = "the settings of {} may not be read (DESCRIBE_CONFIGS)"
_NOT_ALL_GROUPS = "the user may not see all groups (DESCRIBE on the cluster)"
_WEEK = "retention.ms=604800000"
_ALTER = "kafka-configs.sh --bootstrap-server {} --alter --entity-type {} --entity-name {} --add-config {}"
_CREATE = "kafka-topics.sh --bootstrap-server {} --create --topic {} --config {}group.enable=true"
_BY_ITSELF = (
    "Kafka keeps no dead letters of consumer groups: where they go, its own code or framework decides"
)
_DEFAULT_LIMIT = "5"


@dataclass(frozen=True)
class Definitions:
    """What the cluster says of itself, its topics and groups."""

    server: str
    broker: _Settings
    topics: Mapping[str, _Settings]
    groups: Sequence[str] = ()
    share_groups: Mapping[str, _Settings] = field(default_factory=dict)
    sees_groups: bool = True
    """Whether these are all of them."""


def fetch(cluster: Cluster) -> Definitions:
    """Ask the cluster. Raises BrokerError."""
    known = fetch_share_groups(cluster)
    others = [name for name in cluster.names() if name not in known.topics]
    topics = {**cluster.configurations(others), **known.topics}
    return replace(known, topics=topics, groups=cluster.groups())


def fetch_share_groups(cluster: Cluster) -> Definitions:
    """Ask the cluster about share groups and their topics for dead letters alone. Raises BrokerError."""
    groups = cluster.configurations(cluster.other_groups(), ResourceType.GROUP)
    named = {name for settings in groups.values() if (name := topic_of(settings))}
    return Definitions(
        cluster.nodes[0] if cluster.nodes else "localhost:9092",
        cluster.broker_configuration(),
        cluster.configurations([name for name in sorted(named) if _may_be_there(cluster, name)]),
        (),
        groups,
        cluster.may_see_groups,
    )


def topic_of(settings: _Settings) -> str | None:
    """Return the topic that takes the dead letters of a share group with these settings."""
    return (settings or {}).get(f"{_DLQ}topic.name") or None


def _may_be_there(cluster: Cluster, topic: str) -> bool:
    """Return whether a topic is there, or is hidden: a broker lists only what the user may DESCRIBE."""
    try:
        with suppress(AccessDenied):
            cluster.topic(topic)
    except NotFound:
        return False
    return True


def predict(known: Definitions) -> list[Fate]:
    """Return the fate of each kind of death in each group, and of what a topic forgets."""
    return list(_fates(known))


def _fates(known: Definitions) -> Iterator[Fate]:
    for topic, settings in known.topics.items():
        if settings is None:
            yield Fate("topic", topic, "discard", "unknown", (), _NO_RIGHT.format(topic))
        elif why := _forgets(topic, settings):
            yield Fate("topic", topic, "discard", "lost", (), why, _alter(known, "topics", topic, _WEEK))
    if not known.sees_groups:
        yield Fate("broker", known.server, "any", "unknown", (), _NOT_ALL_GROUPS)
    for group in known.groups:
        yield Fate("group", group, "give-up", "unknown", (), _BY_ITSELF)
    for group, settings in known.share_groups.items():
        if settings is None:
            yield Fate("group", group, "any", "unknown", (), _NO_RIGHT.format(group))
            continue
        found = of_share_group(known, group, settings)
        limit = settings.get("share.delivery.count.limit", _DEFAULT_LIMIT)
        yield found
        yield found.add_remark(f"after {limit} deliveries", "delivery limit")


def of_share_group(known: Definitions, group: str, settings: Mapping[str, str]) -> Fate:
    """Return what becomes of a reject. A broker takes each of these settings, and drops it without a word."""

    def lost(why: str, fix: str = "") -> Fate:
        return Fate("group", group, "reject", "lost", (), why, fix)

    topic, broker = topic_of(settings), known.broker
    if not topic:
        fix = _alter(known, "groups", group, f"{_DLQ}topic.name=dlq.{group}")
        return lost("it has no topic for dead letters", fix)
    if broker is None:
        return Fate("group", group, "reject", "unknown", (), _NO_RIGHT.format("the brokers"))
    prefix = broker.get(f"{_DLQ}topic.name.prefix", "")
    if not topic.startswith(prefix):
        return lost(f"the name of its topic, {topic}, does not begin with {prefix}")
    if topic not in known.topics:
        if broker.get(f"{_DLQ}auto.create.topics.enable") == "true":
            return Fate("group", group, "reject", "kept", (topic,), "the broker makes it")
        return lost(f"there is no topic {topic}", _CREATE.format(known.server, shlex.quote(topic), _DLQ))
    return _in_topic(known, group, topic, settings)


def _in_topic(known: Definitions, group: str, topic: str, settings: Mapping[str, str]) -> Fate:
    of_topic: Any = known.topics[topic]
    found = Fate("group", group, "reject", "lost")
    if of_topic is None:
        return found._replace(verdict="unknown", why=_NO_RIGHT.format(topic))
    if of_topic.get(f"{_DLQ}group.enable") != "true":
        fix = _alter(known, "topics", topic, f"{_DLQ}group.enable=true")
        return found._replace(why=f"{topic} takes no dead letters of share groups", fix=fix)
    if "compact" in of_topic.get("cleanup.policy", ""):
        copies = settings.get(f"{_DLQ}copy.record.enable") == "true"
        why = f"{topic} is compacted, and takes none without a key"
        return found._replace(verdict="unknown" if copies else "lost", why=why)
    if why := _forgets(topic, of_topic):
        return found._replace(why=why, fix=_alter(known, "topics", topic, _WEEK))
    return found._replace(verdict="kept", leads_to=(topic,))


def _alter(known: Definitions, kind: str, name: str, setting: str) -> str:
    return _ALTER.format(known.server, kind, shlex.quote(name), shlex.quote(setting))


def _forgets(topic: str, settings: Mapping[str, str]) -> str:
    """Return why what nobody reads in a night is gone; empty: it is not."""
    kept = number_in(settings, "retention.ms")
    if (
        kept is None
        or kept < 0
        or kept / 1000 >= NIGHT
        or "delete" not in settings.get("cleanup.policy", "delete")
    ):
        return ""
    return f"{topic} keeps it for {human_seconds(kept / 1000)}"
