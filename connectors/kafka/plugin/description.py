"""What Kafka brings: its settings, and what the rest of the program asks of it."""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from dlq.core.brokers import Plugin
from dlq.core.errors import ConfigError
from dlq.core.settings import Broker, Source
from dlq.core.text import quote_value

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TLS = "kafka+ssl"


@dataclass(frozen=True)
class KafkaBroker(Broker):
    """`[brokers.NAME]` of kind kafka. `url` names brokers to begin with: kafka://b1:9092,b2:9092."""

    user: str | None = None
    """By SASL; its password is beside it."""
    mechanism: str = "SCRAM-SHA-512"
    """How the password is shown: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
    verify_host: bool = True
    """By TLS: the certificate must be of the name that is connected to."""
    hosts: tuple[str, ...] = ()
    """Names or patterns of hosts that brokers may name besides those of `url`; empty: any."""


@dataclass(frozen=True)
class KafkaSource(Source):
    """`[sources.NAME]` on Kafka."""

    resolve: bool = True
    """Fetch the records that dead letters of share groups only point to; false for a mirrored topic, whose
    pointers are of another cluster."""


def is_pattern(topic: str) -> bool:
    """Return whether it may mean several topics."""
    return bool(frozenset("*?[") & set(topic))


def _check(place: str, broker: KafkaBroker) -> None:
    has_password = any((broker.password_file, broker.password_command, broker.password_env))
    if broker.mechanism not in _MECHANISMS:
        raise ConfigError(
            f"{place}.mechanism = {quote_value(broker.mechanism)} is unknown; "
            f"known are {', '.join(_MECHANISMS)}"
        )
    if has_password and broker.user is None:
        raise ConfigError(f'{place} has a password and no user; add user = "..."')
    if broker.user is not None and not has_password:
        raise ConfigError(f"{place} has a user and no password; add password_file, or another password_*")
    if not broker.verify_host and broker.ca_file is None:
        raise ConfigError(
            f"{place}.verify_host = false needs ca_file: otherwise any server with a public certificate "
            "could pose as the broker"
            "; add it"
        )


KAFKA = Plugin(
    connector="dlq.connectors.kafka.plugin.connector:KafkaConnector",
    settings=KafkaBroker,
    source=KafkaSource,
    named_by=("topic",),
    check=_check,
    means=lambda wanted, topic: fnmatchcase(topic, wanted),
    schemes=("kafka", TLS),
    by_tls={"kafka": f"{TLS}://"},
    names_others=True,
    rules="dlq.analyzers.rules.kafka",
    words={"poison_ack": "rejected by the consumer"},
    duplicates="in_its_queue",
    writes=re.compile(r"__(dlq|connect|streams)\..*|dlq_replay_.*"),
    line="dlq.connectors.kafka.console:columns",
    keeps_letters=True,
    told="dlq.connectors.kafka.records.recognition:tell",
    republishing="dlq.connectors.kafka.republish",
    sent_columns=("body", "body_size", "dead_letter_queue", "origin", "published_at", "flags"),
    edit_headers="dlq.connectors.kafka.records.header_texts:edit",
    ramp_note="",
    order_key=("property:key",),
)
