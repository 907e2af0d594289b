"""Where letters go on Artemis, and whether they arrived: a receipt, or a commit, proves neither.

Artemis (2.56.0) routes a message by its address and its routing type. One that no queue of the address takes,
because it is ANYCAST and the queue MULTICAST, or because the address is full and drops, is answered like any
other; and ANYCAST to a name that is none makes a queue that nobody reads. So a letter goes out to the queue
that is meant, with that queue's routing type, and is confirmed only where the address' count of unrouted
messages has not grown, and its queues have got as many as were sent; so have those from which a cluster takes
what consumers of another node get.

`Target.kind` says the routing type: `queue` is ANYCAST, `topic` is MULTICAST, also where the name is the full
one of a queue (ADDRESS::QUEUE).
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property, wraps
from typing import Any, ParamSpec, TypeVar, cast

from dlq.connectors import deadline
from dlq.connectors.activemq.link.sockets import Unanswered
from dlq.connectors.activemq.look.artemis import MOST_ASKED, Management, policy_that_drops
from dlq.connectors.activemq.look.effects import Traits
from dlq.connectors.activemq.look.queues import TO_OTHER_NODES
from dlq.connectors.activemq.prove.evidence import STARTED, Count, began_anew, counts_of, growth_of
from dlq.connectors.base import Outcome, Outgoing, Sent, Target
from dlq.core.clock import now
from dlq.core.errors import BrokerError, ConnectionLost, Unreachable
from dlq.core.headers.provenance import REPLAY_ID
from dlq.core.record import Record
from dlq.core.runtime import patience

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Of = TypeVar("_Of", bound=Hashable)
_KINDS = {"ANYCAST": "queue", "MULTICAST": "topic", "1": "queue", "0": "topic"}
_FOR = {"queue": "ANYCAST", "topic": "MULTICAST"}
_SILENCE = (ConnectionLost, Unreachable)
_MOST_QUEUES = 20
"""Subscriptions of an address that are asked for one by one; beyond, the address' own count must do."""
_UPTIME = Count("broker", "uptimeMillis")
UNKNOWN_TYPE = (
    "neither the letter nor the broker names the routing type of {0}, and sent by the wrong one it is lost: "
    "topic:{0} is MULTICAST, as subscriptions are, queue:{0} is ANYCAST"
)
_DROPS = "{} drops what comes while it is full (address-full-policy or page-full-policy DROP), with a receipt"
_NEWEST = (
    "{} keeps the newest message of each key alone (last-value): each letter would take the place of a newer "
    "one, or of the letter before it"
)
_KEEPS_ALL = (
    "{} is non-destructive: acknowledging removes nothing, so whoever consumes it gets a letter again"
)
_IS_OFF = "{} is disabled, and takes nothing"
_PURGES = "{} is emptied when its last consumer leaves, and takes nothing without one (purge-on-no-consumers)"
_DIES_NOWHERE = "{} has no dead-letter-address, or one without a queue: what fails there again is dropped"
_RISKS: tuple[tuple[Callable[[Traits], bool], str], ...] = (
    (lambda of: bool(policy_that_drops(of.settings)), _DROPS),
    (lambda of: of.has("lastValue") or bool(of.queue.get("lastValueKey")), _NEWEST),
    (lambda of: bool(of.settings.get("defaultNonDestructive")), _KEEPS_ALL),
    (lambda of: of.queue.get("enabled") == "false", _IS_OFF),
    (lambda of: of.has("purgeOnNoConsumers"), _PURGES),
)
_MADE_WITH = {
    "lastValue": "defaultLastValueQueue",
    "lastValueKey": "defaultLastValueKey",
    "ringSize": "defaultRingSize",
    "purgeOnNoConsumers": "defaultPurgeOnNoConsumers",
}
"""A queue's property -> the setting of its address that gives it to one that is made by its first message."""
_NOWHERE = "the broker took it and routed it to no queue of {}"
_UNROUTED = "{} message(s) of {} were routed to no queue meanwhile, and this may be one of them"
_DROPPED = "the broker took it, and {} is full and drops"
_MISSED = (
    "the queue(s) of {} got {} of the {} letters that the broker took, and this may be one of the others"
)
_FEWER = (
    "of the {} letters of this plan that were committed the broker counts {}: any may be one of the others"
)
_UNCOUNTED = (
    "not all markers of the plan are there, so nobody can tell of how many letters the broker's counts are, "
    "and a letter whose marker is there may not be among them"
)
_CLUSTERED = (
    "{}; this broker is a node of a cluster, so it may lie on another: look there before you say that it was "
    "not sent"
)
_BEGAN_ANEW = (
    "the broker has counted anew since the plan's first letter was sent (restarted, or the queue made anew), "
    "so it cannot tell whether all {} committed letters arrived at {}"
)
UNPROVEN = (
    "Artemis' management does not answer this user, so confirmed means that a letter is committed, not that "
    "a queue got it, nor that none there is lost for it, as in a ring or where the newest of a key alone is "
    "kept; grant the permission manage on activemq.management"
)


def _own_kind(record: Record, target: Target) -> str | None:
    """Return the kind of the queue where the letter died, by the letter; None for another target."""
    died = f"{record.headers.get('_AMQ_ORIG_ADDRESS')}::{record.headers.get('_AMQ_ORIG_QUEUE')}"
    return _KINDS.get(record.headers.get("_AMQ_ORIG_ROUTING_TYPE", "")) if target.name == died else None


def _remember(ask: Callable[["Routing", _Of], _T]) -> Callable[["Routing", _Of], _T]:
    """Return a method that is asked once about each thing, unless it raises."""

    @wraps(ask)
    def answer(self: "Routing", of: _Of) -> _T:
        key = ask.__name__, of
        if key not in self.known:
            self.known[key] = ask(self, of)
        return cast(_T, self.known[key])

    return answer


class Routing:
    """What one Artemis tells of the places that letters go to. Where it `tells`, and is silent about
    something, that is no answer: every method raises Unanswered then."""

    def __init__(self, management: Management) -> None:
        self._management = management
        self.known: dict[tuple[str, Hashable], Any] = {}
        self._counted: Mapping[Count, int] = {}

    @cached_property
    def _names(self) -> frozenset[str] | None:
        names = self._management.queues()
        return None if names is None else frozenset(names)

    @property
    def tells(self) -> bool:
        """Whether the user may ask."""
        return self._names is not None

    @property
    def node(self) -> str:
        """The id that the broker gives itself, and its backup takes over, but no mirror; empty where it does
        not tell."""
        return str(self._management.attribute("broker", "nodeID") or "")

    def _ask(self, question: Callable[_P, _T], *what: _P.args, **named: _P.kwargs) -> _T:
        before = self._management.silences
        told = question(*what, **named)
        if self._management.silences != before:
            raise Unanswered("its management, which answered before, does not answer; is it too busy?")
        return told

    def resolve_target(self, target: Target, record: Record) -> Target:
        """Return the target with the kind, and where its name alone would lead elsewhere the full name, of
        the queue that it means. Where the broker does not tell, the letter does, and then the user's word
        counts."""
        known = self._queue_meant(target)
        return known or target._replace(kind=_own_kind(record, target) or target.kind)

    @_remember
    def _queue_meant(self, target: Target) -> Target | None:
        """Return None where the broker does not tell, or no queue is meant or there."""
        address, full, queue = target.name.rpartition("::")
        if (target.kind == "topic" and not full) or queue not in (self._names or ()):
            return None
        own, kind = str(self._of_queue(queue, "address")), self._kind_of(queue)
        if kind is None or (full and own != address):
            return None
        is_plain = own == queue and kind == "queue" and not full
        return Target(kind, queue if is_plain else f"{own}::{queue}")

    def is_divert(self, name: str) -> bool:
        """Return whether the broker has a divert of that name, which letters name as a queue."""
        return name in self._diverts

    @cached_property
    def _diverts(self) -> frozenset[str]:
        told = self._ask(self._management.attribute, "broker", "divertNames") if self.tells else None
        return frozenset(map(str, told)) if isinstance(told, list) else frozenset()

    @_remember
    def prospects(self, target: Target) -> tuple[str | None, list[str]]:
        """Return what the target does to what comes, beside keeping it (None: nothing); and where else it
        goes, or that nobody tells."""
        return self.risk(target), self._diverts_of(target) if self.tells else [UNPROVEN]

    def _diverts_of(self, target: Target) -> list[str]:
        """Return where diverts take what comes to a target's address, in words; of the first diverts
        alone."""
        return self._diversions.get(self._address(target), []) if self._diversions else []

    @cached_property
    def _diversions(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in sorted(self._diverts)[:MOST_ASKED]:
            address, to = (self._of_divert(name, what) for what in ("address", "forwardingAddress"))
            said = f"a divert, {name}, takes what comes to {address} to {to}"
            found.setdefault(address, []).append(said)
        return found

    def _of_divert(self, divert: str, name: str) -> str:
        return str(self._ask(self._management.attribute, f"divert.{divert}", name))

    def is_unknown(self, target: Target, record: Record) -> bool:
        """Return whether nobody tells the routing type of a queue that is named in full."""
        return "::" in target.name and not self.tells and _own_kind(record, target) is None

    def why_missing(self, target: Target) -> str | None:
        """Return why nothing that is sent there arrives; None where it does, or nobody tells."""
        if not self.tells or self._queue_meant(target):
            return None
        address, full, queue = target.name.rpartition("::")
        if full:
            return f"there is no queue {queue!r} at address {address!r}"
        types = self._of_address(queue, "routingTypes")
        if not isinstance(types, list) or not types or _FOR[target.kind] in types:
            return None
        other = "topic" if target.kind == "queue" else "queue"
        return f"{queue!r} is an address of {_FOR[other]} alone (as {other}:{queue} it has a receiver)"

    def receivers(self, target: Target) -> list[str]:
        """Return the queues that get what is sent there. The broker must tell (`tells`)."""
        known = self._queue_meant(target)
        if known is not None:
            return [known.name.rpartition("::")[2]]
        names = self._of_address(target.name, "queueNames")
        found = [str(name) for name in names] if isinstance(names, list) else []
        return [name for name in found if self._kind_of(name) == target.kind]

    def risk(self, target: Target) -> str | None:
        """Return what the target does to what comes, beside keeping it; None where it keeps it."""
        found = self.traits(target)
        said = [why for is_so, why in _RISKS if any(map(is_so, found))]
        said += [_DIES_NOWHERE] if any(self._drops_the_dead(of.settings) for of in found[:1]) else []
        return said[0].format(_place(target)) if said else None

    def _drops_the_dead(self, settings: Mapping[str, Any]) -> bool:
        """Return whether an address drops its dead, as QueueImpl#sendToDeadLetterAddress does; nothing is
        known where no settings are told."""
        place = settings.get("deadLetterAddress")
        if not place or settings.get("autoCreateDeadLetterResources"):
            return bool(settings) and not place
        return bool(self._of_address(str(place), "queueNames") == [])

    def traits(self, target: Target) -> list[Traits]:
        """Return those of the queues that get what is sent there; where none does yet, of the one that it
        makes. Empty where the broker does not tell."""
        if not self.tells:
            return []
        address, names = self._address(target), self.receivers(target)
        settings = self._ask(self._management.address_settings, address)
        if names:
            listed = self._ask(self._management.list_queues, "ADDRESS", address)
            return [Traits(one, settings) for one in listed if one.get("name") in names]
        made = {own: str(settings[name]).lower() for own, name in _MADE_WITH.items() if settings.get(name)}
        return [Traits({"name": target.name, "address": address, **made}, settings)]

    def _address(self, target: Target) -> str:
        return (self._queue_meant(target) or target).name.partition("::")[0]

    @_remember
    def _drops(self, target: Target) -> bool:
        return bool(policy_that_drops(self._ask(self._management.address_settings, self._address(target))))

    @_remember
    def _kind_of(self, queue: str) -> str | None:
        return _KINDS.get(str(self._of_queue(queue, "routingType")))

    def _of_queue(self, queue: str, name: str) -> Any:
        return self._ask(self._management.attribute, f"queue.{queue}", name)

    def _of_address(self, address: str, name: str) -> Any:
        return self._ask(self._management.attribute, f"address.{address}", name)

    def counts(self, targets: Iterable[Target]) -> Mapping[Count, int]:
        """Return what the broker has counted by now at the places of these targets."""
        if not self.tells:
            return {}
        wanted = [_UPTIME]
        for target in targets:
            queues = self.receivers(target)
            told = [*queues, *self.to_other_nodes] if len(queues) <= _MOST_QUEUES else []
            wanted += counts_of(self._address(target), told)
        found = self._count(wanted)
        up = found.pop(_UPTIME)
        return {STARTED: now() // 1000 - up, **found} if up else found

    def _count(self, wanted: Iterable[Count]) -> dict[Count, int]:
        asked = [*dict.fromkeys(wanted)]
        return dict(zip(asked, map(_number, self._ask(self._management.attributes, asked)), strict=True))

    @property
    def to_other_nodes(self) -> list[str]:
        """The queues in which a node of a cluster has letters on their way to the others."""
        return sorted(name for name in self._names or () if name.startswith(TO_OTHER_NODES))

    @_remember
    def begin(self, target: Target) -> str | None:
        """Return, before a letter goes there, why no queue would get it, and it must not be sent. (Sent all
        the same, its duplicate id would be used up.) Raises Unanswered where that takes too long, or where
        nobody has answered, which is no missing right."""
        try:
            with deadline.within(patience.ANSWER):
                if not self.tells and isinstance(silent := self._management.trouble, _SILENCE):
                    raise silent
                why = self._why_nowhere(target)
                self._counted = {**self.counts([target]), **self._counted}
                return why
        except BrokerError as error:
            raise Unanswered(str(error)) from error

    def _why_nowhere(self, target: Target) -> str | None:
        why = self.why_missing(target)
        if why is None and self.tells and target.kind == "topic" and not self.receivers(target):
            return f"{_place(target)} has no queue of a subscription"
        return why

    def answers(self, letters: Sequence[tuple[int, Target]]) -> list[Sent]:
        """Return what became of letters that were committed, by their numbers and where they were sent."""
        if not self.tells:
            return [Sent(number, "confirmed") for number, _ in letters]
        numbers: dict[Target, list[int]] = {}
        for number, target in letters:
            numbers.setdefault(target, []).append(number)
        answers: list[Sent] = []
        with deadline.within(patience.ANSWER):
            for target, own in numbers.items():
                outcome, why = self._told_of(target, len(own))
                answers += [Sent(number, outcome, why) for number in own]
        return answers

    def _told_of(self, target: Target, sent: int) -> tuple[Outcome, str | None]:
        """Return what became of what was committed: in doubt where it takes too long to tell."""
        try:
            return self._became(target, sent, self._counted)
        except BrokerError as error:
            return "in_doubt", str(error)

    def _became(self, target: Target, sent: int, before: Mapping[Count, int]) -> tuple[Outcome, str | None]:
        for _ in patience.tries(patience.COUNTED, patience.BLINK):
            after = self.counts([target])
            unrouted, routed, arrived = growth_of(before, after)
            is_short = arrived < sent or unrouted or (arrived < routed and self._drops(target))
            if not is_short or unrouted >= sent:
                break
        self._counted = {**self._counted, **after}
        if not is_short:
            return "confirmed", None
        if unrouted >= sent and not (routed or arrived):
            return "returned", _NOWHERE.format(_place(target))
        if not (unrouted or arrived) and self._drops(target):
            return "refused", _DROPPED.format(_place(target))
        return "in_doubt", self._with_nodes(_doubt(target, sent, unrouted, arrived))

    def unproven(
        self, letters: Mapping[Target, int], before: Mapping[Count, int], committed: int | None
    ) -> dict[Target, str]:
        """Return the targets for which so many letters in doubt were committed since `before`, and of which
        some may not have arrived, with the reason. Counts that a restart has set back prove nothing.

        `committed`: all letters of the plan that were, to whatever target; their queues must have got these,
        too, or what others of the plan got would stand for one that was dropped. None: nobody can tell how
        many were."""
        if not (letters and self.tells):
            return {}
        if why := _UNCOUNTED if committed is None else self._why_fewer(committed, before):
            return dict.fromkeys(letters, self._with_nodes(why))
        found: dict[Target, str] = {}
        for target, sent in letters.items():
            after = self.counts([target])
            unrouted, _, arrived = growth_of(before, after)
            if self._drops(target):
                found[target] = _DROPS.format(_place(target))
            elif began_anew(before, after):
                found[target] = _BEGAN_ANEW.format(sent, _place(target))
            elif unrouted or arrived < sent:
                found[target] = _doubt(target, sent, unrouted, arrived)
        return {target: self._with_nodes(why) for target, why in found.items()}

    def _with_nodes(self, why: str) -> str:
        return _CLUSTERED.format(why) if self.to_other_nodes else why

    def ids_in_queues(self, letters: Sequence[Outgoing]) -> set[str]:
        """Return the replay ids of those that lie in a queue of their target: they arrived, whatever is
        counted. The first 200 of a queue are listed, whatever a selector says
        (`management-browse-page-size`), and no selector finds what came by AMQP 1.0 (2.56.0)."""
        wanted = {letter.provenance[REPLAY_ID] for letter in letters}
        queues = {queue for letter in letters for queue in self.receivers(letter.target)}
        listed = (one for queue in queues for one in self._ask(self._management.messages, queue, "") or ())
        return wanted & {str(one.get(REPLAY_ID)) for one in listed}

    def may_hold(self, letter: Outgoing) -> bool:
        """Return whether a letter lies in a queue of its target, or nobody tells."""
        return not self.tells or letter.provenance[REPLAY_ID] in self.ids_in_queues([letter])

    def _why_fewer(self, committed: int, before: Mapping[Count, int]) -> str | None:
        """Say why fewer arrived, by the counts of all places that letters of the plan went to."""
        counted = before.keys() - {STARTED}
        for _ in patience.tries(patience.COUNTED, patience.BLINK):
            unrouted, _, arrived = growth_of(before, self._count(counted))
            if not counted or unrouted + arrived >= committed:
                return None
        return _FEWER.format(committed, max(0, unrouted + arrived))


def _doubt(target: Target, sent: int, unrouted: int, arrived: int) -> str:
    if unrouted:
        return _UNROUTED.format(unrouted, _place(target))
    return _MISSED.format(_place(target), max(arrived, 0), sent)


def _place(target: Target) -> str:
    address, full, queue = target.name.partition("::")
    return f"address {address!r}" + (f" (for queue {queue!r})" if full else "")


def _number(told: Any) -> int:
    """Return a count, 0 of a place that is not there yet."""
    return told if isinstance(told, int) else 0


def letters_by_target(outgoing: Iterable[Outgoing]) -> dict[Target, int]:
    """Return how many letters go to each target."""
    found: dict[Target, int] = {}
    for letter in outgoing:
        found[letter.target] = found.get(letter.target, 0) + 1
    return found
