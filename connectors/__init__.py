"""The brokers. `open_connector` is the only way in; the table below is where a new broker is added."""

from importlib import import_module
from typing import cast

from dlq.connectors.base import Connector
from dlq.core.settings import Broker

_CONNECTORS = {
    "rabbitmq": "dlq.connectors.rabbitmq.connector:RabbitConnector",
    "activemq": "dlq.connectors.activemq.connector:StompConnector",
    "artemis": "dlq.connectors.activemq.connector:StompConnector",
    "rocketmq": "dlq.connectors.rocketmq.connector:RocketConnector",
    "memory": "dlq.connectors.memory:MemoryConnector",
}


def open_connector(broker: Broker) -> Connector:
    """Connect to `broker`; the driver is imported here and nowhere else. Raises BrokerError."""
    module, _, name = _CONNECTORS[broker.kind].partition(":")
    return cast(Connector, getattr(import_module(module), name)(broker))
