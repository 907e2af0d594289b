"""An apply whose whole host stops in the middle, for longer than its lease, while another one goes on: each
letter arrives once, whatever the first one has in hand when it wakes.

The other host has a copy of the archive, so nothing but the ledger's lease keeps the two apart.
"""

import base64
import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from support import preloaded
from support.brokers.activemq.broker import ARTEMIS, CLASSIC
from support.brokers.activemq.fixtures import Place
from support.brokers.kafka.fixtures import KafkaPlace
from support.brokers.rabbitmq.fixtures import PASSWORD_VARIABLE, Rabbit, on_rabbitmq_4
from support.brokers.rabbitmq.letters import headers_of_all, replay_ids
from support.brokers.rocketmq.fixtures import Rocket
from support.brokers.rocketmq.install import VERSIONS as ROCKETMQ
from support.servers.ledgers import Postgres
from support.waiting import eventually, settled

from dlq.connectors.amqp10.codec.message import split
from dlq.connectors.rocketmq.link.message import parse_properties

LETTERS = 5000
LEASE = 9.0
BY_1_0, _, _ = split(Message(body=b"", inferred=True, durable=True).encode())
Depth = Callable[[], int]
Words = Callable[[], Sequence[str]]
"""What a second host tells `reconcile`, once it has looked."""


@pytest.fixture(scope="module", params=["postgres"])
def book() -> Iterator[str]:
    """The ledger of both hosts."""
    server = Postgres()
    server.start()
    yield server.url
    server.stop()


class Hosts:
    """Two folders with the same configuration and ledger, and archives of their own."""

    def __init__(
        self,
        folder: Path,
        broker: str,
        kind: str,
        target: str,
        book: str,
        block: bytes = b"",
        source: str = 'queue = "dead"',
        rate: Sequence[str] = (),
    ) -> None:
        """`block`: the property block of each letter."""
        self.first, self.second = folder / "first", folder / "second"
        self.first.mkdir()
        table = f'[ledger]\nurl = "{book}"\nlease = "{LEASE:g}s"\n[brokers.b]\n{broker}\n'
        (self.first / "dlq.toml").write_text(f'{table}[sources.s]\nbroker = "b"\n{source}\n')
        record = {"record": {"raw_properties_base64": base64.b64encode(block).decode()}} if block else {}
        common = {"broker_kind": kind, "queue": "dead", **record}
        letters = ({**common, "body_text": f"letter {n}"} for n in range(LETTERS))
        (self.first / "a.jsonl").write_text("\n".join(map(json.dumps, letters)))
        self.dlq(self.first, "import", "a.jsonl", "--source", "s")
        planned = self.dlq(self.first, "replay", "plan", "--any-advice", "--to", target, *rate)
        self.plan = str(planned["plan"])

    def dlq(self, folder: Path, *words: str, codes: tuple[int, ...] = (0,)) -> Any:
        done = preloaded.run(["-o", "json", *words], folder)
        assert done.returncode in codes, done.stderr
        return json.loads(done.stdout)

    def take_over(self, words: Words = tuple) -> dict[str, int]:
        """What the second host does when the first has been silent for a while; returns the states."""
        self.dlq(self.second, "replay", "reconcile", self.plan, codes=(0, 6))
        if said := words():
            self.dlq(self.second, "replay", "reconcile", self.plan, *said)
        states = self.dlq(self.second, "replay", "apply", self.plan, codes=(0, 6))["states"]
        return {state: count for state, count in states.items() if count}

    def through(self, arrived: Depth, words: Words = tuple) -> dict[str, int]:
        """The first host stops in the middle, by itself where nobody is quick enough, and wakes when the
        second has gone on; returns how far that came meanwhile."""
        at_last = (0, 0, signal.SIGSTOP, LETTERS // 4)
        running = preloaded.start(["replay", "apply", self.plan], self.first, dies_holding=at_last)
        while arrived() < LETTERS // 10:
            assert running.poll() is None, running.communicate()
        running.send_signal(signal.SIGSTOP)
        shutil.copytree(self.first, self.second)
        time.sleep(LEASE + 3)  # what it had asked the ledger for may have taken its time
        there = settled(arrived)  # a busy broker may still be busy with what its host was given
        assert there < LETTERS, "the first host stopped in the middle"
        states = self.take_over(words)

        def ends() -> bool:
            running.send_signal(signal.SIGCONT)
            return running.poll() is not None

        eventually(ends)
        self.first_code = running.wait()
        eventually(lambda: self.take_over() == {"confirmed": LETTERS})
        eventually(lambda: arrived() >= LETTERS)  # a broker may show later what it has confirmed
        return states


@pytest.mark.activemq
@pytest.mark.parametrize(
    ("stomp_broker", "way"), [(CLASSIC[-1], "openwire"), (ARTEMIS, "stomp")], indirect=["stomp_broker"]
)
def test_activemq_gets_each_letter_once(stomp: Place, way: str, tmp_path: Path, book: str) -> None:
    settings, target = stomp.settings, f"{stomp.queue}.back"
    broker = f'kind = "activemq"\nurl = "{settings.url}"\n'
    broker += f'password_env = "{settings.password_env}"\n' if settings.password_env else ""
    broker += f'openwire_url = "tcp://127.0.0.1:{stomp.broker.openwire}"\n' if way == "openwire" else ""
    hosts = Hosts(tmp_path, broker, stomp.connector.kind, f"queue:{target}", book)

    def depth() -> int:
        facts = stomp.connector.queues.facts(target)
        return facts.depth if facts else 0

    states = hosts.through(depth)
    assert states["confirmed"] == LETTERS, "a marker proves each transaction while the first host sleeps"
    ids = {record.record_id: record.headers["dlq_replay_id"] for record in stomp.drain(target)}
    assert len(set(ids.values())) == len(ids) == LETTERS, "one that comes again while it is read is the same"


@pytest.mark.rabbitmq
@on_rabbitmq_4
@pytest.mark.parametrize("block", [b"", BY_1_0], ids=["AMQP 0-9-1", "AMQP 1.0"])
def test_rabbitmq_gets_each_letter_once(rabbit: Rabbit, block: bytes, tmp_path: Path, book: str) -> None:
    """What the kernel of the first host was given lies in the queue long before the lease is over, and what
    it has in hand goes nowhere: so a look at the queue is right, while the connection is there still."""
    settings, target = rabbit.broker(), rabbit.queue()
    broker = f'kind = "rabbitmq"\nurl = "{settings.url}"\npassword_env = "{PASSWORD_VARIABLE}"\n'
    hosts = Hosts(tmp_path, broker, "rabbitmq", f"queue:{target}", book, block)
    doubtful = "select record_id from replays where state = 'in_doubt'"

    def look() -> Sequence[str]:
        there = {found["dlq_replay_of"] for found in headers_of_all(rabbit, target)}
        rows = hosts.dlq(hosts.second, "query", doubtful)
        sent = [word for row in rows if row["record_id"] in there for word in ("--sent", row["record_id"])]
        return [*sent, "--all-not-sent"] if rows else []

    states = hosts.through(lambda: rabbit.depth(target), look)
    assert states == {"confirmed": LETTERS}
    found = Counter(replay_ids(rabbit, target))
    assert (len(found), set(found.values())) == (LETTERS, {1})


NOT_AT_ONCE = ("--rate", "2000")
"""Or all are on their way before it can be stopped."""


@pytest.mark.rocketmq
@pytest.mark.parametrize("rocket_server", ROCKETMQ[:1], indirect=True)
def test_rocketmq_gets_each_letter_once(rocket: Rocket, tmp_path: Path, book: str) -> None:
    rocket.driver.create_topic(rocket.topic)
    broker, source = f'kind = "rocketmq"\nurl = "{rocket.cluster.url}"\n', f'group = "{rocket.group}"'
    target = f"topic:{rocket.topic}"
    hosts = Hosts(tmp_path, broker, "rocketmq", target, book, source=source, rate=NOT_AT_ONCE)
    hosts.through(lambda: rocket.driver.end(rocket.topic))
    eventually(lambda: rocket.driver.end(rocket.topic) >= LETTERS)
    messages = rocket.driver.messages(rocket.topic)
    found = Counter(parse_properties(message.properties)["dlq_replay_id"] for message in messages)
    assert (len(found), set(found.values())) == (LETTERS, {1})


@pytest.mark.kafka
def test_kafka_gets_each_letter_once(kafka: KafkaPlace, tmp_path: Path, book: str) -> None:
    """What its library has in hand it would write when it wakes, so it does not wake."""
    kafka.driver.create_topic(kafka.topic)
    broker, source = f'kind = "kafka"\nurl = "{kafka.node.url}"\n', f'topic = "{kafka.dead}"'
    target = f"topic:{kafka.topic}"
    hosts = Hosts(tmp_path, broker, "kafka", target, book, source=source, rate=NOT_AT_ONCE)
    hosts.through(lambda: kafka.driver.end(kafka.topic))
    assert hosts.first_code == -signal.SIGKILL
    messages = kafka.driver.records(kafka.topic)
    found = Counter(dict(message.headers() or ())["dlq_replay_id"] for message in messages)
    assert (len(found), set(found.values())) == (LETTERS, {1})
