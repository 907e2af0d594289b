"""Reading the transactions of real RocketMQ brokers, in such numbers and states as production has."""

from collections.abc import Iterator

import pytest
from services.rocketmq_broker import RocketMQ
from services.rocketmq_driver import Driver, eventually, unique_key
from services.rocketmq_fixtures import connector_of, on_every_version, read_all

from dlq.connectors.base import ReadRequest
from dlq.connectors.rocketmq_records import FINISHED, HALF
from dlq.core.settings import Source

pytestmark = [pytest.mark.rocketmq, on_every_version]
REQUEST = ReadRequest(Source("tx", "pay", transactions=True), "drain", "p")
TOPIC = "orders"


@pytest.fixture
def unhurried(rocket_version: str) -> Iterator[RocketMQ]:
    """A broker that checks no half message while a test looks at it."""
    with RocketMQ(rocket_version, transactionTimeOut=600_000, transactionCheckInterval=600_000) as cluster:
        yield cluster


@pytest.fixture
def driver(unhurried: RocketMQ) -> Iterator[Driver]:
    """A connection to that broker, which has the topic of the tests."""
    driver = Driver(unhurried.addresses["broker-a"])
    driver.create_topic(TOPIC)
    yield driver
    driver.close()


def test_more_half_messages_than_a_batch_holds_come_with_their_outcomes(
    unhurried: RocketMQ, driver: Driver
) -> None:
    for half in [driver.half(TOPIC, b"x") for _ in range(50)]:
        driver.finish(half, commit=True)
    own = {"TRAN_MSG": "true", "PGROUP": "tx-producers"}
    driver.send_many(TOPIC, 5_000, lambda _: (b"x", {**own, "UNIQ_KEY": unique_key()}), f=4, a="tx-producers")
    eventually(lambda: driver.end(HALF) == 5_050 and driver.end(FINISHED))
    connector = connector_of(unhurried)
    seen = read_all(connector, REQUEST)
    connector.close()
    topics = [record.dead_letter_queue for record in seen.records]
    assert (topics.count(HALF), topics.count(TOPIC)) == (5_050, 50)


def test_an_outcome_after_the_half_message_was_captured_is_found_before_the_first_check(
    unhurried: RocketMQ, driver: Driver
) -> None:
    half = driver.half(TOPIC, b"x")
    eventually(lambda: driver.end(HALF))
    connector = connector_of(unhurried)
    first = read_all(connector, REQUEST)
    driver.finish(half, commit=True)
    eventually(lambda: driver.end(FINISHED))
    second = read_all(connector, ReadRequest(REQUEST.source, "drain", "p", resume=first.checkpoint))
    connector.close()
    assert [record.message_id for record in first.records] == [half.key]
    assert {record.dead_letter_queue for record in second.records} == {FINISHED, TOPIC}
