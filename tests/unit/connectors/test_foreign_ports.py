"""An address that speaks another protocol: which it is, who named it, and what it answered."""

from collections.abc import Mapping

import pytest
from support.brokers.hostile import drain, once
from support.rows import each_row
from support.servers.hostile import Server
from support.waiting import UNHURRIED

from dlq.connectors.net.protocols import foreign, name_protocol, of_length
from dlq.connectors.rocketmq.link.connection import Access, Link
from dlq.core.brokers import plugin_of
from dlq.core.errors import DlqError

HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
ALERT = b"\x15\x03\x03\0\x02\x02\x46"
"""A server of TLS, to bytes that are not."""


WAYS: Mapping[str, tuple[tuple[str, str], str, str]] = {
    "stomp": (("activemq", "queue"), "stomp+ssl", "brokers.shop.url"),
    "tcp": (("activemq", "queue"), "ssl", "brokers.shop.url"),
    "rocketmq": (("rocketmq", "group"), "rocketmq+tls", "brokers.shop.url"),
    "amqp": (("rabbitmq", "queue"), "amqps", "named by its url"),
    "kafka": (("kafka", "topic"), "", "named by url"),
}
"""Scheme -> the kind of broker and what is read of it, the scheme with TLS, and who named the address."""


def read(scheme: str, url: str) -> None:
    (kind, place), _, _ = WAYS[scheme]
    timeout = "5s" if kind == "kafka" else UNHURRIED
    drain(plugin_of(kind).settings("shop", kind, url, timeout=timeout), **{place: "orders"})


@each_row("scheme", WAYS)
def test_a_web_servers_port_is_named_with_who_named_it(scheme: str) -> None:
    with Server(once(HTTP)) as server, pytest.raises(DlqError, match="speaks HTTP") as raised:
        read(scheme, f"{scheme}://{server.address}")
    assert server.address in str(raised.value)
    assert WAYS[scheme][2] in str(raised.value)


@each_row("scheme", WAYS.keys() - {"kafka"})
def test_tls_where_it_is_not_expected_and_the_reverse(scheme: str) -> None:
    with Server(once(ALERT)) as tls, pytest.raises(DlqError, match="speaks TLS and not"):
        read(scheme, f"{scheme}://{tls.address}")
    with Server(once(HTTP)) as plain, pytest.raises(DlqError, match=r"TLS failed: .*is it a TLS port"):
        read(scheme, f"{WAYS[scheme][1]}://{plain.address}")


def test_an_address_that_a_name_server_named_is_said_to_be_its_word() -> None:
    words = r"named by a name server \(ns1:9876\), speaks HTTP \('HTTP/1.1 400 Bad"
    with Server(once(HTTP)) as server, pytest.raises(DlqError, match=words):
        Link(server.address, Access(), named_by="a name server (ns1:9876)").call(105, {})


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
