"""ActiveMQ Classic and Artemis, by STOMP and by OpenWire, keep the way back of the connectors' contract."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from support.archives import letter
from support.brokers.activemq.fixtures import Place, on_all
from support.sending_contract import Cut, SendingContract, SendingPlace
from support.servers.cutter import Cutter

from dlq.connectors.activemq.connector import ActiveMQConnector
from dlq.connectors.base import Target
from dlq.core.record import Record

pytestmark = pytest.mark.activemq
CANNOT = {
    "nowhere": "the broker creates a queue that somebody sends to",
    "refused": "here everybody may write everywhere; rights are tested on brokers that have some",
}


def sending(stomp: Place, openwire: bool) -> SendingPlace:
    """A queue of the test's own to send to."""
    back = f"{stomp.queue}.back"
    url = f"tcp://127.0.0.1:{stomp.broker.openwire}" if openwire else None
    settings = replace(stomp.settings, openwire_url=url)

    def letters(number: int) -> Record:
        return letter(number, broker_kind=stomp.connector.kind, body=b"letter %d" % number, body_size=10)

    there: list[str] = []

    def arrived() -> list[str]:
        there.extend(record.headers["dlq_replay_id"] for record in stomp.drain(back))
        return there

    @contextmanager
    def cutting() -> Iterator[tuple[ActiveMQConnector, Cut]]:
        server = f"127.0.0.1:{stomp.broker.openwire if openwire else stomp.broker.stomp}"
        with Cutter(server) as cutter:
            setting = "openwire_url" if openwire else "url"
            url = str(getattr(settings, setting)).replace(server, cutter.address)
            yield (
                ActiveMQConnector(replace(settings, **{setting: url})),
                lambda _given: cutter.loses_answers.set(),
            )

    return SendingPlace(
        ActiveMQConnector(settings),
        Target("queue", back),
        letters,
        arrived,
        cutting=cutting,
        cannot=CANNOT,
    )


@on_all
class TestByStomp(SendingContract):
    @pytest.fixture
    def place(self, stomp: Place) -> SendingPlace:
        return sending(stomp, openwire=False)


@on_all
class TestByOpenWire(SendingContract):
    @pytest.fixture
    def place(self, stomp: Place) -> SendingPlace:
        return sending(stomp, openwire=True)
