"""What our consumer's coming and going does to a queue of RabbitMQ, by its type, arguments and policies
(run on 3.10.8 and 4.3.6)."""

from typing import NamedTuple

from dlq.connectors.base import Mode
from dlq.connectors.effects import BOTH, COPY, DRAIN, HARMS, TELLS, Effects, list_effects
from dlq.connectors.rabbitmq.look.topology import Topology
from dlq.core.values.units import human_seconds

_NEARLY_FULL = 0.8
SINGLE_ACTIVE = (
    "the queue has a single active consumer; while another one is active, nothing comes, and while ours is, "
    "the others wait"
)


RETURNS = (
    "its letters are alive: what dies here goes to {onward} and comes back, as in a loop of retries; a drain "
    "takes them out of it"
)


class _Traits(NamedTuple):
    """A queue as far as it is known, and its ready letters."""

    queue: Topology
    depth: int

    @property
    def limit(self) -> int | None:
        """Deliveries after which a quorum queue removes a letter; None: never, or it is none."""
        return self.queue.delivery_limit if self.queue.kind == "quorum" else None

    def number(self, name: str) -> int | None:
        """Return a setting in force that is a number."""
        found = self.queue.setting(name)
        return found if isinstance(found, int) else None

    def drops_its_oldest(self) -> bool:
        """Return whether what finds no room costs it its oldest letters."""
        bounded = self.number("max-length") is not None or self.number("max-length-bytes") is not None
        return bounded and not self.queue.overflow.startswith("reject-publish")

    def is_nearly_full(self) -> bool:
        """Return whether what comes while letters are out may fill it. The management API alone tells bytes,
        and late: what it has not counted yet may fill it."""
        size = self.queue.size if self.queue.counted >= self.depth else None
        filled = ((self.depth, self.number("max-length")), (size, self.number("max-length-bytes")))
        return any(
            most is not None and (holds is None or holds >= most * _NEARLY_FULL) for holds, most in filled
        )

    def words(self) -> dict[str, object]:
        """Return what the sentences name."""
        onward = self.queue.setting("dead-letter-exchange") is not None
        times = {name: self.number(name) for name in ("message-ttl", "expires", "consumer-timeout")}
        return {
            "limit": self.limit,
            "onward": ", ".join(self.queue.returns_by),
            "end": "are dead-lettered again" if onward else "vanish",
            **{name.replace("-", "_"): human_seconds((ms or 0) / 1000) for name, ms in times.items()},
        }


_EFFECTS: Effects[_Traits] = {
    (BOTH, HARMS): {
        "it is auto-delete: when dlq's consumer is the last to leave, even in the middle of a pull, the "
        "broker deletes the queue with its messages; move them to a lasting queue first": lambda of: (
            of.queue.flags.get("auto_delete")
        ),
    },
    (COPY, HARMS): {
        "the queue's type is not known, and on a quorum queue a copy counts as a delivery, which can remove "
        "messages; set management_url, use --mode drain": lambda of: of.queue.kind is None,
        "a quorum queue counts deliveries and removes a message after {limit}: an interrupted copy counts "
        "for every message that it holds; use --mode drain": lambda of: of.limit is not None,
        "this quorum queue may have a delivery limit by policy (RabbitMQ 4 removes a message after 20 "
        "by itself), and a copy counts as a delivery; set management_url so that dlq can see it, use "
        "--mode drain": lambda of: (
            of.queue.kind == "quorum" and of.limit is None and not of.queue.policies_known
        ),
        "it is nearly full and drops its oldest messages (max-length): when a copy gives its messages back, "
        "as many as came meanwhile {end}; use --mode drain": lambda of: (
            of.drops_its_oldest() and of.is_nearly_full()
        ),
    },
    (DRAIN, HARMS): {
        "whether it is auto-delete is not known: if it is, the queue goes with our consumer, and so do "
        "letters that a kill or --limit leaves there; grant the right to configure the queue, or set "
        "management_url": lambda of: of.queue.kind is None,
        "its delivery limit of {limit} leaves no room: if a kill or a lost connection interrupts a drain, "
        "the queue removes the messages that it holds; raise the limit by a policy first": lambda of: (
            of.limit is not None and of.limit < 2
        ),
    },
    (DRAIN, TELLS): {
        "its delivery limit may be set, or lower, by a policy that is not seen, and a drain that is cut off "
        "may lose the letters that it holds: it holds few at a time, and is slower; only the management API "
        "shows policies": lambda of: of.queue.kind in (None, "quorum") and not of.queue.policies_known,
    },
    (BOTH, TELLS): {
        "it drops its oldest letters (max-length): what a pull that is killed gives back takes room that is "
        "filled meanwhile, and those beyond it {end}": _Traits.drops_its_oldest,
        "letters older than {message_ttl} vanish: by dead-letter exchanges they come back to a queue in "
        "which they expired, and RabbitMQ drops what goes in such a circle; pull in time": lambda of: (
            of.queue.ends_in_circles
        ),
        RETURNS: lambda of: of.queue.returns_by and not of.queue.ends_in_circles,
        "letters older than {message_ttl} {end}: pull in time; so do those that are given back": lambda of: (
            of.number("message-ttl") is not None and not of.queue.returns_by
        ),
        "the queue itself goes, with its letters, when unused for {expires}; each look at it, doctor's and "
        "watch's too, starts that time anew": lambda of: of.number("expires") is not None,
        SINGLE_ACTIVE: lambda of: of.queue.setting("single-active-consumer"),
        "a pull that holds letters for longer than {consumer_timeout} (consumer-timeout) loses its consumer, "
        "and they go back": lambda of: of.number("consumer-timeout") is not None,
        "what a copy or a killed pull gives back is hidden from everybody for a while "
        "(delayed-retry)": lambda of: of.queue.setting("delayed-retry-type") not in (None, "disabled"),
        "it is not durable: when its node restarts it goes with its letters": lambda of: (
            of.queue.flags.get("durable") is False
        ),
    },
}


def effects(queue: Topology, depth: int, mode: Mode, harms: bool) -> list[str]:
    """Return what a pull in this mode would do there: what takes `--force`, or the rest."""
    if queue.kind == "stream":
        return []
    traits = _Traits(queue, depth)
    words = traits.words()
    return [said.format_map(words) for said in list_effects(_EFFECTS, traits, mode, harms)]


def harm(queue: Topology, depth: int, mode: Mode) -> str | None:
    """Return why a pull in this mode is refused without `--force`; None: it is not."""
    said = effects(queue, depth, mode, harms=True)
    return f"{'; '.join(said)}, or insist with --force" if said else None
