"""A user's mistake and a broker's refusal are one clear line each."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.brokers.rabbitmq.fixtures import (
    KINDS,
    Rabbit,
    on_private_nodes,
    on_rabbitmq_4,
    request,
    send_amqp_1,
)
from support.connector_contract import first_letters, letters

from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.errors import AccessDenied, ConfigError, ConnectionLost, DlqError, NotFound, PoisonMessage


def refused(broker: RabbitBroker, queue: str = "any") -> DlqError:
    """What both a reading and doctor raise; they must agree."""
    connector = RabbitConnector(broker)
    raised = []
    for look in (
        lambda: letters(connector.read(request(queue))),
        lambda: connector.inspect(request(queue).source),
    ):
        with pytest.raises(DlqError) as caught:
            look()
        assert "\n" not in str(caught.value)
        raised.append(caught.value)
    assert type(raised[0]) is type(raised[1])
    return raised[0]


def test_a_wrong_password_is_access_denied(rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WRONG", "hunter2")
    error = refused(rabbit.broker(password_env="WRONG", management_url=None))
    assert isinstance(error, AccessDenied)
    assert "password" in str(error)
    assert "hunter2" not in str(error)


def test_a_missing_virtual_host_is_not_found(rabbit: Rabbit) -> None:
    broker = rabbit.broker()
    error = refused(replace(broker, url=broker.url.rpartition("/")[0] + "/nowhere"))
    assert isinstance(error, NotFound)
    assert "nowhere" in str(error)


def test_an_exclusive_queue_of_another_connection_is_access_denied(rabbit: Rabbit) -> None:
    rabbit.channel.queue_declare("mine", exclusive=True)
    error = refused(rabbit.broker(), "mine")
    assert isinstance(error, AccessDenied)
    assert "exclusive" in str(error)


@on_private_nodes
def test_a_missing_right_to_read_is_access_denied(rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = rabbit.queue()
    rabbit.publish(queue, [b"x"])
    rabbit.wait_for(queue, 1)
    monkeypatch.setenv("READER", "secret-word")
    rights, changes = "^$ ^$ ^other$", {"password_env": "READER", "management_url": None}
    broker = rabbit.by_user("reader", "secret-word", rights=rights, **changes)
    with pytest.raises(AccessDenied, match="reader"):
        letters(RabbitConnector(broker).read(request(queue, force=True)))
    if rabbit.version < (4, 3):  # since then even looking needs a right
        seen = RabbitConnector(broker).inspect(request(queue).source)
        assert (seen.depth, seen.facts["rights"]) == (1, "none")
        assert any("may not read" in warning for warning in seen.warnings)
        assert set(seen.harm) == {"copy", "drain"}


def test_a_queue_that_is_deleted_in_mid_reading_ends_it(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    rabbit.fill(queue, 300)
    reading = RabbitConnector(rabbit.broker()).read(request(queue, batch_rows=10))
    scan = reading.batches()
    first_letters(scan)
    rabbit.channel.queue_delete(queue)
    with pytest.raises((ConnectionLost, NotFound)):
        list(scan)
    reading.close()


def test_a_ca_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ca_file"):
        RabbitConnector(
            RabbitBroker("shop", "rabbitmq", "amqps://guest@localhost/", ca_file=f"{tmp_path}/none.pem")
        )


@on_rabbitmq_4
@pytest.mark.parametrize("kind", KINDS)
def test_a_letter_that_the_broker_cannot_convert_is_a_poison_message(rabbit: Rabbit, kind: str) -> None:
    queue = rabbit.queue(kind)
    send_amqp_1(rabbit, queue, 10, poisoned=5)
    rabbit.wait_for(queue, 10)
    reading = RabbitConnector(rabbit.broker()).read(request(queue))
    seen: list[bytes] = []
    with pytest.raises(PoisonMessage, match=r"read by AMQP 1\.0, or stay in the queue"):
        seen.extend(record.body for batch in reading.batches() for record in batch.records)
    reading.close()
    assert seen == [b"%d" % i for i in range(5)]
