"""Which queues a virtual host's exchanges route to, as far as bindings alone tell. No I/O."""

from collections.abc import Iterable, Mapping
from typing import Any

_MOST_BINDINGS = 5_000
_PATTERNS = {"direct", "topic", "fanout"}

Routes = Mapping[str, Mapping[str, list[str]]]
"""Exchange -> pattern of a topic exchange -> queues."""


def list_routes(exchanges: Iterable[Mapping[str, Any]], bindings: Iterable[Mapping[str, Any]]) -> Routes:
    """Return those of exchanges that route to queues alone, by key or to all; of very many bindings none."""
    types = {str(one.get("name")): str(one.get("type")) for one in exchanges}
    known = [one for one in bindings if one.get("source")]
    if len(known) > _MOST_BINDINGS:
        return {}
    found: dict[str, dict[str, list[str]]] = {}
    told: set[str] = {name for name, kind in types.items() if kind in _PATTERNS}
    for one in known:
        source, key = str(one["source"]), str(one.get("routing_key", ""))
        if one.get("destination_type") != "queue" or (
            types.get(source) == "direct" and set(key) & {"*", "#"}
        ):
            told.discard(source)
        pattern = "#" if types.get(source) == "fanout" else key
        found.setdefault(source, {}).setdefault(pattern, []).append(str(one.get("destination")))
    return {source: patterns for source, patterns in found.items() if source in told}


def queues_reached(routes: Routes, exchange: str, key: str | None) -> set[str]:
    """Return the queues that an exchange leads to with a key, or with any (None), as far as `routes` tell."""
    patterns = routes.get(exchange, {}).items()
    return {name for pattern, to in patterns if key is None or topic_matches(pattern, key) for name in to}


def topic_matches(pattern: str, key: str) -> bool:
    """Return whether a topic exchange takes a key: `*` is one word, `#` none or more, dots part words."""
    words = key.split(".") if key else []
    reached, before = {0}, ""
    for part in pattern.split(".") if pattern else []:
        if part == "#" != before:
            reached = set(range(min(reached), len(words) + 1))
        elif part != "#":
            reached = {at + 1 for at in reached if at < len(words) and part in ("*", words[at])}
        if not reached:
            return False
        before = part
    return len(words) in reached
