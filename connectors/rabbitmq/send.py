"""Where letters are published to, so that one queue alone gets them, as it got them the first time.

The default exchange leads to one queue, and makes its name the routing key. A letter that came with another
key, or with CC, goes by an exchange of its plan's own that is bound to that queue alone: a fanout exchange
leads there with any key. So a consumer, a dead-letter exchange and an MQTT client see the keys that they saw;
only the exchange has another name. It is its own alternate exchange, so that no policy makes another one take
what it cannot route: an argument wins (rabbit_policy:get_arg/3).
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from hashlib import sha256

from pika import spec

from dlq.connectors.base import Outgoing, Target
from dlq.connectors.rabbitmq.amqp091.link.questions import Questions, Refused, questions
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rabbitmq.records.envelope import Way, first_delivered, is_of_celery
from dlq.core.errors import AccessDenied, BrokerError, NotFound, name_rights

_DENIED, _NOT_FOUND, _LOCKED = 403, 404, 405


def exchange_of(plan: str) -> str:
    """Return the exchange of a plan with a witness, which tells what the broker was when it was made."""
    return f"dlq.replay.{plan}"


def exchange_to(plan: str, queue: str) -> str:
    """Return the plan's exchange that leads to this queue alone."""
    digest = sha256(queue.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{exchange_of(plan)}.{digest[:32]}"


class Ways:
    """The ways of one plan's letters. Those for a target that is `private` keep what they came with."""

    takes_any = False
    """Whether letters for any queue go by an exchange of the plan's own."""

    def __init__(self, broker: RabbitBroker, plan: str, private: Collection[Target] = ()) -> None:
        self.broker, self.plan, self._private = broker, plan, private
        self.made: set[str] = set()
        """Queues to which there is an exchange now."""
        self._barred: dict[tuple[str, str | None], str] = {}
        """(exchange, key, or None for all) -> why the broker takes nothing there."""
        self.way_to = lru_cache(maxsize=128)(self._way_to)
        """(queue, what a letter came with, where that is kept): its way."""

    def bar(self, exchange: str, key: str | None, why: str) -> None:
        """Send nothing more to an exchange, with this key or with any (None)."""
        self._barred[exchange, key] = why

    def why_barred(self, way: Way) -> str | None:
        """Return what is known against it, if anything."""
        if not self._barred:
            return None
        return self._barred.get((way.exchange, None)) or self._barred.get((way.exchange, way.key))

    def make(self, letter: Outgoing, way: Way) -> None:
        """Call `prepare`; a way that the broker denies is barred, and ValueError says why."""
        try:
            self.prepare(letter, way)
        except AccessDenied as error:
            self.bar(way.exchange, None, str(error))
            raise ValueError(f"never sent: {error}") from error

    def way_of(self, letter: Outgoing) -> Way:
        """Return its way; nobody is asked. Raises ValueError where its properties cannot be read."""
        target = letter.target
        if target.kind == "exchange":
            return Way(target.name, target.routing_key)
        keeps = target in self._private and not is_of_celery(letter.record)
        return self.way_to(target.name, first_delivered(letter.record, target.name) if keeps else None)

    def _way_to(self, queue: str, kept: Way | None) -> Way:
        by_default = Way("", queue)
        if not self.takes_any and (kept is None or kept[1:] == by_default[1:]):
            return by_default
        return (kept or by_default)._replace(exchange=exchange_to(self.plan, queue))

    def prepare(self, letter: Outgoing, way: Way) -> None:
        """Make the plan's exchange to the letter's queue, if it goes by one. Raises BrokerError."""
        queue = letter.target.name
        if letter.target.kind == "exchange" or not way.exchange or queue in self.made:
            return
        own = {"alternate-exchange": way.exchange}
        made = spec.Exchange.Declare(exchange=way.exchange, type="fanout", durable=True, arguments=own)
        with name_rights(self.hint):
            with questions(self.broker) as asking:
                asking.ask(made)
            self.made.add(queue)
            self.bind(queue, way.exchange)

    hint = "the plan counts on an exchange of its own there: grant it, or make a new plan"

    def bind(self, queue: str, exchange: str) -> None:
        """Bind a queue. Where it is not there the broker returns the letters, as nothing is bound then."""
        with suppress(NotFound), questions(self.broker) as asking:
            asking.ask(spec.Queue.Bind(queue=queue, exchange=exchange, routing_key=queue))

    def note_failure(self, queue: str) -> None:
        """Note that a queue failed with letters that it had not answered."""

    def remove(self) -> None:
        """Remove what was made, as nothing is in flight. What cannot be removed now `forget` removes."""
        if self.made:
            with suppress(BrokerError):
                forget(self.broker, self.plan, self.made)
            self.made.clear()


def forget(broker: RabbitBroker, plan: str, queues: Iterable[str]) -> None:
    """Delete the plan's exchanges to these queues, if they are there. Raises BrokerError."""
    with questions(broker) as asking:
        for exchange in [exchange_to(plan, queue) for queue in queues]:
            try:
                asking.exchange(exchange)
            except Refused as refused:
                if refused.code != _NOT_FOUND:
                    raise
            else:
                asking.ask(spec.Exchange.Delete(exchange=exchange))


def missing_rights(broker: RabbitBroker, queues: Iterable[str]) -> Mapping[str, str]:
    """Return what keeps a plan from exchanges of its own that lead to queues, in words; empty: nothing.
    Tried with names that nothing has: the broker looks at the rights first, and nothing changes. Raises
    BrokerError."""
    name = exchange_of(f"rights-{uuid.uuid4()}")
    with questions(broker) as asking:

        def lacks(steps: Mapping[str, Callable[..., object]], *names: str) -> list[str]:
            denied = (_DENIED, _LOCKED)
            return [why for why, step in steps.items() if not asking.is_let(partial(step, *names), denied)]

        shared = lacks(_SHARED, name)
        found = {queue: [*shared, *lacks(_OF_A_QUEUE, name, queue)] for queue in queues}
    return {
        queue: f"the user may not {', '.join(lacking)}" if lacking else "" for queue, lacking in found.items()
    }


def try_to_publish(exchange: str, asking: Questions) -> None:
    """Try to publish; the answer to the next question tells what became of it."""
    asking.publish(exchange)
    asking.ask(spec.Basic.Qos(prefetch_count=1))


_SHARED: Mapping[str, Callable[[str, Questions], object]] = {
    "configure exchanges dlq.replay.*": lambda name, asking: asking.ask(spec.Exchange.Delete(exchange=name)),
    "write to dlq.replay.*": try_to_publish,
}
_OF_A_QUEUE: Mapping[str, Callable[[str, str, Questions], object]] = {
    "bind the queue to dlq.replay.* (write to the one, read the other)": lambda name, queue, asking: (
        asking.ask(spec.Queue.Bind(queue=queue, exchange=name, routing_key=queue))
    ),
    "use a queue that is another connection's own": lambda _name, queue, asking: asking.queue(queue),
}


def is_there(broker: RabbitBroker, exchange: str) -> bool:
    """Return whether there is such an exchange. Raises BrokerError."""
    try:
        with questions(broker) as asking:
            asking.exchange(exchange)
    except NotFound:
        return False
    return True
