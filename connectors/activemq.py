"""ActiveMQ Classic and Artemis over STOMP; which of the two it is, the broker says on connecting."""

from dlq.connectors.activemq_chain import ChainReading
from dlq.connectors.activemq_link import Link
from dlq.connectors.activemq_queues import Queues
from dlq.connectors.activemq_records import bare_destination
from dlq.connectors.activemq_walks import walk_of
from dlq.connectors.base import Reading, ReadRequest
from dlq.core.settings import Broker, Source


class StompConnector:
    """One ActiveMQ broker (or several addresses of one)."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        link = Link(broker)
        self.kind = "artemis" if link.artemis else "activemq"
        self.version = link.version
        link.close()
        self._queues = Queues(broker, self.kind)

    def read(self, request: ReadRequest) -> Reading:
        """See `Connector`."""
        names = self._queues.named(queue_of(request.source))
        walks = [walk_of(self._broker, self._queues, request, name) for name in names]
        return ChainReading(walks, request.limit)

    def close(self) -> None:
        """See `Connector`."""
        self._queues.close()


def queue_of(source: Source) -> str:
    """The source's queue by its bare name."""
    return bare_destination(source.queue)[1] or ""
