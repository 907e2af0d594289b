"""What is in a body that is no text, for people."""

from collections.abc import Mapping
from typing import Any

from dlq.connectors.activemq.openwire.codec import messages
from dlq.connectors.activemq.records import amqp10


def readable(body: bytes, properties: Mapping[str, str]) -> tuple[Any, str] | None:
    """See `dlq.core.brokers.Plugin.readable`: a value of AMQP 1.0, or the content of a message of JMS."""
    return amqp10.readable(body, properties) or messages.readable(body, properties)
