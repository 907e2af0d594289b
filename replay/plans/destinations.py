"""Where letters of a plan go, and whether it is there: known before anything is sent."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache

from dlq.connectors import deadline
from dlq.connectors.base import Fate, Limits, Target
from dlq.core.errors import BrokerError, DlqError, NotFound
from dlq.core.runtime import patience
from dlq.replay.runs.brokers import Brokers

Destination = tuple[str, Target]
"""(Broker, target)."""
_NONE_KNOWN = Limits()
_AGAIN = ("reject", "delivery limit", "give-up")
"""Deaths of a letter whose consumer fails again."""

_MEMBER = re.compile(
    r"(?:(?P<stomp>/)?(?:remote-)?(?:temp-)?(?P<kind>queue|topic)(?(stomp)/|://))?(?P<name>[^?]*)"
)
"""A destination of ActiveMQ as its broker reads it (ActiveMQDestination): a kind, a name, and options."""
_ANY = str.maketrans({"*": "\0\0", ">": "\0.\0", "#": "\0.\0"})
"""What ActiveMQ's wildcards may stand for: nothing that a narrower pattern names."""

_UUID = r"\{?[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\}?"
_TEMPORARY = (
    (r"(?:(?:remote-)?temp-(?:queue|topic)[:/]+)?ID[:_].*", "a temporary destination of JMS"),
    (r"/?(?:remote-)?temp-(?:queue|topic)[:/].*", "a temporary destination"),
    (r"jms\.temp(?:queue|topic)\..*", "a temporary destination of JMS"),
    (r"amq\.gen-.*|amq_[0-9a-f]{32}", "a queue that its broker named for one connection"),
    (r"amq\.rabbitmq\.reply-to.*", "a reply queue"),
    (r"spring\.gen-.*|.*\.anonymous\.[\w-]{22}", "an anonymous queue of Spring's"),
    (r"celeryev\..*|.*\.celery\.pidbox", "a queue of one Celery worker"),
    (r"easynetq\.response\..*|.*[._-]repl(?:y|ies)[._-]" + _UUID, "a reply queue"),
    (r".*_bus_[a-z0-9]{20,32}", "the queue of one MassTransit instance"),
    (r".+_REPLY_TOPIC", "the topic of replies to RocketMQ's clients"),
    (r"console-consumer-\d+", "a group that a console generated"),
    (_UUID, "a generated name"),
)
"""Form of a name that lived with a connection, and what it is: a letter that is sent there would make an
ordinary queue that nobody reads, or reach somebody else's. Of `address::queue` the queue counts: a volatile
subscription has one."""
_TEMPORARY_NAMES = [(re.compile(form, re.IGNORECASE | re.DOTALL), what) for form, what in _TEMPORARY]


def is_allowed(target: Target, patterns: Sequence[str]) -> bool:
    """Return whether `[replay] targets` lets letters go there: by its name, or as `--to` writes it. ActiveMQ
    gives a letter to each member of a composite destination, so that each has to be let, unless a pattern is
    the whole name; so it is with a comma in the name of another broker's queue, as nothing here tells
    which."""
    return not patterns or _is_let(target, tuple(patterns))


@lru_cache(maxsize=1024)
def _is_let(target: Target, patterns: tuple[str, ...]) -> bool:
    return not {target.name, str(target)}.isdisjoint(patterns) or all(
        any(fnmatchcase(name, p) for name in names for p in patterns) for names in _read_as(target)
    )


def _read_as(target: Target) -> Iterator[tuple[str, str]]:
    """Yield what a target may be to its broker: of each the name, and as `--to` writes it."""
    members = [one for one in target.name.split(",") if one.strip()] if target.kind != "exchange" else []
    if len(members) < 2:
        yield target.name, str(target)
    for read in filter(None, (_MEMBER.match(member.strip()) for member in members)):
        name = read["name"].strip().translate(_ANY)
        yield name, f"{read['kind'] or target.kind}:{name}"


def target_named(text: str) -> Target:
    """Return a target as `Target` prints it."""
    kind, _, name = text.partition(":")
    exchange, _, key = name.partition("/")
    return Target(kind, exchange, key) if kind == "exchange" else Target(kind, name)


class Destinations:
    """Asks brokers once for each target."""

    def __init__(self, brokers: Brokers, warn: Callable[[str], None]) -> None:
        self._brokers, self._warn = brokers, warn
        self._asked: set[Destination] = set()
        self._missing: dict[Destination, str] = {}
        self._limits: dict[Destination, Limits] = {}
        self._fates: dict[str, dict[tuple[str, str], list[Fate]]] = {}
        self._uncovered: dict[Destination, tuple[str, str]] = {}
        self._taken: Counter[Destination] = Counter()
        self._bytes: Counter[Destination] = Counter()

    def learn(self, some: Collection[Destination], to: str) -> None:
        """Ask for those that are new. Raises NotFound where the user's word for them, `to`, names one that is
        not there."""
        new = set(some) - self._asked
        self._asked |= new
        for broker in sorted({name for name, _ in new}):
            targets = sorted(target for name, target in new if name == broker)
            try:
                missing = self._brokers.get(broker).missing_targets(targets)
            except BrokerError as error:
                self._warn(f"whether its target is there is not proven: {error}")
                continue
            if missing and ":" in to:
                raise NotFound(f"--to {to}: {next(iter(missing.values()))} on {broker}")
            self._missing |= {(broker, target): why for target, why in missing.items()}
            self._learn_limits(broker, [target for target in targets if target not in missing])

    def _learn_limits(self, broker: str, targets: Sequence[Target]) -> None:
        try:
            limits = self._brokers.get(broker).limits(targets)
        except BrokerError as error:
            self._warn(f"what its target would drop or end is not known: {error}")
            return
        self._limits |= {(broker, target): found for target, found in limits.items()}

    def why_missing(self, destination: Destination) -> str | None:
        """Return why nothing can be sent there; None where it is there, or nobody tells."""
        return self._missing.get(destination)

    def why_temporary(self, destination: Destination) -> str | None:
        """Return what shows that it lived, or lives, with a connection; None where nothing does."""
        return self._limits_of(destination).temporary or why_temporary(destination[1])

    def refused_die_again(self, destination: Destination) -> bool:
        """Return whether what it refuses is a dead letter once more."""
        return self._limits_of(destination).refused_die_again

    def why_no_room(self, destination: Destination, size: int) -> str | None:
        """Return why one more letter of so many bytes would be lost there, or something through it; None
        where it has room, which it takes."""
        limits = self._limits_of(destination)
        if limits.letters is None and limits.size is None:
            return None
        fits = limits.letters is None or self._taken[destination] < limits.letters
        if not fits or (limits.size is not None and self._bytes[destination] + size > limits.size):
            return limits.why
        self._taken[destination] += 1
        self._bytes[destination] += size
        return None

    def says_nothing_of(self, destination: Destination) -> bool:
        """Return whether nothing is known by which any letter that goes there would be lost."""
        limits = self._limits_of(destination)
        return limits.letters is limits.size is None and not self.why_uncovered(destination)[1]

    def why_uncovered(self, destination: Destination) -> tuple[str, str]:
        """Return what becomes of letters that die again there: `lost`, `unknown` or `kept`, and a sentence of
        what is lost. Each broker is asked once, for so long and no longer."""
        if destination not in self._uncovered:
            self._uncovered[destination] = self._why_uncovered(*destination)
        return self._uncovered[destination]

    def _why_uncovered(self, broker: str, target: Target) -> tuple[str, str]:
        if broker not in self._fates:
            self._fates[broker] = self._ask_coverage(broker)
        fates = self._fates[broker].get((target.kind, target.name.rpartition("::")[2]), [])
        lost = [fate for fate in fates if fate.verdict == "lost"]
        if not lost:
            return "kept" if fates and all(fate.verdict == "kept" for fate in fates) else "unknown", ""
        kinds = ", ".join(dict.fromkeys(fate.death for fate in lost))
        return "lost", f"{target}: what dies there again is lost ({kinds}: {lost[0].why})"

    def _ask_coverage(self, broker: str) -> dict[tuple[str, str], list[Fate]]:
        found: dict[tuple[str, str], list[Fate]] = {}
        with suppress(DlqError), deadline.within(patience.SHORTLY):
            for fate in self._brokers.get(broker).coverage():
                if fate.death in _AGAIN:
                    found.setdefault((fate.kind, fate.name), []).append(fate)
        return found

    def _limits_of(self, destination: Destination) -> Limits:
        return self._limits.get(destination, _NONE_KNOWN)


@lru_cache(maxsize=1024)
def why_temporary(target: Target) -> str | None:
    """Return what the target's name shows to have lived with a connection; None where it shows nothing."""
    if target.kind == "exchange":
        return None
    name = target.name.rpartition("::")[2]
    what = next((what for pattern, what in _TEMPORARY_NAMES if pattern.fullmatch(name)), None)
    return what and f"{target} is {what}"
