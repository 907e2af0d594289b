"""What is in a body that is no text, for people."""

from collections.abc import Mapping
from typing import Any

from dlq.connectors.activemq import amqp10_records, openwire_messages


def readable(body: bytes, properties: Mapping[str, str]) -> tuple[Any, str] | None:
    """See `dlq.core.brokers.Kind.readable`: a value of AMQP 1.0, or the content of a message of JMS."""
    return amqp10_records.readable(body, properties) or openwire_messages.readable(body, properties)
