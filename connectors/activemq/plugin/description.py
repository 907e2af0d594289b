"""What ActiveMQ Classic and Artemis bring: their settings, and what the rest of the program asks of them."""

import re
from dataclasses import dataclass, replace

from dlq.core.brokers import Plugin
from dlq.core.settings import Broker


@dataclass(frozen=True)
class ActiveMQBroker(Broker):
    """`[brokers.NAME]` of kind activemq or artemis."""

    jolokia_url: str | None = None
    """Management by HTTP."""
    jolokia_details: bool = False
    """Classic: ask Jolokia for every letter's group and property types, which STOMP hides (slow)."""
    openwire_url: str | None = None
    """Where OpenWire is spoken, which carries every class of message, with types."""
    amqp_url: str | None = None
    """Artemis: where AMQP 1.0 is spoken, for messages that came by it; else `openwire_url` is tried."""
    statistics_plugin: bool = False
    """Classic: the broker has its statistics plugin, so that it can be asked for a queue's depth by STOMP."""
    activemq_xml: str | None = None
    """Classic: the file that the broker starts with, for its dead-letter strategies."""


def _tells_more(broker: ActiveMQBroker) -> str:
    return "" if broker.jolokia_url else "jolokia_url, or statistics_plugin = true, would"


CLASSIC = Plugin(
    connector="dlq.connectors.activemq.plugin.connector:ActiveMQConnector",
    settings=ActiveMQBroker,
    schemes=("stomp", "stomp+tls", "tcp", "ssl"),
    api="jolokia_url",
    by_tls={"stomp": "stomp+tls://", "tcp": "ssl://"},
    rules="dlq.analyzers.rules.activemq",
    writes=re.compile(
        r"destination|redelivered|content-(length|type)|expires|persistent|priority|timestamp|original-destination"
        r"|original(Expiration|DeliveryMode)|dlqDeliveryFailureCause|JMSXDeliveryCount|amq-msg-type"
        r"|transformation|_AMQ_.*|dlq_replay_.*"
    ),
    line="dlq.connectors.activemq.console.lines:classic_columns",
    prints={"activemq-console": "dlq.connectors.activemq.console.formats:classic"},
    readable="dlq.connectors.activemq.records.bodies:readable",
    told="dlq.connectors.activemq.records.recognition:tell",
    republishing="dlq.connectors.activemq.republish",
    sent_columns=("body", "body_size", "headers", "properties"),
    order_key=("header:_AMQ_GROUP_ID", "property:JMSXGroupID", "header:JMSXGroupID", "property:group_id"),
    tells_more=_tells_more,
)
ARTEMIS = replace(
    CLASSIC,
    schemes=(),
    rules="dlq.analyzers.rules.artemis",
    line="dlq.connectors.activemq.console.lines:artemis_columns",
    edit_headers="dlq.connectors.activemq.records.amqp10:edit_headers",
    edit_properties="dlq.connectors.activemq.records.amqp10:edit_properties",
    prints={"artemis-console": "dlq.connectors.activemq.console.formats:artemis"},
    tells_more=lambda _broker: "",
)
