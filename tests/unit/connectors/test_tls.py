"""Whose certificate a broker may show: that of its address, under an authority that is trusted."""

import os
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from support.brokers.hostile import drain
from support.rows import each_row
from support.servers.hostile import Server, certificate, hearing, speaking_tls
from support.waiting import UNHURRIED

from dlq.connectors.kafka.link.clients import Clients
from dlq.connectors.kafka.look.cluster import Cluster as KafkaCluster
from dlq.connectors.kafka.plugin.description import KafkaBroker
from dlq.connectors.rocketmq.link.cluster import Cluster
from dlq.core.brokers import plugin_of
from dlq.core.configuration import parse
from dlq.core.errors import AccessDenied, BrokerError, ConfigError, Unreachable
from dlq.core.settings import Broker

KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "amqps://u@{}": ("rabbitmq", {"queue": "q"}),
    "stomp+tls://u@{}": ("activemq", {"queue": "q"}),
    "ssl://u@{}": ("activemq", {"queue": "q"}),
    "rocketmq+tls://{}": ("rocketmq", {"group": "g"}),
}
KAFKA = "5s"
"""Its client asks again until that is over."""


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TLS", "s3cret")


def broker_of(url: str, address: str, **more: Any) -> Broker:
    kind, _ = KINDS[url]
    known = {"password_env": "TLS", "timeout": UNHURRIED, **more}
    return plugin_of(kind).settings("b", kind, url.format(address), **known)


@each_row("url", KINDS)
def test_a_certificate_of_another_host_is_told_nothing(url: str, tmp_path: Path) -> None:
    pem, heard = certificate(tmp_path, "DNS:elsewhere.example"), bytearray()
    with Server(hearing(heard), tls=speaking_tls(pem)) as server:
        with pytest.raises(BrokerError, match=r"(?i)TLS failed: .*mismatch") as said:
            drain(broker_of(url, server.address, ca_file=str(pem)), **KINDS[url][1])
        assert "s3cret" not in str(said.value)
        assert not heard


@each_row("url", KINDS)
def test_an_authority_that_is_not_trusted_is_told_nothing(url: str, tmp_path: Path) -> None:
    pem, heard = certificate(tmp_path, "IP:127.0.0.1"), bytearray()
    with (
        Server(hearing(heard), tls=speaking_tls(pem)) as server,
        pytest.raises(BrokerError, match=r"(?i)TLS failed: self.signed.*is ca_file right"),
    ):
        drain(broker_of(url, server.address), **KINDS[url][1])
    assert not heard


@each_row(("name", "is_trusted", "why"), [
    ("DNS:elsewhere.example", True, "IP address mismatch"),
    ("IP:127.0.0.1", False, "self-signed certificate"),
])  # fmt: skip
def test_kafka_says_what_a_certificate_lacks(tmp_path: Path, name: str, is_trusted: bool, why: str) -> None:
    pem, heard = certificate(tmp_path, name), bytearray()
    files = {"ca_file": str(pem)} if is_trusted else {}
    with Server(hearing(heard), tls=speaking_tls(pem)) as server:
        url = f"kafka+ssl://{server.address}"
        broker = KafkaBroker("b", "kafka", url, user="u", password_env="TLS", timeout=KAFKA, **files)
        with pytest.raises(AccessDenied, match=f"certificate verify failed; {why}.*; look at ca_file"):
            KafkaCluster(broker).names()
        assert not heard


def test_kafka_tells_a_certificate_from_a_lost_connection_whatever_the_library_calls_it() -> None:
    clients = Clients(KafkaBroker("b", "kafka", "kafka+ssl://127.0.0.1:1", timeout=KAFKA))
    said = "ssl://127.0.0.1:1/bootstrap: error:0A000086:SSL routines::certificate verify failed"
    clients.note_error(KafkaError(KafkaError._TRANSPORT, said))
    assert isinstance(clients.denial, AccessDenied)
    assert str(clients.denial).endswith("certificate verify failed; look at ca_file, and at verify_host")


@each_row(("hosts", "is_asked"), [((), True), (("127.0.0.*",), True), (("shop.example",), False)])
def test_kafka_asks_no_host_for_its_certificate_that_the_configuration_does_not_name(
    tmp_path: Path, hosts: tuple[str, ...], is_asked: bool
) -> None:
    shown = speaking_tls(certificate(tmp_path, "DNS:elsewhere.example"))
    with Server(lambda peer: None, tls=shown) as server:
        broker = KafkaBroker("b", "kafka", "kafka+ssl://bootstrap.example:9093", timeout=KAFKA, hosts=hosts)
        said = f"ssl://{server.address}/bootstrap: SSL handshake failed: certificate verify failed"
        assert Clients(broker)._why_unverified(said) == ("self-signed certificate" if is_asked else "")
        assert server.connections == is_asked


def test_rocketmq_without_the_check_of_names_still_wants_the_authority(tmp_path: Path) -> None:
    trusted, other, own = (
        certificate(tmp_path, name) for name in ("DNS:broker.example", "DNS:other.example", "IP:127.0.0.1")
    )
    for shown, ca, verify_host, words in (
        (trusted, trusted, False, "no answer within|closed by"),
        (other, trusted, False, "is ca_file right"),
        (own, own, True, "no answer within|closed by"),
    ):
        with Server(lambda peer: None, tls=speaking_tls(shown)) as server:
            broker = broker_of("rocketmq+tls://{}", server.address, ca_file=str(ca), verify_host=verify_host)
            with pytest.raises(Unreachable, match=words):
                Cluster(broker).masters()


def test_without_the_check_of_names_an_authority_must_be_named() -> None:
    pay = {"kind": "rocketmq", "url": "rocketmq+tls://h", "verify_host": False}
    with pytest.raises(ConfigError, match=r"brokers.pay.verify_host = false needs ca_file"):
        parse({"brokers": {"pay": pay}})
    assert not parse({"brokers": {"pay": {**pay, "ca_file": "ca.pem"}}}).brokers["pay"].verify_host
    shop = {"kind": "rabbitmq", "url": "amqps://h", "verify_host": False, "ca_file": "ca.pem"}
    with pytest.raises(ConfigError, match="verify_host is for rocketmq and kafka alone"):
        parse({"brokers": {"shop": shop}})
