"""A member of a share group of Kafka that rejects letters, or releases them until the group has had them as
often as it may: the broker writes what points to them to the group's dead-letter topic."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from lab import LETTERS, MENDED, PREFIX, URL, Hiccup, take

DEAD, GROUP = f"{PREFIX}dead", f"{PREFIX}billing"
ORDERS = f"{PREFIX.removeprefix('dlq.')}orders"
"""A topic of a name like one of dead letters gets none of them back."""
SERVER = {"bootstrap.servers": URL}
OF_GROUP = {
    "share.auto.offset.reset": "earliest",
    "share.delivery.count.limit": "2",
    "errors.deadletterqueue.topic.name": DEAD,
}
OUTCOMES = {
    "": AcknowledgeType.ACCEPT,
    "rejected": AcknowledgeType.REJECT,
    "released": AcknowledgeType.RELEASE,
}


def begin() -> None:
    admin = AdminClient(SERVER)
    dead = NewTopic(DEAD, 1, 1, config={"errors.deadletterqueue.group.enable": "true"})
    for topic in admin.create_topics([NewTopic(ORDERS, 1, 1), dead]).values():
        topic.result(30)
    group = ConfigResource(ResourceType.GROUP, GROUP)
    for name, value in OF_GROUP.items():
        group.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    for done in admin.incremental_alter_configs([group]).values():
        done.result(30)
    producer = Producer(SERVER)
    for letter in LETTERS:
        producer.produce(ORDERS, "an order", "a key", headers={"letter": letter, "tenant": "7"})
    producer.flush(30)


def outcome_of(order: Message) -> AcknowledgeType:
    headers: Mapping[str, Any] = {name: value.decode() for name, value in order.headers() or ()}
    try:
        way = take(headers["letter"], order.value().decode(), {**headers, "key": order.key().decode()})
    except Hiccup:
        return AcknowledgeType.RELEASE
    return OUTCOMES[way]


if not MENDED:
    begin()
member = ShareConsumer({**SERVER, "group.id": GROUP, "share.acknowledgement.mode": "explicit"})
member.subscribe([ORDERS])
while True:
    for delivery in list(member.poll(0.2) or []):
        assert delivery.error() is None, delivery.error()
        member.acknowledge(delivery, outcome_of(delivery))
    member.commit_sync(10)
