"""A letter that died in a subscriber's queue of MQTT comes back to it as the message that it was."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.brokers.rabbitmq.broker import PLUGINS, Node
from support.brokers.rabbitmq.fixtures import VERSIONS, channel_at, why_missing
from support.brokers.rabbitmq.install import install
from support.brokers.rabbitmq.mqtt import Client, Published
from support.ports import free_ports
from support.waiting import PATIENCE
from support.wire_builders import configure, dlq

pytestmark = pytest.mark.rabbitmq
TOPIC = "sensors/kitchen/temperature"


@pytest.fixture(scope="module", params=VERSIONS)
def mqtt(request: pytest.FixtureRequest) -> Iterator[tuple[Node, int]]:
    """A node that speaks MQTT, and where; what its subscribers leave for a moment goes to mqtt.dlq."""
    if why := why_missing(request.param):
        pytest.skip(why)
    [port] = free_ports(1)
    conf = f"mqtt.listeners.tcp.1 = 127.0.0.1:{port}\n"
    root = install() if request.param == "4" else None
    with Node(root, conf, plugins=(*PLUGINS, "rabbitmq_mqtt")) as node:
        channel = channel_at(node.url)
        channel.exchange_declare("mqtt.dead", "fanout", durable=True)
        channel.queue_declare("mqtt.dlq", durable=True)
        channel.queue_bind("mqtt.dlq", "mqtt.dead")
        channel.connection.close()
        yield node, port


def configured(folder: Path, node: Node) -> None:
    (folder / "password").write_text("guest")
    broker = f'kind = "rabbitmq"\nurl = "amqp://guest@127.0.0.1:{node.port}/%2F"\npassword_file = "password"'
    configure(folder, f'{broker}\nmanagement_url = "{node.http}"', 'queue = "mqtt.dlq"\nmode = "drain"')


def policy(node: Node, queue: str, method: str = "PUT") -> None:
    """Whether what waits in this queue dies at once."""
    definition = {"dead-letter-exchange": "mqtt.dead", "message-ttl": 1}
    body = {"pattern": f"^{queue}$", "apply-to": "queues", "definition": definition}
    node.api(method, "policies", "/", queue, **(body if method == "PUT" else {}))


def pulled(folder: Path, number: int) -> None:
    """When so many letters have died, and were drained."""
    found = 0
    deadline = time.monotonic() + PATIENCE
    while found < number and time.monotonic() < deadline:
        found += dlq(folder, "pull")["sources"][0]["captured"]
    assert found == number


def test_a_subscriber_that_was_away_gets_its_letter_with_the_topic_that_it_had(
    mqtt: tuple[Node, int], tmp_path: Path
) -> None:
    node, port = mqtt
    queue = "mqtt-subscription-panelqos1"
    with Client(port, "panel") as subscriber:
        subscriber.subscribe("sensors/#")
    policy(node, queue)
    with Client(port, "thermometer", is_kept=False) as publisher:
        publisher.publish(TOPIC, b"21.5")
    configured(tmp_path, node)
    pulled(tmp_path, 1)
    policy(node, queue, "DELETE")
    plan = dlq(tmp_path, "replay", "plan", "--any-advice")
    assert plan["targets"] == {f"queue:{queue}": 1}
    assert dlq(tmp_path, "replay", "apply", plan["plan"])["states"]["confirmed"] == 1
    with Client(port, "panel") as subscriber:
        assert subscriber.receive() == Published(TOPIC, b"21.5", 1, False)


_UNDER_WAY = 10
"""So many a subscriber gets that has acknowledged none (mqtt.prefetch)."""


def test_letters_of_a_session_that_is_not_kept_go_to_its_topic_where_that_is_named(
    mqtt: tuple[Node, int], tmp_path: Path
) -> None:
    """Its queue ends with the connection. What it had not room for dies in it."""
    node, port = mqtt
    queue = "mqtt-subscription-busyqos1"
    policy(node, queue)
    with Client(port, "busy", is_kept=False) as subscriber:
        subscriber.subscribe("work/#")
        with Client(port, "foreman", is_kept=False) as publisher:
            for number in range(_UNDER_WAY + 1):
                publisher.publish("work/to/do", b"%d" % number)
        configured(tmp_path, node)
        pulled(tmp_path, 1)
        policy(node, queue, "DELETE")
        assert dlq(tmp_path, "replay", "plan", "--any-advice")["left_out"] == {"temporary": 1}
        named = dlq(tmp_path, "replay", "plan", "--any-advice", "--to", "exchange:amq.topic/work.to.do")
        assert dlq(tmp_path, "replay", "apply", named["plan"])["states"]["confirmed"] == 1
        came = [subscriber.receive() for _ in range(_UNDER_WAY + 1)]
    assert {one.topic for one in came} == {"work/to/do"}
    assert came[-1].body == b"%d" % _UNDER_WAY
