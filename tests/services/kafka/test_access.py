"""What a Kafka cluster refuses, and what cannot be reached, is said in one line."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType
from confluent_kafka.admin import AclOperation, ResourceType
from support.brokers.kafka.broker import Kafka
from support.brokers.kafka.driver import Driver
from support.brokers.kafka.fixtures import PASSWORD, KafkaPlace
from support.brokers.kafka.letters import dead, headers_by_our_own_connection
from support.brokers.seen import read_all
from support.sending_contract import provenance, until_it_ends
from support.waiting import PATIENCE

from dlq.connectors.base import Outgoing, ReadRequest, SendRequest, Target
from dlq.connectors.kafka.link.connection import Link
from dlq.connectors.kafka.look.cluster import Place
from dlq.connectors.kafka.plugin.connector import KafkaConnector
from dlq.connectors.kafka.plugin.description import KafkaBroker, KafkaSource
from dlq.core.errors import AccessDenied, NotFound, Unreachable

pytestmark = pytest.mark.kafka
SECRETS = ("GOOD", PASSWORD), ("BAD", "s3cret-of-none")


@pytest.fixture(scope="module")
def guarded(kafka_node: Kafka) -> Kafka:
    """The node, on which bob may read the dead letters, eve nothing."""
    driver = Driver(kafka_node.bootstrap)
    driver.create_topic("orders-dlt")
    driver.send("orders-dlt", b"letter")
    driver.grant("orders-dlt", AclOperation.READ)
    return kafka_node


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS:
        monkeypatch.setenv(name, value)


def connector(url: str, **settings: Any) -> KafkaConnector:
    return KafkaConnector(KafkaBroker("shop", "kafka", url, **{"timeout": "10s", **settings}))


def bodies(found: KafkaConnector, topic: str = "orders-dlt") -> list[bytes]:
    request = ReadRequest(KafkaSource("s", "shop", topic=topic), "copy", "p")
    return [record.body for record in read_all(found, request).records]


def by_sasl(
    node: Kafka, user: str, password: str = "GOOD", mechanism: str = "PLAIN", host: str = "", **settings: Any
) -> KafkaConnector:
    address = f"{host or '127.0.0.1'}:{node.sasl_bootstrap.rpartition(':')[2]}"
    login = {"user": user, "password_env": password, "mechanism": mechanism}
    return connector(f"kafka://{address}", **login, **settings)


def test_a_token_that_has_run_out_is_asked_for_again(guarded: Kafka, tmp_path: Path) -> None:
    """By a client when it connects again, and by those that are made later."""
    token, valid = tmp_path / "token", tmp_path / "valid"
    token.write_text("run out")
    valid.write_text(PASSWORD)
    command = ("sh", "-c", f"cat {token}; cp {valid} {token}")
    url = f"kafka://{guarded.sasl_bootstrap}"
    bob = connector(url, user="bob", mechanism="PLAIN", password_command=command)
    assert bodies(bob) == [b"letter"], "a client that was refused logs in with what is printed now"
    Link(*bob.cluster.leader(Place("orders-dlt", 0)), bob.cluster.access).close()


def test_who_may_read_the_topic_needs_no_other_right_to_pull(guarded: Kafka) -> None:
    bob = by_sasl(guarded, "bob")
    assert bodies(bob) == [b"letter"]
    warnings = bob.inspect(KafkaSource("s", "shop", topic="orders-dlt")).warnings
    assert any("DESCRIBE_CONFIGS" in warning for warning in warnings)
    assert any("DESCRIBE on the cluster" in warning for warning in warnings)
    assert bob.consumers([Target("topic", "orders-dlt")]) == {}, "an empty list of groups proves nothing"
    [unseen] = [fate for fate in bob.coverage() if fate.kind == "broker"]
    assert (unseen.verdict, unseen.why) == (
        "unknown", "the user may not see all groups (DESCRIBE on the cluster)"
    )  # fmt: skip


def test_a_topic_that_the_user_may_not_see_is_not_called_missing(kafka: KafkaPlace) -> None:
    """That of the dead letters of a share group: by coverage, and by the doctor of another topic."""
    group, hidden = f"share-{kafka.number}", f"dlq.{kafka.number}"
    kafka.driver.create_topic(kafka.topic)
    kafka.driver.create_topic(kafka.dead)
    kafka.driver.create_topic(hidden, errors_deadletterqueue_group_enable="true")
    kafka.driver.share_group(group, hidden)
    kafka.driver.send(kafka.topic, b"x")
    kafka.driver.share(group, kafka.topic, lambda _: AcknowledgeType.ACCEPT, 1)
    kafka.driver.grant(kafka.dead, AclOperation.READ, user="ann")
    for right in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS):
        kafka.driver.grant(group, right, ResourceType.GROUP, "ann")
        kafka.driver.grant("kafka-cluster", right, ResourceType.BROKER, "ann")
    ann = by_sasl(kafka.node, "ann")
    fates = {fate.death: fate for fate in ann.coverage() if fate.name == group}
    assert (fates["reject"].verdict, hidden in fates["reject"].why) == ("unknown", True)
    assert {fate.verdict for fate in kafka.connector.coverage() if fate.name == group} == {"kept"}
    warnings = ann.inspect(KafkaSource("s", "shop", topic=kafka.dead)).warnings
    assert [one for one in warnings if group in one] == [
        f"share group {group}: what becomes of its dead letters is not known: the settings of {hidden} may "
        "not be read (DESCRIBE_CONFIGS)"
    ]


def test_a_letter_that_points_to_a_topic_that_is_forbidden_is_pulled_without_its_original(
    kafka: KafkaPlace,
) -> None:
    """So does one that points to none: a cluster tells no user of topics that it does not show."""
    names = [f"__dlq.errors.{name}" for name in ("topic", "partition", "offset")]
    kafka.driver.create_topic(kafka.topic)
    kafka.driver.create_topic(kafka.dead)
    kafka.driver.grant(kafka.dead, AclOperation.READ)
    for topic in (kafka.topic, "nowhere"):
        headers = [*zip(names, (topic.encode(), b"0", b"0"), strict=True)]
        kafka.driver.send(kafka.dead, b"", headers=headers)
    request = ReadRequest(KafkaSource("s", "shop", topic=kafka.dead), "copy", "p")
    found = read_all(by_sasl(kafka.node, "bob"), request).records
    said = [record.properties["pointer"] for record in found]
    assert said == ["not read: the user may not see its topic (DESCRIBE)"] * 2


def test_who_may_not_read_a_topics_settings_has_to_name_it_as_a_target(guarded: Kafka) -> None:
    """It may be compacted."""
    bob, target = by_sasl(guarded, "bob"), Target("topic", "orders-dlt")
    assert bob.missing_targets([target]) == {}
    [why] = bob.preview(Outgoing(0, dead(0, b"k"), target, {})).unless_named.values()
    assert "DESCRIBE_CONFIGS" in why


@pytest.mark.parametrize("waits", [0, 1], ids=["before", "after"])
def test_who_may_not_write_is_refused_and_says_so(guarded: Kafka, waits: float) -> None:
    """The library asks for the right to write by itself: a letter comes before its answer, or after."""

    def letters() -> Iterator[Outgoing]:
        time.sleep(waits)
        yield Outgoing(0, dead(0), Target("topic", "orders-dlt"), provenance(0, "plan"))

    publisher = by_sasl(guarded, "bob").publisher(SendRequest("plan", 10))
    answers, error = until_it_ends(publisher, letters())
    assert isinstance(error, AccessDenied)
    assert [answer.outcome for answer in answers] == ["refused"]
    assert "AUTHORIZATION" in str(answers[0].detail)


@pytest.mark.parametrize(
    "sees", [(), (AclOperation.DESCRIBE,)], ids=["cannot be seen", "may not be written to"]
)
def test_what_is_for_a_topic_that_is_forbidden_stays_behind_and_the_rest_goes(
    kafka: KafkaPlace, sees: Sequence[AclOperation]
) -> None:
    secret = f"{kafka.topic}-secret"
    rights = {kafka.topic: (AclOperation.WRITE,), secret: sees}
    for topic, operations in rights.items():
        kafka.driver.create_topic(topic)
        for operation in operations:
            kafka.driver.grant(topic, operation)
    targets = [Target("topic", secret if n % 3 == 1 else kafka.topic) for n in range(60)]
    letters = [Outgoing(n, dead(n), target, provenance(n, "plan")) for n, target in enumerate(targets)]
    publisher = by_sasl(kafka.node, "bob").publisher(SendRequest("plan", 100))
    answers, error = until_it_ends(publisher, iter(letters))
    outcomes = {answer.number: answer.outcome for answer in answers}
    assert (error, len(answers), len(outcomes)) == (None, 60, 60)
    assert outcomes[1] == "refused"
    assert {outcomes[n] for n in range(60) if n % 3 == 1} <= {"refused", "unsent"}
    assert {outcomes[n] for n in range(60) if n % 3 != 1} == {"confirmed"}
    assert kafka.driver.end(kafka.topic) == 40


def test_a_certificate_is_checked(guarded: Kafka) -> None:
    url = f"kafka+ssl://{guarded.tls_bootstrap}"
    assert bodies(connector(url, ca_file=str(guarded.ca))) == [b"letter"]
    with pytest.raises(AccessDenied, match=r"certificate verify failed.*ca_file"):
        bodies(connector(url, timeout="5s"))


def test_whom_a_broker_refuses_hears_why(guarded: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLANK", f"{PASSWORD} ")
    for who, why in (
        ({"user": "bob", "password": "BAD"}, "Invalid username or password; look at user"),
        ({"user": "bob", "password": "BLANK"}, "shop.password_env gives begins or ends with a blank"),
        ({"user": "bob", "mechanism": "SCRAM-SHA-512"}, "Unsupported SASL mechanism"),
        ({"user": "eve"}, "the user lacks a right on it"),
    ):
        with pytest.raises(AccessDenied) as caught:
            bodies(by_sasl(guarded, **who))
        assert why in str(caught.value)
        assert not any(secret in str(caught.value) for _, secret in SECRETS)


def test_what_is_not_there_or_does_not_speak_so_is_told_apart(guarded: Kafka) -> None:
    with pytest.raises(NotFound, match="no-such"):
        bodies(connector(guarded.url), "no-such")
    with pytest.raises(NotFound, match="fits no-\\*"):
        bodies(connector(guarded.url), "no-*")
    with pytest.raises(Unreachable, match=r"TLS \(kafka\+ssl://\)"):
        bodies(connector(f"kafka://{guarded.tls_bootstrap}", timeout="5s"))
    with pytest.raises(Unreachable, match="Connection refused"):
        bodies(connector("kafka://127.0.0.1:1", timeout="5s"))
    with pytest.raises(Unreachable, match="host names"):
        bodies(connector("kafka://no-such-host.invalid:9092", timeout="5s"))


def test_asking_for_a_topic_makes_none(guarded: Kafka) -> None:
    found = connector(guarded.url)
    assert found.missing_targets([Target("topic", "ordres")]) == {
        Target("topic", "ordres"): "there is no topic ordres"
    }
    assert "ordres" not in Driver(guarded.bootstrap).admin.list_topics(timeout=PATIENCE).topics


def test_nothing_goes_to_an_address_that_the_configuration_keeps_out(guarded: Kafka) -> None:
    """The bootstrap is asked by the configuration's word, and names 127.0.0.1 then."""
    found = by_sasl(guarded, "bob", host="localhost", hosts=("b*.example",))
    refused = r"shop names 127\.0\.0\.1:\d+, and brokers\.shop\.hosts allows b\*\.example alone"
    for ask in (lambda: bodies(found), lambda: found.publisher(SendRequest("plan", 10)), found.discover):
        with pytest.raises(AccessDenied, match=refused):
            ask()
    for hosts in (("127.0.0.*",), ("localhost", "127.0.0.1")):
        assert bodies(by_sasl(guarded, "bob", host="localhost", hosts=hosts)) == [b"letter"]


def test_doctor_says_what_hosts_does_not_keep_back(guarded: Kafka) -> None:
    """An address that the cluster names later is followed by the client library, with the password."""
    for hosts, is_warned in ((("127.0.0.*",), True), ((), False)):
        found = by_sasl(guarded, "bob", hosts=hosts)
        warnings = found.inspect(KafkaSource("s", "shop", topic="orders-dlt")).warnings
        assert any("names later" in warning for warning in warnings) == is_warned


def test_a_connection_of_our_own_gets_in_as_the_clients_do(guarded: Kafka) -> None:
    """It reads what the client library cannot say."""
    for way in (
        connector(guarded.url),
        connector(f"kafka+ssl://{guarded.tls_bootstrap}", ca_file=str(guarded.ca)),
        by_sasl(guarded, "bob"),
    ):
        assert headers_by_our_own_connection(way.cluster, "orders-dlt") == {0: []}


def test_a_connection_of_our_own_says_that_a_password_is_wrong(guarded: Kafka) -> None:
    access = by_sasl(guarded, "bob").cluster.access
    host, _, port = guarded.sasl_bootstrap.rpartition(":")
    with pytest.raises(AccessDenied, match="check user and password"):
        Link(host, int(port), access._replace(password="wrong"))


def test_an_address_that_the_cluster_names_and_nobody_reaches_is_told_with_the_remedy(guarded: Kafka) -> None:
    found = connector(f"kafka://{guarded.behind}", timeout="5s")
    with pytest.raises(Unreachable, match=rf"the cluster names 127\.0\.0\.1:{guarded.front} \(advertised"):
        bodies(found)
