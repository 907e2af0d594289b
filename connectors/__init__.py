"""The brokers. `open_connector` is the only way in; `dlq.core.brokers` is where a new broker is added."""

from typing import TYPE_CHECKING, cast

from dlq.connectors.local import user_files
from dlq.core.brokers import plugin_of, resolve
from dlq.core.settings import Broker

if TYPE_CHECKING:
    from dlq.connectors.base import Connector


def open_connector(broker: Broker) -> "Connector":
    """Connect to `broker`; the driver is imported here and nowhere else. Raises
    BrokerError, and ConfigError for a file that is none."""
    user_files.check_files_of(f"brokers.{broker.name}", broker)
    return cast("Connector", resolve(plugin_of(broker.kind).connector)(broker))
