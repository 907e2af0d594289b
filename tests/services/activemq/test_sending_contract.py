"""ActiveMQ Classic and Artemis, by STOMP, OpenWire and AMQP 1.0, keep the contract of the way back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
from proton import Message
from support.archives import letter
from support.brokers.activemq.fixtures import Place, on_all, on_artemis
from support.sending_contract import Cut, SendingContract, SendingPlace
from support.servers.cutter import Cutter

from dlq.connectors.activemq.plugin.connector import ActiveMQConnector
from dlq.connectors.activemq.records import frames
from dlq.connectors.activemq.records.amqp10 import record_maker
from dlq.connectors.base import Target
from dlq.core.record import Record

pytestmark = pytest.mark.activemq
ON_ARTEMIS = "a COMMIT is waited for before anything else is written"
NOWHERE = "the broker creates a queue that somebody sends to"
EVERYBODY = "here everybody may write everywhere; rights are tested on brokers that have some"
TOO_LONG = {f"p{n}": "x" * 60_000 for n in range(12)}
"""By OpenWire Artemis says so at the commit."""


def plain_letter(stomp: Place, number: int) -> Record:
    return letter(number, broker_kind=stomp.connector.kind, body=b"letter %d" % number, body_size=10)


def amqp_letter(stomp: Place, number: int) -> Record:
    """One that came by AMQP 1.0."""
    make = record_maker(stomp.request(), frames.Place("DLQ", "artemis", stomp.connector.version, ""))
    return make(Message(body=b"letter %d" % number, inferred=True, durable=True).encode())


def sending(
    stomp: Place, setting: str = "url", scheme: str = "stomp", letters: Callable[..., Record] = plain_letter
) -> SendingPlace:
    """A queue of the test's own to send to, by what a setting names."""
    back = f"{stomp.queue}.back"
    server = f"127.0.0.1:{stomp.broker.stomp if setting == 'url' else stomp.broker.openwire}"
    settings, artemis = stomp.settings, stomp.broker.artemis
    if setting != "url":
        settings = replace(settings, **{setting: f"{scheme}://{server}"})
    there: list[str] = []
    receiving = replace(stomp, settings=settings, connector=ActiveMQConnector(settings))

    def arrived() -> list[str]:
        there.extend(record.headers["dlq_replay_id"] for record in receiving.drain(back))
        return there

    @contextmanager
    def cutting() -> Iterator[tuple[ActiveMQConnector, Cut]]:
        with Cutter(server) as cutter:
            url = str(getattr(settings, setting)).replace(server, cutter.address)
            yield (
                ActiveMQConnector(replace(settings, **{setting: url})),
                lambda _given: cutter.loses_answers.set(),
            )

    return SendingPlace(
        ActiveMQConnector(settings),
        Target("queue", back),
        partial(letters, stomp),
        arrived,
        cutting=cutting,
        servers=[f"127.0.0.1:{port}" for port in (stomp.broker.openwire, stomp.broker.stomp)],
        nowhere=Target("queue", f"{back}::nowhere"),
        cannot={"outage": ON_ARTEMIS} if artemis else {"nowhere": NOWHERE, "refused": EVERYBODY},
        refused=lambda: (
            (letters(stomp, 2)._replace(headers=TOO_LONG), Target("queue", back))
            if setting == "openwire_url"
            else (letters(stomp, 2), Target("queue", f"forbidden.{back}"))
        ),
    )


@on_all
class TestByStomp(SendingContract):
    @pytest.fixture
    def place(self, stomp: Place) -> SendingPlace:
        return sending(stomp)


@on_all
class TestByOpenWire(SendingContract):
    @pytest.fixture
    def place(self, stomp: Place) -> SendingPlace:
        return sending(stomp, "openwire_url", "tcp")


@on_artemis
class TestByAmqp(SendingContract):
    @pytest.fixture
    def place(self, stomp: Place) -> SendingPlace:
        return sending(stomp, "amqp_url", "amqp", amqp_letter)
