"""Fixtures for tests on real ActiveMQ brokers: one broker per version and session, one queue per test.

Classic 5.18.6 and 6.3.1 and Artemis 2.56.0 come from Maven Central, once (`broker.install`).
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.brokers.activemq import broker as activemq_broker
from support.brokers.activemq.broker import ARTEMIS, CLASSIC, VERSIONS, ActiveMq
from support.servers import hostile

from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.activemq.look.jolokia import Jolokia
from dlq.connectors.activemq.plugin.connector import ActiveMQConnector
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.stomp.codec import encode
from dlq.connectors.activemq.stomp.link import Link
from dlq.connectors.base import Mode, ReadRequest, Target
from dlq.core.record import Record
from dlq.core.settings import Source

PASSWORD_VARIABLE = "DLQ_TEST_ACTIVEMQ_PASSWORD"
_numbers = count(1)

on_classic = pytest.mark.parametrize("stomp_broker", CLASSIC, indirect=True)
on_newest_classic = pytest.mark.parametrize("stomp_broker", CLASSIC[-1:], indirect=True)
"""For what is ours, and no version's."""
on_artemis = pytest.mark.parametrize("stomp_broker", [ARTEMIS], indirect=True)
on_newest = pytest.mark.parametrize("stomp_broker", [CLASSIC[-1], ARTEMIS], indirect=True)
on_all = pytest.mark.parametrize("stomp_broker", VERSIONS, indirect=True)


@cache
def why_missing(version: str) -> str | None:
    """Why there is no broker of this version on this machine; None when there is one."""
    if not shutil.which("java"):
        return "java is not installed"
    try:
        activemq_broker.install(version)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"it cannot be fetched: {error}"
    return None


@dataclass
class Place:
    """A broker, a connector to it, and a queue name of this test's own."""

    broker: ActiveMq
    settings: ActiveMQBroker
    connector: ActiveMQConnector
    queue: str

    def by(self, **settings: Any) -> "Place":
        """The same place by other settings."""
        given = replace(self.settings, **settings)
        return replace(self, settings=given, connector=ActiveMQConnector(given))

    def depth(self, queue: str) -> int:
        """Letters in a queue of Artemis, with those at consumers; 0 where there is none of that name."""
        management = Management(self.settings)
        facts = management.facts(queue)
        management.close()
        return facts.depth or 0 if facts else 0

    def manage(self, operation: str, *arguments: Any, resource: str = "broker") -> None:
        """Something that Artemis' managers may do; settings are given as they are."""
        management = Management(self.settings)
        told = [json.dumps(one) if isinstance(one, dict) else one for one in arguments]
        management.operate(operation, *told, of=resource)
        management.close()

    def make_queue(
        self, name: str = "", address: str = "", routing: str = "ANYCAST", **traits: Any
    ) -> Target:
        """A queue on Artemis, at an address of its name or of another one."""
        name = name or self.queue
        made = {"name": name, "address": address or name, "routing-type": routing, "durable": True}
        more = {trait.replace("_", "-"): value for trait, value in traits.items()}
        self.manage("createQueue", {**made, **more}, True)
        return Target("queue", name)

    def execute(self, operation: str, *arguments: str, queue: str | None = None) -> None:
        """Something that the managers of a queue of Classic may do."""
        jolokia = Jolokia(self.settings, artemis=False)
        mbean = jolokia.mbean_of(queue or self.queue)
        asked = {"type": "exec", "mbean": mbean, "operation": operation, "arguments": [*arguments]}
        jolokia.ask(asked)

    def link(self) -> Link:
        """A bare connection."""
        return Link(self.settings)

    def consumer(self, queue: str | None = None, **headers: str) -> Link:
        """A connection to which letters of a queue come; it acknowledges none by itself."""
        link = self.link()
        if self.broker.artemis:
            headers = {"subscription-type": "ANYCAST", "consumer-window-size": "-1", **headers}
        name = self.destination(queue)["destination"]
        link.request(
            "SUBSCRIBE", {"destination": name, "id": link.token, "ack": "client-individual", **headers}
        )
        return link

    def as_reader(self) -> "Place":
        """The same place of Artemis for a user that may consume alone."""
        os.environ["READS"] = "reads"
        return self.by(url=self.settings.url.replace("admin@", "reader@"), password_env="READS")

    @property
    def back(self) -> Target:
        """A queue of this test's own for what is sent back."""
        return Target("queue", f"{self.queue}.back")

    def destination(self, queue: str | None = None) -> Mapping[str, str]:
        """How a SEND names a queue of this broker."""
        name = queue or self.queue
        return (
            {"destination": name, "destination-type": "ANYCAST"}
            if self.broker.artemis
            else {"destination": f"/queue/{name}"}
        )

    def send(self, *bodies: bytes, queue: str | None = None, **headers: str) -> None:
        """Messages as a producer sends them, each with its length."""
        given = {**self.destination(queue), "persistent": "true", **headers}
        self.send_frames([encode("SEND", given, body) for body in bodies])

    def send_frames(self, frames: list[bytes]) -> None:
        """Write frames as they are, and wait until the broker has stored them: only a receipt proves that."""
        link = self.link()
        receipt = link.new_receipt()
        link.send(b"".join(frames[:-1]) + frames[-1].replace(b"\n", b"\nreceipt:%b\n" % receipt.encode(), 1))
        link.wait_for(receipt)
        link.close()

    def request(self, mode: Mode = "drain", queue: str | None = None, **changes: Any) -> ReadRequest:
        """What to read."""
        source = Source("letters", self.settings.name, queue=queue or self.queue)
        return ReadRequest(**{"source": source, "mode": mode, "pull_id": "pull-1", **changes})

    def drain(self, queue: str | None = None, **changes: Any) -> list[Record]:
        """Take everything, acknowledge it."""
        return self.pull("drain", queue, **changes)[0]

    def pull(
        self, mode: Mode, queue: str | None = None, **changes: Any
    ) -> tuple[list[Record], list[str], Any]:
        """Read to the end: records, reasons of the letters left, and the reading."""
        reading = self.connector.read(self.request(mode, queue, **changes))
        records: list[Record] = []
        left: list[str] = []
        try:
            for batch in reading.batches():
                records += batch.records
                left += [letter.reason for letter in batch.skipped]
                if mode == "drain":
                    reading.acknowledge(batch.position)
            reading.settled_position()
        finally:
            reading.close()
        return records, left, reading

    def java(self, program: str, *arguments: str, timeout: float = 120, **properties: str | int) -> Any:
        """Run a client program to its end; what it printed, read as JSON."""
        process = self.broker.java(program, *arguments, **properties)
        out, err = process.communicate(timeout=timeout)
        assert process.returncode == 0, err[-3000:]
        return json.loads(out.strip().splitlines()[-1]) if out.strip() else None

    def shown(self, program: str, *arguments: str) -> list[str]:
        """What a client program tells of messages, each in hexadecimal digits."""
        return [bytes.fromhex(each).decode() for each in self.java(program, *arguments)]


def settings_of(broker: ActiveMq, jolokia: bool = True) -> ActiveMQBroker:
    """The broker as a configuration names it."""
    os.environ[PASSWORD_VARIABLE] = broker.password
    return ActiveMQBroker(
        "legacy",
        "activemq",
        url=broker.url,
        password_env=PASSWORD_VARIABLE if broker.user else None,
        jolokia_url=broker.jolokia if jolokia and not broker.artemis else None,
    )


def by_openwire(place: Place, **changes: object) -> Place:
    """The same place with a connector that reads and sends by OpenWire."""
    return place.by(openwire_url=f"tcp://127.0.0.1:{place.broker.openwire}", **changes)


WAYS: Mapping[str, Callable[[Place], Place]] = {"stomp": lambda place: place, "openwire": by_openwire}
"""How a place is read and sent to."""


def certificate(store: Path, pem: Path) -> None:
    """A key of its own for 127.0.0.1, and its certificate as a `ca_file`."""
    hostile.certificate(pem.parent, "IP:127.0.0.1").rename(pem)
    store_it = ("pkcs12", "-export", "-in", str(pem), "-out", str(store), "-passout", "pass:secret")
    subprocess.run(["openssl", *store_it], check=True, capture_output=True)


@pytest.fixture(scope="session", params=VERSIONS)
def stomp_broker(request: pytest.FixtureRequest) -> Iterator[ActiveMq]:
    """The running broker of one version."""
    with activemq_broker.broker_of(request.param, "plugins") as broker:
        yield broker


@pytest.fixture
def stomp(stomp_broker: ActiveMq) -> Iterator[Place]:
    """A place of this test's own on a shared broker, which the test before may have killed."""
    if not stomp_broker.running():
        stomp_broker.start()
    settings = settings_of(stomp_broker)
    connector = ActiveMQConnector(settings)
    yield Place(stomp_broker, settings, connector, f"letters.{next(_numbers)}")
    connector.close()


@pytest.fixture(params=["stomp", "openwire"])
def sender(stomp: Place, request: pytest.FixtureRequest) -> Iterator[Place]:
    """A place whose letters go out by one protocol or the other."""
    place = stomp if request.param == "stomp" else by_openwire(stomp)
    yield place
    if place is not stomp:
        place.connector.close()
