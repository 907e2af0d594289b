"""What one delivery of RabbitMQ tells of a letter, for knowing it again: all but what counts deliveries."""

from contextlib import suppress

from dlq.connectors.amqp10.codec import message
from dlq.connectors.rabbitmq.amqp091.codec import table
from dlq.connectors.rabbitmq.amqp091.codec.table import DELIVERY_HEADERS
from dlq.core.identity import Told, frame, told_of
from dlq.core.record import Record

_CHANGING = (*DELIVERY_HEADERS, "expiration")
"""By AMQP 1.0 an expiration is one of the header's fields, which tell of a delivery."""


def tell(record: Record) -> Told:
    """Return what is told (`dlq.core.brokers.Plugin.told`); a block that is none counts as it is."""
    block = record.raw_properties or b""
    is_amqp10 = message.is_block(block)
    with suppress(ValueError):
        if is_amqp10:
            block = frame(*message.stable(block, DELIVERY_HEADERS.__contains__))
        else:
            block = table.stable(block, record.headers)
    return told_of(record, block, _CHANGING if is_amqp10 else DELIVERY_HEADERS)
