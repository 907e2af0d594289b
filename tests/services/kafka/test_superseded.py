"""A plan on a real Kafka leaves out what a newer message of its key has replaced, and only that."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation
from support.archives import letter
from support.brokers.kafka.driver import Headers
from support.brokers.kafka.fixtures import PASSWORD, KafkaPlace, connector_of
from support.wire_builders import configure, dlq, dlq_aloud

from dlq.connectors.kafka.records.raw import RawRecord, encode
from dlq.connectors.newer import Bound, NewerProof, NewerSearch, Sought
from dlq.core.keys import key_reader

pytestmark = pytest.mark.kafka
ENTITIES, VERSIONS, PARTITIONS = 60, 8, 2


def told(kafka: KafkaPlace, partition: int, offset: int) -> Headers:
    """As Spring says where a message died."""
    return [
        ("kafka_dlt-original-topic", kafka.topic.encode()),
        ("kafka_dlt-original-partition", partition.to_bytes(4, "big")),
        ("kafka_dlt-original-offset", offset.to_bytes(8, "big")),
        ("kafka_dlt-original-consumer-group", kafka.group.encode()),
        ("kafka_dlt-exception-fqcn", b"java.lang.IllegalStateException"),
    ]


class LastWriteWins:
    """A consumer of versions of entities. The first time it lets one of ten die."""

    def __init__(self, kafka: KafkaPlace) -> None:
        self._kafka, self._chance = kafka, random.Random(7)
        self._reached = [0] * PARTITIONS
        self.state: dict[bytes, int] = {}
        self.died: list[tuple[bytes, int]] = []

    def consume(self, share_that_dies: float = 0.0) -> None:
        """All that is new, and commit."""
        dead: list[tuple[bytes | None, bytes | None, Headers]] = []
        for partition in range(PARTITIONS):
            for message in self._kafka.driver.records(self._kafka.topic, partition=partition):
                if (offset := message.offset() or 0) < self._reached[partition]:
                    continue
                key, value = message.key() or b"", message.value() or b""
                version = json.loads(value)["version"]
                if self._chance.random() < share_that_dies:
                    self.died.append((key, version))
                    dead.append((value, key, told(self._kafka, partition, offset)))
                else:
                    self.state[key] = version
            self._reached[partition] = end = self._kafka.driver.end(self._kafka.topic, partition)
            self._kafka.driver.commit(self._kafka.group, self._kafka.topic, end, partition)
        self._kafka.driver.send_all(self._kafka.dead, dead)


def entities(kafka: KafkaPlace) -> Iterator[tuple[bytes, bytes, Headers]]:
    for version in range(VERSIONS):
        for number in range(ENTITIES):
            yield json.dumps({"version": version}).encode(), b"entity-%d" % number, ()


def test_after_a_replay_no_entity_is_older_than_its_newest_message(kafka: KafkaPlace, tmp_path: Path) -> None:
    """One in ten dies, the last version or an earlier one; whose consumer says that twice is safe."""
    kafka.driver.create_topic(kafka.topic, PARTITIONS, retention_ms=-1)
    kafka.driver.create_topic(kafka.dead, retention_ms=-1)
    kafka.driver.send_all(kafka.topic, [*entities(kafka)])
    consumer = LastWriteWins(kafka)
    consumer.consume(share_that_dies=0.1)
    stale = {key for key, version in consumer.state.items() if version < VERSIONS - 1}
    assert stale, "some of the newest have died"

    broker = f'kind = "kafka"\nurl = "{kafka.node.url}"\ntimeout = "30s"'
    source = f'topic = "{kafka.dead}"\nkey = "property:key"\nmode = "drain"'
    configure(tmp_path, broker, source + '\n[consumers.billing]\nsources = ["*"]\nreplay = "safe"')
    dlq(tmp_path, "pull")
    plan, said = dlq_aloud(tmp_path, "replay", "plan", "--fixed")
    assert "looks for newer messages: at up to" in said
    assert plan["not_looked_at"] == {}
    last = {key: max(version for dead, version in consumer.died if dead == key) for key, _ in consumer.died}
    wanted = {(key, version) for key, version in last.items() if consumer.state.get(key, -1) < version}
    assert (plan["selected"], plan["superseded"]) == (len(wanted), len(consumer.died) - len(wanted))
    proofs = [why for why in plan["superseded_by"].values() if kafka.topic in why]
    assert proofs
    assert all(f"{kafka.group} has consumed it" in why for why in proofs)
    dlq(tmp_path, "replay", "apply", plan["plan"])
    consumer.consume()
    assert set(consumer.state.values()) == {VERSIONS - 1}


def ask(kafka: KafkaPlace, letters: list[dict[str, Any]], connector: Any = None, **search: Any) -> NewerProof:
    """What the log shows of letters of some keys that lay at some offsets."""
    reads = key_reader(search.pop("reads", "property:key"))
    records = [
        letter(
            number, broker_kind="kafka", key=one.get("order", one["key"].decode()), origin_group=kafka.group,
            message_id=f"{kafka.topic}-0@{one['offset']}", raw_properties=encode(RawRecord(one["key"], ())),
        )
        for number, one in enumerate(letters)
    ]  # fmt: skip
    bound = search.pop("bound", Bound(60, 10**6, 2**30))
    asked = NewerSearch(
        (Sought(one, reads) for one in records), search.get("died", ()), bound, lambda _: None
    )
    found: NewerProof = (connector or kafka.connector).newer(asked)
    return found


def groups(kafka: KafkaPlace) -> set[str]:
    return {str(group.group_id) for group in kafka.driver.admin.list_consumer_groups().result().valid}


def test_the_log_says_what_is_newer_lives_and_is_consumed(kafka: KafkaPlace) -> None:
    kafka.driver.create_topic(kafka.topic)
    log: list[tuple[bytes | None, bytes, Headers]] = [
        (b"1", b"replaced", ()),
        (b"1", b"deleted", ()),
        (b"1", b"replayed", ()),
        (b"1", b"died again", ()),
        (b"1", b"alone", ()),
        (b"2", b"replaced", ()),
        (None, b"deleted", ()),
        (b"0", b"replayed", [("dlq_replay_of", b"an older one")]),
        (b"2", b"died again", ()),
    ]
    kafka.driver.send_all(kafka.topic, log)
    kafka.driver.commit(kafka.group, kafka.topic, offset=6)
    letters = [{"key": key, "offset": offset} for offset, (_, key, _) in enumerate(log[:5])]
    before = groups(kafka)
    proof = ask(kafka, letters, died={(kafka.group, f"{kafka.topic}-0@8"), ("audit", f"{kafka.topic}-0@5")})
    assert {n: (one.offset, one.is_consumed) for n, one in proof.newer.items()} == {
        0: (5, True),
        1: (6, False),
    }
    assert proof.unlooked == {}
    assert groups(kafka) == before, "it joins no group"


def test_a_business_key_in_the_body_is_compared_too_and_a_tombstone_ends_all_of_its_key(
    kafka: KafkaPlace,
) -> None:
    """Records have their customer's key, and the business key is the order's."""
    kafka.driver.create_topic(kafka.topic)
    orders = [b'{"order": "%d"}' % order for order in (1, 2, 3, 3)]
    log: list[tuple[bytes | None, bytes, Headers]] = [(order, b"ann", ()) for order in orders]
    kafka.driver.send_all(kafka.topic, log)
    letters = [{"key": b"ann", "order": f"{n + 1}", "offset": n} for n in range(3)]
    assert {n: one.offset for n, one in ask(kafka, letters, reads="json:$.order").newer.items()} == {2: 3}
    kafka.driver.send(kafka.topic, None, b"ann")
    found = ask(kafka, letters, reads="json:$.order").newer
    assert {n: one.offset for n, one in found.items()} == {0: 4, 1: 4, 2: 3}


def test_what_the_log_does_not_show_is_not_known(kafka: KafkaPlace) -> None:
    """Neither of a message that retention took, nor of one where another lies."""
    kafka.driver.create_topic(kafka.topic)
    kafka.driver.send_all(
        kafka.topic, [(b"1", b"a", ()), (b"1", b"b", ()), (b"1", b"b", ()), (b"1", b"c", ())]
    )
    kafka.driver.delete_records(kafka.topic, before=2)
    asked = [{"key": b"a", "offset": 0}, {"key": b"b", "offset": 0}, {"key": b"d", "offset": 3}]
    proof = ask(kafka, asked)
    assert [*proof.newer] == [1]
    assert "lacks its own message (retention" in proof.unlooked[0]
    assert "another message than its own lies at offset 3" in proof.unlooked[2]


def test_behind_an_open_transaction_nothing_is_known(kafka: KafkaPlace) -> None:
    kafka.driver.create_topic(kafka.topic)
    kafka.driver.send(kafka.topic, b"1", b"k")
    producer = kafka.driver.transactional(f"open-{kafka.number}")
    producer.begin_transaction()
    producer.produce(kafka.topic, b"2", b"k")
    producer.flush()
    proof = ask(kafka, [{"key": b"k", "offset": 0}])
    assert "an open transaction hides what lies behind" in proof.unlooked[0]
    producer.abort_transaction()


def test_the_bound_and_a_missing_right_are_said(kafka: KafkaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka.driver.create_topic(kafka.topic)
    kafka.driver.send_all(kafka.topic, [(b"1", b"k", ())] * 3)
    assert "not within" in ask(kafka, [{"key": b"k", "offset": 0}], bound=Bound(60, 0, 1)).unlooked[0]
    kafka.driver.grant(kafka.topic, AclOperation.DESCRIBE)
    monkeypatch.setenv("GOOD", PASSWORD)
    login = {"user": "bob", "password_env": "GOOD", "mechanism": "PLAIN"}
    bob = connector_of(kafka.node, url=f"kafka://{kafka.node.sasl_bootstrap}", **login)
    assert "lacks the right to read" in ask(kafka, [{"key": b"k", "offset": 0}], connector=bob).unlooked[0]
    bob.close()
