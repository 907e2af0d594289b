"""What `dlq coverage` says of RabbitMQ is what becomes of messages: random topologies, in which one is killed
in each way, and looked for in all queues.

A topology is built in several copies, so that each death has one of its own while it lasts, and in as many as
it has deaths, so that all topologies are done together.
"""

import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from math import ceil
from typing import Any

import pika
import pytest
from pika.exceptions import NackError
from support.brokers.rabbitmq.fixtures import Rabbit
from support.coverage import Case, Outcome, compare
from support.waiting import eventually, settled

from dlq.connectors.base import Fate
from dlq.connectors.rabbitmq.look import definitions
from dlq.connectors.rabbitmq.look.coverage import deaths as coverage
from dlq.connectors.rabbitmq.look.routes import topic_matches

pytestmark = pytest.mark.rabbitmq
COPIES = 40
"""Of all topologies together, at once."""
KEYS = ("k", "order.new", "order.old")
PATTERNS = ("order.*", "#", "*", "order.new")
FIRST = "c0-"
OWN = ("arguments", "policy")
ANYBODY = (*OWN, "operator")
FILLER = b"filler"
_QUEUES = """[{binary_to_list(element(4, amqqueue:get_name(Q))),
    case amqqueue:get_type(Q) of
        rabbit_quorum_queue ->
            {ok, {_, #{num_ready_messages := R, num_discarded := D, num_discard_checked_out := C}}, _} =
                ra:local_query(amqqueue:get_pid(Q), fun rabbit_fifo:overview/1),
            {R, D + C};
        _ -> {element(2, hd(rabbit_amqqueue:info(Q, [messages_ready]))), 0}
    end} || Q <- rabbit_amqqueue:list()]"""
"""Asked of the node itself: its statistics of a quorum queue come every five seconds."""
_ids = count(1)


@dataclass
class Queue:
    """As it is declared, and what its policies say."""

    kind: str
    arguments: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    operator: dict[str, Any] = field(default_factory=dict)
    is_full: bool = False

    @property
    def fillers(self) -> int:
        """So many make it full, where it is."""
        return (self.number("max-length") or 0) if self.is_full else 0

    def put(self, where: str, **settings: Any) -> None:
        for name, value in settings.items():
            name = name.replace("_", "-")
            getattr(self, where)[f"x-{name}" if where == "arguments" else name] = value

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
                keys = (one for one in self.every_key() if topic_matches(pattern, one))
                found |= {one: found.get(one, False) for one in keys}
        for queue in self.queues.values():
            if (queue.text("dead-letter-exchange"), queue.text("dead-letter-routing-key")) == ("", name):
                found[name] = True
        return found or {name: True}

    def every_key(self) -> list[str]:
        return [*KEYS, "other", "order.other", "other.order.new", *self.queues]


def draw(chance: random.Random, number: int) -> Topology:
    queues = {f"{{}}t{number}-q{i}": Queue(chance.choice(("classic", "classic", "quorum"))) for i in range(4)}
    exchanges: dict[str, tuple[str, str | None]] = {f"{{}}t{number}-x{i}": ("", None) for i in range(3)}
    some = [*exchanges, f"{{}}t{number}-none"]
    for name in exchanges:
        other, kind = chance.choice(some), chance.choice(("direct", "topic", "fanout"))
        exchanges[name] = kind, other if chance.random() < 0.3 else None
    bindings = []
    for source, (kind, _) in exchanges.items():
        for _ in range(chance.choice((0, 1, 1, 2))):
            key = chance.choice(PATTERNS if kind == "topic" else KEYS)
            to = "exchange" if chance.random() < 0.15 else "queue"
            name = chance.choice([*(exchanges if to == "exchange" else queues)])
            bindings.append((source, to, name, key))
    for queue in queues.values():
        _draw_queue(chance, queue, [*queues], some)
    return Topology(queues, exchanges, bindings)


def _draw_queue(chance: random.Random, queue: Queue, queues: list[str], exchanges: list[str]) -> None:
    dice = chance.random()
    if dice < 0.25:
        queue.put(chance.choice(OWN), dead_letter_exchange="", dead_letter_routing_key=chance.choice(queues))
    elif dice < 0.8:
        where = chance.choice(OWN)
        queue.put(where, dead_letter_exchange=chance.choice(exchanges))
        if chance.random() < 0.4:
            queue.put(where, dead_letter_routing_key=chance.choice(KEYS))
    if chance.random() < 0.3:
        queue.put(chance.choice(ANYBODY), message_ttl=chance.choice((0, 40, 80)))
    _draw_bounds(chance, queue)


def _draw_bounds(chance: random.Random, queue: Queue) -> None:
    if queue.kind == "quorum" and chance.random() < 0.6:
        queue.put(chance.choice(ANYBODY), delivery_limit=chance.choice((0, 1, 2)))
    if queue.kind == "quorum" and queue.text("dead-letter-exchange") is not None and chance.random() < 0.4:
        queue.put("policy", dead_letter_strategy="at-least-once", overflow="reject-publish")
    if chance.random() < 0.3:
        bounds = (0, 1, 2) if queue.kind == "classic" else (1, 2)
        queue.put(chance.choice(ANYBODY), max_length=chance.choice(bounds))
        if chance.random() < 0.7:
            ways = ("reject-publish", "reject-publish-dlx", "drop-head")
            queue.put(chance.choice(OWN), overflow=chance.choice(ways))
        queue.is_full = queue.number("message-ttl") is None and chance.random() < 0.6


class Lab:
    """A virtual host with copies of topologies, of each as many as are given."""

    def __init__(self, rabbit: Rabbit, topologies: Sequence[tuple[Topology, int]]) -> None:
        self.rabbit, self.channel = rabbit, rabbit.channel
        self.copies = [(f"c{i}-", one) for one, number in topologies for i in range(number)]
        self.queues = {
            name.format(copy): queue for copy, one in self.copies for name, queue in one.queues.items()
        }

    def build(self) -> None:
        for copy, topology in self.copies:
            for name, queue in topology.queues.items():
                self._set_policies(copy, name.format(copy), queue)
        for copy, topology in self.copies:
            self._declare(copy, topology)
        self.fill()

    def _set_policies(self, copy: str, name: str, queue: Queue) -> None:
        for what, found in (("policies", queue.policy), ("operator-policies", queue.operator)):
            if found:
                settings = {"definition": _named(found, copy), "apply-to": "queues", "pattern": f"^{name}$"}
                self.rabbit.node.api("PUT", what, self.rabbit.vhost, name, **settings)

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

    def feed(self, queues: Iterable[str]) -> None:
        """An exchange to each queue alone, by which a message comes with any key."""
        for name in queues:
            self.channel.exchange_declare(f"feed {name}", "fanout")
            self.channel.queue_bind(name, f"feed {name}")

    def fill(self) -> None:
        for name, queue in self.queues.items():
            for _ in range(queue.fillers):
                self.channel.basic_publish("", name, FILLER)

    def refill(self, held: set[str]) -> None:
        """Each queue as it was at first. What one holds until it has arrived elsewhere only goes with it."""
        for name in held:
            self.channel.queue_delete(name)
        for copy, topology in self.copies:
            if held & {name.format(copy) for name in topology.queues}:
                self._declare(copy, topology)
        self.feed(held)
        for name, (ready, _) in self.look().items():
            if ready:
                self.channel.queue_purge(name)
        self.fill()

    def predict(self) -> list[Fate]:
        """Once the statistics show the policies and the fillers."""

        def told() -> definitions.Definitions | None:
            known = definitions.fetch(self.rabbit.broker())
            shown = {
                name: one.get("messages_ready")
                for name, one in known.queues.items()
                if "effective_policy_definition" in one
            }
            return known if shown == {name: queue.fillers for name, queue in self.queues.items()} else None

        return coverage.predict(eventually(told))

    # Deaths

    def kill(self, case: "Death") -> None:
        getattr(self, f"_{case.death.replace(' ', '_')}")(case)

    def _put(self, case: "Death", **properties: Any) -> None:
        sent = pika.BasicProperties(delivery_mode=2, **properties)
        self.channel.basic_publish(f"feed {case.name}", case.key, case.id, sent)

    def _put_filler(self, case: "Death") -> None:
        self.channel.basic_publish("", case.name, FILLER)
        case.fillers += 1

    def _fill(self, case: "Death") -> None:
        """As full as it was, with one message, which is dying, among those."""
        for _ in range(case.queue.fillers - 1):
            self._put_filler(case)

    def _reject(self, case: "Death", times: int = 0) -> None:
        """Held by a consumer before it can expire; given back `times` before."""
        self.channel.queue_purge(case.name)
        channel = self.channel.connection.channel()
        channel.basic_qos(prefetch_count=1)
        held: list[int] = []
        tag = channel.basic_consume(case.name, lambda _c, method, _p, _b: held.append(method.delivery_tag))
        self._put(case)
        for returned in range(times + 1):
            eventually(lambda n=returned: self.channel.connection.process_data_events(0.5) or len(held) > n)
            if returned < times:
                channel.basic_reject(held[-1], requeue=True)
        channel.basic_cancel(tag)
        self._fill(case)
        channel.basic_reject(held[-1], requeue=case.death == "delivery limit")  # a nack counts no more (4.3)
        channel.close()

    def _delivery_limit(self, case: "Death") -> None:
        default = 20 if self.rabbit.version >= (4,) else 0
        limit = case.queue.number("delivery-limit")
        self._reject(case, default if limit is None else limit)

    def _expiry(self, case: "Death") -> None:
        self.channel.queue_purge(case.name)
        self._put(case, expiration="20")
        self._fill(case)

    def _overflow(self, case: "Death") -> None:
        self.channel.queue_purge(case.name)
        most = case.queue.number("max-length") or 0
        ways = ("reject-publish", *(["reject-publish-dlx"] if case.queue.kind == "classic" else []))
        refuses = case.queue.text("overflow") in ways
        if not refuses:
            self._put(case)
        for _ in range(most):
            self._put_filler(case)
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

    def look(self) -> dict[str, tuple[int, int]]:
        """How many messages a queue has, and how many wait in it until they have arrived elsewhere."""
        told = re.findall(r'{"(.+?)",\s*{(\d+),\s*(\d+)}}', self.rabbit.node.evaluate(_QUEUES))
        return {name: (int(ready), int(held)) for name, ready, held in told if name in self.queues}

    def take_all(self) -> tuple[dict[bytes, list[str]], set[str]]:
        """Once nothing moves any more: body -> queues that have it, fillers with their number; and the queues
        in which something waits."""
        there = settled(lambda: settled(self.look, 0.5), 0.5)
        assert there.keys() == self.queues.keys()
        found: dict[bytes, list[str]] = {}
        for name in (name for name, (ready, _) in there.items() if ready):
            while (got := self.channel.basic_get(name, auto_ack=True))[0] is not None:
                found.setdefault(got[2], []).append(name)
        return found, {name for name, (_, held) in there.items() if held}


@dataclass
class Death(Case):
    """One message, and how it dies."""

    queue: Queue = field(default_factory=lambda: Queue(""))
    id: bytes = b""
    fillers: int = 0
    refused: bool = False
    copy: str = ""
    own: frozenset[str] = frozenset()
    """The queues of its copy."""

    def of(self, copy: str, topology: Topology) -> "Death":
        """In that copy of its topology."""
        self.name, self.key, self.id = self.name.format(copy), self.key.format(copy), b"%d" % next(_ids)
        filled = {name.format(copy): queue.fillers for name, queue in topology.queues.items()}
        self.copy, self.own = copy, frozenset(filled)
        self.fillers = sum(filled.values()) - filled.get(self.name, 0)
        return self


def _named(table: Mapping[str, Any], copy: str) -> dict[str, Any]:
    return {name: value.format(copy) if isinstance(value, str) else value for name, value in table.items()}


def deaths(topology: Topology, version: tuple[int, ...]) -> Iterator[Death]:
    for name, queue in topology.queues.items():
        lasts, most = queue.number("message-ttl") is None, queue.number("max-length")
        has_limit = queue.kind == "quorum" and (queue.number("delivery-limit") is not None or version >= (4,))
        dies_of = {
            "reject": most != 0,
            "expiry": most != 0,
            "overflow": most is not None and lasts,
            "delivery limit": has_limit and lasts and most != 0,
        }
        where, own_key = queue.text("dead-letter-exchange"), queue.text("dead-letter-routing-key")
        keys = {name: True} if where is None or own_key is not None else topology.arrivals(name)
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
    cases = [[*deaths(topology, rabbit.version)] for topology in topologies]
    rounds = ceil(sum(map(len, cases)) / COPIES)
    each = [ceil(len(own) / rounds) for own in cases]
    lab = Lab(rabbit, [*zip(topologies, each, strict=True)])
    lab.build()
    fates = [fate for fate in lab.predict() if fate.name.startswith(FIRST)]
    lab.feed(lab.queues)
    done: list[Outcome] = []
    held: set[str] = set()
    for turn in range(rounds):
        now: list[Death] = []
        for topology, own, copies in zip(topologies, cases, each, strict=True):
            some = own[turn * copies : (turn + 1) * copies]
            now += [case.of(f"c{copy}-", topology) for copy, case in enumerate(some)]
        lab.refill(held)
        for case in now:
            lab.kill(case)
        found, held = lab.take_all()
        done += [_outcome(case, found, held) for case in now]
    compare(fates, done)


def _outcome(case: Death, found: dict[bytes, list[str]], held: set[str]) -> Outcome:
    places = {*found.get(case.id, ()), *(case.own & held), *([coverage.PUBLISHER] if case.refused else ())}
    fillers = sum(name in case.own for name in found.get(FILLER, ()))
    case.name, *renamed = (name.replace(case.copy, FIRST, 1) for name in (case.name, *places))
    return Outcome(case, frozenset(renamed), costs=fillers < case.fillers)


def test_a_handful_leads_where_it_was_said(rabbit: Rabbit) -> None:
    run(rabbit, 1, 4)


@pytest.mark.parametrize("seed", range(2, 7))
def test_each_death_leads_where_it_was_said(rabbit: Rabbit, seed: int) -> None:
    run(rabbit, seed, 10)
