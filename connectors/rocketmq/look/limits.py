"""What a topic does with messages beside keeping them, by the attributes that 5.x gives topics.

Names and values are those of common/TopicAttributes and common/attribute/TopicMessageType. Brokers hold no
message against them (the gRPC proxy does), so what they mean for a letter is told here.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal

from dlq.core.headers.rocketmq_topics import RETRY

Attributes = Mapping[str, str] | None
"""Of a topic; None: its brokers do not tell."""
NONE: Mapping[str, str] = MappingProxyType({})
_COMPACTED = "COMPACTION"
_FIFO, _DELAYED, _TRANSACTIONS, _LITE = "FIFO", "DELAY", "TRANSACTION", "LITE"
_MEANS = {
    _FIFO: "is a topic for ordered messages, and a letter without a sharding key goes to any of its queues",
    _DELAYED: "is a topic for delayed messages: a letter goes back without its delay, at once",
    _TRANSACTIONS: "is a topic for transactions: a letter goes back without one, committed",
}
"""The type of a topic's messages -> what that means for letters."""


def is_compacted(attributes: Mapping[str, str]) -> bool:
    """Return whether the topic keeps the last message of each key, and drops the others."""
    return _COMPACTED in attributes.get("cleanup.policy", "")


def why_unnamed(
    topic: str, attributes: Attributes, properties: Mapping[str, str]
) -> Mapping[Literal["letter", "target"], str]:
    """Return what must be named for a letter to go there, and why. A compacted topic takes none without KEYS,
    and so would hold no retries."""
    if attributes is None and "KEYS" in properties and not topic.startswith(RETRY):
        return {
            "target": f"it is not known whether {topic} is compacted, in which an old value would replace a "
            "newer one (GET on the topic)"
        }
    if attributes and is_compacted(attributes):
        return {"target": f"{topic} is compacted: an old value would replace a newer one of its key"}
    if attributes and attributes.get("message.type") == _LITE and "__LITE_TOPIC" not in properties:
        return {"target": f"{topic} has lite topics, and the letter names none: nobody would read it"}
    return {}


def why_refused(topic: str, attributes: Attributes, properties: Mapping[str, str]) -> str | None:
    """Return why brokers take no such letter there; None where they may."""
    if attributes and is_compacted(attributes) and not properties.get("KEYS", "").strip():
        return f"{topic} is compacted and takes no message without KEYS"
    return None


def warnings(topic: str, attributes: Attributes, properties: Mapping[str, str]) -> Iterator[str]:
    """Yield what else the topic's type means for a letter."""
    if attributes is None:
        yield f"the attributes of {topic} may not be read, so what it is for is not known (GET on the topic)"
    kind = (attributes or {}).get("message.type", "")
    if kind in _MEANS and not (kind == _FIFO and "__SHARDINGKEY" in properties):
        yield f"{topic} {_MEANS[kind]}"
