"""Dead letters of Kafka that tests send back."""

from typing import Any

from support.archives import letter
from support.sending_contract import provenance, said

from dlq.connectors.base import Outgoing, SendRequest, Target
from dlq.connectors.kafka.plugin.connector import KafkaConnector
from dlq.connectors.kafka.records.raw import Headers, RawRecord, encode
from dlq.core.record import Record


def dead(number: int, key: bytes | None = None, headers: Headers = (), **fields: Any) -> Record:
    """A letter as the connector reads it; `fields` of its record."""
    block = encode(RawRecord(key, headers))
    return letter(number, broker_kind="kafka", raw_properties=block, body=b"x", body_size=1, **fields)


def outgoing(number: int, topic: str, plan: str, record: Record | None = None) -> Outgoing:
    """It on its way to a topic."""
    found = record if record is not None else dead(number)
    return Outgoing(number, found, Target("topic", topic), provenance(number, plan))


def sent(connector: KafkaConnector, letters: list[Outgoing]) -> dict[int, str]:
    """Number -> what became of it; there is no error."""
    publisher = connector.publisher(SendRequest("plan", 1000))
    answers, error = said(publisher, iter(letters))
    publisher.close()
    assert error is None
    return {answer.number: answer.outcome for answer in answers}
