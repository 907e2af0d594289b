"""What RocketMQ brings: its settings, and what the rest of the program asks of it."""

import re
from dataclasses import dataclass

from dlq.core.brokers import Plugin
from dlq.core.errors import ConfigError
from dlq.core.settings import Broker

_COMPRESSED = 1
_ZLIB = (0, 3)
"""Values of the compression bits of sysFlag (CompressionType)."""


@dataclass(frozen=True)
class RocketBroker(Broker):
    """`[brokers.NAME]` of kind rocketmq. `url` names the name servers."""

    access_key: str | None = None
    secret_key_file: str | None = None
    secret_key_env: str | None = None
    verify_host: bool = True
    """By TLS: the certificate must be of the address that is connected to; without that, `ca_file` alone
    says who is believed."""
    hosts: tuple[str, ...] = ()
    """Names or patterns of hosts that name servers may name besides those of `url`; empty: any."""


def _check(place: str, broker: RocketBroker) -> None:
    if not broker.verify_host and broker.ca_file is None:
        raise ConfigError(
            f"{place}.verify_host = false needs ca_file: otherwise any server with a public certificate "
            "could pose as the broker"
            "; add it"
        )


def _in_the_clear(broker: RocketBroker) -> str | None:
    is_signed = broker.access_key is not None and broker.ca_file is None
    return (
        "signed requests go to {host} without TLS, where they can be read and repeated" if is_signed else None
    )


ROCKETMQ = Plugin(
    connector="dlq.connectors.rocketmq.plugin.connector:RocketConnector",
    settings=RocketBroker,
    named_by=("group", "transactions"),
    check=_check,
    schemes=("rocketmq", "rocketmq+tls"),
    by_tls={"rocketmq": "rocketmq+tls://"},
    in_the_clear=_in_the_clear,
    names_others=True,
    rules="dlq.analyzers.rules.rocketmq",
    duplicates="in_its_queue",
    writes=re.compile(
        r"msgId|queue(Id|Offset)|commitLogOffset|preparedTransactionOffset|sysFlag|flag|reconsumeTimes"
        r"|(born|store)Timestamp|TRAN_MSG|DELAY|REAL_(TOPIC|QID)|RETRY_TOPIC|ORIGIN_(MESSAGE_ID|GROUP)|RECONSUME_TIME"
        r"|MAX_RECONSUME_TIMES|CONSUME_START_TIME|M(IN|AX)_OFFSET|POP_CK|1ST_POP_TIME|TRANSACTION_CHECK_TIMES"
        r"|PGROUP|WAIT|CLUSTER|MSG_REGION|TRACE_ON|DLQ_ORIGIN_(TOPIC|MESSAGE_ID)|TIMER_.*|dlq_replay_.*"
    ),
    line="dlq.connectors.rocketmq.console.lines:columns",
    prints={"rocketmq-print": "dlq.connectors.rocketmq.console.formats:messages"},
    packing=lambda flags: "zlib" if flags & _COMPRESSED and flags >> 8 & 7 in _ZLIB else None,
    unpack="dlq.connectors.rocketmq.records.bodies:unpack_body",
    keeps_letters=True,
    default_target="group",  # a topic would deliver again to every group that subscribes to it
    republishing="dlq.connectors.rocketmq.republish",
    sent_columns=("body", "body_size", "broker_node", "dead_letter_queue", "origin", "headers", "flags"),
    transaction="dlq.connectors.rocketmq.republish:transaction_of",
    order_key=("property:__SHARDINGKEY",),
    ramp_note=(
        "RocketMQ tries a failing letter again for hours before it is dead, and what waits for its next try "
        "looks like consumed"
    ),
)
