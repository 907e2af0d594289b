"""A plan on a real Kafka leaves out what a newer message of its key has replaced, and only that."""

import itertools
import json
import random
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
ENTITIES, VERSIONS, PARTITIONS = 40, 6, 2


def told(kafka: KafkaPlace, partition: int, offset: int) -> Headers:
    """As Spring says where a message died."""
    return [
        ("kafka_dlt-original-topic", kafka.topic.encode()),
        ("kafka_dlt-original-partition", partition.to_bytes(4, "big")),
        ("kafka_dlt-original-offset", offset.to_bytes(8, "big")),
        ("kafka_dlt-original-consumer-group", kafka.group.encode()),
        ("kafka_dlt-exception-fqcn", b"java.lang.IllegalStateException"),
    ]


def died_of(kafka: KafkaPlace, chance: random.Random) -> tuple[dict[bytes, int], list[tuple[bytes, int]]]:
    """A consumer of versions of entities lets one of ten die, and commits; the versions that it holds of each
    then, and what died."""
    state: dict[bytes, int] = {}
    died: list[tuple[bytes, int]] = []
    for partition in range(PARTITIONS):
        for message in kafka.driver.records(kafka.topic, partition=partition):
            key, value, offset = message.key() or b"", message.value() or b"", message.offset() or 0
            version = json.loads(value)["version"]
            if chance.random() < 0.1:
                died.append((key, version))
                kafka.driver.send(kafka.dead, value, key, told(kafka, partition, offset))
            else:
                state[key] = version
        kafka.driver.commit(kafka.group, kafka.topic, kafka.driver.end(kafka.topic, partition), partition)
    return state, died


def test_after_a_replay_no_entity_is_older_than_its_newest_message(kafka: KafkaPlace, tmp_path: Path) -> None:
    """One in ten dies, the last version or an earlier one; whose consumer says that twice is safe."""
    kafka.driver.create_topic(kafka.topic, PARTITIONS, retention_ms=-1)
    kafka.driver.create_topic(kafka.dead, retention_ms=-1)
    versions = itertools.product(range(VERSIONS), range(ENTITIES))
    kafka.driver.send_all(
        kafka.topic,
        [(b'{"version": %d}' % version, b"entity-%d" % number, ()) for version, number in versions],
    )
    state, died = died_of(kafka, random.Random(7))
    assert {key for key, version in state.items() if version < VERSIONS - 1}, "some of the newest have died"

    broker = f'kind = "kafka"\nurl = "{kafka.node.url}"\ntimeout = "30s"'
    source = f'topic = "{kafka.dead}"\nkey = "property:key"\nmode = "drain"'
    configure(tmp_path, broker, source + '\n[consumers.billing]\nsources = ["*"]\nreplay = "safe"')
    dlq(tmp_path, "pull")
    plan, said = dlq_aloud(tmp_path, "replay", "plan", "--fixed")
    assert "looks for newer messages: at up to" in said
    last = {key: max(version for dead, version in died if dead == key) for key, _ in died}
    wanted = {(key, version) for key, version in last.items() if state.get(key, -1) < version}
    assert plan["not_looked_at"] == {}
    assert (plan["selected"], plan["superseded"]) == (len(wanted), len(died) - len(wanted))
    proofs = [why for why in plan["superseded_by"].values() if kafka.topic in why]
    assert proofs
    assert all(f"{kafka.group} has consumed it" in why for why in proofs)
    before = [kafka.driver.end(kafka.topic, partition) for partition in range(PARTITIONS)]
    dlq(tmp_path, "replay", "apply", plan["plan"])
    came = [
        message
        for partition, end in enumerate(before)
        for message in kafka.driver.records(kafka.topic, partition=partition)
        if (message.offset() or 0) >= end
    ]
    state |= {m.key() or b"": json.loads(m.value() or b"")["version"] for m in came}
    assert set(state.values()) == {VERSIONS - 1}


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
    assert groups(kafka) <= before, "it joins no group"


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
