"""What our consumer's coming and going does to a queue of Artemis, by its properties and its address'
settings (2.56.0)."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from dlq.connectors.activemq.look.queues import Queues
from dlq.connectors.base import Mode
from dlq.connectors.effects import BOTH, COPY, DRAIN, HARMS, TELLS, Effects, list_effects
from dlq.connectors.net.web import whole

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


def effects(queues: Queues, queue: str, mode: Mode, harms: bool) -> list[str]:
    """Return what a pull in this mode would do there, those that take `--force`, or the others; nothing where
    management does not tell."""
    told = queues.traits(queue)
    if told is None:
        return []
    return list_effects(_EFFECTS, Traits(*told), mode, harms)


def harm(queues: Queues, queue: str, mode: Mode) -> str | None:
    """Return why a pull in this mode is refused without `--force`; None where it is not."""
    said = effects(queues, queue, mode, harms=True)
    return f"{queue}: {'; '.join(said)}" if said else None
