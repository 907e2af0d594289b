"""An address that speaks another protocol: which it is, who named it, and what it answered."""

from collections.abc import Callable

import pytest
from support.brokers.hostile import once
from support.rows import each_row
from support.servers.hostile import Server
from support.waiting import UNHURRIED

from dlq.connectors.activemq.openwire.link import OpenWireConnection
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.stomp.link import Link
from dlq.connectors.kafka.plugin.connector import KafkaConnector
from dlq.connectors.kafka.plugin.description import KafkaBroker
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rocketmq.link.cluster import Cluster
from dlq.connectors.rocketmq.link.connection import Access
from dlq.connectors.rocketmq.link.connection import Link as RocketLink
from dlq.connectors.rocketmq.plugin.description import RocketBroker
from dlq.core.errors import DlqError
from dlq.core.protocols import foreign, name_protocol, of_length
from dlq.core.settings import Source

HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
ALERT = b"\x15\x03\x03\0\x02\x02\x46"
"""A server of TLS, to bytes that are not."""


def by_stomp(address: str, scheme: str = "stomp") -> None:
    Link(ActiveMQBroker("shop", "activemq", url=f"{scheme}://{address}", timeout=UNHURRIED))


def by_openwire(address: str, scheme: str = "tcp") -> None:
    OpenWireConnection(ActiveMQBroker("shop", "activemq", url=f"{scheme}://{address}", timeout=UNHURRIED))


def of_rocketmq(address: str, scheme: str = "rocketmq") -> None:
    Cluster(RocketBroker("shop", "rocketmq", url=f"{scheme}://{address}", timeout=UNHURRIED)).masters()


def of_rabbitmq(address: str, scheme: str = "amqp") -> None:
    broker = RabbitBroker("shop", "rabbitmq", url=f"{scheme}://{address}/", timeout=UNHURRIED)
    RabbitConnector(broker).inspect(Source("s", "shop", queue="orders"))


def of_kafka(address: str) -> None:
    broker = KafkaBroker("shop", "kafka", url=f"kafka://{address}", timeout="5s")
    KafkaConnector(broker).inspect(Source("s", "shop", topic="orders"))


@each_row(("connect", "named_by"), [
    (by_stomp, "brokers.shop.url"), (by_openwire, "brokers.shop.url"), (of_rocketmq, "brokers.shop.url"),
    (of_kafka, "named by url"), (of_rabbitmq, "named by its url"),
])  # fmt: skip
def test_a_web_servers_port_is_named_with_who_named_it(connect: Callable[[str], None], named_by: str) -> None:
    with Server(once(HTTP)) as server, pytest.raises(DlqError, match="speaks HTTP") as raised:
        connect(server.address)
    assert server.address in str(raised.value)
    assert named_by in str(raised.value)


WITH_TLS = {by_stomp: "stomp+ssl", by_openwire: "ssl", of_rocketmq: "rocketmq+tls", of_rabbitmq: "amqps"}


@each_row("connect", WITH_TLS)
def test_tls_where_it_is_not_expected_and_the_reverse(connect: Callable[..., None]) -> None:
    with Server(once(ALERT)) as tls, pytest.raises(DlqError, match="speaks TLS and not"):
        connect(tls.address)
    with Server(once(HTTP)) as plain, pytest.raises(DlqError, match=r"TLS failed: .*is it a TLS port"):
        connect(plain.address, WITH_TLS[connect])


def test_an_address_that_a_name_server_named_is_said_to_be_its_word() -> None:
    words = r"named by a name server \(ns1:9876\), speaks HTTP \('HTTP/1.1 400 Bad"
    with Server(once(HTTP)) as server, pytest.raises(DlqError, match=words):
        RocketLink(server.address, Access(), named_by="a name server (ns1:9876)").call(105, {})


@each_row(
    ("first", "name"),
    [
        (HTTP, "HTTP"), (b"AMQP\0\0\x09\x01", "AMQP"), (b"\0\0\1\x40\x01ActiveMQ\0\0\0\x0c", "OpenWire"),
        (b"ERROR\nmessage:no", "STOMP"), (b"SSH-2.0-OpenSSH", "SSH"),
        (b"\x15\x03\x03\0\x02\x02\x46", "TLS"), (b"\0\0\0\x10", None), (b"", None),
        (of_length(1213486160), "HTTP"), (of_length(-1), None),
    ],
)  # fmt: skip
def test_a_protocol_is_known_by_its_first_bytes(first: bytes, name: str | None) -> None:
    assert name_protocol(first) == name


def test_hostile_bytes_are_not_shown() -> None:
    said = foreign("mq:1", b"HTTP\x1b[2J\r\n", "STOMP", "brokers.a.url") or ""
    assert "speaks HTTP" in said
    assert "\x1b" not in said
