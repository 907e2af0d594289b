"""What `dlq coverage` says of ActiveMQ Classic is what becomes of messages: random dead-letter strategies of
an activemq.xml, under which one is killed in each way, and looked for in all queues."""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.brokers.activemq.broker import CLASSIC, ActiveMq
from support.brokers.activemq.sending import place_on
from support.coverage import Case, Outcome, compare
from support.waiting import eventually, settled

from dlq.connectors.activemq.look.jolokia import Jolokia
from dlq.connectors.activemq.stomp.codec import headers_of
from dlq.connectors.base import Fate

pytestmark = [pytest.mark.activemq]
KINDS = ("work0", "work1", "dead0", "dead1")
DEATHS = ("reject", "expiry", "delivery limit")
FRAME = """<beans xmlns="http://www.springframework.org/schema/beans">
<broker xmlns="http://activemq.apache.org/schema/core"><destinationPolicy><policyMap>{default}
<policyEntries>{entries}</policyEntries></policyMap></destinationPolicy><plugins>{plugins}</plugins></broker></beans>"""
SETTLED = 3.0
"""Seconds: longer than a dead letter lives that is given an end."""


def draw(chance: random.Random, name: str) -> list[str]:
    """The entries of one topology, whose patterns overlap."""
    patterns = [f"{name}.{kind}" for kind in KINDS] + [f"{name}.&gt;", f"{name}.*", f"*.{name[2:]}.work0"]
    some = [pattern for pattern in patterns if chance.random() < 0.6]
    if len([pattern for pattern in some if pattern.endswith(("*", ";"))]) > 1:
        some.remove(chance.choice((f"{name}.&gt;", f"{name}.*")))
    return [f'<policyEntry queue="{pattern}">{_strategy(chance, name)}</policyEntry>' for pattern in some]


def _strategy(chance: random.Random, name: str) -> str:
    kind = chance.choice(("shared", "shared", "individual", "individual", "discarding", ""))
    given = {name: "false" for name in ("processExpired",) if chance.random() < 0.3}
    lives = {"expiration": "200"} if chance.random() < 0.4 else {}
    if kind == "shared":
        to = chance.choice((f"{name}.dead0", f"{name}.dead1", f"queue://{name}.none", f"{name}.work0", ""))
        return _element("sharedDeadLetterStrategy", given | lives | ({"deadLetterQueue": to} if to else {}))
    if kind == "individual":
        prefix = chance.choice((f"{name}.d.", f"d.{name}.", ""))
        ended = {} if prefix == f"{name}.d." else lives  # it would go on under ever longer names
        more = {"queuePrefix": prefix} if prefix else {}
        return _element("individualDeadLetterStrategy", given | ended | more | _suffix(chance))
    return _element("discarding", given) if kind else ""


def _suffix(chance: random.Random) -> dict[str, str]:
    return {"queueSuffix": ".end"} if chance.random() < 0.3 else {}


def _element(kind: str, settings: dict[str, str]) -> str:
    said = " ".join(f'{name}="{text}"' for name, text in settings.items())
    return f"<deadLetterStrategy><{kind} {said}/></deadLetterStrategy>"


@dataclass
class Death(Case):
    """One message, and how it dies."""

    mark: str = ""


class Lab:
    """A broker whose policies are those of topologies."""

    def __init__(self, broker: ActiveMq, xml: Path) -> None:
        self.place = place_on(broker).by(activemq_xml=str(xml))
        self.jolokia = Jolokia(self.place.settings, artemis=False)

    def kill(self, cases: list[Death]) -> None:
        for case in cases:
            soon = {"expires": str(int(time.time() * 1000) + 30)} if case.death == "expiry" else {}
            self.place.send(b"", queue=case.name, mark=case.mark, **soon)
        for case in (one for one in cases if one.death == "reject"):
            self._refuse(case)
        told = [word for one in cases if one.death == "delivery limit" for word in (one.name, one.mark)]
        self.place.java("ActiveMqGivenUp.java", *told)

    def _refuse(self, case: Death) -> None:
        link = self.place.link()
        link.request(
            "SUBSCRIBE",
            {"id": "0", "ack": "client-individual", "selector": f"mark='{case.mark}'"}
            | self.place.destination(case.name),
        )
        (frame,) = eventually(lambda: link.receive(1))
        link.request("NACK", {"id": headers_of(frame.head)["ack"]})
        link.close()

    def find(self) -> dict[str, set[str]]:
        """Mark -> queues that hold it, once nothing moves any more."""
        facts = settled(lambda: {name: one.depth for name, one in self.jolokia.queues().items()}, SETTLED)
        found: dict[str, set[str]] = {}
        for queue in (name for name, depth in facts.items() if depth):
            for record in self.place.drain(queue):
                found.setdefault(record.headers["mark"], set()).add(queue)
        return found


def cases_of(names: list[str]) -> Iterator[Death]:
    queues = [f"{name}.{kind}" for name in names for kind in KINDS]
    for mark, (queue, death) in enumerate((queue, death) for queue in queues for death in DEATHS):
        yield Death("queue", queue, death, mark=f"m{mark}")


def examine(
    version: str, xml: Path, cases: list[Death], default: str, entries: str, plugins: str
) -> tuple[list[Fate], list[Outcome]]:
    """What is said of a broker with these policies, and where each message was that was killed there."""
    xml.write_text(FRAME.format(default=default, entries=entries, plugins=plugins))
    with ActiveMq(version, f"xml={xml}") as broker:
        lab = Lab(broker, xml)
        lab.kill(cases)
        fates, found = lab.place.connector.coverage(), lab.find()
    return fates, [Outcome(case, frozenset(found.get(case.mark, ()))) for case in cases]


def run(version: str, folder: Path, seed: int, number: int) -> None:
    chance = random.Random(seed)
    names = [f"a.t{at}" for at in range(number)]
    plugin = f'<discardingDLQBrokerPlugin dropAll="false" dropOnly="a\\.t1\\.work. {names[-1]}\\.dead0"/>'
    default = f"<defaultEntry><policyEntry>{_strategy(chance, 'all')}</policyEntry></defaultEntry>"
    entries = "".join(entry for name in names for entry in draw(chance, name))
    compare(*examine(version, folder / "activemq.xml", [*cases_of(names)], default, entries, plugin))


@pytest.mark.parametrize("version", CLASSIC)
def test_a_handful_leads_where_it_was_said(version: str, tmp_path: Path) -> None:
    run(version, tmp_path, 1, 3)


@pytest.mark.parametrize("version", CLASSIC)
def test_each_death_leads_where_it_was_said(version: str, tmp_path: Path) -> None:
    run(version, tmp_path, 2, 20)


@pytest.mark.parametrize("version", CLASSIC)
def test_of_patterns_that_take_each_other_one_holds_by_chance(version: str, tmp_path: Path) -> None:
    cases = [Death("queue", f"p{at}.work", "reject", mark=f"m{at}") for at in range(16)]
    discards = _element("discarding", {})
    entries = "".join(
        f'<policyEntry queue="p{at}.*"/><policyEntry queue="p{at}.&gt;">{discards}</policyEntry>'
        for at in range(16)
    )
    fates, outcomes = examine(version, tmp_path / "activemq.xml", cases, "", entries, "")
    assert {fate.verdict for fate in fates if fate.name.startswith("p")} == {"unknown"}
    assert {one.verdict for one in outcomes} == {"kept", "lost"}
