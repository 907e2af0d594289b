"""What is noted of brokers before a plan's first letter goes there. In the plan's file each is a number,
under the name of what it is about. Times are milliseconds of the broker's clock."""

from typing import NamedTuple

from dlq.connectors.base import Evidence
from dlq.connectors.rocketmq.read.queue import MessageQueue

KEPT = "#kept"
"""When it was noted, in microseconds of our clock: what was sent before that is not behind it."""
_STORED, _UNREADABLE = "#stored", -1


class QueueEnd(NamedTuple):
    """Where a queue ended; without an offset the user may not look at it."""

    offset: int | None
    stored: int | None = None
    """When the last message before it was; None: there was none."""

    def write(self, place: MessageQueue) -> Evidence:
        """Return it as it is kept."""
        found = {str(place): _UNREADABLE if self.offset is None else self.offset}
        return found if self.stored is None else {**found, f"{place}{_STORED}": self.stored}

    @classmethod
    def read(cls, evidence: Evidence, place: MessageQueue) -> "QueueEnd | None":
        """Return what was kept; None where nothing was."""
        offset = evidence.get(str(place))
        if offset is None:
            return None
        return cls(None if offset == _UNREADABLE else offset, evidence.get(f"{place}{_STORED}"))


def list_queues(evidence: Evidence, topic: str) -> list[MessageQueue]:
    """Return the queues of a topic of which the end was noted."""
    start = f"{topic}@"
    keys = [key for key in evidence if key.startswith(start) and not key.endswith(_STORED)]
    named = [key.removeprefix(start).rpartition(":") for key in keys]
    return [MessageQueue(topic, node, int(queue)) for node, _, queue in named]


class Store(NamedTuple):
    """What tells a broker's store from another: when it was started, what its clock said, where its log
    began, and when the first message there was stored (None: it does not tell)."""

    boot: int
    clock: int = 0
    start: int = 0
    first: int | None = None

    def write(self, node: str) -> Evidence:
        """Return it as it is kept. What was first stays, so a later start's first message must not pass for
        that of the first start."""
        found = {f"{node}#boot": self.boot, f"{node}#clock": self.clock, f"{node}#start": self.start}
        return found if self.first is None else {**found, f"{node}#first{self.boot}": self.first}

    @classmethod
    def read(cls, evidence: Evidence, node: str) -> "Store | None":
        """Return what was kept; None where nothing was. Old plans lack its start."""
        if (boot := evidence.get(f"{node}#boot")) is None:
            return None
        clock, start = (evidence.get(f"{node}#{what}", 0) for what in ("clock", "start"))
        return cls(boot, clock, start, evidence.get(f"{node}#first{boot}"))


class Lead(NamedTuple):
    """Who leads a broker, by all name servers and runs: a slave that is promoted has another address under
    the same name, and a log that began with the same message."""

    master: frozenset[str] = frozenset()
    epoch: frozenset[str] = frozenset()
    """What its controller had counted when the master was elected: one that was deposed, and elected again,
    has cut off what the other lacked (AutoSwitchHAClient). Nothing of one that none elects."""

    def write(self, node: str) -> Evidence:
        """Return it as it is kept."""
        named = zip(self._fields, self, strict=True)
        return {f"{node}#{what} {value}": 1 for what, values in named for value in values}

    @classmethod
    def read(cls, evidence: Evidence, node: str) -> "Lead":
        """Return what was kept."""
        starts = [f"{node}#{what} " for what in cls._fields]
        return cls(*(frozenset(k.removeprefix(at) for k in evidence if k.startswith(at)) for at in starts))
