"""The private queues of a rehearsal.

Artemis gives the queue's address settings of its own, so that what dies there has a place of its own. Classic
decides by its configuration file where the dead go, mostly to a queue for all: from there Jolokia moves those
that carry the mark of a rehearsal.
"""

import json
import time

from dlq.connectors.activemq.artemis import NO_MANAGEMENT, Management
from dlq.connectors.activemq.jolokia import Jolokia
from dlq.connectors.base import Private, Target
from dlq.core.errors import AccessDenied, BrokerError
from dlq.core.provenance import REHEARSAL

_POINT = (
    'Spring: @JmsListener(destination = "{0}"), transacted: what fails is given up after its attempts',
    'MassTransit: ReceiveEndpoint("{0}", e => {{ e.ConfigureConsumeTopology = false;',
    "    e.ConfigureConsumer<YourConsumer>(context); }}), with its faults sent to {1}",
    'Java: session.createConsumer(session.createQueue("{0}")); roll back, or throw from a listener, to fail',
    'Go: conn.Subscribe("{0}", stomp.AckClientIndividual); conn.Nack refuses on Classic alone',
)
_MANAGEMENT = "a rehearsal makes queues dlq.rehearsal.#, and address settings for them"
_STILL_THERE = "{}: {} could not be removed; stop the consumers that still read it"
_NO_MOVE = (
    "{}: Jolokia does not move messages out of {}, where the dead letters of a rehearsal lie; let its user "
    "execute moveMatchingMessagesTo and removeQueue (jolokia-access.xml)"
)
_REMOVED_AFTER, _PAUSE = 5.0, 0.2


def name_places(name: str) -> Private:
    """See `Connector.private`."""
    dead = f"{name}.dead"
    point = [line.format(name, dead) for line in _POINT]
    return Private(Target("queue", name), {"queue": name}, {"queue": dead}, point)


def make_on_artemis(management: Management, broker: str, private: Private) -> None:
    """Create both queues; what dies or expires in the one goes to the other. Raises AccessDenied."""
    name, dead = private.place["queue"], private.dead["queue"]
    settings = {"deadLetterAddress": dead, "expiryAddress": dead, "autoDeleteQueues": False}
    management.operate("addAddressSettings", name, json.dumps(settings))
    for queue in (dead, name):
        made = {"name": queue, "address": queue, "routing-type": "ANYCAST", "durable": True}
        management.operate("createQueue", json.dumps(made), True)
    known = management.queues() or ()
    if not {name, dead} <= {*known} or management.address_settings(name).get("deadLetterAddress") != dead:
        raise AccessDenied(f"{broker}: {_MANAGEMENT}: {NO_MANAGEMENT}")


def remove_on_artemis(management: Management, broker: str, private: Private) -> None:
    """Delete both queues, whoever reads them, and the settings. Raises BrokerError."""
    names = {private.place["queue"], private.dead["queue"]}
    for queue in names:
        management.destroy(queue)
    management.operate("removeAddressSettings", private.place["queue"])
    if left := names & {*(management.queues() or ())}:
        raise BrokerError(_STILL_THERE.format(broker, ", ".join(sorted(left))))


def collect_on_classic(jolokia: Jolokia, broker: str, private: Private) -> None:
    """Move the dead letters of a plan's rehearsals to its own place. Raises BrokerError."""
    place, dead = private.place["queue"], private.dead["queue"]
    marked = f"{REHEARSAL} LIKE '{place.rpartition('.')[2]}-%'"
    for queue, facts in jolokia.queues().items():
        is_of_the_dead = facts.facts.get("DLQ") is True and queue != dead
        if is_of_the_dead and facts.depth and jolokia.move(queue, marked, dead) is None:
            raise AccessDenied(_NO_MOVE.format(broker, queue))


def remove_on_classic(jolokia: Jolokia, broker: str, private: Private) -> None:
    """Delete both queues, once nobody reads them. Raises BrokerError."""
    collect_on_classic(jolokia, broker, private)
    names = {private.place["queue"], private.dead["queue"]}
    until = time.monotonic() + _REMOVED_AFTER
    while left := names & {*jolokia.queues()}:
        if time.monotonic() > until:
            raise BrokerError(_STILL_THERE.format(broker, ", ".join(sorted(left))))
        for queue in left:
            jolokia.remove_queue(queue)
        time.sleep(_PAUSE)
