"""The private queues of a rehearsal.

Artemis gives the queue's address settings of its own, so that what dies there has a place of its own. Classic
decides by its configuration file where the dead go, mostly to a queue for all: from there Jolokia moves those
that carry the mark of a rehearsal.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from dlq.connectors.activemq.link.sockets import is_openwire
from dlq.connectors.activemq.look.artemis import NO_MANAGEMENT, Management
from dlq.connectors.activemq.look.jolokia import Jolokia, why_dead_letters
from dlq.connectors.activemq.openwire.codec import commands
from dlq.connectors.activemq.openwire.codec.messages import BYTES
from dlq.connectors.activemq.openwire.link import OpenWireConnection
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.republish import destination
from dlq.connectors.activemq.stomp.codec import encode, headers_of
from dlq.connectors.activemq.stomp.link import Link
from dlq.connectors.base import Private, Target
from dlq.core.clock import now
from dlq.core.errors import AccessDenied, BrokerError
from dlq.core.headers.provenance import REHEARSAL
from dlq.core.record import Record
from dlq.core.runtime import patience

_POINT = (
    'Spring: @JmsListener(destination = "{0}"), transacted: what fails is given up after its attempts',
    'MassTransit: ReceiveEndpoint("{0}", e => {{ e.ConfigureConsumeTopology = false;',
    "    e.ConfigureConsumer<YourConsumer>(context); }}), with its faults sent to {1}",
    'Java: session.createConsumer(session.createQueue("{0}")); roll back, or throw from a listener, to fail',
    'Go: conn.Subscribe("{0}", stomp.AckClientIndividual); conn.Nack refuses on Classic alone',
)
_MANAGEMENT = "a rehearsal makes queues dlq.rehearsal.#, and address settings for them"
_STILL_THERE = "{}: {} could not be removed; stop the consumers that still read it"
_FULL = 70
"""Percent of its memory at which a queue pages in no more (cursorMemoryHighWaterMark). A move ends there
without a word, however many messages it has not looked at (5.18.6, 6.3.1)."""
_NOT_SEEN = (
    "{}: {}, or the broker, uses {} percent of its memory, and so does not show all: what died in the "
    "rehearsal may lie there unseen; raise memoryLimit, or drain it first"
)
_NO_MOVE = (
    "{}: Jolokia does not move messages out of {}, where the dead letters of a rehearsal lie; let its user "
    "execute moveMatchingMessagesTo and removeQueue (jolokia-access.xml)"
)
_DROPPED = (
    "{}: a message that was refused in {} came to no dead-letter queue: a strategy or a plugin discards it, "
    "or another consumer took it; a rehearsal could not tell what dies"
)


def _refuse_by_stomp(broker: ActiveMQBroker, queue: str, mark: str) -> None:
    """Send a message, and refuse it. Raises BrokerError."""
    with closing(Link(broker)) as link:
        place = destination(Target("queue", queue), False)
        link.send(encode("SEND", {**place, "persistent": "true", REHEARSAL: mark}))
        link.request("SUBSCRIBE", {**place, "id": link.token, "ack": "client-individual"})
        for frame in _first(lambda: link.receive(patience.PAUSE)):
            link.request("NACK", {"id": headers_of(frame.head)["ack"]})


def _refuse_by_openwire(broker: ActiveMQBroker, queue: str, mark: str) -> None:
    """Do the same by OpenWire."""
    with closing(OpenWireConnection(broker)) as connection:
        writer, done = connection.writer, connection.new_receipt()
        place, marks = commands.destination("queue", queue), commands.properties({REHEARSAL: mark}, {})
        probe = commands.Letter(place, BYTES, None, marks, now() // 1000)
        connection.send(writer.message(probe, None) + writer.consume(1, queue, 1, False, None, 0))
        for letter in _first(lambda: connection.receive(patience.PAUSE)):
            connection.send(writer.refuse(1, queue, letter.name, int(done)))
            connection.wait_for(done)


def _first(receive: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    """Return the first that comes, or nothing, in time."""
    return next((came[:1] for _ in patience.tries(patience.REPLY, 0.0) if (came := receive())), ())


class _Queues(Private):
    def __init__(self, broker: str, name: str) -> None:
        dead = f"{name}.dead"
        point = [line.format(name, dead) for line in _POINT]
        super().__init__(Target("queue", name), {"queue": name}, {"queue": dead}, point)
        self._broker, self._name, self._dead = broker, name, dead


class ArtemisPrivate(_Queues):
    """See `Private`."""

    def __init__(self, management: Management, broker: str, name: str) -> None:
        super().__init__(broker, name)
        self._management = management

    def make(self) -> None:
        """Create both queues; what dies or expires in the one goes to the other, and neither drops any."""
        ask = self._management
        settings = {
            "deadLetterAddress": self._dead, "expiryAddress": self._dead, "autoDeleteQueues": False,
            "addressFullMessagePolicy": "PAGE", "pageFullMessagePolicy": "FAIL", "defaultRingSize": -1,
            "defaultLastValueQueue": False, "defaultPurgeOnNoConsumers": False,
        }  # fmt: skip
        for name in (self._dead, self._name):
            ask.operate("addAddressSettings", name, json.dumps(settings))
            made = {"name": name, "address": name, "routing-type": "ANYCAST", "durable": True}
            ask.operate("createQueue", json.dumps(made), True)
        leads_to = ask.address_settings(self._name).get("deadLetterAddress")
        if leads_to != self._dead or not {self._name, self._dead} <= {*(ask.queues() or ())}:
            raise AccessDenied(f"{self._broker}: {_MANAGEMENT}: {NO_MANAGEMENT}")

    def remove(self) -> None:
        """Delete both queues, whoever reads them, and the settings."""
        names = {self._name, self._dead}
        for name in names:
            self._management.destroy(name)
            self._management.operate("removeAddressSettings", name)
        there = self._management.queues()
        if left := names if there is None else names & {*there}:
            raise BrokerError(_STILL_THERE.format(self._broker, ", ".join(sorted(left))))


class ClassicPrivate(_Queues):
    """See `Private`. The first message makes a queue."""

    def __init__(self, broker: ActiveMQBroker, name: str) -> None:
        super().__init__(broker.name, name)
        self._jolokia, self._settings, self.makes_dead = Jolokia(broker, artemis=False), broker, False
        self._mark = f"{name.split('.')[2]}-"

    def make(self) -> None:
        """Prove by a message of our own that what is given up there is found among the dead: no answer shows
        a strategy, or a plugin, that drops it, and every copy would have passed."""
        refuse = _refuse_by_openwire if is_openwire(self._settings) else _refuse_by_stomp
        refuse(self._settings, self._name, self._mark)
        for _ in patience.tries(patience.DEAD_LETTERED):
            self.collect()
            dead = self._jolokia.queues().get(self._dead)
            if dead and dead.depth:
                return self.remove()
        raise BrokerError(_DROPPED.format(self._broker, self._name))

    def collect(self) -> Sequence[Record]:
        """Move what is marked out of all queues into which the broker dead-letters, by their names, too: when
        it starts again it has forgotten which these are."""
        marked = f"{REHEARSAL} LIKE '{self._mark}%'"
        for queue, facts in self._jolokia.queues().items():
            if queue in (self._name, self._dead) or not (facts.depth and why_dead_letters(queue, facts)):
                continue
            if self._jolokia.move(queue, marked, self._dead) is None:
                raise AccessDenied(_NO_MOVE.format(self._broker, queue))
            if (used := self._jolokia.memory_used(queue)) >= _FULL:
                raise BrokerError(_NOT_SEEN.format(self._broker, queue, used))
        return []

    def remove(self) -> None:
        """Delete both queues, once nobody reads them, and what died."""
        self.collect()
        for _ in patience.tries(patience.STALLED):
            if not (left := {self._name, self._dead} & {*self._jolokia.queues()}):
                return
            for queue in left:
                self._jolokia.remove_queue(queue)
        raise BrokerError(_STILL_THERE.format(self._broker, ", ".join(sorted(left))))
