"""Letters go back to a real Kafka once: where to, as what, and what is proven of them afterwards."""

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions, ResourceType
from support.brokers.kafka.driver import eventually
from support.brokers.kafka.fixtures import KafkaPlace
from support.brokers.kafka.letters import dead, is_in_doubt, outgoing, search_of, sent
from support.sending_contract import new_plan
from support.wire_builders import configure, dlq

from dlq.connectors.base import Search, Target
from dlq.core.clock import now
from dlq.replay.runs.consumed import Standing, how_far_consumed, up_to

pytestmark = pytest.mark.kafka


def test_a_key_goes_where_javas_partitioner_puts_it(kafka: KafkaPlace) -> None:
    kafka.driver.create_topic(kafka.topic, partitions=3)
    keys = [b"k1", b"k2", b"k3", b"k4"]
    sent(kafka.connector, [outgoing(n, kafka.topic, "p", dead(n, key)) for n, key in enumerate(keys)])
    found = {m.key(): n for n in range(3) for m in kafka.driver.records(kafka.topic, partition=n)}
    assert [found[key] for key in keys] == [2, 0, 1, 1], "as Java's clients do, murmur2"


@pytest.mark.usefixtures("nothing_on_its_way")
def test_a_partition_that_came_later_is_looked_through_from_its_start(kafka: KafkaPlace) -> None:
    """Although a second apply has noted where it ended by then."""
    kafka.driver.create_topic(kafka.topic)
    connector, target, plan = kafka.connector, Target("topic", kafka.topic), new_plan()
    first, since = connector.bounds([target]), now()
    for future in kafka.driver.admin.create_partitions([NewPartitions(kafka.topic, 2)]).values():
        future.result()
    letters = [outgoing(n, kafka.topic, plan, dead(n, b"%d" % n)) for n in range(20)]
    eventually(lambda: len(connector.bounds([target])) > len(first))
    sent(connector, letters)
    assert kafka.driver.records(kafka.topic, partition=1)
    before = {**connector.bounds([target]), **first}
    assert set(connector.find(Search(plan, letters, since, before)).shown.values()) == {"sent"}


@pytest.mark.usefixtures("nothing_on_its_way")
def test_a_copy_of_a_letter_in_an_aborted_transaction_is_not_the_letter(kafka: KafkaPlace) -> None:
    kafka.driver.create_topic(kafka.topic)
    target, plan, since = Target("topic", kafka.topic), new_plan(), now()
    before = kafka.connector.bounds([target])
    letters = [outgoing(number, kafka.topic, plan) for number in range(2)]
    producer = kafka.driver.transactional(f"copies-{kafka.number}")
    for letter, ends in zip(letters, (producer.abort_transaction, producer.commit_transaction), strict=True):
        producer.begin_transaction()
        told = [(name, value.encode()) for name, value in letter.provenance.items()]
        producer.produce(kafka.topic, b"copy", headers=told)
        producer.flush()
        ends()
    kafka.driver.wait_for_markers(kafka.topic)
    found = kafka.connector.find(Search(plan, letters, since, before)).shown
    assert found == {0: "not_sent", 1: "sent"}


def without_its_start(kafka: KafkaPlace) -> str:
    kafka.driver.send_all(kafka.topic, [(b"x", None, ())] * 3)
    kafka.driver.delete_records(kafka.topic, before=2)
    return "retention has taken"


def made_again(kafka: KafkaPlace) -> str:
    kafka.driver.delete_topic(kafka.topic)
    kafka.driver.create_topic(kafka.topic)
    return "deleted and made again"


def deleted(kafka: KafkaPlace) -> str:
    kafka.driver.delete_topic(kafka.topic)
    return "may have been deleted"


def compacted(kafka: KafkaPlace) -> str:
    kafka.driver.configure(ResourceType.TOPIC, kafka.topic, cleanup_policy="compact")
    return "is compacted"


def led_by_whom_is_behind(kafka: KafkaPlace) -> str:
    kafka.driver.configure(ResourceType.TOPIC, kafka.topic, unclean_leader_election_enable="true")
    return "allows unclean leader elections"


@pytest.mark.usefixtures("nothing_on_its_way")
@pytest.mark.parametrize(
    "happened", [without_its_start, made_again, deleted, compacted, led_by_whom_is_behind]
)
def test_what_may_have_been_there_stays_in_doubt_with_the_reason(kafka: KafkaPlace, happened: Any) -> None:
    kafka.driver.create_topic(kafka.topic)
    search = search_of(kafka, kafka.topic)
    assert is_in_doubt(kafka, search, happened(kafka))


@pytest.mark.usefixtures("nothing_on_its_way")
def test_a_topic_that_was_compacted_in_between_proves_nothing(kafka: KafkaPlace) -> None:
    policy = {"cleanup_policy": "compact", "segment_ms": 100, "min_cleanable_dirty_ratio": 0.01}
    kafka.driver.create_topic(kafka.topic, **policy)
    search = search_of(kafka, kafka.topic)
    kafka.driver.send(kafka.topic, b"old", key=b"k")

    def without_the_first() -> bool:
        kafka.driver.send(kafka.topic, b"new", key=b"k")
        return kafka.driver.records(kafka.topic)[0].offset() != 0

    eventually(without_the_first)
    kafka.driver.configure(ResourceType.TOPIC, kafka.topic, cleanup_policy="delete")
    assert is_in_doubt(kafka, search, "it was compacted meanwhile")


def test_every_group_that_reads_the_target_is_named(kafka: KafkaPlace) -> None:
    kafka.driver.create_topic(kafka.topic)
    kafka.driver.send(kafka.topic, b"x")
    for group in ("billing", "audit"):
        kafka.driver.commit(f"{group}-{kafka.number}", kafka.topic, offset=0)
    kafka.driver.create_topic(kafka.dead)
    kafka.driver.commit(f"other-{kafka.number}", kafka.dead, offset=0)
    target = Target("topic", kafka.topic)
    receivers = kafka.connector.consumers([target])[target]
    named = [receiver for receiver in receivers if not receiver.startswith("perhaps")]
    assert named == [f"group audit-{kafka.number}", f"group billing-{kafka.number}"]
    [audit, _] = kafka.connector.consumption([target])[target]
    assert (audit.receiver, audit.waiting, audit.consumers) == (f"group audit-{kafka.number}", 1, 0)


def test_what_is_read_of_one_partition_says_nothing_of_a_letter_in_another(kafka: KafkaPlace) -> None:
    kafka.driver.create_topic(kafka.topic, partitions=2)
    target, group = Target("topic", kafka.topic), f"billing-{kafka.number}"
    kafka.driver.send_all(kafka.topic, [(b"live", None, ())] * 100, partition=1)
    kafka.driver.commit(group, kafka.topic, 100, partition=1)

    def told() -> Standing:
        return {("shop", target): kafka.connector.consumption([target])[target]}

    def evidence(since: float | None = None) -> str:
        sent, gone = {("shop", target): 1}, {("shop", target): 0}
        return how_far_consumed(before, up_to(behind, told()), sent, gone, since)

    before = told()
    kafka.driver.send(kafka.topic, b"letter", partition=0)
    kafka.driver.send_all(kafka.topic, [(b"live", None, ())] * 20, partition=1)
    behind = told()
    kafka.driver.commit(group, kafka.topic, 118, partition=1)
    assert {evidence(), evidence(since=10.0)} == {"waiting"}
    kafka.driver.commit(group, kafka.topic, 50, partition=1)  # it was set back
    assert {evidence(), evidence(since=10.0)} == {"waiting"}
    kafka.driver.commit(group, kafka.topic, 120, partition=1)
    kafka.driver.commit(group, kafka.topic, 1, partition=0)
    kafka.driver.send_all(kafka.topic, [(b"live", None, ())] * 2, partition=1)
    assert {evidence(), evidence(since=10.0)} == {"consumed"}


def test_what_is_gone_before_it_was_read_does_not_wait(kafka: KafkaPlace) -> None:
    kafka.driver.create_topic(kafka.topic, partitions=2)
    target, group = Target("topic", kafka.topic), f"billing-{kafka.number}"
    kafka.driver.send_all(kafka.topic, [(b"old", None, ())] * 12, partition=1)
    kafka.driver.delete_records(kafka.topic, 10, partition=1)
    kafka.driver.send(kafka.topic, b"x", partition=0)
    kafka.driver.commit(group, kafka.topic, 1, partition=0)
    read = lambda: kafka.connector.consumption([target])[target][0]  # noqa: E731
    assert (read().waiting, read().acknowledged) == (2, 1)
    kafka.driver.commit(group, kafka.topic, 4, partition=1)
    assert read().waiting == 2
    kafka.driver.commit(group, kafka.topic, 11, partition=1)
    assert read().waiting == 1


def configured(folder: Path, kafka: KafkaPlace, topic: str, timeout: str = "30s") -> None:
    broker = f'kind = "kafka"\nurl = "{kafka.node.url}"\ntimeout = "{timeout}"'
    configure(folder, broker, f'topic = "{topic}"\nmode = "drain"')


def test_the_whole_way_of_a_letter_by_the_command(kafka: KafkaPlace, tmp_path: Path) -> None:
    retry = f"{kafka.topic}-retry-1000"
    kafka.driver.create_topic(kafka.topic, partitions=2, retention_ms=-1)
    kafka.driver.create_topic(retry)
    kafka.driver.create_topic(kafka.dead, retention_ms=-1)
    told = [
        ("traceparent", b"00-1"),
        ("kafka_original-topic", kafka.topic.encode()),
        ("kafka_original-partition", b"\0\0\0\1"),
        ("kafka_original-timestamp", (1_600_000_000_000).to_bytes(8, "big")),
    ]
    kafka.driver.send_all(kafka.dead, [(b"body", b"k", told), (None, b"tomb", told)])
    configured(tmp_path, kafka, kafka.dead)
    assert dlq(tmp_path, "doctor")
    [pulled] = dlq(tmp_path, "pull")["sources"]
    assert (pulled["captured"], pulled["left"], pulled["acknowledged"]) == (2, 0, 2)
    [again] = dlq(tmp_path, "pull")["sources"]
    assert (again["captured"], again["recaptured"]) == (0, 0)
    plan = dlq(tmp_path, "replay", "plan", "--any-advice")
    assert (plan["selected"], plan["left_out"]) == (1, {"risky": 1})
    assert any(f"--to topic:{retry} reaches the failed one alone" in warning for warning in plan["warnings"])
    [tombstone] = [
        row["record_id"] for row in dlq(tmp_path, "ls", "--where", "body_size = 0") if row["body_size"] == 0
    ]
    by_name = dlq(tmp_path, "replay", "plan", tombstone, "--to", f"topic:{retry}")
    for each in (plan, by_name):
        assert dlq(tmp_path, "replay", "apply", each["plan"])["states"]["confirmed"] == 1
    [body], [tomb] = kafka.driver.records(kafka.topic, 1, partition=1), kafka.driver.records(retry, 1)
    assert (body.key(), body.value(), tomb.key(), tomb.value()) == (b"k", b"body", b"tomb", None)
    assert body.timestamp()[1] == 1_600_000_000_000
    names = [name for name, _ in body.headers() or ()]
    assert names == ["traceparent", "dlq_replay_id", "dlq_replay_lap", "dlq_replay_of"]
    assert dlq(tmp_path, "verify")["balanced"]


HOUR = 3_600_000
TIMES: list[tuple[dict[str, object], int, str]] = [
    ({"retention_ms": -1}, 0, ""),
    ({"retention_ms": -1, "message_timestamp_type": "LogAppendTime"}, 2, "message.timestamp.type"),
    ({"retention_ms": 24 * HOUR}, 1, "retention.ms"),
    ({"retention_ms": HOUR, "cleanup_policy": "compact"}, 0, ""),
    ({"retention_ms": -1, "message_timestamp_before_max_ms": HOUR}, 1, "message.timestamp.before.max.ms"),
]


def test_a_letter_that_comes_with_another_time_says_so_before(kafka: KafkaPlace) -> None:
    """One was published in 2020, one a second ago."""
    times = [1_600_000_000_000, int(time.time() * 1000) - 1000]
    for n, (settings, changed, said) in enumerate(TIMES):
        topic = f"{kafka.topic}-{n}"
        kafka.driver.create_topic(topic, **settings)
        records = [dead(i, b"%d" % i, published_at=at * 1000) for i, at in enumerate(times)]
        letters = [outgoing(i, topic, "p", record) for i, record in enumerate(records)]
        told = [
            text for one in letters for text in kafka.connector.preview(one).warnings if "the time" in text
        ]
        assert (len(told), all(said in text for text in told)) == (changed, True), told
        assert set(sent(kafka.connector, letters).values()) == {"confirmed"}
        came = [message.timestamp()[1] for message in kafka.driver.records(topic, 2)]
        assert sum(sent != at for sent, at in zip(came, times, strict=True)) == changed, settings


def test_a_topic_that_is_being_emptied_takes_letters_only_where_it_is_named(kafka: KafkaPlace) -> None:
    """By a retention of a second, which is how a topic of Kafka is emptied."""
    kafka.driver.create_topic(kafka.topic, retention_ms=1000)
    why = kafka.connector.preview(outgoing(0, kafka.topic, "p")).unless_named["target"]
    assert f"{kafka.topic} deletes records after 1s (retention.ms)" in why


def test_letters_of_dead_letters_and_of_another_site_go_where_they_are_told_to_alone(
    kafka: KafkaPlace,
) -> None:
    """Their origin is a topic of dead letters, or a topic of the cluster that MirrorMaker mirrors here."""
    site = f"east{kafka.number}"
    mirrored, twice = f"{site}.{kafka.topic}.dlt", f"{kafka.dead}-dlt"
    for topic in (kafka.topic, kafka.dead, twice, mirrored, f"{site}.heartbeats"):
        kafka.driver.create_topic(topic, retention_ms=-1)
    for topic, origin, said in (
        (twice, kafka.dead, f"{kafka.dead}, in which it died, is itself named as a topic of dead letters"),
        (mirrored, kafka.topic, f"{mirrored} is mirrored from the cluster {site}"),
    ):
        kafka.driver.send(topic, b"{}", b"k", [("kafka_dlt-original-topic", origin.encode())])
        [record] = kafka.read(topic=topic).records
        assert kafka.connector.target_of(record, "origin") == Target("topic", origin)
        assert said in kafka.connector.preview(outgoing(0, origin, "p", record)).unless_named["target"]
        elsewhere = kafka.connector.preview(outgoing(0, f"{site}.heartbeats", "p", record))
        assert elsewhere.unless_named == {}
