"""What the tests do on a Kafka node beside the connector: topics, records, share groups."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from support.waiting import PATIENCE

T = TypeVar("T")
Headers = Sequence[tuple[str, bytes | None]]


def eventually(ask: Callable[[], T]) -> T:
    """The first answer that is true; what is not led yet is asked again."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if found := ask():
                return found
            why: object = "no answer was true"
        except KafkaException as error:
            why = error
        assert time.monotonic() < deadline, why
        time.sleep(0.05)


def _right_of(user: str, kind: ResourceType, name: str, right: AclOperation) -> tuple[Any, ...]:
    whose = f"User:{user}", "*"
    return kind, name, ResourcePatternType.LITERAL, *whose, right, AclPermissionType.ALLOW


class Driver:
    """The node at `bootstrap`; `more` are settings of the client library."""

    def __init__(self, bootstrap: str, **more: Any) -> None:
        self.settings = {"bootstrap.servers": bootstrap, "log_level": 0, **more}
        self.admin = AdminClient(self.settings)
        ours = {"partitioner": "murmur2_random", "allow.auto.create.topics": False}
        self._producer = Producer({**self.settings, **ours})

    def grant(
        self, name: str, right: AclOperation, kind: ResourceType = ResourceType.TOPIC, user: str = "bob"
    ) -> None:
        """Returns when the broker heeds it, which is after the controller's answer."""
        told = _right_of(user, kind, name, right)
        for future in self.admin.create_acls([AclBinding(*told)]).values():
            future.result(PATIENCE)
        eventually(lambda: self.admin.describe_acls(AclBindingFilter(*told)).result(PATIENCE))

    def withdraw(self, topic: str, right: AclOperation) -> None:
        """What was granted to bob."""
        told = AclBindingFilter(*_right_of("bob", ResourceType.TOPIC, topic, right))
        for future in self.admin.delete_acls([told]).values():
            future.result(PATIENCE)
        eventually(lambda: not self.admin.describe_acls(told).result(PATIENCE))

    def create_topic(self, topic: str, partitions: int = 1, **settings: object) -> None:
        """`settings` with _ for each dot; returns when every partition has a leader."""
        told = {name.replace("_", "."): str(value) for name, value in settings.items()}
        for future in self.admin.create_topics([NewTopic(topic, partitions, 1, config=told)]).values():
            future.result(PATIENCE)
        for partition in range(partitions):
            eventually(lambda at=partition: self.end(topic, at) is not None or True)

    def delete_topic(self, topic: str) -> None:
        """Returns when it is gone."""
        for future in self.admin.delete_topics([topic]).values():
            future.result(PATIENCE)
        eventually(lambda: topic not in self.topics())

    def topics(self) -> Collection[str]:
        """Their names."""
        return self.admin.list_topics(timeout=PATIENCE).topics.keys()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int = 0,
    ) -> int:
        """One record; returns its offset. `timestamp` in milliseconds, 0 is now."""
        [offset] = self.send_all(topic, [(value, key, headers)], partition, timestamp)
        return offset

    def send_all(
        self,
        topic: str,
        records: Sequence[tuple[bytes | None, bytes | None, Headers]],
        partition: int | None = None,
        timestamp: int = 0,
    ) -> list[int]:
        """(value, key, headers) of each, in order; returns their offsets."""
        stored: list[int] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            stored.append(message.offset() or 0)

        more = {} if partition is None else {"partition": partition}
        for value, key, headers in records:
            self._producer.produce(
                topic, value, key, headers=list(headers), timestamp=timestamp, on_delivery=delivered, **more
            )
        assert self._producer.flush(PATIENCE) == 0
        return stored

    def transactional(self, name: str) -> Producer:
        """A producer whose transactions may begin, and are not ended by the broker."""
        unhurried = {"transaction.timeout.ms": 900_000}
        producer = Producer({**self.settings, "transactional.id": name, **unhurried})
        producer.init_transactions(PATIENCE)
        return producer

    def wait_for_markers(self, topic: str, partition: int = 0) -> None:
        """Until no transaction is open: a producer's commit, or abort, is answered before its marker is in
        the log."""
        place = TopicPartition(topic, partition)

        def stable() -> bool:
            asked = self.admin.list_offsets(
                {place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED
            )
            return bool(asked[place].result(PATIENCE).offset == self.end(topic, partition))

        eventually(stable)

    def end(self, topic: str, partition: int = 0) -> int:
        """The partition's end offset."""
        return self._offset(topic, partition, OffsetSpec.latest())

    def start(self, topic: str, partition: int = 0) -> int:
        """The partition's log start offset."""
        return self._offset(topic, partition, OffsetSpec.earliest())

    def _offset(self, topic: str, partition: int, which: OffsetSpec) -> int:
        place = TopicPartition(topic, partition)

        def ask() -> Any:
            self.admin.list_topics(timeout=PATIENCE)  # the library goes on asking a leader of before
            return self.admin.list_offsets({place: which})[place].result(PATIENCE)

        return int(eventually(ask).offset)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Move the log start, as retention does."""
        for future in self.admin.delete_records([TopicPartition(topic, partition, before)]).values():
            future.result(PATIENCE)
        eventually(lambda: self.start(topic, partition) == before)

    def records(self, topic: str, count: int | None = None, partition: int = 0) -> list[Message]:
        """What lies in a partition from its log start; waits until there are `count`."""
        consumer = Consumer({
            **self.settings, "group.id": "tests", "enable.auto.commit": False, "auto.offset.reset": "error",
            "isolation.level": "read_committed", "enable.partition.eof": True,
        })  # fmt: skip
        consumer.assign([TopicPartition(topic, partition, self.start(topic, partition))])
        found: list[Message] = []
        deadline = time.monotonic() + PATIENCE
        try:
            while True:
                message = consumer.poll(1.0)
                error = message.error() if message is not None else None
                is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
                assert error is None or is_end, error
                if message is not None and error is None:
                    found.append(message)
                elif is_end and (count is None or len(found) >= count):
                    return found
                assert time.monotonic() < deadline, f"{len(found)} records of {topic}"
        finally:
            consumer.close()

    def configure(self, kind: ResourceType, name: str, **settings: object) -> None:
        """Set settings of a topic or a group, with _ for each dot; returns when the broker has them."""
        resource = ConfigResource(kind, name)
        wanted = {setting.replace("_", "."): str(value) for setting, value in settings.items()}
        for setting, value in wanted.items():
            entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
            resource.add_incremental_config(entry)
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result(PATIENCE)

        def is_told() -> bool:
            told = self.admin.describe_configs([ConfigResource(kind, name)])[resource].result(PATIENCE)
            return all(setting in told and told[setting].value == wanted[setting] for setting in wanted)

        eventually(is_told)

    def share_group(self, group: str, dead: str, **settings: object) -> None:
        """A share group that reads from the beginning, and whose dead letters go to a topic (KIP-1191)."""
        own = {"share_auto_offset_reset": "earliest", "errors_deadletterqueue_topic_name": dead}
        self.configure(ResourceType.GROUP, group, **own, **settings)

    def commit(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        """What a consumer of the group leaves on the broker."""
        consumer = Consumer({**self.settings, "group.id": group, "enable.auto.commit": False})
        place = TopicPartition(topic, partition, offset)
        eventually(lambda: consumer.commit(offsets=[place], asynchronous=False))
        consumer.close()

    def share(self, group: str, topic: str, verdict: Callable[[Message], Any], count: int) -> list[int]:
        """Let a member of a share group acknowledge `count` deliveries (an AcknowledgeType each); returns
        their offsets. Dead letters go where its settings say (KIP-1191)."""
        consumer = ShareConsumer({
            **self.settings, "group.id": group, "share.acknowledgement.mode": "explicit"
        })  # fmt: skip
        consumer.subscribe([topic])
        taken: list[int] = []
        deadline = time.monotonic() + PATIENCE
        try:
            while len(taken) < count:
                assert time.monotonic() < deadline, f"{len(taken)} deliveries of {count} to {group}"
                for message in list(consumer.poll(1.0) or []):
                    assert message.error() is None, message.error()
                    taken.append(message.offset() or 0)
                    consumer.acknowledge(message, verdict(message))
                consumer.commit_sync(PATIENCE)
        finally:
            consumer.close()
        return taken
