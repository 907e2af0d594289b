"""One bad member of a pattern, or one partition, never keeps the others from being read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation
from support.brokers.kafka.broker import Kafka
from support.brokers.kafka.driver import Driver, eventually
from support.brokers.kafka.fixtures import PASSWORD, KafkaPlace, connector_of
from support.brokers.seen import read_all
from support.waiting import PATIENCE
from support.wire_builders import dlq_aloud as dlq

from dlq.connectors.base import ReadRequest
from dlq.connectors.kafka.plugin.description import KafkaSource
from dlq.core.errors import NoLeader

pytestmark = pytest.mark.kafka


@pytest.fixture
def half_closed(kafka: KafkaPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pattern over two topics, of which bob may read one, and only see the other."""
    names = [f"half-{kafka.number}-{which}-dlt" for which in ("open", "shut")]
    rights = [(names[0], AclOperation.READ), (names[1], AclOperation.DESCRIBE)]
    for name in names:
        kafka.driver.create_topic(name)
        kafka.driver.send(name, name.encode())
    for name, right in rights:
        kafka.driver.grant(name, right)
    monkeypatch.setenv("BOB", PASSWORD)
    (tmp_path / "dlq.toml").write_text(
        f'[brokers.b]\nkind = "kafka"\nurl = "kafka://{kafka.node.sasl_bootstrap}"\nuser = "bob"\n'
        'mechanism = "PLAIN"\npassword_env = "BOB"\n'
        f'[sources.s]\nbroker = "b"\ntopic = "half-{kafka.number}-*-dlt"\nmode = "drain"\n'
        '[profiles.nightly]\nsources = ["*"]\n'
    )
    return tmp_path


def test_a_topic_that_may_not_be_read_is_named_and_the_others_are_pulled(
    half_closed: Path, kafka: KafkaPlace
) -> None:
    login = {"user": "bob", "mechanism": "PLAIN", "password_env": "BOB"}
    connector = connector_of(kafka.node, url=f"kafka://{kafka.node.sasl_bootstrap}", **login)
    gauge = connector.gauge(KafkaSource("s", "shop", topic=f"half-{kafka.number}-*-dlt"))
    assert (gauge.depth, "the user lacks the right to read it" in gauge.note) == (1, True)
    [found] = dlq(half_closed, "doctor", code=3)[0]["sources"]
    assert found["depth"] == 1
    assert "shut-dlt: the user lacks the right to read it" in found["leaves_out"]["drain"]
    pulled, said = dlq(half_closed, "pull", code=3)
    [source] = pulled["sources"]
    assert (source["captured"], source["left"], "shut-dlt: " in said) == (1, 0, True)
    again, said = dlq(half_closed, "run", "nightly", code=3)
    assert (again["sources"][0]["captured"], "error" in again["sources"][0]) == (0, False)


def test_a_topic_that_the_user_sees_no_more_is_named_until_it_is_seen_again(
    half_closed: Path, kafka: KafkaPlace
) -> None:
    shut = f"half-{kafka.number}-shut-dlt"
    kafka.driver.grant(shut, AclOperation.READ)
    [pulled] = dlq(half_closed, "pull")[0]["sources"]
    kafka.driver.send(shut, b"since")
    for right in (AclOperation.READ, AclOperation.DESCRIBE):
        kafka.driver.withdraw(shut, right)
    for _ in range(2):
        answer, said = dlq(half_closed, "pull", code=3)
        assert (answer["sources"][0]["captured"], f"not read: topic {shut} " in said) == (0, True)
    kafka.driver.grant(shut, AclOperation.READ)
    [source] = dlq(half_closed, "pull")[0]["sources"]
    assert (pulled["captured"], source["captured"]) == (2, 1)


def test_a_topic_of_a_pattern_that_was_deleted_is_told_once(kafka: KafkaPlace) -> None:
    kept, gone = (f"{kafka.topic}-{which}-dlt" for which in ("kept", "gone"))
    for name in (kept, gone):
        kafka.driver.create_topic(name)
        kafka.driver.send(name, b"1")
    reached: dict[str, int] = {}

    def read() -> tuple[int, bool, bool]:
        seen = kafka.read(reached, topic=f"{kafka.topic}-*-dlt")
        reached.update(seen.checkpoint)
        return len(seen.records), seen.complete, any(gone in note for note in seen.notes)

    assert read() == (2, True, False)
    kafka.driver.delete_topic(gone)
    assert read() == (0, False, True)
    assert read() == (0, True, False)
    kafka.driver.create_topic(gone)
    assert read() == (0, False, True), "it is another one"


@pytest.fixture(scope="module")
def with_two_disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kafka, Path]]:
    folder = tmp_path_factory.mktemp("disks")
    disks = [folder / "a", folder / "b"]
    with Kafka(
        log_dirs=",".join(map(str, disks)),
        log_flush_offset_checkpoint_interval_ms=300,
        log_flush_start_offset_checkpoint_interval_ms=300,
    ) as node:
        yield node, disks[1]


def test_a_partition_without_a_leader_is_named_and_the_others_are_pulled(
    with_two_disks: tuple[Kafka, Path],
) -> None:
    """Its disk is gone."""
    node, disk = with_two_disks
    driver = Driver(node.bootstrap)
    driver.create_topic("a-dlt", partitions=2)
    driver.create_topic("b-dlt", partitions=2)
    for topic in ("a-dlt", "b-dlt"):
        for partition in (0, 1):
            driver.send(topic, b"%d" % partition, partition=partition)
    lost = [path.name for path in disk.glob("?-dlt-?")]
    assert 0 < len(lost) < 4, "both disks are used"
    disk.rename(disk.with_name("gone"))
    disk.write_text("no folder")
    leaders = lambda: [  # noqa: E731
        one.leader for name in ("a-dlt", "b-dlt")
        for one in driver.admin.list_topics(timeout=PATIENCE).topics[name].partitions.values()
    ]  # fmt: skip
    eventually(lambda: leaders().count(-1) == len(lost))
    connector = connector_of(node, timeout="8s")
    source = KafkaSource("s", "shop", topic="*-dlt")
    seen = read_all(connector, ReadRequest(source, "drain", "p"))
    assert (len(seen.records), seen.complete) == (4 - len(lost), False)
    assert all(any(f"not read: {name}: " in note for note in seen.notes) for name in lost)
    assert set(lost) == {name for name in lost if name in connector.inspect(source).leaves_out["copy"]}
    assert connector.gauge(source).depth == 4 - len(lost)
    alone = connector_of(node, timeout="5s")
    with pytest.raises(NoLeader):
        alone.cluster.logs([alone.cluster.topic(lost[0].rpartition("-")[0])])
