"""What is noted of brokers before a plan's first letter goes there: where a queue ended, what tells a store
from another, who was the master. In the plan's file each is a number, under the name of what it is about."""

from typing import NamedTuple

from dlq.connectors.base import Evidence
from dlq.connectors.rocketmq.read.queue import MessageQueue

KEPT = "#kept"
"""When it was noted, in microseconds of our clock: what was sent before that is not behind it."""
_STORED, _FIRST = "#stored", "#first"
_UNREADABLE = -1


class QueueEnd(NamedTuple):
    """Where a queue ended."""

    offset: int | None
    """None: the user may not look at it."""
    stored: int | None = None
    """When the last message before it was, in milliseconds of the broker's clock; None: there was none."""


class Store(NamedTuple):
    """What tells a broker's store from another. Times are milliseconds of the broker's clock."""

    boot: int
    """When the broker was started."""
    clock: int = 0
    """Its time when it was asked."""
    start: int = 0
    """Where its log began."""
    first: int | None = None
    """When the first message there was stored; None: it does not tell."""


class Lead(NamedTuple):
    """Who leads a broker: a slave that is promoted has another address under the same name, and a log that
    began with the same message."""

    master: frozenset[str] = frozenset()
    """Its master's addresses, by all name servers and runs."""
    epoch: frozenset[str] = frozenset()
    """What its controller has counted when the master was elected: one that was deposed, and elected again,
    has cut off what the other lacked (AutoSwitchHAClient). Nothing of one that none elects."""


def write_queue(place: MessageQueue, end: QueueEnd) -> Evidence:
    """Return the evidence of where a queue ended."""
    found = {str(place): _UNREADABLE if end.offset is None else end.offset}
    return found if end.stored is None else {**found, f"{place}{_STORED}": end.stored}


def read_queue(evidence: Evidence, place: MessageQueue) -> QueueEnd | None:
    """Return where a queue ended; None where nothing says so."""
    offset = evidence.get(str(place))
    if offset is None:
        return None
    return QueueEnd(None if offset == _UNREADABLE else offset, evidence.get(f"{place}{_STORED}"))


def list_queues(evidence: Evidence, topic: str) -> list[MessageQueue]:
    """Return the queues of a topic of which something was noted."""
    start = f"{topic}@"
    keys = [key for key in evidence if key.startswith(start) and not key.endswith(_STORED)]
    named = [key.removeprefix(start).rpartition(":") for key in keys]
    return [MessageQueue(topic, node, int(queue)) for node, _, queue in named]


def write_store(node: str, store: Store) -> Evidence:
    """Return the evidence of a broker's store. What is noted first stays, so that a later start's first
    message must not pass for that of the first start."""
    told = {"#boot": store.boot, "#clock": store.clock, "#start": store.start}
    first = {} if store.first is None else {f"{_FIRST}{store.boot}": store.first}
    return {f"{node}{key}": value for key, value in {**told, **first}.items()}


def read_store(evidence: Evidence, node: str) -> Store | None:
    """Return what tells a broker's store; None where nothing was noted. Old plans may lack its start."""
    boot = evidence.get(f"{node}#boot")
    if boot is None:
        return None
    clock, start = (evidence.get(f"{node}{key}", 0) for key in ("#clock", "#start"))
    return Store(boot, clock, start, evidence.get(f"{node}{_FIRST}{boot}"))


def write_lead(node: str, lead: Lead) -> Evidence:
    """Return the evidence of who leads a broker."""
    named = zip(Lead._fields, lead, strict=True)
    return {f"{node}#{what} {value}": 1 for what, values in named for value in values}


def read_lead(evidence: Evidence, node: str) -> Lead:
    """Return who leads a broker, as far as it was noted."""
    starts = [f"{node}#{what} " for what in Lead._fields]
    return Lead(*(frozenset(k.removeprefix(at) for k in evidence if k.startswith(at)) for at in starts))
