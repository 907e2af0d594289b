"""Where each kind of death leads on Classic, by the dead-letter strategies of its activemq.xml (run on 5.18.6
and 6.3.1): what a running broker answers shows none of them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from dlq.connectors.activemq.look.jolokia import QueueFacts
from dlq.connectors.base import NIGHT, Fate
from dlq.core.errors import ConfigError
from dlq.core.values.units import human_seconds

_SHARED, _INDIVIDUAL, _DISCARDING = "sharedDeadLetterStrategy", "individualDeadLetterStrategy", "discarding"
_SWITCHES = ("sendToDlqIfMaxRetriesExceeded", "fallbackToDeadLetter")
_MAP = "destinationPolicy/policyMap"
_BEANS = [
    f"{place}/{tag}"
    for place in ("destinationPolicy", f"{_MAP}/policyEntries", f"{_MAP}/defaultEntry", "plugins")
    for tag in ("bean", "ref")
]
"""What Spring puts in the place of an element that is read here."""
_MOST_DEATHS = 20
_FIX = "<{}/> as the deadLetterStrategy of {} in activemq.xml"
_PERSISTENT = "one that is not persistent is lost (processNonPersistent)"
_CLIENTS_LIMIT = "after as many redeliveries as its client wants (6, unless told)"
_AGAIN = "it comes back to a strategy that has had it, which drops it (enableAudit)"


@dataclass(frozen=True, eq=False)
class Strategy:
    """One dead-letter strategy: its element, and the attributes; it is the same for all of its policy."""

    kind: str = _SHARED
    settings: Mapping[str, str] = field(default_factory=dict)

    def is_on(self, name: str, otherwise: str) -> bool:
        """Return whether a switch is on."""
        return self.settings.get(name, otherwise).strip().lower() == "true"

    def target(self, queue: str) -> str:
        """Return where the dead of a queue go, as `queue://NAME` or `topic://NAME`."""
        if self.kind == _SHARED:
            told = self.settings.get("deadLetterQueue", "ActiveMQ.DLQ")
            return told if "://" in told else f"queue://{told}"
        kind = "queue" if self.is_on("useQueueForQueueMessages", "true") else "topic"
        prefix = self.settings.get("queuePrefix", "ActiveMQ.DLQ.Queue.")
        return f"{kind}://{prefix}{queue}{self.settings.get('queueSuffix', '')}"

    @property
    def lives(self) -> float:
        """Seconds after which its letters expire where they lie; 0 for never."""
        told = self.settings.get("expiration", "0").strip()
        return int(told) / 1000 if told.isdecimal() else 0.0

    def with_settings(self, queue: str, **settings: str) -> str:
        """Return what to write into activemq.xml."""
        kind, kept = (_SHARED, {}) if self.kind == _DISCARDING else (self.kind, self.settings)
        said = [f"{name}={quoteattr(text)}" for name, text in {**kept, **settings}.items()]
        return _FIX.format(" ".join([kind, *said]), queue)


_DEFAULT = Strategy()


class Policies(NamedTuple):
    """What an activemq.xml says of dead letters."""

    entries: Sequence[tuple[str, Strategy]]
    """Patterns of queues, and theirs."""
    otherwise: Strategy = _DEFAULT
    drops: Sequence[re.Pattern[str]] = ()
    """Of queues whose dead a plugin drops."""
    unknown: str = ""
    """Why nobody can say what becomes of dead letters."""
    not_expired: str = ""
    """The same of those that have not expired."""


def load(path: str, setting: str) -> Policies:
    """Read them from a file. Raises ConfigError, which names the setting."""
    try:
        root = ElementTree.fromstring(Path(path).read_bytes())  # noqa: S314 - the operator's own file
        for node in root.iter():
            node.tag = node.tag.rpartition("}")[2]
        broker = next(root.iter("broker"), None)
        if broker is not None:
            return _policies(broker)
    except (OSError, ElementTree.ParseError, re.error) as error:
        raise ConfigError(f"{setting}: {path} cannot be read: {error}") from error
    raise ConfigError(f"{setting}: {path} has no <broker>; give the file that the broker starts with")


def _policies(broker: Element) -> Policies:
    entries = [
        (pattern.strip(), _strategy(entry))
        for entry in broker.iterfind(f"{_MAP}/policyEntries/policyEntry")
        for pattern in entry.get("queue", "").split(",")
        if pattern
    ]
    default = broker.find(f"{_MAP}/defaultEntry/policyEntry")
    told = Policies(entries, _DEFAULT if default is None else _strategy(default))
    nodes = broker.iterfind("destinationPolicy//*")
    if any("${" in text for node in nodes for text in node.attrib.values()):
        told = told._replace(unknown="its policies have a ${…}, which the broker fills in when it starts")
    named = [(broker, "plugins"), (broker, "destinationPolicy")]
    named += [(one, name) for one in broker.iterfind(_MAP) for name in ("policyEntries", "defaultEntry")]
    if any(one.get(name) for one, name in named) or any(broker.find(one) is not None for one in _BEANS):
        told = told._replace(unknown="a plugin of its own, or policies that lie elsewhere, may decide")
    redelivery, discarding = (
        broker.find(f"plugins/{name}") for name in ("redeliveryPlugin", "discardingDLQBrokerPlugin")
    )
    if redelivery is not None and "false" in map(redelivery.get, _SWITCHES):
        told = told._replace(not_expired="the redeliveryPlugin drops some of those that fail too often")
    if discarding is not None:
        is_all = discarding.get("dropAll", "true") != "false"
        dropped = [".*"] if is_all else discarding.get("dropOnly", "").split()
        told = told._replace(drops=[re.compile(one) for one in dropped])
    return told


def _strategy(entry: Element) -> Strategy:
    found = entry.find("deadLetterStrategy/*")
    if found is None:
        told = entry.get("deadLetterStrategy")
        return Strategy(told) if told else _DEFAULT
    queue = found.find("deadLetterQueue/*")
    if found.get("deadLetterQueue", "").startswith("#") or (
        queue is not None and queue.tag in ("bean", "ref")
    ):
        return Strategy("one whose deadLetterQueue lies elsewhere")
    named = {} if queue is None else {"deadLetterQueue": f"{queue.tag}://{queue.get('physicalName')}"}
    return Strategy(found.tag, {**found.attrib, **named})


def lives_in(known: Policies, queue: str) -> list[float]:
    """Return after how many seconds letters expire that strategies put into this queue; none: they don't."""
    broker, found = _Broker(known, {}), set[float]()
    otherwise = () if any(pattern == ">" for pattern, _ in known.entries) else (known.otherwise,)
    for one in (*(strategy for _, strategy in known.entries), *otherwise):
        prefix, _, suffix = one.target("\0").removeprefix("queue://").partition("\0")
        own = queue[len(prefix) : len(queue) - len(suffix)]
        is_meant = one.kind == _SHARED or (one.kind == _INDIVIDUAL and broker.strategy(own) is one)
        if is_meant and one.target(own) == f"queue://{queue}":
            found.add(one.lives)
    return sorted(found - {0.0})


def predict(known: Policies, queues: Mapping[str, QueueFacts]) -> list[Fate]:
    """Return the fate of every kind of death in every queue."""
    return list(_Broker(known, queues).fates())


class _Broker:
    def __init__(self, known: Policies, queues: Mapping[str, QueueFacts]) -> None:
        self._known, self._queues = known, queues

    def fates(self) -> Iterator[Fate]:
        for name in sorted(self._queues):
            saves = self.strategy(name).is_on("processNonPersistent", "false")
            for death, remark in (("reject", ""), ("expiry", ""), ("delivery limit", _CLIENTS_LIMIT)):
                found = self._die(Fate("queue", name, death, "lost"), name, death == "expiry", ())
                loses = _PERSISTENT if found.verdict == "kept" and not saves else ""
                yield found.add_remark(loses).add_remark(remark)

    def strategy(self, queue: str) -> Strategy:
        """Return that of a queue, as PolicyMap#getEntryFor does: of the closest pattern that takes it. It is
        by chance where two take each other, such as `a.*` and `a.>`."""
        fitting = [one for one in self._known.entries if _takes(one[0], queue)]
        best = [one for one in fitting if not any(_is_closer(other[0], one[0], queue) for other in fitting)]
        if fitting and len({strategy for _, strategy in best}) != 1:
            return Strategy(" or ".join(f"that of {pattern}" for pattern, _ in best or fitting))
        return best[0][1] if best else self._known.otherwise

    def _die(self, found: Fate, queue: str, expired: bool, before: tuple[object, ...]) -> Fate:
        """Return the fate of a message that dies in a queue, after it has passed these strategies."""
        known, strategy = self._known, self.strategy(queue)
        why = known.unknown or (known.not_expired if not expired else "")
        if strategy.kind not in (_SHARED, _INDIVIDUAL, _DISCARDING):
            why = why or f"the strategy of {queue} is {strategy.kind}, which nobody can tell"
        if why:
            return found._replace(verdict="unknown", why=why)
        if any(one.fullmatch(queue) for one in known.drops):
            return found._replace(why=f"the discardingDLQBrokerPlugin drops what dies in {queue}")
        if strategy.kind == _DISCARDING:
            return found._replace(why=f"the strategy of {queue} discards", fix=strategy.with_settings(queue))
        if expired and not strategy.is_on("processExpired", "true"):
            fix = strategy.with_settings(queue, processExpired="true")
            return found._replace(why=f"the strategy of {queue} drops what expires (processExpired)", fix=fix)
        had = (strategy, queue if strategy.kind == _INDIVIDUAL else "")
        if had in before and strategy.is_on("enableAudit", "true"):
            return found._replace(why=_AGAIN)
        if len(before) > _MOST_DEATHS:
            why = "it expires in one dead-letter queue after another"
            return found._replace(verdict="unknown", why=why)
        kind, _, to = strategy.target(queue).partition("://")
        if kind != "queue":
            why = f"the topic {to} gives it to those alone that subscribe to it durably"
            return found._replace(verdict="unknown", why=why)
        if to == queue:
            return found._replace(why=f"{queue} is the dead-letter queue of its own dead, which are dropped")
        return self._come(found, queue, to, (*before, had))

    def _come(self, found: Fate, queue: str, to: str, before: tuple[object, ...]) -> Fate:
        """Return the fate of a message that comes to a queue's dead-letter queue, where it may expire."""
        kept, strategy = found._replace(verdict="kept", leads_to=(to,)), self.strategy(queue)
        seconds, read = strategy.lives, self._queues.get(to)
        if not seconds or (read is not None and read.consumers):
            return kept
        again = self._die(found, to, True, before)
        if again.verdict != "lost":
            return again
        why = f"{to} keeps it for {human_seconds(seconds)}, and {again.why}"
        fix = strategy.with_settings(queue, expiration="0")
        return kept._replace(why=why) if seconds >= NIGHT else found._replace(why=why, fix=fix)


def _is_closer(one: str, other: str, queue: str) -> bool:
    """As the order of DestinationMap#chooseValue, where it is one."""
    if queue in (one, other):
        return one == queue != other
    wider, narrower = _takes(one, other), _takes(other, one)
    return narrower if wider != narrower else not wider and one < other


def _takes(pattern: str, name: str) -> bool:
    """As DestinationFilter does; the name may be a pattern itself."""
    ours, theirs = pattern.split("."), name.split(".")
    if ours[-1] == ">":
        head = ours[:-1]
        return len(theirs) >= len(head) and all(
            "*" in (one, other) or one == other for one, other in zip(head, theirs, strict=False)
        )
    return len(ours) == len(theirs) and all(
        one in ("*", other) for one, other in zip(ours, theirs, strict=True)
    )
