"""What RabbitMQ brings: its settings, and what the rest of the program asks of it."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from dlq.connectors.rabbitmq.read.wildcards import is_pattern, matches
from dlq.core.brokers import Plugin
from dlq.core.errors import ConfigError
from dlq.core.record import FLAG_AMQP10_BODY
from dlq.core.settings import Broker, Source


@dataclass(frozen=True)
class RabbitBroker(Broker):
    """`[brokers.NAME]` of kind rabbitmq."""

    management_url: str | None = None
    """The management API, which alone lists queues, bindings, policies, and what consumers acknowledge."""


@dataclass(frozen=True)
class RabbitSource(Source):
    """`[sources.NAME]` on RabbitMQ."""

    alternate_exchange: bool = False
    """The queue is bound to an alternate exchange: what lies there without a death was unroutable."""


def _check_source(place: str, source: RabbitSource, broker: RabbitBroker) -> None:
    if is_pattern(source.queue) and not broker.management_url:
        raise ConfigError(
            f"{place}.queue = {source.queue!r} is a pattern, and only RabbitMQ's management API lists "
            f"queues; set brokers.{broker.name}.management_url"
        )


def _management(url: str) -> str:
    """Return where the management API listens by default, on the same host."""
    parts = urlsplit(url.partition(",")[0])
    scheme, port = ("https", 15671) if parts.scheme == "amqps" else ("http", 15672)
    host = parts.hostname or "localhost"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


RABBITMQ = Plugin(
    connector="dlq.connectors.rabbitmq.plugin.connector:RabbitConnector",
    settings=RabbitBroker,
    source=RabbitSource,
    check_source=_check_source,
    means=lambda wanted, queue: matches(queue, wanted),
    schemes=("amqp", "amqps"),
    api="management_url",
    api_of=_management,
    by_tls={"amqp": "amqps://"},
    rules="dlq.analyzers.rules.rabbitmq",
    words={"poison_ack": "rejected by the consumer"},  # poison acks are ActiveMQ's
    writes=re.compile(
        r"x-death|x-(first|last)-death-.*|x-(delivery|acquired)-count|x-opt-deaths|x-opt-rabbitmq-.*|x-exchange"
        r"|x-routing-key|x-stream-offset|dlq_replay_.*|content_(type|encoding)|delivery_mode|priority|timestamp"
        r"|expiration"
    ),
    line="dlq.connectors.rabbitmq.console.lines:columns",
    prints={
        "rabbitmq-management": "dlq.connectors.rabbitmq.console.formats:management",
        "rabbitmqadmin": "dlq.connectors.rabbitmq.console.formats:management",
    },
    why_no_text=lambda flags: "an encoded AMQP 1.0 section" if flags & FLAG_AMQP10_BODY else None,
    readable="dlq.connectors.rabbitmq.records.amqp10:readable",
    told="dlq.connectors.rabbitmq.records.recognition:tell",
    republishing="dlq.connectors.rabbitmq.republish",
    sent_columns=("body", "body_size"),
    edit_headers="dlq.connectors.rabbitmq.republish:edit_headers",
    edit_properties="dlq.connectors.rabbitmq.republish:edit_properties",
    tells_more=lambda broker: "" if broker.management_url else "management_url would",
)
