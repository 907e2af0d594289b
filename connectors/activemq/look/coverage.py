"""Where each kind of death leads on Artemis, from its queues, address settings and diverts alone
(run on 2.56.0)."""

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dlq.connectors.activemq.look.artemis import ADDRESS_FULL, PAGE_FULL, policy_that_drops
from dlq.connectors.activemq.look.effects import DELAYS, Traits, delay_of, expires_after, why_shut
from dlq.connectors.base import NIGHT, Fate
from dlq.core.values.units import human_seconds

_INTERNAL = ("$", "activemq.", "dlq.reply.")
_DEFAULT_ATTEMPTS = 10
PRODUCER = "its producer"
_SETTING = '<address-setting match="{}"><{}>{}</{}></address-setting> in broker.xml'
_CREATE = (
    "artemis queue create --name {0} --address {0} --auto-create-address --anycast --durable "
    "--preserve-on-no-consumers --silent"
)
_NOT_SHOWN = "the settings of {} are not shown"
_NO_ADDRESS = "its address has no {}"
_NO_QUEUE = "{} {} has no queue"
_NO_ROUTE = "{} has no queue, and send-to-dla-on-no-route is off: what comes is dropped with a receipt"
_ROUND = "{} has no queue, nor have its dead-letter-addresses, which go round: it is dropped with a receipt"
_GOES = "{} is deleted when it is read empty (auto-delete): what dies after that is lost"
_OWN_FILTER = "_AMQ_ORIG_ADDRESS"
_FILTERS = "the queues of {} have filters"
_CIRCLE = "it goes round between addresses, and stays"


class Way(NamedTuple):
    """One of the two ways of the dead: how its address is called in the settings, and made by itself."""

    words: str
    address: str
    creates: str
    queue: str
    """Of the settings that are the prefix and suffix of a queue."""
    default_prefix: str


_DEAD = Way(
    "dead-letter-address", "deadLetterAddress", "autoCreateDeadLetterResources", "deadLetterQueue", "DLQ."
)
_EXPIRED = Way("expiry-address", "expiryAddress", "autoCreateExpiryResources", "expiryQueue", "EXP.")


@dataclass(frozen=True)
class Definitions:
    """What management tells: queues as listed, the settings of each address, and diverts by address."""

    queues: Sequence[Mapping[str, str]]
    settings: Mapping[str, Mapping[str, Any]]
    diverts: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    addresses: Sequence[str] = ()


class _Lives(NamedTuple):
    """How long a message lives, and the address that says so; None: for ever."""

    seconds: float | None
    by: str


_FOR_EVER = _Lives(None, "")


class _End(NamedTuple):
    verdict: Any
    places: tuple[str, ...] = ()
    why: str = ""
    fix: str = ""


def predict(known: Definitions) -> list[Fate]:
    """Return the fate of every kind of death in every queue, and of what an address without a queue gets."""
    return list(_Broker(known).fates())


class _Broker:
    def __init__(self, known: Definitions) -> None:
        self._known = known
        self._of: dict[str, list[Mapping[str, str]]] = defaultdict(list)
        for queue in known.queues:
            self._of[queue["address"]].append(queue)

    def fates(self) -> Iterator[Fate]:
        for queue in sorted(self._known.queues, key=lambda one: one["name"]):
            if not queue["name"].startswith(_INTERNAL) and queue.get("temporary") != "true":
                yield from self._of_queue(Traits(queue, self._settings(queue["address"])))
        for address in sorted(self._known.addresses):
            if not self._of.get(address) and not address.startswith(_INTERNAL):
                yield self._unroutable(address)

    def _settings(self, address: str) -> Mapping[str, Any]:
        return self._known.settings.get(address, {})

    def _of_queue(self, of: Traits) -> Iterator[Fate]:
        name, address = of.queue["name"], of.queue["address"]
        if not of.settings:
            yield Fate("queue", name, "any", "unknown", (), _NOT_SHOWN.format(address))
            return
        dead = Fate("queue", name, "reject", *self._leave(address, _DEAD, ()))
        yield dead
        if (attempts := of.settings.get("maxDeliveryAttempts", _DEFAULT_ATTEMPTS)) > 0:
            yield dead.add_remark(f"after {attempts} deliveries", "delivery limit")
        if not of.settings.get("noExpiry"):
            yield Fate("queue", name, "expiry", *self._leave(address, _EXPIRED, ()))
        yield from _overflow(name, address, of)
        if gone := _discards(of):
            yield Fate("queue", name, "discard", "lost", (), gone)

    def _unroutable(self, address: str) -> Fate:
        unknown = _End("unknown", (), _NOT_SHOWN.format(address))
        end = self._end_of_unrouted(address, (PRODUCER,)) if self._settings(address) else unknown
        return Fate("address", address, "unroutable", *end)

    def _end_of_unrouted(self, address: str, before: tuple[str, ...]) -> _End:
        """Return the end of a message that no queue of an address takes, be it the address of its dead
        letters. Its producer is the first of those before where it was not in a queue yet."""
        settings = self._settings(address)
        if address in before:
            why = "the broker fails over it, as it goes in a circle"
            return _End("kept", (PRODUCER,), why) if before[0] == PRODUCER else _End("lost", (), why)
        if not settings.get("sendToDLAOnNoRoute"):
            fix = _SETTING.format(address, "send-to-dla-on-no-route", "true", "send-to-dla-on-no-route")
            return _End("lost", (), _NO_ROUTE.format(address), fix)
        to = str(settings.get(_DEAD.address) or "")
        if not to or self._of.get(to) or self._known.diverts.get(to):
            return self._leave(address, _DEAD, before, creates=False)
        if to in (*before, address):
            return _End("lost", (), _ROUND.format(address), _CREATE.format(shlex.quote(to)))
        return self._end_of_unrouted(to, (*before, address))

    def _leave(self, address: str, way: Way, before: tuple[str, ...], creates: bool = True) -> _End:
        """Return the end of a message that dies at an address, after it died at others."""
        settings = self._settings(address)
        to = settings.get(way.address)
        if not to:
            fix = _SETTING.format(address, way.words, "DLQ" if way is _DEAD else "ExpiryQueue", way.words)
            return _End("lost", (), _NO_ADDRESS.format(way.words), fix)
        made = ""
        if creates and settings.get(way.creates):
            prefix, suffix = (settings.get(f"{way.queue}{affix}") for affix in ("Prefix", "Suffix"))
            made = f"{way.default_prefix if prefix is None else prefix}{address}{suffix or ''}"
        return self._come(str(to), way, (*before, address), made)

    def _come(
        self,
        address: str,
        way: Way,
        before: tuple[str, ...],
        made: str = "",
        is_routed: bool = False,
        lives: _Lives = _FOR_EVER,
    ) -> _End:
        """Return where a message ends that comes to an address, by itself or by a divert: what time to live
        an address gives it goes along to where its diverts lead."""
        if (seconds := expires_after(self._settings(address), lives.seconds)) != lives.seconds:
            lives = _Lives(seconds, address)
        diverts = self._known.diverts.get(address, ())
        if any(one.get("filter") for one in diverts):
            return _End("unknown", (), f"a divert of {address} has a filter")
        ends = [
            self._come(str(one["forwardingAddress"]), way, (*before, address), is_routed=True, lives=lives)
            for one in diverts
            if before.count(address) < 2  # by itself, and once more by a divert
        ]
        if any(one.get("exclusive") for one in diverts):
            return _merge_ends(ends)
        queues = self._of.get(address, [])
        if not queues and not diverts and is_routed:
            return self._end_of_unrouted(address, before)
        if not queues and not made and not diverts:
            return _End(
                "lost", (), _NO_QUEUE.format(way.words, address), _CREATE.format(shlex.quote(address))
            )
        return _merge_ends(
            [*ends, *([self._stays(address, queues, before, made, lives)] if queues or made else [])]
        )

    def _stays(
        self,
        address: str,
        queues: Sequence[Mapping[str, str]],
        before: tuple[str, ...],
        made: str,
        lives: _Lives,
    ) -> _End:
        origin, settings = before[-1], self._settings(address)
        selects = [Traits(q, settings) for q in queues if _takes(q.get("filter", ""), origin)]
        shut = {of.queue["name"]: why for of in selects if (why := why_shut(of))}
        traits = [of for of in selects if of.queue["name"] not in shut]
        names = tuple(sorted({*(of.queue["name"] for of in traits), made} - {"", *shut}))
        if not names and shut:
            return _End("lost", (), "; ".join(f"{name} {why}" for name, why in shut.items()))
        if not names and all(_OWN_FILTER in q.get("filter", "") for q in queues):
            return _End("lost", (), f"no queue of {address} takes what died at {origin}")
        if not names:
            return _End("unknown", (), _FILTERS.format(address))
        full = [why for of in traits if (why := _is_full(of))]
        if len(full) == len(names):
            return _End("lost", names, full[0])
        if lives.seconds is None or any(int(of.queue.get("consumerCount") or 0) for of in traits):
            goes = [of.queue["name"] for of in traits if not made and of.has("autoDelete")]
            return _End("kept", names, _GOES.format(goes[0]) if goes else "")
        if settings.get("expiryAddress"):
            return (
                _End("kept", names, _CIRCLE) if address in before else self._leave(address, _EXPIRED, before)
            )
        why = f"{address} keeps it for {human_seconds(lives.seconds)}"
        name = DELAYS[delay_of(self._settings(lives.by)) or "expiryDelay"]
        fix = _SETTING.format(lives.by, name, "-1", name)
        return _End("kept", names, why) if lives.seconds >= NIGHT else _End("lost", (), why, fix)


def _takes(selector: str, origin: str) -> bool:
    """Return whether a selector that the broker made by itself takes a letter; of others nobody knows."""
    return not selector or selector.replace(" ", "") == f"{_OWN_FILTER}='{origin}'"


def _is_full(of: Traits) -> str:
    size, name = of.number("ringSize"), of.queue["name"]
    if 0 <= size <= of.number("messageCount"):
        return f"{name} is a full ring: each one more drops its oldest"
    bounds = {ADDRESS_FULL: ("maxSizeMessages",), PAGE_FULL: ("maxSizeMessages", "pageLimitMessages")}
    takes = [of.limit_of(one) for one in bounds.get(policy_that_drops(of.settings), ())]
    most = [one for one in takes if one is not None]
    is_full = most and len(most) == len(takes) and sum(most) <= of.number("messageCount")
    return f"{of.queue['address']} is full and drops" if is_full else ""


def _overflow(name: str, address: str, of: Traits) -> Iterator[Fate]:
    if of.number("ringSize") >= 0:
        yield Fate("queue", name, "overflow", "lost", (), "it is a ring, which drops its oldest")
    policy, drops = of.settings.get("addressFullMessagePolicy"), policy_that_drops(of.settings)
    is_bound = any(of.limit_of(one) is not None for one in ("maxSizeBytes", "maxSizeMessages"))
    if drops:  # the broker's whole memory is a bound, too
        fix = _SETTING.format(address, drops, "PAGE" if drops == ADDRESS_FULL else "FAIL", drops)
        yield Fate(
            "queue", name, "overflow", "lost", (), "its address drops when it is full, with a receipt", fix
        )
    elif is_bound and policy in ("FAIL", "BLOCK"):
        yield Fate(
            "queue", name, "overflow", "kept", (PRODUCER,), f"address-full-policy {policy}: it has to wait"
        )


def _discards(of: Traits) -> str:
    if of.has("purgeOnNoConsumers"):
        return "the queue is emptied when its last consumer leaves (purge-on-no-consumers)"
    if of.has("autoDelete") and of.settings.get("autoDeleteQueuesMessageCount") == -1:
        return "the queue goes with its last consumer (auto-delete-queues-message-count -1)"
    if of.has("lastValue") or of.queue.get("lastValueKey"):
        return "a newer message of its key takes its place (last-value)"
    return ""


def _merge_ends(ends: Sequence[_End]) -> _End:
    """Merge the ends of copies: one that arrives is enough."""
    order = {"kept": 0, "unknown": 1, "lost": 2}
    if not ends:
        return _End("kept", (), _CIRCLE)
    best = min(ends, key=lambda end: order[end.verdict])
    places = {place for end in ends for place in end.places if end.verdict == best.verdict}
    return best._replace(places=tuple(sorted(places)))
