"""A place on a real broker for one framework: what its program is told, what `dlq` is told, and a look at
its queues."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import count
from typing import Any

from pika.exceptions import ChannelClosedByBroker
from support.brokers.activemq.broker import ActiveMq
from support.brokers.activemq.fixtures import settings_of
from support.brokers.kafka.broker import Kafka
from support.brokers.kafka.driver import Driver
from support.brokers.rabbitmq.broker import Node
from support.brokers.rabbitmq.fixtures import channel_at, letters_at_consumers
from support.brokers.rocketmq.broker import RocketMQ
from support.brokers.rocketmq.driver import Driver as RocketDriver
from support.waiting import PATIENCE

from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.activemq.look.jolokia import Jolokia

_numbers = count(1)
PASSWORD = "DLQ_TEST_LAB_PASSWORD"


class Place(ABC):
    """What the trip needs of a broker, whichever it is."""

    prefix = ""
    """What the names of queues and topics begin with, so that frameworks on one broker do not meet."""
    url: str
    """What the program connects to."""
    settings: str
    """The broker in `dlq.toml`."""
    variables: Mapping[str, str] = {}
    """For `dlq`: the password."""

    to_end = 2
    """Seconds that a program has to end when it is told to. On a log it has more: that does not show what was
    acknowledged, so nobody has waited for it."""

    def source(self, queue: str) -> str:
        """The line of `dlq.toml` that names where letters lie."""
        return f'queue = "{queue}"'

    @abstractmethod
    def depth(self, queue: str) -> int:
        """Messages in a queue or topic; 0 where there is none of that name."""

    def left(self) -> Mapping[str, int]:
        """Queues of this place that still hold messages for somebody -> how many; a log keeps what was
        read, so it tells none."""
        return {}

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Take away what was made for this place."""


class RabbitPlace(Place):
    """A virtual host of its own."""

    def __init__(self, node: Node) -> None:
        self.node, self.vhost = node, f"lab-{next(_numbers)}"
        self.node.api("PUT", "vhosts", self.vhost)
        self.node.api("PUT", "permissions", self.vhost, "guest", configure=".*", write=".*", read=".*")
        self.url = self.node.url_of(self.vhost)
        self._connection = channel_at(self.url).connection
        self.settings = (
            f'kind = "rabbitmq"\nurl = "amqp://guest@127.0.0.1:{self.node.port}/{self.vhost}"\n'
            f'management_url = "{self.node.http}"\npassword_env = "{PASSWORD}"\n'
        )
        self.variables = {PASSWORD: "guest"}

    def depth(self, queue: str) -> int:
        channel = self._connection.channel()
        try:
            return int(channel.queue_declare(queue, passive=True).method.message_count)
        except ChannelClosedByBroker:
            return 0
        finally:
            if channel.is_open:
                channel.close()

    def left(self) -> Mapping[str, int]:
        queues: Any = self.node.api("GET", "queues", self.vhost)
        depths = {queue["name"]: self.depth(queue["name"]) for queue in queues}
        depths["at consumers"] = letters_at_consumers(self.node)
        return {name: depth for name, depth in depths.items() if depth}

    def close(self) -> None:
        self._connection.close()
        self.node.api("DELETE", "vhosts", self.vhost)


class ArtemisPlace(Place):
    """Queues `PREFIX…` of an Artemis: at the third delivery a letter goes to `PREFIXdead`, what is too old to
    `PREFIXexpired`."""

    def __init__(self, broker: ActiveMq, prefix: str) -> None:
        self.prefix, self._broker = f"{prefix}.", broker
        self.url = f"{broker.user}:{broker.password}@127.0.0.1:{broker.stomp}"
        self.settings = (
            f'kind = "activemq"\nurl = "{broker.url}"\nopenwire_url = "tcp://127.0.0.1:{broker.openwire}"\n'
            f'amqp_url = "amqp://127.0.0.1:{broker.amqp}"\npassword_env = "{PASSWORD}"\n'
        )
        self.variables = {PASSWORD: broker.password}
        self._management = Management(settings_of(broker))
        dead, expired = f"{self.prefix}dead", f"{self.prefix}expired"
        for name in (dead, expired):
            self._management.operate(
                "createQueue", json.dumps({"name": name, "address": name, "routing-type": "ANYCAST"}), True
            )
        told = {"deadLetterAddress": dead, "expiryAddress": expired, "maxDeliveryAttempts": 3}
        told |= dict.fromkeys(("defaultAddressRoutingType", "defaultQueueRoutingType"), "ANYCAST")
        self._management.operate("addAddressSettings", f"{self.prefix}#", json.dumps(told))

    def depth(self, queue: str) -> int:
        facts = self._management.facts(queue)
        return facts.depth if facts and facts.depth else 0

    def left(self) -> Mapping[str, int]:
        ours = (name for name in self._management.queues() or () if name.startswith(self.prefix))
        return {name: depth for name in ours if (depth := self.depth(name))}

    def close(self) -> None:
        self._management.operate("removeAddressSettings", f"{self.prefix}#")
        for name in self._management.attribute("broker", "addressNames"):
            if name.startswith(self.prefix):
                self._management.operate("deleteAddress", name, True)
        self._management.close()


class ClassicPlace(Place):
    """A whole ActiveMQ Classic: all that dies or expires lies in `ActiveMQ.DLQ`, as it does by default."""

    def __init__(self, broker: ActiveMq) -> None:
        self.url = f":@127.0.0.1:{broker.openwire}"
        self.settings = (
            f'kind = "activemq"\nurl = "{broker.url}"\nopenwire_url = "tcp://127.0.0.1:{broker.openwire}"\n'
            f'jolokia_url = "{broker.jolokia}"\n'
        )
        self._jolokia = Jolokia(settings_of(broker), artemis=False)

    def depth(self, queue: str) -> int:
        return self.left().get(queue, 0)

    def left(self) -> Mapping[str, int]:
        return {name: facts.depth for name, facts in self._jolokia.queues().items() if facts.depth}


class KafkaPlace(Place):
    """Topics `PREFIX…` of a Kafka."""

    to_end = 10

    def __init__(self, node: Kafka, prefix: str) -> None:
        self.prefix, self._driver = f"{prefix}.", Driver(node.bootstrap)
        self.url = node.bootstrap
        self.settings = f'kind = "kafka"\nurl = "{node.url}"\n'

    def source(self, queue: str) -> str:
        return f'topic = "{queue}"'

    def depth(self, queue: str) -> int:
        topics = self._driver.admin.list_topics(timeout=PATIENCE).topics
        return self._driver.end(queue) if queue in topics else 0


class RocketPlace(Place):
    """A cluster of RocketMQ: a group's dead lie in `%DLQ%GROUP`. Programs reach its network from ours."""

    to_end = 10

    def __init__(self, cluster: RocketMQ) -> None:
        self.url = cluster.name_server
        self.settings = f'kind = "rocketmq"\nurl = "{cluster.url}"\n'
        self._driver = RocketDriver(cluster.addresses["broker-a"])

    def depth(self, queue: str) -> int:
        return len(self._driver.messages(queue))

    def source(self, queue: str) -> str:
        return f'group = "{queue.removeprefix("%DLQ%")}"'

    def close(self) -> None:
        self._driver.close()
