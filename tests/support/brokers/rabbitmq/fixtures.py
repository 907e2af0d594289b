"""Fixtures for tests on a real RabbitMQ: one node per version and session, one virtual host per test.

DLQ_TEST_RABBITMQ_URL (amqp://user:password@host/vhost) points the tests at a broker of your own; those
that stop, starve or configure the node start a private one all the same.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import pika
import pytest
from pika import frame, spec
from pika.exceptions import AMQPError
from support.brokers.rabbitmq import install as rabbitmq4_install
from support.brokers.rabbitmq.broker import PACKAGED, Node
from support.waiting import PATIENCE, eventually

from dlq.connectors.base import Inspection, Mode, ReadRequest
from dlq.connectors.rabbitmq.amqp091.codec.frames import encode_method
from dlq.connectors.rabbitmq.amqp091.link.duplex import DuplexLink
from dlq.connectors.rabbitmq.link import parameters
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.errors import ConnectionLost
from dlq.core.settings import Source

YOURS = os.environ.get("DLQ_TEST_RABBITMQ_URL")
VERSIONS = ("3.10", "4")
KINDS = ("classic", "quorum")
PASSWORD_VARIABLE = "DLQ_TEST_RABBITMQ_PASSWORD"

on_private_nodes = pytest.mark.parametrize("rabbit_node", VERSIONS, indirect=True)
on_rabbitmq_3 = pytest.mark.parametrize("rabbit_node", ["3.10"], indirect=True)
on_rabbitmq_4 = pytest.mark.parametrize("rabbit_node", ["4"], indirect=True)
_numbers = count(1)
"""Written as wide each time: 4 fails over a refusal of more than 255 bytes, wherever a test has its turn."""

_HELD = """lists:sum([case amqqueue:get_type(Q) of
        rabbit_quorum_queue ->
            {ok, {_, #{num_checked_out := N}}, _} =
                ra:local_query(amqqueue:get_pid(Q), fun rabbit_fifo:overview/1),
            N;
        rabbit_classic_queue -> element(2, hd(rabbit_amqqueue:info(Q, [messages_unacknowledged])))
    end || Q <- rabbit_amqqueue:list(), lists:member(amqqueue:get_type(Q), [KINDS])])"""


@cache
def why_missing(version: str) -> str | None:
    """Why there is no node of this version on this machine; None when there is one."""
    if version == "yours":
        return None
    if version == "3.10":
        return None if PACKAGED.exists() else "Debian's rabbitmq-server is not installed"
    try:
        rabbitmq4_install.install()
    except rabbitmq4_install.NotInstalledError as error:
        return f"it cannot be fetched: {error}"
    return None


@pytest.fixture(scope="session", params=["yours"] if YOURS else VERSIONS)
def rabbit_node(request: pytest.FixtureRequest) -> Iterator[Node | None]:
    """The running node of one version; None stands for the broker of DLQ_TEST_RABBITMQ_URL."""
    if request.param == "yours":
        yield None
        return
    with Node(rabbitmq4_install.install() if request.param == "4" else None) as node:
        yield node


def channel_at(url: str) -> Any:
    """A confirming channel on a connection of its own, which lives on while its test is busy elsewhere."""
    parameters = pika.URLParameters(url)
    parameters.heartbeat = 0
    parameters.socket_timeout, parameters.stack_timeout = PATIENCE, 2 * PATIENCE
    channel = pika.BlockingConnection(parameters).channel()
    channel.confirm_delivery()
    return channel


@dataclass
class Rabbit:
    """A virtual host to test in."""

    url: str
    vhost: str
    _node: Node | None
    channel: Any

    @property
    def node(self) -> Node:
        """The private node; tests that need it are marked with on_private_nodes or the like."""
        assert self._node is not None
        return self._node

    @property
    def version(self) -> tuple[int, ...]:
        """Of the broker, e.g. (4, 3, 6)."""
        properties = self.channel.connection._impl.server_properties
        return tuple(int(part) for part in str(properties["version"]).split(".")[:3])

    def broker(self, **changes: Any) -> RabbitBroker:
        """The settings of this broker; `changes` replace some."""
        url = urlsplit(self.url)
        os.environ[PASSWORD_VARIABLE] = unquote(url.password or "")
        settings: dict[str, Any] = {
            "name": "shop",
            "kind": "rabbitmq",
            "url": f"amqp://{url.username}@{url.hostname}:{url.port or 5672}{url.path}",
            "password_env": PASSWORD_VARIABLE,
            "management_url": self._node.http if self._node else None,
        }
        return RabbitBroker(**{**settings, **changes})

    def by_user(
        self, name: str, password: str = "guest", tags: str = "", rights: str = ".* .* .*", **changes: Any
    ) -> RabbitBroker:
        """The same as a user who may configure, write and read what the three patterns say."""
        self.node.api("PUT", "users", name, password=password, tags=tags)
        self.allow(name, rights)
        url = urlsplit(self.url)
        return self.broker(url=f"amqp://{name}@{url.hostname}:{url.port or 5672}{url.path}", **changes)

    def allow(self, user: str = "guest", rights: str = ".* .* .*") -> None:
        """What a user may configure, write and read: three patterns."""
        may = dict(zip(("configure", "write", "read"), rights.split(), strict=True))
        self.node.api("PUT", "permissions", self.vhost, user, **may)

    def allow_topic(self, exchange: str, write: str, user: str = "guest") -> None:
        """To which keys of a topic exchange a user may write."""
        rights = {"exchange": exchange, "write": write, "read": ".*"}
        self.node.api("PUT", "topic-permissions", self.vhost, user, **rights)

    def set_policy(self, pattern: str, definition: Mapping[str, Any], of: str = "queues") -> None:
        """Called by its pattern."""
        told = {"pattern": pattern, "definition": definition, "apply-to": of}
        self.node.api("PUT", "policies", self.vhost, pattern, **told)

    def by_tls(self, **changes: Any) -> RabbitBroker:
        """The same by TLS."""
        url = urlsplit(self.url)
        address = f"amqps://{url.username}@127.0.0.1:{self.node.tls_port}{url.path}"
        return self.broker(**{"url": address, "ca_file": self.node.ca_file, **changes})

    def connector(self, **changes: Any) -> RabbitConnector:
        """Of this broker."""
        return RabbitConnector(self.broker(**changes))

    def read(self, queue: str, mode: Mode = "drain", **changes: Any) -> Any:
        """A reading of a queue."""
        return self.connector().read(request(queue, mode, **changes))

    def inspect(self, queue: str, managed: bool = True) -> Inspection:
        """What doctor says of a queue, with the management API or without."""
        connector = self.connector() if managed else self.connector(management_url=None)
        return connector.inspect(request(queue).source)

    def connect(self) -> Any:
        """A new confirming channel on a connection of its own."""
        return channel_at(self.url)

    def queue(self, kind: str = "classic", **arguments: Any) -> str:
        """Declare a durable queue; `x_message_ttl=5` is the argument x-message-ttl."""
        name = f"dlq-test-{time.time_ns()}-{next(_numbers):05}"
        table = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind, **table})
        return name

    def holding(self, bodies: Sequence[bytes], kind: str = "classic", **arguments: Any) -> str:
        """Declare such a queue with these letters in it."""
        queue = self.queue(kind, **arguments)
        self.publish(queue, bodies)
        self.wait_for(queue, len(bodies))
        return queue

    def publish(self, queue: str, bodies: Sequence[bytes], **properties: Any) -> None:
        """Publish persistent messages, each confirmed."""
        wanted = pika.BasicProperties(**{"delivery_mode": 2, **properties})
        for body in bodies:
            self.channel.basic_publish("", queue, body, wanted, mandatory=True)

    def fill(self, queue: str, number: int, body: bytes = b"letter %d", **properties: Any) -> None:
        """Publish many small numbered messages quickly and wait until all lie in the queue, confirmed: what
        a node holds in memory is lost when it is killed."""
        before = self.depth(queue)
        wanted = pika.BasicProperties(**{"delivery_mode": 2, **properties})
        publish = encode_method(1, spec.Basic.Publish(exchange="", routing_key=queue))
        header = cache(lambda size: frame.Header(1, size, wanted).marshal())
        link = DuplexLink(parameters(self.broker()), lambda code, text: ConnectionLost(f"{code} {text}"))
        link.call(spec.Confirm.Select(), spec.Confirm.SelectOk)
        link.start()
        for i in range(number):
            content = body % i if b"%d" in body else body
            link.put(publish + header(len(content)) + frame.Body(1, content).marshal())
        up_to, alone = 0, set[int]()
        while up_to + len(alone) < number:
            link.turn(1.0)
            for method in link.take_methods():
                if isinstance(method, spec.Connection.Blocked | spec.Connection.Unblocked):
                    continue  # the node cleans up behind a test of large bodies
                assert isinstance(method, spec.Basic.Ack), method
                if method.multiple:
                    up_to = max(up_to, method.delivery_tag)
                    alone = {tag for tag in alone if tag > up_to}
                elif method.delivery_tag > up_to:
                    alone.add(method.delivery_tag)
        link.stop()
        self.wait_for(queue, before + number)
        link.close()

    def dead_letters(self, number: int, kind: str = "classic", **properties: Any) -> str:
        """A queue of real dead letters: rejected by a consumer, with x-death and six headers."""
        letters = self.queue(kind)
        work = self.queue("classic", x_dead_letter_exchange="", x_dead_letter_routing_key=letters)
        headers = {"app": "orders", "tenant": 42, "trace": "0af7651916cd43dd8448eb211c80319c"}
        self.fill(work, number, b"%d" + b"x" * 1000, **{"headers": headers, "message_id": "m", **properties})
        self.reject(work, number)
        self.wait_for(letters, number)
        return letters

    def reject(self, queue: str, number: int) -> None:
        """Take so many messages and reject them, so that they are dead-lettered in their order."""
        if not number:
            return
        channel = self.channel.connection.channel()
        channel.basic_qos(prefetch_count=number)
        for method, _, _ in channel.consume(queue, inactivity_timeout=PATIENCE):
            assert method, f"{queue} gave nothing more"
            if method.delivery_tag == number:
                break
        channel.basic_nack(0, multiple=True, requeue=False)
        channel.close()

    def depth(self, queue: str) -> int:
        """Ready messages."""
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)

    def listed(self, what: str) -> list[dict[str, Any]]:
        """Queues or exchanges, as the management API tells, which is no use of them."""
        return cast("list[dict[str, Any]]", self.node.api("GET", what, self.vhost))

    def wait_for(self, queue: str, number: int) -> None:
        """Wait until the queue holds `number` ready messages."""
        deadline = time.monotonic() + PATIENCE
        while self.depth(queue) != number:
            assert time.monotonic() < deadline, f"{queue} holds {self.depth(queue)}, not {number}"
            time.sleep(0.02)

    def wait_until_nobody_holds_any(self) -> None:
        """Wait until all that a consumer held, which is gone, lies in its queue again."""
        eventually(lambda: not letters_at_consumers(self.node))

    def wait_for_statistics(self, queue: str) -> None:
        """A new queue's policy is shown by the management API when its first statistics are in."""
        shown = lambda: dict(self.node.api("GET", "queues", self.vhost, queue) or {})  # noqa: E731
        eventually(lambda: "effective_policy_definition" in shown())

    def take(self, queue: str, number: int) -> list[tuple[Any, Any, bytes]]:
        """Take `number` messages away, as (method, properties, body)."""
        channel = self.channel.connection.channel()
        channel.basic_qos(prefetch_count=number)
        taken = []
        for message in channel.consume(queue, inactivity_timeout=PATIENCE):
            if message[0] is not None:
                taken.append(message)
            if len(taken) == number or message[0] is None:
                break
        channel.basic_ack(0, multiple=True)
        channel.cancel()
        channel.close()
        return taken


def letters_at_consumers(node: Node, *kinds: str) -> int:
    """In all virtual hosts, unacknowledged; asked of the node itself, whose statistics come every five
    seconds."""
    names = ", ".join(f"rabbit_{kind}_queue" for kind in kinds or ("quorum", "classic"))
    return int(node.evaluate(_HELD.replace("KINDS", names)).strip().removeprefix("{ok, ").removesuffix("}"))


def request(queue: str, mode: Mode = "drain", **changes: Any) -> ReadRequest:
    """A read request for a queue."""
    source = Source(name="orders", broker="shop", queue=queue)
    settings: Mapping[str, Any] = {"source": source, "mode": mode, "pull_id": "pull-1", **changes}
    return ReadRequest(**settings)


@pytest.fixture
def rabbit(rabbit_node: Node | None) -> Iterator[Rabbit]:
    """A virtual host of its own on each version, and a channel into it."""
    if rabbit_node is None:
        assert YOURS is not None
        url, vhost = YOURS, unquote(urlsplit(YOURS).path[1:]) or "/"
    else:
        vhost = f"test {next(_numbers):05}/ü"
        url = rabbit_node.url_of(vhost)
        rabbit_node.api("PUT", "vhosts", vhost)
        Rabbit(url, vhost, rabbit_node, None).allow()
    rabbit = Rabbit(url, vhost, rabbit_node, channel_at(url))
    yield rabbit
    with suppress(AMQPError):  # a test may have killed the node
        rabbit.channel.connection.close()
    if rabbit_node is not None:
        rabbit_node.revive()
        rabbit_node.api("DELETE", "vhosts", vhost)
