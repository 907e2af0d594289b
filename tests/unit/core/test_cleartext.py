"""Whose password leaves this host without TLS, and that the tables' words for TLS reach the drivers."""

import pytest
import sqlalchemy as sa

from dlq.connectors.kafka.plugin.description import KafkaBroker
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rocketmq.plugin.description import RocketBroker
from dlq.core.brokers import plugin_of
from dlq.core.settings import Evidence, Ledger
from dlq.core.values.cleartext import of_broker, of_store
from dlq.replay.ledger.server import server_url

OUT = "the password goes to mq1 without TLS"


@pytest.mark.parametrize(("kind", "url", "instead"), [
    ("rabbitmq", "amqp://u@mq1:5672/shop", "amqps://"),
    ("rabbitmq", "amqp://u@127.0.0.1,mq1", "amqps://"),
    ("activemq", "stomp://u@mq1:61613,mq2", "stomp+tls://"),
    ("activemq", "tcp://u@mq1", "ssl://"),
])  # fmt: skip
def test_a_password_for_another_host_without_tls_is_said_with_what_to_write(
    kind: str, url: str, instead: str
) -> None:
    broker = plugin_of(kind).settings("b", kind, url, password_env="P")
    assert of_broker(broker) == [f"brokers.b.url: {OUT}; write {instead}"]
    assert of_broker(plugin_of(kind).settings("b", kind, url)) == []


def test_every_url_of_a_broker_is_looked_at_and_this_host_is_no_other() -> None:
    urls = {"openwire_url": "tcp://mq1", "jolokia_url": "http://mq1/api"}
    broker = plugin_of("activemq").settings("b", "activemq", "stomp+tls://u@mq1", password_env="P", **urls)
    named = [line.partition(":")[0] for line in of_broker(broker)]
    assert named == ["brokers.b.jolokia_url", "brokers.b.openwire_url"]
    for host in ("127.0.0.1", "127.8.9.1:99", "localhost", "[::1]:5", ""):
        assert of_broker(RabbitBroker("b", "rabbitmq", f"amqp://u@{host}/", password_env="P")) == []


def test_what_rocketmq_shows_is_said_as_it_is() -> None:
    signed = {"access_key": "a", "secret_key_env": "S"}
    [line] = of_broker(RocketBroker("b", "rocketmq", "rocketmq://ns1:9876,ns2:9876", **signed))
    assert line == (
        "brokers.b.url: signed requests go to ns1 and every address that it names without TLS, where they "
        "can be read and repeated; write rocketmq+tls://, or limit the addresses: hosts"
    )
    assert of_broker(RocketBroker("b", "rocketmq", "rocketmq+tls://ns1", **signed)) == []
    assert of_broker(RocketBroker("b", "rocketmq", "rocketmq://ns1")) == []


@pytest.mark.parametrize(("url", "hosts", "to"), [
    ("kafka://127.0.0.1:9092", (), "every address that it names"),
    ("kafka://b1:9092", (), "b1 and every address that it names"),
    ("kafka://b1:9092", ("b*",), "b1 and b*"),
    ("kafka://localhost:9092", ("127.0.0.1", "b2"), "b2"),
    ("kafka://127.0.0.1:9092", ("127.0.0.1",), None),
    ("kafka+ssl://b1:9092", (), None),
])  # fmt: skip
def test_a_password_goes_where_a_cluster_says(url: str, hosts: tuple[str, ...], to: str | None) -> None:
    """Its brokers name each other, and the client follows them from any bootstrap."""
    broker = KafkaBroker("b", "kafka", url, user="u", password_env="P", hosts=hosts)
    limit = "" if hosts else ", or limit the addresses: hosts"
    said = f"brokers.b.url: the password goes to {to} without TLS; write kafka+ssl://{limit}"
    assert of_broker(broker) == ([said] if to else [])
    assert of_broker(KafkaBroker("b", "kafka", url, hosts=hosts)) == []


@pytest.mark.parametrize(("clear", "safe"), [
    ("postgresql://u@db/x", "postgresql://u@db/x?sslmode=verify-full&sslrootcert=ca"),
    ("postgresql://u@db/x?sslmode=prefer", "postgresql://u@db/x?sslmode=require"),
    ("mysql://u@db/x", "mysql://u@db/x?ssl_ca=ca"),
])  # fmt: skip
def test_so_it_is_with_ledgers_and_stores_of_evidence(clear: str, safe: str) -> None:
    [line] = of_store("ledger", Ledger(url=clear, password_env="P"))
    assert line.startswith("ledger.url: the password goes to db without TLS; write ")
    [line] = of_store("evidence.e", Evidence("e", "rocketmq-dedup", clear, password_env="P"))
    assert line.startswith("evidence.e.url: ")
    assert of_store("ledger", Ledger(url=clear)) == []
    assert of_store("ledger", Ledger(url=safe, password_env="P")) == []
    [line] = of_store("evidence.e", Evidence("e", "shine-mq", "redis://u@db/0", password_env="P"))
    assert line.endswith("the password goes to db without TLS; write rediss:// (and ?ssl_ca_certs=FILE)")
    assert of_store("evidence.e", Evidence("e", "shine-mq", "rediss://u@db/0", password_env="P")) == []


def handed_over(url: str) -> dict[str, object]:
    """What the driver of an SQL ledger is connected with."""
    made = sa.create_engine(server_url(Ledger(url=url)))
    _, options = made.dialect.create_connect_args(made.url)
    return dict(options)


def test_the_tls_words_of_a_url_reach_the_sql_drivers() -> None:
    postgres = handed_over("postgresql://u@db/x?sslmode=verify-full&sslrootcert=/ca.pem")
    assert (postgres["sslmode"], postgres["sslrootcert"]) == ("verify-full", "/ca.pem")
    mysql = handed_over("mysql://u@db/x?ssl_ca=/ca.pem&ssl_cert=/c.pem&ssl_key=/k.pem")
    assert mysql["ssl"] == {"ca": "/ca.pem", "cert": "/c.pem", "key": "/k.pem"}
