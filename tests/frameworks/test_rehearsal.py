"""A consumer that is pointed at a private place, as a rehearsal says, shows what it has fixed: a listener of
Spring, a client in Go."""

import threading
from pathlib import Path

import pytest
from frameworks.clients import start
from support.brokers.activemq.broker import ARTEMIS
from support.brokers.activemq.fixtures import Place
from support.brokers.kafka.fixtures import KafkaPlace
from support.brokers.rabbitmq.fixtures import Rabbit, on_rabbitmq_4
from support.rehearsing import FAILURES, OF_EACH, counts, fixed, on_activemq, on_kafka, on_rabbitmq, rehearse
from support.waiting import STARTUP, eventually

from dlq.connectors.base import Connector
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.operations.workspace import Workspace

pytestmark = pytest.mark.frameworks
BROKEN = {"stock", "login"}


def check(
    workspace: Workspace,
    to: str,
    connector: Connector,
    url: str,
    folder: Path,
    program: str = "SpringRehearsed.java",
) -> None:
    """The consumer has mended all but what is broken."""

    word = workspace.settings.brokers["shop"].kind if program.endswith(".java") else "rehearsed"

    def listen(place: str, over: threading.Event) -> None:
        target = connector.private(place).target
        assert eventually(lambda: over.is_set() or not connector.missing_targets([target]))
        told = {"LAB_URL": url, "LAB_PLACE": place, "LAB_BROKEN": " ".join(BROKEN)}
        with start(program, word, log=folder / "program.log", **told) as running:
            over.wait()
            running.terminate()

    done = rehearse(workspace, to, listen, seconds=STARTUP)
    assert fixed(done.document) == {*FAILURES} - BROKEN, (folder / "program.log").read_text()[-3000:]
    assert counts(done.document, "stock") == (OF_EACH, 0, OF_EACH, 0)
    assert done.document["removed"]


@pytest.mark.rabbitmq
@on_rabbitmq_4
@pytest.mark.parametrize("program", ["SpringRehearsed.java", "watermill.go"])
def test_on_rabbitmq(rabbit: Rabbit, program: str, tmp_path: Path) -> None:
    workspace = on_rabbitmq(rabbit, tmp_path, rabbit.broker())
    check(
        workspace, f"queue:{rabbit.queue()}", RabbitConnector(rabbit.broker()), rabbit.url, tmp_path, program
    )


@pytest.mark.kafka
def test_spring_kafka(kafka: KafkaPlace, tmp_path: Path) -> None:
    workspace = on_kafka(kafka, tmp_path)
    check(workspace, f"topic:{kafka.topic}", kafka.connector, kafka.node.bootstrap, tmp_path)


@pytest.mark.activemq
@pytest.mark.parametrize("stomp_broker", [ARTEMIS], indirect=True)
def test_spring_jms(stomp: Place, tmp_path: Path) -> None:
    stomp.make_queue(f"{stomp.queue}.work")
    broker = stomp.broker
    url = f"{broker.user}:{broker.password}@127.0.0.1:{broker.stomp}"
    check(on_activemq(stomp, tmp_path), f"queue:{stomp.queue}.work", stomp.connector, url, tmp_path)
