"""What our consumer's coming and going does to a queue of Artemis, by its properties and its address'
settings (2.56.0)."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from dlq.connectors.activemq.look.queues import Queues
from dlq.connectors.base import Mode
from dlq.connectors.effects import BOTH, COPY, DRAIN, HARMS, TELLS, Effects, list_effects
from dlq.connectors.net.web import whole
from dlq.core.values.units import human_seconds

DELAYS = {
    "expiryDelay": "expiry-delay", "maxExpiryDelay": "max-expiry-delay", "minExpiryDelay": "min-expiry-delay",
}  # fmt: skip
"""What gives a message without an end of its own one, in the order in which the broker asks."""
_EXPIRE = "letters expire here {} after they came ({}), and {}"
_NUMBER = re.compile(r"-?[0-9]{1,19}")


class Traits(NamedTuple):
    """A queue's properties as management lists them, all texts, and the settings of its address."""

    queue: Mapping[str, str]
    settings: Mapping[str, Any]

    def has(self, name: str) -> bool:
        """Return whether a property is true."""
        return self.queue.get(name) == "true"

    def number(self, name: str) -> int:
        """Return a number among the properties; -1 is the broker's for none."""
        text = self.queue.get(name, "")
        return int(text) if _NUMBER.fullmatch(text) else -1

    def limit_of(self, name: str) -> int | None:
        """Return a bound among the settings; None where there is none."""
        return whole(self.settings.get(name))


def why_shut(of: Traits) -> str:
    """Return why the broker routes no message to a queue; empty where it does."""
    if of.queue.get("enabled") == "false":
        return "is disabled, and takes nothing"
    if of.has("purgeOnNoConsumers") and not int(of.queue.get("consumerCount") or 0):
        return "takes nothing while it has no consumer (purge-on-no-consumers)"
    return ""


_EFFECTS: Effects[Traits] = {
    (BOTH, HARMS): {
        "when our consumer leaves as the last one, the broker deletes all that is in the queue "
        "(purge-on-no-consumers)": lambda of: of.has("purgeOnNoConsumers"),
        "when our consumer leaves, the broker deletes the queue with all that is in it (auto-delete, and "
        "auto-delete-queues-message-count -1)": lambda of: (
            of.has("autoDelete") and of.settings.get("autoDeleteQueuesMessageCount") == -1
        ),
        "max-delivery-attempts is 1: a pull that is killed sends every letter that it held to the "
        "dead-letter address, and drops them where there is none": lambda of: (
            of.settings.get("maxDeliveryAttempts") == 1
        ),
    },
    (DRAIN, HARMS): {
        "the broker deletes the queue once it is empty (auto-delete), and drops what dies until someone "
        "makes it again": lambda of: (
            of.has("autoDelete") and not of.settings.get("autoCreateDeadLetterResources")
        ),
        "acknowledging removes nothing from it (non-destructive), so each drain would take all of it "
        "again": lambda of: of.settings.get("defaultNonDestructive"),
    },
    (COPY, HARMS): {
        "it is a ring: where new letters come while ours are out, the broker drops what is given "
        "back": lambda of: of.number("ringSize") > 0,
    },
    (BOTH, TELLS): {
        "it is exclusive: while we read nobody else is given a letter, and we get none where another "
        "consumer was first": lambda of: of.has("exclusive"),
        "it allows few consumers (max-consumers): while we read, ours takes the place of "
        "another": lambda of: of.number("maxConsumers") > 0,
        "it gives nothing before more consumers are there (consumers-before-dispatch)": lambda of: (
            of.number("consumersBeforeDispatch") > 1
        ),
    },
}


def delay_of(settings: Mapping[str, Any]) -> str | None:
    """Return the setting by which an address gives an end to a message that has none."""
    return next((name for name in DELAYS if whole(settings.get(name)) is not None), None)


def expires_after(settings: Mapping[str, Any], before: float | None) -> float | None:
    """Return the seconds that a message lives at an address, which came with so many."""
    if settings.get("noExpiry"):
        return None
    name = delay_of(settings) if before is None else None
    return settings[name] / 1000 if name else before


def effects(queues: Queues, queue: str, mode: Mode, harms: bool) -> list[str]:
    """Return what a pull in this mode would do there, those that take `--force`, or the others; nothing where
    management does not tell."""
    told = queues.traits(queue)
    if told is None:
        return []
    of = Traits(*told)
    return [*list_effects(_EFFECTS, of, mode, harms), *([] if harms else _expiry(of.settings))]


def _expiry(settings: Mapping[str, Any]) -> list[str]:
    """Return when letters end that an address gives an end to, and where they go."""
    if (name := delay_of(settings)) is None or (lives := expires_after(settings, None)) is None:
        return []
    to = settings.get("expiryAddress")
    goes = f"go to {to}" if to else "are lost, as its address has no expiry-address"
    return [_EXPIRE.format(human_seconds(lives), DELAYS[name], goes)]


def harm(queues: Queues, queue: str, mode: Mode) -> str | None:
    """Return why a pull in this mode is refused without `--force`; None where it is not."""
    said = effects(queues, queue, mode, harms=True)
    return f"{queue}: {'; '.join(said)}" if said else None
