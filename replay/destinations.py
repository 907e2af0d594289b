"""Where letters of a plan go, and whether it is there: known before anything is sent."""

from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase

from dlq.connectors.base import Target
from dlq.core.errors import BrokerError, NotFound
from dlq.replay.brokers import Brokers

Destination = tuple[str, Target]
"""(Broker, target)."""


def is_allowed(target: Target, patterns: Sequence[str]) -> bool:
    """Whether `[replay] targets` lets letters go there: by its name, or as `--to` writes it."""
    names = (target.name, str(target))
    return not patterns or any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def target_named(text: str) -> Target:
    """A target as `Target` prints it."""
    kind, _, name = text.partition(":")
    exchange, _, key = name.partition("/")
    return Target(kind, exchange, key) if kind == "exchange" else Target(kind, name)


class Destinations:
    """Asks brokers once for each target."""

    def __init__(self, brokers: Brokers, warn: Callable[[str], None]) -> None:
        self._brokers, self._warn = brokers, warn
        self._asked: set[Destination] = set()
        self._missing: dict[Destination, str] = {}

    def learn(self, some: Collection[Destination], to: str) -> None:
        """Ask for those that are new. Raises NotFound where the user's word for them, `to`, names one that is
        not there."""
        new = set(some) - self._asked
        self._asked |= new
        for broker in sorted({name for name, _ in new}):
            targets = sorted(target for name, target in new if name == broker)
            try:
                missing = self._brokers.get(broker).missing(targets)
            except BrokerError as error:
                self._warn(f"whether its target is there is not proven: {error}")
                continue
            if missing and ":" in to:
                raise NotFound(f"--to {to}: {next(iter(missing.values()))} on {broker}")
            self._missing |= {(broker, target): why for target, why in missing.items()}

    def why_missing(self, destination: Destination) -> str | None:
        """Why nothing can be sent there; None where it is there, or nobody tells."""
        return self._missing.get(destination)
