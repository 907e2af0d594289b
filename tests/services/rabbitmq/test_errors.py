"""A user's mistake and a broker's refusal are one clear line each."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.brokers.rabbitmq.amqp10 import send_some
from support.brokers.rabbitmq.fixtures import KINDS, Rabbit, on_private_nodes, on_rabbitmq_4, request
from support.connector_contract import letters

from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.errors import AccessDenied, ConfigError, DlqError, NotFound, PoisonMessage


def refused(broker: RabbitBroker, queue: str) -> DlqError:
    """What both a reading and doctor raise; they must agree."""
    connector, wanted = RabbitConnector(broker), request(queue)
    raised = []
    for look in (lambda: letters(connector.read(wanted)), lambda: connector.inspect(wanted.source)):
        with pytest.raises(DlqError) as caught:
            look()
        assert "\n" not in str(caught.value)
        raised.append(caught.value)
    assert type(raised[0]) is type(raised[1])
    return raised[0]


def test_a_wrong_password_host_or_queue_is_told_by_its_error(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG", "hunter2")
    rabbit.channel.queue_declare("mine", exclusive=True)
    broker = rabbit.broker()
    elsewhere = replace(broker, url=broker.url.rpartition("/")[0] + "/nowhere")
    for asked, queue, kind, word in (
        (replace(broker, password_env="WRONG", management_url=None), "any", AccessDenied, "password"),
        (elsewhere, "any", NotFound, "nowhere"),
        (broker, "mine", AccessDenied, "exclusive"),
    ):
        error = refused(asked, queue)
        assert isinstance(error, kind)
        assert word in str(error)
        assert "hunter2" not in str(error)


@on_private_nodes
def test_a_missing_right_to_read_is_access_denied(rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = rabbit.holding([b"x"])
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


@on_private_nodes
def test_an_empty_quorum_queue_that_may_not_be_asked_is_not_called_empty(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks the same while it has no leader. A single active consumer's refusal is the leader's answer."""
    monkeypatch.setenv("READER", "secret-word")
    changes = {"password_env": "READER", "management_url": None}
    broker = rabbit.by_user("reader", "secret-word", rights=".* .* ^other$", **changes)
    with pytest.raises(AccessDenied, match="reader"):
        RabbitConnector(broker).read(request(rabbit.queue("quorum")))
    assert letters(rabbit.read(rabbit.queue("quorum", x_single_active_consumer=True))) == []


def test_a_ca_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ca_file"):
        RabbitConnector(RabbitBroker("shop", "rabbitmq", "amqps://guest@h/", ca_file=f"{tmp_path}/none.pem"))


@on_rabbitmq_4
@pytest.mark.parametrize("kind", KINDS)
def test_a_letter_that_the_broker_cannot_convert_is_a_poison_message(rabbit: Rabbit, kind: str) -> None:
    queue = rabbit.queue(kind)
    send_some(rabbit, queue, 10, poisoned=5)
    rabbit.wait_for(queue, 10)
    reading = rabbit.read(queue)
    seen: list[bytes] = []
    with pytest.raises(PoisonMessage, match=r"read by AMQP 1\.0, or stay in the queue"):
        seen.extend(record.body for batch in reading.batches() for record in batch.records)
    reading.close()
    assert seen == [b"%d" % i for i in range(5)]
