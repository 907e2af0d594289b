"""Each framework's letters die, are understood, go back, and are taken once by its mended consumer, unchanged
but for what the plan named; one hiccup more kills none of them."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from frameworks import page, table
from frameworks.places import ArtemisPlace, ClassicPlace, KafkaPlace, Place, RabbitPlace, RocketPlace
from frameworks.trip import Classified, Event, Trip, changes
from support.brokers.activemq.broker import ARTEMIS, CLASSIC, ActiveMq
from support.brokers.kafka.broker import Kafka
from support.brokers.rabbitmq.broker import Node
from support.brokers.rocketmq.broker import RocketMQ

OURS = {"dlq_replay_id", "dlq_replay_lap", "dlq_replay_of"}
_BROKERS = re.compile(
    r"JMSXGroupSeq|x-death|x-(?:first|last)-death-\w+|x-(?:delivery|acquired)-count|__HDR_\w+|_AMQ_\w+|__AMQ_CID"
    r"|x-opt-(?:ORIG|ACTUAL)-[\w-]+|dlqDeliveryFailureCause|original-destination|originalExpiration"
    r"|ack|content-length|destination|destination-type|message-id|persistent|redelivered|subscription"
    r"|CLUSTER|DELAY|M(?:AX|IN)_OFFSET|MAX_RECONSUME_TIMES|MSG_REGION|ORIGIN_MESSAGE_ID|REAL_(?:QID|TOPIC)"
    r"|RECONSUME_TIME|RETRY_TOPIC|TRACE_ON|WAIT"
)
"""What a broker writes goes away on every letter that has it, and comes anew; `JMSXGroupSeq` is how core
clients see the `_AMQ_GROUP_SEQUENCE` that Artemis gives to all that came by OpenWire."""
FRAMEWORKS = table.read()


def is_brokers(name: str) -> bool:
    """Whether a header is one that a broker wrote."""
    return _BROKERS.fullmatch(name) is not None


def on(broker: str) -> pytest.MarkDecorator:
    """A test of each framework on this broker; those that are not quick belong to `make frameworks` alone."""
    each = [
        pytest.param(one, id=one.key, marks=() if one.quick else pytest.mark.frameworks)
        for one in FRAMEWORKS
        if one.broker == broker
    ]
    return pytest.mark.parametrize("framework", each)


@pytest.mark.rabbitmq
@on("rabbitmq")
@pytest.mark.parametrize(
    "rabbit_node", [pytest.param("3.10", marks=pytest.mark.frameworks), "4"], indirect=True
)
def test_on_rabbitmq(rabbit_node: Node, framework: table.Framework, tmp_path: Path) -> None:
    make_the_trip(framework, RabbitPlace(rabbit_node), tmp_path)


@pytest.mark.activemq
@on("artemis")
@pytest.mark.parametrize("stomp_broker", [ARTEMIS], indirect=True)
def test_on_artemis(stomp_broker: ActiveMq, framework: table.Framework, tmp_path: Path) -> None:
    make_the_trip(framework, ArtemisPlace(stomp_broker, f"lab-{framework.key}"), tmp_path)


@pytest.mark.kafka
@on("kafka")
def test_on_kafka(kafka_node: Kafka, framework: table.Framework, tmp_path: Path) -> None:
    make_the_trip(framework, KafkaPlace(kafka_node, f"{framework.prefix}{framework.key}"), tmp_path)


@on("classic")
@pytest.mark.activemq
def test_on_classic(framework: table.Framework, tmp_path: Path) -> None:
    with ActiveMq(CLASSIC[-1]) as broker:
        make_the_trip(framework, ClassicPlace(broker), tmp_path)


@on("rocketmq")
@pytest.mark.rocketmq
def test_on_rocketmq(rocket_cluster: RocketMQ, framework: table.Framework, tmp_path: Path) -> None:
    make_the_trip(framework, RocketPlace(rocket_cluster), tmp_path)


def make_the_trip(framework: table.Framework, place: Place, folder: Path) -> None:
    """There and back, compared with the table at each step."""
    try:
        trip = Trip(framework, place, folder)
        failed = trip.let_die()
        told = trip.judge()
        expected = {name: failure for failure in framework.failures for name in failure.letters}
        assert told == {name: Classified.expected(failure) for name, failure in expected.items()}
        targets, stripped = trip.replay()
        assert targets == Counter(failure.target for failure in expected.values())
        assert [name for name in stripped if not is_brokers(name)] == sorted(framework.stripped)
        compare(framework, failed, trip.take(), stripped)
        assert place.left() == {}
    finally:
        place.close()


def compare(
    framework: table.Framework, failed: Sequence[Event], taken: Sequence[Event], stripped: Sequence[str]
) -> None:
    """Each letter was handled once, after one hiccup where it is named so, and looked as when it died."""
    hiccups = [name for name in framework.letters if name.endswith(".hiccup")]
    assert Counter((event["event"], event["letter"]) for event in taken) == Counter(
        [("handled", name) for name in framework.letters] + [("hiccup", name) for name in hiccups]
    )
    named = {words.partition(" ")[0] for words in stripped} | OURS
    died = {event["letter"]: event for event in failed}
    came = {event["letter"]: event for event in reversed(taken)}
    differing = {name: changes(died[name], came[name]) - named for name in died}
    assert not [name for names in differing.values() for name in names if not is_brokers(name)], differing


def test_the_page_is_the_table() -> None:
    assert page.PAGE.read_text() == page.render(FRAMEWORKS)
