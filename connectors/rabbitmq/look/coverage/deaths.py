"""Where each kind of death leads on RabbitMQ, from a virtual host's definitions alone. No I/O.

One message is followed as the broker would: `dead-letter-exchange` and its key, bindings between exchanges,
alternate exchanges, a target's own TTL and bounds, and the circles that RabbitMQ ends by dropping
(rabbit_dead_letter.erl). Where a queue gets its messages with keys that nobody can know (`order.*`), each key
that makes a difference is tried, and one that nothing is bound for.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

from dlq.connectors.base import NIGHT, Fate
from dlq.connectors.net.web import whole
from dlq.connectors.rabbitmq.look.coverage import fixes
from dlq.connectors.rabbitmq.look.coverage.routes import Routing
from dlq.connectors.rabbitmq.look.definitions import Definitions
from dlq.connectors.rabbitmq.look.topology import Topology
from dlq.core.values.units import human_seconds

_MOST_ARRIVALS, _MOST_DEATHS = 500, 60
"""Of one message, its copies included, and of one copy."""
_STREAMS_TAKE = (3, 12)
"""Since then a dead letter may go to a stream."""
PUBLISHER = "its publisher"
_REFUSED = "it is refused, which a publisher hears that asks for confirms"
ANY_CONSUMER = "any consumer"
_ITS_OWN_WORK = "what a consumer acknowledges, and sends elsewhere by itself, no definition shows"
_NO_POLICIES = (
    "the policies of {} are not shown: it is new (ask again in 10 s), or statistics are switched off"
)
_NO_COUNTS = "{} of {} are not shown: it is new (ask again in 10 s), or statistics are switched off"
_AT_MOST_ONCE = "at most once: a node that goes down meanwhile loses it"
_TOO_FAR = f"it comes to more than {_MOST_ARRIVALS} queues, or dies more than {_MOST_DEATHS} times"
_NO_EXCHANGE = "it has no dead-letter exchange"
_NO_ALTERNATE = (
    "no binding takes it, and there is no alternate exchange: it is dropped, and only a publisher "
    "that sets mandatory hears of it"
)
_KEY_DECIDES = "its key decides; with some {}"
_NO_KEY = "no key is known that it does not take"
_History = tuple[tuple[str, str], ...]
"""(queue, reason) of the deaths so far, the last first, as in x-death."""


class _End(NamedTuple):
    """Of one message and its copies: the places that hold it, or why none does, or why nobody can say."""

    places: frozenset[str] = frozenset()
    lost: str = ""
    unknown: str = ""
    fix: str = ""
    remark: str = ""
    costs: bool = False
    """Whether another message is lost for it."""

    @property
    def verdict(self) -> Any:
        """One copy is enough."""
        if self.places and not self.costs:
            return "kept"
        return "unknown" if self.unknown else "lost"


_NOT_ALL = (_End(unknown="more keys may come than are looked at"), False)


class _TooFarError(Exception):
    """A message passes more queues than anybody would follow."""


def predict(definitions: Definitions) -> list[Fate]:
    """Return the fate of every kind of death in every queue, and of what an exchange cannot route."""
    return list(_Host(definitions).fates())


class _Host:
    """A virtual host in which messages die."""

    def __init__(self, known: Definitions) -> None:
        self._known, self._topology = known, cache(known.topology)
        self._routing = Routing(known, self._topology)
        self._arrivals = 0

    def fates(self) -> Iterator[Fate]:
        """Yield all rows; a queue that belongs to one connection ends with it, and has none."""
        for name, shown in sorted(self._known.queues.items()):
            if not shown.get("exclusive") and shown.get("type") != "stream":
                yield from self._of_queue(name, self._topology(name))
        for name in sorted(self._known.exchanges):
            if self._routing.may_miss(name):
                yield self._unroutable(name)
        yield Fate("broker", ANY_CONSUMER, "give-up", "unknown", (), _ITS_OWN_WORK)

    def _of_queue(self, name: str, queue: Topology) -> Iterator[Fate]:
        yield self._death(name, "reject", "rejected")
        yield self._death(name, "expiry", "expired")
        if not queue.policies_known:
            why = _NO_POLICIES.format(name)
            deaths = ("overflow", "delivery limit") if queue.kind == "quorum" else ("overflow",)
            yield from (Fate("queue", name, death, "unknown", (), why) for death in deaths)
            return
        if _bounds(queue) != (None, None):
            yield self._overflow(name, queue)
        if queue.delivery_limit is not None:
            found = self._death(name, "delivery limit", "delivery_limit")
            yield found.add_remark(f"after {queue.delivery_limit} failed deliveries")
        if ends := _ends_with(queue):
            fix = fixes.policy_without(self._known, name, "expires")
            yield Fate("queue", name, "discard", "lost", (), f"the queue goes {ends} with all in it", fix)

    def _death(self, name: str, death: str, reason: str) -> Fate:
        keys, are_all = self._keys(name)
        ends = {} if are_all else {"": _NOT_ALL}
        for key, is_certain in keys.items():
            ends[key] = (self._follow(partial(self._die, name, reason, key, ())), is_certain)
        return _sum_up("queue", name, death, ends)

    def _follow(self, message: Callable[[], _End]) -> _End:
        self._arrivals = 0
        try:
            return message()
        except _TooFarError:
            return _End(unknown=_TOO_FAR)

    def _overflow(self, name: str, queue: Topology) -> Fate:
        found = self._death(name, "overflow", "maxlen")
        how = queue.overflow
        if how == "drop-head":
            return found
        also = found.leads_to if how == "reject-publish-dlx" else ()
        return Fate("queue", name, "overflow", "kept", (*also, PUBLISHER), _REFUSED)

    def _unroutable(self, exchange: str) -> Fate:
        alternate = self._known.alternate(exchange)
        if alternate is None:
            fix = fixes.alternate(self._known, exchange)
            return Fate("exchange", exchange, "unroutable", "lost", (), _NO_ALTERNATE, fix)
        if not alternate:
            why = "its policy may name an alternate exchange, and the user may not see policies"
            return Fate("exchange", exchange, "unroutable", "unknown", (), why)
        keys, are_all = self._routing.keys_that_differ(alternate, "#")
        ends = {} if are_all else {"": _NOT_ALL}
        for key in keys:
            if self._routing.list_bound(exchange, key):
                continue
            ends[key] = (self._follow(partial(self._spread, alternate, key, (), "")), False)
        return _sum_up("exchange", exchange, "unroutable", ends)

    def _keys(self, name: str) -> tuple[Mapping[str, bool], bool]:
        """Return keys with which messages may come to a queue -> whether they certainly do; and whether all
        others end like one of these."""
        exchange, own = (
            self._topology(name).setting(f"dead-letter-{what}") for what in ("exchange", "routing-key")
        )
        if exchange is None or own is not None:
            return {name: True}, True
        found: dict[str, bool] = {}
        are_all = True
        for pattern, is_literal in self._routing.arrivals(name).items():
            if is_literal:
                found[pattern] = True
            else:
                keys, are_of_it = self._routing.keys_that_differ(str(exchange), pattern)
                are_all = are_all and are_of_it
                found = {**dict.fromkeys(keys, False), **found}
        return found or {name: True}, are_all

    def _die(self, name: str, reason: str, key: str, before: _History) -> _End:
        """Return where a message with a key ends that dies in a queue."""
        queue, own = self._topology(name), (name, reason)
        exchange, own_key = (queue.setting(f"dead-letter-{what}") for what in ("exchange", "routing-key"))
        if exchange is None and not queue.policies_known:
            return _End(unknown=_NO_POLICIES.format(name))
        if exchange is None:
            again = f"it dies again in {name} ({reason}), which has no dead-letter exchange"
            fix = fixes.dead_letter_policy(self._known, name)
            return _End(lost=again if before else _NO_EXCHANGE, fix=fix)
        holder = name if _is_at_least_once(queue) else ""
        history = (own, *(one for one in before if one != own))
        return self._spread(str(exchange), str(own_key if own_key is not None else key), history, holder)

    def _spread(self, exchange: str, key: str, history: _History, holder: str) -> _End:
        """Return where a message ends that the broker publishes. `holder`: the queue that has it before."""
        reached, unknown = self._routing.queues(exchange, key)
        ends = [self._arrive(name, key, history, holder) for name in sorted(reached)]
        if not ends and not unknown and not holder:
            origin = history[0][0] if history else ""
            return _End(
                lost=self._routing.why_nowhere(exchange, key),
                fix=fixes.route(self._known, exchange, key, origin),
            )
        if not ends and holder:
            remark = "it waits there until its dead-letter exchange leads somewhere"
            ends = [_End(frozenset({holder}), remark=remark)]
        return _merge(ends, unknown, "" if holder or not history else _AT_MOST_ONCE)

    def _arrive(self, name: str, key: str, history: _History, holder: str) -> _End:
        self._arrivals += 1
        if self._arrivals > _MOST_ARRIVALS or len(history) > _MOST_DEATHS:
            raise _TooFarError
        queue = self._topology(name)
        if _is_circle(name, history):
            if holder:
                return _End(frozenset({holder}), remark="it goes in a circle, and stays there")
            return _End(lost=f"it comes to {name} in a circle without a rejection, and RabbitMQ drops it")
        if queue.kind == "stream" and self._known.version >= _STREAMS_TAKE:
            return _End(frozenset({name}))
        if queue.kind == "stream":
            return _End(lost=f"{name} is a stream, which takes none before RabbitMQ 3.12")
        if not queue.policies_known:
            return _End(unknown=_NO_POLICIES.format(name))
        if self._is_uncounted(name, queue):
            return _End(unknown=_NO_COUNTS.format("the letters", name))
        if self._is_full(name, queue, history):
            return self._overflows(name, queue, key, history, holder)
        return self._stays(name, queue, key, history)

    def _overflows(self, name: str, queue: Topology, key: str, history: _History, holder: str) -> _End:
        """Return where a message ends that comes to a full queue."""
        how = queue.overflow
        fix = fixes.policy_without(self._known, name, "max-length", "max-length-bytes")
        if how == "drop-head" and _bounds(queue)[0] != 0:
            oldest = self._die(name, "maxlen", key, ())
            stays = self._stays(name, queue, key, history)
            if oldest.verdict == "kept" or stays.verdict == "lost":
                return stays
            return stays._replace(
                lost=f"{name} is full: each one more removes its oldest, and {oldest.lost}",
                unknown=oldest.unknown,
                costs=True,
                fix=fix,
            )
        if how != "reject-publish":
            again, hears = self._die(name, "maxlen", key, history), holder if history else PUBLISHER
            return again._replace(places=again.places | ({hears} if hears and how != "drop-head" else set()))
        if queue.kind == "quorum" and history and not holder:
            return self._stays(name, queue, key, history)  # it bounds those alone that hear of it
        full, hears = f"{name} is full, and refuses more", holder if history else PUBLISHER
        return _End(frozenset({hears}), remark=full) if hears else _End(lost=full, fix=fix)

    def _stays(self, name: str, queue: Topology, key: str, history: _History) -> _End:
        """Return where a message ends that is in a queue, for as long as it may."""
        consumers = whole(self._known.queues[name].get("consumers"))
        if consumers:
            return _End(frozenset({name}))
        ends = {what: ms for what in ("expires", "message-ttl") if isinstance(ms := queue.setting(what), int)}
        if not ends:
            return _End(frozenset({name}))
        first = min(ends, key=lambda what: ends[what])  # the queue, where both end at once
        goes_on = first == "message-ttl" and queue.setting("dead-letter-exchange") is not None
        kept = ends[first] / 1000
        said = f"{name} keeps it for {human_seconds(kept)}"
        fix = fixes.policy_without(self._known, name, "expires", "message-ttl")
        if kept >= NIGHT and not goes_on:
            return _End(frozenset({name}), remark=said)
        if consumers is None:
            return _End(unknown=_NO_COUNTS.format("the consumers", name))
        return self._die(name, "expired", key, history) if goes_on else _End(lost=said, fix=fix)

    def _is_uncounted(self, name: str, queue: Topology) -> bool:
        """Return whether a queue has bounds, and nothing tells how much lies there."""
        shown = self._known.queues[name]
        counts = shown.get("messages_ready"), shown.get("message_bytes_ready")
        return any(most and whole(n) is None for most, n in zip(_bounds(queue), counts, strict=True))

    def _is_full(self, name: str, queue: Topology, history: _History) -> bool:
        """Return whether a queue is full. What comes back to where it died finds the room that it left."""
        shown, (most, size) = self._known.queues[name], _bounds(queue)
        left = bool(history) and history[-1][0] == name and history[-1][1] != "maxlen"
        holds = (whole(shown.get("messages_ready")) or 0) - left
        is_full = most is not None and holds >= most
        return is_full or (
            not left and size is not None and (whole(shown.get("message_bytes_ready")) or 0) >= size
        )


def _is_circle(target: str, history: _History) -> bool:
    """Return whether a message has died in the queue that it comes to, and nobody has rejected it since."""
    at = next((at for at, (name, _) in enumerate(history) if name == target), None)
    return at is not None and all(reason != "rejected" for _, reason in history[: at + 1])


def _bounds(queue: Topology) -> tuple[int | None, int | None]:
    """Return messages and bytes that find room."""
    most, size = queue.setting("max-length"), queue.setting("max-length-bytes")
    return most if isinstance(most, int) else None, size if isinstance(size, int) else None


def _is_at_least_once(queue: Topology) -> bool:
    strategy = queue.setting("dead-letter-strategy") == "at-least-once"
    return strategy and queue.kind == "quorum" and queue.overflow == "reject-publish"


def _ends_with(queue: Topology) -> str:
    """Say when a queue goes; empty where it stays."""
    expires = queue.setting("expires")
    if isinstance(expires, int):
        return f"after {human_seconds(expires / 1000)} without use"
    return "with its last consumer" if queue.flags.get("auto_delete") else ""


def _merge(ends: list[_End], unknown: str, remark: str) -> _End:
    """Merge the ends of copies."""
    places = frozenset(place for end in ends for place in end.places)
    costly = next((end for end in ends if end.costs), None)
    first = costly or next((end for end in ends if end.verdict == "lost"), _End())
    unknown = unknown or next((end.unknown for end in ends if end.unknown), "")
    remarks = dict.fromkeys(said for said in (remark, *(end.remark for end in ends)) if said)
    return _End(places, first.lost, unknown, first.fix, "; ".join(remarks), costly is not None)


def _sum_up(kind: str, name: str, death: str, ends: Mapping[str, tuple[_End, bool]]) -> Fate:
    """Sum up all keys: one that surely comes counts as it is; those that may come must all say the same."""
    verdicts = {end.verdict for end, _ in ends.values()}
    places = tuple(sorted(frozenset().union(*(end.places for end, _ in ends.values()))))
    lost = next(((key, end) for key, (end, sure) in ends.items() if end.verdict == "lost" and sure), None)
    if lost is None and verdicts == {"lost"}:
        lost = next((key, end) for key, (end, _) in ends.items())
    if lost is not None:
        of_key = f"with the key {lost[0]} " if len(verdicts) > 1 else ""
        return Fate(kind, name, death, "lost", places, f"{of_key}{lost[1].lost}", lost[1].fix)
    if verdicts == {"kept"}:
        return Fate(kind, name, death, "kept", places, next(iter(ends.values()))[0].remark)
    unknown = next((end.unknown for end, _ in ends.values() if end.unknown), "")
    lost_by = next((end.lost for end, _ in ends.values() if end.lost), "")
    why = unknown or (_KEY_DECIDES.format(lost_by) if lost_by else _NO_KEY)
    return Fate(kind, name, death, "unknown", places, why)
