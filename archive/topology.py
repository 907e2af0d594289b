"""What pulls learned of their brokers: `topology/<pull>.json`, of which each broker says what it can."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from dlq.archive.storage.store import Store, checked_format
from dlq.core.clock import oldest_first
from dlq.core.documents import value
from dlq.core.errors import ArchiveError, FormatTooNew, UsageError
from dlq.core.runtime import bounded_json

FACTS: Mapping[str, Any] = {
    "delivery_limits": Mapping[str, int],
    "alternate_exchanges": tuple[str, ...],
    "dead_letter_exchanges": Mapping[str, str],
    "dead_letter_keys": Mapping[str, str],
    "routes": Mapping[str, Mapping[str, tuple[str, ...]]],
    "diverts": tuple[str, ...],
    "places_of_the_dead": Mapping[str, tuple[str | None, str | None]],
    "max_delivery_attempts": Mapping[str, int],
    "killed_none": Mapping[str, int],
}
"""What rules read of it: it goes along with letters that are exported."""


BY_NAME = ("places_of_the_dead", "max_delivery_attempts", "killed_none")
"""Of which a pull may learn those alone that its letters name."""


class _Imported(NamedTuple):
    """What came along with letters of some queues."""

    queues: tuple[str, ...]
    facts: Mapping[str, Any]


KNOWN: Mapping[str, Any] = {
    "source": str,
    "broker": str,
    "reads": Mapping[str, str | bool],
    **FACTS,
    "imported": tuple[_Imported, ...],
    "brokers": Mapping[str, Mapping[str, str | int | bool | float | None]],
    "message_ttl": int | str,
}
"""What somebody reads of it, and of which type that is."""
_OF_THE_SOURCE = {"format", "source", "broker", "reads"}


def encode(document: Mapping[str, Any]) -> bytes:
    """Return the file of what a pull learned, without what could not be read again: a broker may tell
    anything."""
    kept = {key: found for key, found in document.items() if _is_readable(key, found)}
    data = _encode(kept)
    if len(data) <= bounded_json.LARGEST:
        return data
    return _encode({key: kept[key] for key in _OF_THE_SOURCE & kept.keys()})


def _is_readable(key: str, found: Any) -> bool:
    try:
        told = bounded_json.loads(_encode({key: found}))[key]
        if told is not None:
            value(KNOWN.get(key, Any), told, key)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, default=str, indent=1).encode()


def list_names(store: Store) -> list[str]:
    """Return the names of what pulls learned, the newest last."""
    return oldest_first(store.list("topology/"))


def read_each(
    store: Store, names: Iterable[str], but_damaged: bool = False
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (name, what that pull learned). One that is gone was removed since it was listed,
    as newer pulls say the same. Raises as `read`, or leaves out what is damaged."""
    for name in names:
        try:
            found = read(name, store.get(name))
        except FormatTooNew:
            raise
        except UsageError:
            continue
        except ArchiveError:
            if not but_damaged:
                raise
            continue
        yield name, found


class Newest(NamedTuple):
    """The newest of what was learned."""

    of_pulls: Mapping[str, Mapping[str, Any]]
    """Source -> what pulls of it learned."""
    of_imports: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """Source -> dead-letter queue -> the facts that came along with letters of it."""


def newest(store: Store) -> Newest:
    """Return the newest facts of each source. An import asks no broker, and a pull may not be answered: they
    take nothing away of what another pull learned. Raises as `read`."""
    of_pulls: dict[str, Mapping[str, Any]] = {}
    of_imports: dict[str, dict[str, Mapping[str, Any]]] = {}
    for _, document in read_each(store, list_names(store)):
        source = str(document.get("source"))
        if not is_of_import(document):
            of_pulls[source] = _add(of_pulls.get(source, {}), document)
        for imported in document.get("imported", ()):
            facts = dict(_readable(imported.facts))
            of_imports.setdefault(source, {}).update(dict.fromkeys(imported.queues, facts))
    return Newest(of_pulls, of_imports)


def _add(known: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what one more pull learned, and of the facts that it did not learn what was known of its broker
    before."""
    is_same = known.get("broker") == document.get("broker", known.get("broker"))
    kept = {name: known[name] for name in FACTS.keys() & known} if is_same else {}
    asked_again = document.get("places_of_the_dead", ())  # together with the attempts, if any are set
    attempts = kept.get("max_delivery_attempts", {})
    kept["max_delivery_attempts"] = {a: most for a, most in attempts.items() if a not in asked_again}
    grown = {name: {**kept.get(name, {}), **document[name]} for name in BY_NAME if name in document}
    return {**kept, **document, **grown}


def is_of_import(document: Mapping[str, Any]) -> bool:
    """Return whether no broker was asked."""
    return "file" in document


def _readable(facts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name in FACTS.keys() & facts:
        with suppress(ValueError):
            yield name, value(FACTS[name], facts[name], name)


def read(name: str, data: bytes) -> Mapping[str, Any]:
    """Return what a pull learned; what it could not learn is not in it. Raises ArchiveError, FormatTooNew."""
    document = {key: found for key, found in checked_format(name, data).items() if found is not None}
    try:
        return document | {key: value(KNOWN[key], document[key], key) for key in KNOWN.keys() & document}
    except ValueError as error:
        raise ArchiveError(f"{name} in the archive is damaged: {error}") from error
