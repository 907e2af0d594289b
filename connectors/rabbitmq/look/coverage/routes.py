"""Where the exchanges of a virtual host lead with a key, by its definitions. No I/O."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any

from dlq.connectors.rabbitmq.look.definitions import Definitions
from dlq.connectors.rabbitmq.look.routes import topic_matches
from dlq.connectors.rabbitmq.look.topology import Topology

_Place = tuple[str, str]
"""("queue" or "exchange", its name)."""
_OTHER_WORD = "any-other"
_INSTEAD = {"*": _OTHER_WORD, "#": ".".join([_OTHER_WORD] * 7)}
_WILD_WORDS = _INSTEAD.keys()
_ANY = "*"
_MOST_EXAMINED = 500
_MOST_KEYS = 200
_MOST_EXCHANGES = 200
_MANY = "more exchanges are bound behind {} than are looked at"
_NOT_BY_KEY = "{} routes by more than the key"
_BY_KEY = ("direct", "topic", "fanout")


class Routing:
    """The bindings, in an order in which 3,000 queues are asked about in a second."""

    def __init__(self, known: Definitions, topology: Callable[[str], Topology]) -> None:
        self._known, self._topology = known, topology
        self._reachable = cache(self._find_reachable)
        self._exact: dict[tuple[str, str], list[_Place]] = defaultdict(list)
        self._wild: dict[tuple[str, str], list[tuple[str, _Place]]] = defaultdict(list)
        """By exchange and first word, which is empty for patterns that begin with any."""
        self._patterns: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        """The same of all keys and patterns, and those of an exchange by its name and `*`."""
        self._arrivals: dict[str, dict[str, bool]] = defaultdict(dict)
        self._next: dict[str, set[_Place]] = defaultdict(set)
        for one in known.bindings:
            if source := str(one.get("source") or ""):
                self._learn(source, str(one.get("routing_key", "")), one)
        for name in known.queues:
            self._learn_default(name)

    def _learn(self, source: str, key: str, binding: Mapping[str, Any]) -> None:
        to = "queue" if binding.get("destination_type") == "queue" else "exchange"
        place = to, str(binding.get("destination"))
        kind = self._type(source)
        pattern = key if kind in ("direct", "topic") else "#"
        is_literal = kind == "direct" or not _is_wild(pattern)
        self._next[source].add(place)
        if is_literal:
            self._exact[source, key].append(place)
        else:
            self._wild[source, _first(pattern)].append((pattern, place))
        for first in (_first(pattern), _ANY):
            self._patterns[source, first][pattern] = None
        if to == "queue":
            self._arrivals[place[1]][pattern] = is_literal

    def _learn_default(self, name: str) -> None:
        """Learn that dead letters which go straight to a queue come with its name."""
        queue = self._topology(name)
        to = queue.setting("dead-letter-routing-key")
        if queue.setting("dead-letter-exchange") == "" and to is not None:
            self._arrivals[str(to)][str(to)] = True

    def _type(self, exchange: str) -> str:
        return str(self._known.exchanges.get(exchange, {}).get("type"))

    def arrivals(self, queue: str) -> Mapping[str, bool]:
        """Return patterns of the keys that come -> whether each is one key. Nothing bound: its name."""
        return self._arrivals.get(queue) or {queue: True}

    def list_bound(self, exchange: str, key: str) -> list[_Place]:
        """Return what an exchange's own bindings take a key to, be it by more than the key."""
        wild = [*self._wild.get((exchange, ""), ()), *self._wild.get((exchange, _first(key)), ())]
        found = [place for pattern, place in wild if pattern == "#" or topic_matches(pattern, key)]
        return [*self._exact.get((exchange, key), ()), *found]

    def queues(self, exchange: str, key: str) -> tuple[set[str], str]:
        """Return the queues that one message reaches, and why there may be more."""
        found: set[str] = set()
        seen, ahead, unknown = {exchange}, [exchange], ""
        while ahead and len(seen) < _MOST_EXCHANGES:
            name = ahead.pop()
            places = self._step(name, key)
            if self._next.get(name) and self._type(name) not in _BY_KEY:
                places, unknown = [], _NOT_BY_KEY.format(name)
            found |= {place for kind, place in places if kind == "queue" and place in self._known.queues}
            further = {place for kind, place in places if kind == "exchange"} - seen
            seen |= further
            ahead += further
        return found, _MANY.format(exchange) if ahead else unknown

    def _step(self, name: str, key: str) -> Iterable[_Place]:
        if not name:
            return [("queue", key)]
        if name not in self._known.exchanges:
            return []
        if places := self.list_bound(name, key):
            return places
        alternate = self._known.alternate(name)
        return [("exchange", alternate)] if alternate else []

    def keys_that_differ(self, exchange: str, pattern: str) -> tuple[list[str], bool]:
        """Return keys of a pattern that may lead elsewhere than others from an exchange, and one more; and
        whether there are no others."""
        found: dict[str, None] = {}
        first, most = _first(pattern), 0
        for name in self._reachable(exchange):
            known = self._patterns
            bound = (
                [*known.get((name, first), ()), *known.get((name, ""), ())]
                if first
                else known.get((name, _ANY), ())
            )
            others = bound if name else self._known.queues
            most = max(most, len(others))
            keys = (common_key(pattern, other) for other in islice(others, _MOST_EXAMINED))
            found.update(dict.fromkeys(key for key in keys if key is not None))
        shown = [*dict.fromkeys([*islice(found, _MOST_KEYS), instance(pattern)])]
        return shown, len(found) <= _MOST_KEYS and most <= _MOST_EXAMINED

    def _onward(self, queue: str) -> str | None:
        to = self._topology(queue).setting("dead-letter-exchange") if queue in self._known.queues else None
        return None if to is None else str(to)

    def _find_reachable(self, exchange: str) -> Sequence[str]:
        """Return exchanges that dead letters may come to on their way, whatever their key."""
        seen, ahead = {exchange: None}, [exchange]
        while ahead and len(seen) < _MOST_EXCHANGES:
            name = ahead.pop()
            places = self._next.get(name, set())
            further = {place for kind, place in places if kind == "exchange"}
            onward = map(self._onward, (place for kind, place in places if kind == "queue"))
            further |= {to for to in onward if to is not None}
            if name in self._known.exchanges and (alternate := self._known.alternate(name)):
                further.add(alternate)
            ahead += sorted(further - seen.keys())
            seen |= dict.fromkeys(further)
        return [*seen]

    def may_miss(self, exchange: str) -> bool:
        """Return whether an exchange that somebody uses may find no binding for a key."""
        if not exchange or (exchange.startswith("amq.") and not self._next.get(exchange)):
            return False
        is_topic, patterns = self._type(exchange) == "topic", self._patterns.get((exchange, _ANY), {})
        return "#" not in patterns or (not is_topic and self._type(exchange) == "headers")

    def why_nowhere(self, exchange: str, key: str) -> str:
        """Say why a key leads nowhere."""
        if not exchange:
            return f"there is no queue {key}, to which its dead letters are sent"
        if exchange not in self._known.exchanges:
            return f"there is no exchange {exchange}, to which it is sent"
        return f"the exchange {exchange} takes the key {key} to no queue"


def instance(pattern: str) -> str:
    """Return a key of a pattern that nobody has bound; `#` is more words than a pattern of single ones
    has."""
    return ".".join(_INSTEAD.get(word, word) for word in pattern.split("."))


def common_key(one: str, other: str) -> str | None:
    """Return a key that both patterns take; None where none is found."""
    words, others = one.split("."), other.split(".")
    if len(words) == len(others) and "#" not in (*words, *others):
        pairs = [*zip(words, others, strict=True)]
        if any(a != b and not {a, b} & _WILD_WORDS for a, b in pairs):
            return None
        return instance(".".join(b if a == "*" else a for a, b in pairs))
    key = instance(other)
    return key if topic_matches(one, key) else None


def _is_wild(pattern: str) -> bool:
    return not _WILD_WORDS.isdisjoint(pattern.split("."))


def _first(pattern: str) -> str:
    """Return the first word of a key or pattern; empty where it is any."""
    word = pattern.partition(".")[0]
    return "" if word in _WILD_WORDS else word
