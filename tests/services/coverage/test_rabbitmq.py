"""What `dlq coverage` says of RabbitMQ is what becomes of messages: random topologies, in which one is killed
in each way, and looked for in all queues.

A topology is built in several copies, so that each death has one of its own while it lasts.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pika
import pytest
from pika.exceptions import NackError
from support.brokers.rabbitmq.fixtures import Rabbit
from support.coverage import Case, Outcome, compare
from support.waiting import PATIENCE

from dlq.connectors.base import Fate
from dlq.connectors.rabbitmq.look import definitions
from dlq.connectors.rabbitmq.look.coverage import deaths as coverage
from dlq.connectors.rabbitmq.look.routes import topic_matches

pytestmark = pytest.mark.rabbitmq
COPIES = 40
"""Of all topologies together, at once."""
KEYS = ("k", "order.new", "order.old")
PATTERNS = ("order.*", "#", "*", "order.new")
REASONS = {
    "reject": "rejected",
    "expiry": "expired",
    "overflow": "maxlen",
    "delivery limit": "delivery_limit",
}
PLACE_OF_REFUSED = coverage.PUBLISHER
FILLER = b"filler"
_TICK = 10
"""Seconds in which a quorum queue has told what it holds, on a loaded machine."""
_ids = count(1)


@dataclass
class Queue:
    """As it is declared, and what its policies say."""

    kind: str
    arguments: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    operator: dict[str, Any] = field(default_factory=dict)
    is_full: bool = False

    def number(self, name: str) -> int | None:
        found = [self.arguments.get(f"x-{name}"), self.policy.get(name), self.operator.get(name)]
        return min((one for one in found if one is not None), default=None)

    def text(self, name: str) -> str | None:
        if (name, self.kind) == ("overflow", "quorum") and name in self.policy:
            return str(self.policy[name])
        return self.arguments.get(f"x-{name}", self.policy.get(name))


@dataclass
class Topology:
    """Queues, exchanges and bindings by names that hold `{}` for the copy's."""

    queues: dict[str, Queue]
    exchanges: dict[str, tuple[str, str | None]]
    """Type, and alternate exchange."""
    bindings: list[tuple[str, str, str, str]]
    """Exchange, queue or exchange, its name, key."""

    def arrivals(self, name: str) -> dict[str, bool]:
        """Keys with which messages come to a queue -> whether they surely do."""
        found: dict[str, bool] = {}
        for source, _, _, key in (one for one in self.bindings if one[1:3] == ("queue", name)):
            kind = self.exchanges[source][0]
            pattern = "#" if kind == "fanout" else key
            if kind == "direct" or (kind == "topic" and not {"*", "#"} & set(pattern.split("."))):
                found[pattern] = True
            else:
                found |= {
                    one: found.get(one, False) for one in self.every_key() if topic_matches(pattern, one)
                }
        for queue in self.queues.values():
            if (queue.text("dead-letter-exchange"), queue.text("dead-letter-routing-key")) == ("", name):
                found[name] = True
        return found or {name: True}

    def every_key(self) -> list[str]:
        return [*KEYS, "other", "order.other", "other.order.new", *self.queues]


def draw(chance: random.Random, number: int) -> Topology:
    queues = {f"{{}}t{number}-q{i}": Queue(chance.choice(("classic", "classic", "quorum"))) for i in range(4)}
    exchanges: dict[str, tuple[str, str | None]] = {f"{{}}t{number}-x{i}": ("", None) for i in range(3)}
    for name in exchanges:
        other = chance.choice([*exchanges, f"{{}}t{number}-none"])
        exchanges[name] = (
            chance.choice(("direct", "topic", "fanout")),
            other if chance.random() < 0.3 else None,
        )
    bindings = []
    for source, (kind, _) in exchanges.items():
        for _ in range(chance.choice((0, 1, 1, 2))):
            key = chance.choice(PATTERNS if kind == "topic" else KEYS)
            to = (
                ("exchange", chance.choice([*exchanges]))
                if chance.random() < 0.15
                else ("queue", chance.choice([*queues]))
            )
            bindings.append((source, *to, key))
    for queue in queues.values():
        _draw_queue(chance, queue, [*queues], [*exchanges, f"{{}}t{number}-none"])
    return Topology(queues, exchanges, bindings)


def _draw_queue(chance: random.Random, queue: Queue, queues: list[str], exchanges: list[str]) -> None:
    def put(where: str, **settings: Any) -> None:
        for name, value in settings.items():
            name = name.replace("_", "-")
            getattr(queue, where)[f"x-{name}" if where == "arguments" else name] = value

    own = ("arguments", "policy")
    dice = chance.random()
    if dice < 0.25:
        put(chance.choice(own), dead_letter_exchange="", dead_letter_routing_key=chance.choice(queues))
    elif dice < 0.8:
        where = chance.choice(own)
        put(where, dead_letter_exchange=chance.choice(exchanges))
        if chance.random() < 0.4:
            put(where, dead_letter_routing_key=chance.choice(KEYS))
    if chance.random() < 0.3:
        put(chance.choice((*own, "operator")), message_ttl=chance.choice((0, 40, 80)))
    _draw_bounds(chance, queue, put)


def _draw_bounds(chance: random.Random, queue: Queue, put: Callable[..., None]) -> None:
    own = ("arguments", "policy")
    if queue.kind == "quorum" and chance.random() < 0.6:
        put(chance.choice((*own, "operator")), delivery_limit=chance.choice((0, 1, 2)))
    if queue.kind == "quorum" and queue.text("dead-letter-exchange") is not None and chance.random() < 0.4:
        put("policy", dead_letter_strategy="at-least-once", overflow="reject-publish")
    if chance.random() < 0.3:
        put(
            chance.choice((*own, "operator")),
            max_length=chance.choice((0, 1, 2) if queue.kind == "classic" else (1, 2)),
        )
        if chance.random() < 0.7:
            put(
                chance.choice(own),
                overflow=chance.choice(("reject-publish", "reject-publish-dlx", "drop-head")),
            )
        queue.is_full = queue.number("message-ttl") is None and chance.random() < 0.6


class Lab:
    """A virtual host with copies of topologies."""

    def __init__(self, rabbit: Rabbit, topologies: list[Topology], copies: int) -> None:
        self.rabbit, self.topologies, self.channel = rabbit, topologies, rabbit.channel
        self.copies = [f"c{i}-" for i in range(copies)]
        self.is_fed = False

    def build(self) -> None:
        for topology in self.topologies:
            for name, queue in topology.queues.items():
                self._set_policies(name.format(""), queue)
        for copy in self.copies:
            for topology in self.topologies:
                self._declare(copy, topology)
        self.refill()

    def _set_policies(self, name: str, queue: Queue) -> None:
        for what, found in (("policies", queue.policy), ("operator-policies", queue.operator)):
            for copy in self.copies if found else ():
                settings = {
                    "definition": _named(found, copy),
                    "apply-to": "queues",
                    "pattern": f"^{copy}{name}$",
                }
                self.rabbit.node.api("PUT", what, self.rabbit.vhost, copy + name, **settings)

    def _declare(self, copy: str, topology: Topology) -> None:
        for name, queue in topology.queues.items():
            table = {"x-queue-type": queue.kind, **_named(queue.arguments, copy)}
            self.channel.queue_declare(name.format(copy), durable=True, arguments=table)
        for name, (kind, alternate) in topology.exchanges.items():
            table = {"alternate-exchange": alternate.format(copy)} if alternate else {}
            self.channel.exchange_declare(name.format(copy), kind, arguments=table)
        for source, kind, to, key in topology.bindings:
            bind = self.channel.queue_bind if kind == "queue" else self.channel.exchange_bind
            bind(to.format(copy), source.format(copy), key)

    def feed(self) -> None:
        """An exchange to each queue alone, by which a message comes with any key."""
        for name, _ in self.queues():
            self.channel.exchange_declare(f"feed {name}", "fanout")
            self.channel.queue_bind(name, f"feed {name}")
        self.is_fed = True

    def queues(self) -> Iterator[tuple[str, Queue]]:
        for copy in self.copies:
            for topology in self.topologies:
                yield from ((name.format(copy), queue) for name, queue in topology.queues.items())

    def refill(self) -> None:
        """Each queue as it was at first. What one holds until it has arrived elsewhere only goes with it."""
        for copy in self.copies:
            for topology in self.topologies:
                holding = [
                    n for n, queue in topology.queues.items() if "dead-letter-strategy" in queue.policy
                ]
                for name in holding if self.is_fed else ():
                    self.channel.queue_delete(name.format(copy))
                if holding and self.is_fed:
                    self._declare(copy, topology)
                for name in holding if self.is_fed else ():
                    self.channel.queue_bind(name.format(copy), f"feed {name.format(copy)}")
        for name, queue in self.queues():
            self.channel.queue_purge(name)
            for _ in range((queue.number("max-length") or 0) if queue.is_full else 0):
                self.channel.basic_publish("", name, FILLER)

    def predict(self) -> list[Fate]:
        """Once the statistics show the policies and the fillers."""
        deadline = time.monotonic() + PATIENCE
        while True:
            known = definitions.fetch(self.rabbit.broker())
            shown = {
                name: one.get("messages_ready")
                for name, one in known.queues.items()
                if "effective_policy_definition" in one
            }
            wanted = {n: (q.number("max-length") or 0) if q.is_full else 0 for n, q in self.queues()}
            if shown == wanted:
                return coverage.predict(known)
            assert time.monotonic() < deadline, {
                n: (shown.get(n), w) for n, w in wanted.items() if shown.get(n) != w
            }
            time.sleep(0.3)

    # Deaths

    def kill(self, case: "Death") -> None:
        getattr(self, f"_{case.death.replace(' ', '_')}")(case)

    def _put(self, case: "Death", **properties: Any) -> None:
        sent = pika.BasicProperties(delivery_mode=2, **properties)
        self.channel.basic_publish(f"feed {case.name}", case.key, case.id, sent)

    def _fill(self, case: "Death", less: int = 0) -> None:
        """As full as it was, with one message, which is dying, among those."""
        for _ in range((case.queue.number("max-length") or 0) - less if case.queue.is_full else 0):
            self.channel.basic_publish("", case.name, FILLER)
            case.fillers += 1

    def _reject(self, case: "Death", times: int = 0) -> None:
        """Held by a consumer before it can expire; given back `times` before."""
        self.channel.queue_purge(case.name)
        channel = self.channel.connection.channel()
        channel.basic_qos(prefetch_count=1)
        held: list[int] = []
        tag = channel.basic_consume(case.name, lambda _c, method, _p, _b: held.append(method.delivery_tag))
        self._put(case)
        for returned in range(times + 1):
            deadline = time.monotonic() + PATIENCE
            while len(held) <= returned:
                self.channel.connection.process_data_events(0.02)
                assert time.monotonic() < deadline, case
            if returned < times:
                channel.basic_reject(held[-1], requeue=True)
        channel.basic_cancel(tag)
        self._fill(case, 1)
        channel.basic_reject(held[-1], requeue=case.death == "delivery limit")  # a nack counts no more (4.3)
        channel.close()

    def _delivery_limit(self, case: "Death") -> None:
        default = 20 if self.rabbit.version >= (4,) else 0
        limit = case.queue.number("delivery-limit")
        self._reject(case, default if limit is None else limit)

    def _expiry(self, case: "Death") -> None:
        self.channel.queue_purge(case.name)
        self._put(case, expiration="20")
        self._fill(case, 1)

    def _overflow(self, case: "Death") -> None:
        self.channel.queue_purge(case.name)
        most = case.queue.number("max-length") or 0
        refuses = str(case.queue.text("overflow")).startswith("reject-publish") and not (
            case.queue.kind == "quorum" and case.queue.text("overflow") == "reject-publish-dlx"
        )
        if not refuses:
            self._put(case)
        for _ in range(most):
            self.channel.basic_publish("", case.name, FILLER)
            case.fillers += 1
        with suppress(NackError):
            for _ in range(100 if refuses else 0):  # a quorum queue takes a few more
                case.id = b"%d" % next(_ids)
                self._put(case)
                time.sleep(0.02)
            return
        case.refused = True

    def _unroutable(self, case: "Death") -> None:
        try:
            self.channel.basic_publish(case.name, case.key, case.id)
        except NackError:
            case.refused = True

    # What became of them

    def settle(self) -> None:
        """Until nothing moves any more."""
        before, same = None, 0
        deadline = time.monotonic() + PATIENCE
        while same < 3:
            time.sleep(0.25)
            depths = [self.rabbit.depth(name) for name, _ in self.queues()]
            same = same + 1 if depths == before else 0
            before = depths
            assert time.monotonic() < deadline

    def take_all(self) -> dict[bytes, list[str]]:
        """Body -> queues that hold it, fillers with their number."""
        found: dict[bytes, list[str]] = {}
        for name, _ in self.queues():
            while (got := self.channel.basic_get(name, auto_ack=True))[0] is not None:
                found.setdefault(got[2], []).append(name)
        return found

    def held(self) -> set[str]:
        """Queues in which something waits until it has arrived elsewhere."""
        time.sleep(_TICK)
        listed = self.rabbit.node.api("GET", "queues", self.rabbit.vhost)
        assert isinstance(listed, list)
        return {one["name"] for one in listed if one.get("messages_dlx")}


@dataclass
class Death(Case):
    """One message, and how it dies."""

    queue: Queue = field(default_factory=lambda: Queue(""))
    id: bytes = b""
    fillers: int = 0
    refused: bool = False


def _named(table: Mapping[str, Any], copy: str) -> dict[str, Any]:
    return {name: value.format(copy) if isinstance(value, str) else value for name, value in table.items()}


def deaths(topology: Topology, version: tuple[int, ...]) -> Iterator[Death]:
    for name, queue in topology.queues.items():
        ttl, most = queue.number("message-ttl"), queue.number("max-length")
        limit = queue.number("delivery-limit")
        dies_of = {
            "reject": most != 0,
            "expiry": most != 0,
            "overflow": most is not None and ttl is None,
            "delivery limit": queue.kind == "quorum"
            and ttl is None
            and most != 0
            and (limit is not None or version >= (4,)),
        }
        own_key = (
            queue.text("dead-letter-routing-key") is not None or queue.text("dead-letter-exchange") is None
        )
        keys = {name: True} if own_key else topology.arrivals(name)
        for death in (death for death, is_so in dies_of.items() if is_so):
            for key, sure in keys.items():
                yield Death("queue", name, death, key, sure, queue)
    for name, (kind, _) in topology.exchanges.items():
        taken = [key for source, _, _, key in topology.bindings if source == name]
        if kind == "fanout" and taken:
            continue
        for key in topology.every_key():
            if not any(topic_matches(one, key) if kind == "topic" else one == key for one in taken):
                yield Death("exchange", name, "unroutable", key, False)


def run(rabbit: Rabbit, seed: int, number: int) -> None:
    chance = random.Random(seed)
    topologies = [draw(chance, at) for at in range(number)]
    lab = Lab(rabbit, topologies, max(1, COPIES // number))
    lab.build()
    fates = [fate for fate in lab.predict() if fate.name.startswith(lab.copies[0])]
    lab.feed()
    cases = [[*deaths(topology, rabbit.version)] for topology in topologies]
    done: list[Outcome] = []
    for first in range(0, max(map(len, cases)), len(lab.copies)):
        done += _round(lab, [own[first : first + len(lab.copies)] for own in cases])
    compare(fates, done)


def _round(lab: Lab, cases: list[list[Death]]) -> list[Outcome]:
    lab.refill()
    now = []
    for topology, own in zip(lab.topologies, cases, strict=True):
        for copy, case in zip(lab.copies, own, strict=False):
            case.name, case.key, case.id = case.name.format(copy), case.key.format(copy), b"%d" % next(_ids)
            filled = {
                n.format(copy): q.number("max-length") or 0 for n, q in topology.queues.items() if q.is_full
            }
            case.fillers = sum(filled.values()) - filled.get(case.name, 0)
            now.append((copy, case))
            lab.kill(case)
    lab.settle()
    held = lab.held()
    found = lab.take_all()
    return [_outcome(copy, case, found, held, lab) for copy, case in now]


def _outcome(copy: str, case: Death, found: dict[bytes, list[str]], held: set[str], lab: Lab) -> Outcome:
    topology = next(
        one
        for one in lab.topologies
        if any(n.format(copy) == case.name for n in [*one.queues, *one.exchanges])
    )
    own = {name.format(copy) for name in topology.queues}
    places = {*found.get(case.id, ()), *(own & held)}
    if case.refused:
        places.add(PLACE_OF_REFUSED)
    fillers = sum(name in own for name in found.get(FILLER, ()))
    rename = lambda name: name.replace(copy, lab.copies[0], 1)  # noqa: E731
    case.name = rename(case.name)
    return Outcome(case, frozenset(map(rename, places)), costs=fillers < case.fillers)


def test_a_handful_leads_where_it_was_said(rabbit: Rabbit) -> None:
    run(rabbit, 1, 4)


@pytest.mark.parametrize("seed", range(2, 12))
def test_each_death_leads_where_it_was_said(rabbit: Rabbit, seed: int) -> None:
    run(rabbit, seed, 10)
