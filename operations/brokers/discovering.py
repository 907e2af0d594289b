"""What looks like a dead-letter queue on the brokers, and sources for it."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dlq.connectors.base import DeadLetterPlace
from dlq.core.brokers import plugin_of
from dlq.core.clock import iso
from dlq.core.configuration import LONGEST_NAME
from dlq.core.errors import DlqError
from dlq.core.settings import Settings
from dlq.operations.brokers.connecting import ask_each
from dlq.operations.outcome import tell_errors
from dlq.operations.workspace import Workspace

_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
"""What the name of a source has none of."""
_LONGEST = LONGEST_NAME - len("-9999")
_HALF, _QUOTED = re.compile("[\ud800-\udfff]"), '"\\\\'
Places = Mapping[str, Sequence[DeadLetterPlace]]
"""Broker -> what was found there."""


class Discovered(NamedTuple):
    """What was found, as `dlq discover` prints it, and what went wrong with other brokers."""

    document: dict[str, Any]
    places: Places
    errors: Mapping[str, DlqError]


def discover(workspace: Workspace, broker: str | None = None) -> Discovered:
    """Look at one broker, or at all: by dead-letter arguments and policies, and by name. Nothing is changed
    there. Raises UsageError for an unknown one; the listener hears of those that do not answer."""
    found, errors = ask_each(workspace, broker, lambda connector: connector.discover())
    brokers = [
        {"broker": name, "queues": [_row(workspace.settings, name, one) for one in places]}
        for name, places in found.items()
    ]
    return Discovered({"brokers": brokers, "errors": tell_errors("broker", errors)}, found, errors)


def _is_configured(settings: Settings, broker: str, place: DeadLetterPlace) -> bool:
    """Return whether a source reads it already."""
    wanted = {"queue": None, "topic": None, "group": None, "transactions": False, **place.source}
    return any(
        source.broker == broker
        and (
            all(getattr(source, name) == value for name, value in wanted.items())
            or any(
                pattern and plugin_of(settings.brokers[broker].kind).means(pattern, place.name)
                for pattern in (source.queue, source.topic)
            )
        )
        for source in settings.sources.values()
    )


def _row(settings: Settings, broker: str, place: DeadLetterPlace) -> dict[str, Any]:
    return {
        "queue": place.name,
        "kind": place.kind,
        "depth": place.depth,
        "consumers": place.consumers,
        "oldest": None if place.oldest is None else iso(place.oldest),
        "configured": _is_configured(settings, broker, place),
        "because": place.because,
    }


def write_sources(settings: Settings, found: Places) -> str:
    """Write TOML: a table for each place that no source reads, and whose name is Unicode."""
    taken = set(settings.sources)
    text = ""
    for broker, places in found.items():
        for place in places:
            if _is_configured(settings, broker, place) or _HALF.search(place.name):
                continue
            name = _free_name(place, taken)
            taken.add(name)
            values = {"broker": broker, **place.source}
            text += f"\n[sources.{json.dumps(name)}]\n"
            text += "".join(f"{key} = {_in_toml(value)}\n" for key, value in values.items())
    return text


def _in_toml(value: str | bool) -> str:
    """Write a value as TOML in ASCII; unlike JSON, TOML has no pairs of halves for what is beyond 16 bits."""
    if isinstance(value, bool):
        return json.dumps(value)
    plain = (c if c.isascii() and c.isprintable() and c not in _QUOTED else f"\\U{ord(c):08x}" for c in value)
    return f'"{"".join(plain)}"'


def _free_name(place: DeadLetterPlace, taken: set[str]) -> str:
    """Return a name for a source, from that of its queue or group."""
    said = "transactions" if place.kind == "transactions" else str(next(iter(place.source.values())))
    name = _NO_NAME.sub("-", said)[:_LONGEST].strip("._-") or "letters"
    return next(one for one in (name, *(f"{name}-{n}" for n in range(2, 10_000))) if one not in taken)
