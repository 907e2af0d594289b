"""`dlq init` on a terminal, with a RabbitMQ: it asks, looks, writes, and names the next step."""

import tomllib
from pathlib import Path
from urllib.parse import urlsplit

from support.brokers.rabbitmq.fixtures import Rabbit, on_private_nodes
from support.terminals import converse

URL, PASSWORD = "URL of your broker", "File that holds the password"


@on_private_nodes
def test_on_a_terminal_the_dead_letter_queues_of_a_broker_become_sources(
    rabbit: Rabbit, tmp_path: Path
) -> None:
    rabbit.channel.queue_declare("orders.dlq", durable=True)
    rabbit.publish("orders.dlq", [b"one"])
    rabbit.wait_for_statistics("orders.dlq")
    (tmp_path / "password").write_text(str(urlsplit(rabbit.url).password))
    answers = [
        (URL, "http://nowhere"),
        (URL, str(rabbit.broker().url)),
        (PASSWORD, "no-such-file"),
        (PASSWORD, "password"),
    ]
    code, seen = converse(tmp_path, ["init", "--api", rabbit.node.http], answers)
    assert code == 0, seen
    assert "http:// is the scheme of no broker; known are amqp" in seen
    assert "cannot be read; name another file" in seen
    assert "its name says so" in seen
    assert "1 sources added to dlq.toml; check them, then: dlq doctor" in seen
    made = tomllib.loads((tmp_path / "dlq.toml").read_text())
    assert made["sources"] == {"orders.dlq": {"broker": "rabbitmq", "queue": "orders.dlq"}}
    assert made["brokers"]["rabbitmq"]["password_file"] == str(tmp_path / "password")
    assert converse(tmp_path, ["pull"], [])[0] == 0


@on_private_nodes
def test_a_wrong_password_is_told_with_the_next_step(rabbit: Rabbit, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("wrong")
    answers = [(URL, str(rabbit.broker().url)), (PASSWORD, "password")]
    code, seen = converse(tmp_path, ["init", "--api", rabbit.node.http], answers)
    assert code == 4, seen
    assert "fix what the error names (settings: dlq.toml), then: dlq discover --write" in seen
