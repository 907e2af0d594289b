"""What `dlq coverage` says of Artemis is what becomes of messages: random address settings, queues and
diverts, in which one is killed in each way, and looked for in all queues."""

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from proton import Delivery
from support.brokers.activemq.amqp import connected
from support.brokers.activemq.broker import Artemis
from support.brokers.activemq.fixtures import Place, settings_of
from support.coverage import Case, Outcome, compare_late
from support.waiting import PATIENCE, eventually

from dlq.connectors.activemq.look import artemis as management
from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.activemq.look.coverage import PRODUCER
from dlq.connectors.activemq.plugin.connector import ActiveMQConnector
from dlq.core.errors import BrokerError

pytestmark = [pytest.mark.activemq]
DELAYS = ("expiryDelay", "maxExpiryDelay", "minExpiryDelay")
KINDS = ("work", "dead", "late")
SHUT = ({"enabled": False}, {"purge-on-no-consumers": True})
"""Queues to which the broker routes nothing."""


@dataclass
class Topology:
    """Addresses with their settings, queues and diverts."""

    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    queues: list[dict[str, Any]] = field(default_factory=list)
    diverts: list[dict[str, Any]] = field(default_factory=list)


def draw(chance: random.Random, number: str) -> Topology:
    names = [f"{number}.{kind}{i}" for kind in KINDS for i in (0, 1)]
    others = [*(name for name in names if "work" not in name), f"{number}.none"]
    topology = Topology()
    for name in names:
        own: dict[str, Any] = {"maxDeliveryAttempts": chance.choice((1, 2, 3))}
        for setting in ("deadLetterAddress", "expiryAddress"):
            if chance.random() < 0.7:
                own[setting] = chance.choice(others)
        if chance.random() < 0.25:
            own["autoCreateDeadLetterResources"] = True
        if "work" not in name and chance.random() < 0.3:
            own[chance.choice(DELAYS)] = 50
        if "work" not in name and chance.random() < 0.2:
            own["noExpiry"] = True
        if chance.random() < 0.3:
            own["sendToDLAOnNoRoute"] = True
        topology.settings[name] = own
        if chance.random() < 0.75:
            ring = {"ring-size": chance.choice((1, 2))} if chance.random() < 0.2 else {}
            queue = {"name": name, "address": name, "routing-type": "ANYCAST", "durable": True}
            shut = chance.choice(SHUT) if "work" not in name and chance.random() < 0.2 else {}
            topology.queues.append({**queue, **ring, **shut})
    if chance.random() < 0.3:
        name, to = f"{number}.divert", chance.choice([name for name in names if "dead" in name])
        divert = {"name": name, "routing-name": name, "forwarding-address": f"{number}.late0"}
        topology.diverts.append({**divert, "address": to, "exclusive": chance.random() < 0.5})
    return topology


@pytest.fixture(scope="module")
def artemis() -> Iterator[Place]:
    """A broker that looks for what has expired often, and has no dead-letter address unless told."""
    broker = Artemis()
    path = broker.folder / "instance" / "etc" / "broker.xml"
    before, mark, after = path.read_text().partition('<address-setting match="#">')
    for line in ("dead-letter-address>DLQ<", "expiry-address>ExpiryQueue<"):
        after = after.replace(f"<{line}/{line.partition('>')[0]}>", "")
    scan = "<message-expiry-scan-period>100</message-expiry-scan-period>"
    path.write_text((before + mark + after).replace("<acceptors>", f"{scan}<acceptors>", 1))
    with broker:
        settings = settings_of(broker)
        connector = ActiveMQConnector(settings)
        yield Place(broker, settings, connector, "")
        connector.close()


class Lab:
    """A broker with topologies."""

    def __init__(self, place: Place, topologies: list[Topology]) -> None:
        self.place, self.topologies = place, topologies
        self.management = Management(place.settings)

    def do(self, operation: str, *arguments: Any) -> Any:
        return self.management.operate(operation, *arguments)

    def build(self) -> None:
        for topology in self.topologies:
            for address, settings in topology.settings.items():
                self.do("addAddressSettings", address, json.dumps(settings))
                self.do("createAddress", address, "ANYCAST,MULTICAST")
            for queue in topology.queues:
                self.do("createQueue", json.dumps(queue), True)
            for divert in topology.diverts:
                self.do("createDivert", json.dumps(divert))

    def put(self, case: "Death", number: int = 1, **headers: str) -> None:
        self.place.send(b"", queue=case.address, mark=str(case.id), **headers)
        if number > 1:
            self.place.send(*[b"filler"] * (number - 1), queue=case.address)

    def kill(self, case: "Death") -> None:
        if case.death == "expiry":
            self.put(case, expires=str(int(time.time() * 1000) + 30))
        elif case.death == "overflow":
            self.put(case, case.ring + 1)
        elif case.death == "unroutable":
            try:
                self.put(case, **{"destination-type": "MULTICAST"})
            except BrokerError:
                case.is_refused = True
        else:
            self.put(case)
            self.fail(case)

    def fail(self, case: "Death") -> None:
        """Refused at once, or given back as failed until the limit is reached."""
        with connected(self.place) as connection:
            receiver = connection.create_receiver(case.queue)
            for _ in range(case.attempts if case.death == "delivery limit" else 1):
                receiver.receive(timeout=PATIENCE)
                if case.death == "reject":
                    receiver.reject()
                else:
                    receiver.fetcher.unsettled[0].local.failed = True
                    receiver.settle(Delivery.MODIFIED)

    def queues(self) -> list[str]:
        return [queue for queue in self.management.queues() or () if queue.startswith(("t", "DLQ.t"))]

    def find(self, cases: list["Death"]) -> list[Outcome]:
        """In which queues each lies."""
        found: dict[str, list[str]] = {}
        for queue in self.queues():
            for one in self.management.messages(queue, "") or ():
                found.setdefault(str(one.get("mark")), []).append(queue)
        refused = {case.id: [PRODUCER] for case in cases if case.is_refused}
        return [
            Outcome(case, frozenset([*found.get(str(case.id), ()), *refused.get(case.id, ())]))
            for case in cases
        ]

    def empty(self) -> None:
        for queue in self.queues():
            self.management.empty(queue)


@dataclass
class Death(Case):
    """One message, and how it dies."""

    queue: str = ""
    address: str = ""
    attempts: int = 0
    ring: int = 0
    id: int = 0
    is_refused: bool = False


def deaths(topology: Topology) -> Iterator[Death]:
    for queue in topology.queues:
        settings, ring = topology.settings[queue["address"]], queue.get("ring-size", 0)
        if any(one.items() <= queue.items() for one in SHUT):
            continue
        if topology.diverts and topology.diverts[0]["address"] == queue["address"]:
            continue  # what is sent there does not come to its queue, or twice
        kinds = ["reject", "delivery limit", "expiry", *(["overflow"] if ring else [])]
        if "noExpiry" in settings:
            kinds.remove("expiry")
        elif any(name in settings for name in DELAYS):
            kinds = ["expiry"]
        for death in kinds:
            attempts = settings["maxDeliveryAttempts"]
            place = {"queue": queue["name"], "address": queue["address"], "attempts": attempts, "ring": ring}
            yield Death("queue", queue["name"], death, **place)
    used = {queue["address"] for queue in topology.queues} | {one["address"] for one in topology.diverts}
    made = {  # a death gives them a queue
        own.get("deadLetterAddress")
        for own in topology.settings.values()
        if "autoCreateDeadLetterResources" in own
    }
    for address in sorted(topology.settings.keys() - used - made):
        yield Death("address", address, "unroutable", address=address)


def drawn(seed: int, number: int) -> list[Topology]:
    chance = random.Random(seed)
    return [draw(chance, f"t{seed}-{at}") for at in range(number)]


def run(place: Place, topologies: list[Topology]) -> None:
    lab = Lab(place, topologies)
    lab.build()
    cases = [[*deaths(topology)] for topology in lab.topologies]
    for round_ in range(max(map(len, cases))):
        now = [own[round_] for own in cases if round_ < len(own)]
        tried = {(case.kind, case.name, case.death) for case in now}  # queues that deaths have made count
        fates = [fate for fate in place.connector.coverage() if fate[:3] in tried]
        for id_, case in enumerate(now):
            case.id = id_
            lab.kill(case)
        time.sleep(1.5)
        compare_late(fates, partial(lab.find, now))
        lab.empty()
    lab.management.close()


def test_a_handful_leads_where_it_was_said(artemis: Place) -> None:
    run(artemis, drawn(1, 2))


def test_each_death_leads_where_it_was_said(artemis: Place) -> None:
    run(artemis, drawn(2, 20))


def test_what_goes_round_without_a_queue_is_dropped_and_over_a_divert_refused(artemis: Place) -> None:
    round_ = {
        "t.own": "t.own",
        "t.one": "t.two",
        "t.two": "t.one",
        "t.sends": "t.diverts",
        "t.diverts": "t.own",
    }
    settings = {name: {"deadLetterAddress": to, "sendToDLAOnNoRoute": True} for name, to in round_.items()}
    divert = {"name": "t.back", "routing-name": "t.back", "address": "t.diverts", "exclusive": True}
    run(artemis, [Topology(settings, [], [{**divert, "forwarding-address": "t.sends"}])])


def test_letters_are_lost_once_the_pages_of_their_address_are_full(artemis: Place) -> None:
    bounds = {"maxSizeMessages": 2, "pageLimitMessages": 2, "pageFullMessagePolicy": "DROP"}
    settings = {"p.work": {"deadLetterAddress": "p.dead"}, "p.dead": bounds}
    queues = [{"name": name, "address": name, "routing-type": "ANYCAST"} for name in settings]
    lab = Lab(artemis, [Topology(settings, queues)])
    lab.build()
    for verdict in ("kept", "lost"):
        fates = {one[1:3]: one for one in artemis.connector.coverage() if one.name in settings}
        assert (fates["p.work", "reject"].verdict, fates["p.dead", "overflow"].verdict) == (verdict, "lost")
        artemis.send(b"letter", queue="p.work", mark=verdict)
        lab.fail(Death("queue", "p.work", "reject", queue="p.work"))
        eventually(lambda: not artemis.depth("p.work"))
        found = lab.management.messages("p.dead", "") or []
        assert any(one.get("mark") == verdict for one in found) == (verdict == "kept")
        artemis.send(*[b"filler"] * 8, queue="p.dead")
    lab.management.close()


def test_queues_are_listed_to_the_last_page(artemis: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(management, "_MOST_LISTED", 2)
    lab = Lab(artemis, drawn(3, 2))
    lab.build()
    listed = [one["name"] for one in lab.management.list_queues("", "")]
    assert len(listed) > 2
    assert sorted(listed) == sorted(lab.management.queues() or ())
    lab.management.close()
