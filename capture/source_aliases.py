"""Sources that read one place: what lies there is archived under each of their names.

Letters are known by source, so an overlap, or a new name for a source, archives them again; each copy is then
analyzed, counted and perhaps replayed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlq.archive import topology as of_pull
from dlq.archive.storage.store import Store
from dlq.core.brokers import plugin_of
from dlq.core.errors import DlqError
from dlq.core.settings import Broker, Settings, Source
from dlq.core.text import list_names

_Place = Mapping[str, Any]
"""What a source reads, whatever its name: {kind, url} of the broker, and the key that names it there."""
_NAMES = ("queue", "topic", "group", "transactions")
_NEWEST = 200
"""Pulls in which sources of other names are looked for."""


def name_letters(source: Source) -> Mapping[str, Any]:
    """Return what names a source's letters at its broker, as `topology/<pull>.json` keeps it."""
    return {key: value for key in _NAMES if (value := getattr(source, key))}


def warnings(settings: Settings, store: Store, sources: Sequence[Source]) -> Iterator[str]:
    """Yield a warning for each of these sources that reads what another one reads, or what is in the archive
    by another name."""
    places = {
        name: _place(settings.brokers[source.broker], name_letters(source))
        for name, source in settings.sources.items()
    }
    former = [(name, place) for name, place in _archived_places(settings, store) if name not in places]
    for source in sources:
        mine = places[source.name]
        if others := [name for name, place in places.items() if name != source.name and _meet(mine, place)]:
            verb = "reads" if len(others) == 1 else "read"
            yield (
                f"{source.name}: {list_names(others)} {verb} the same place, so its letters are archived, "
                "and may be replayed, once for each source; keep one of them"
            )
        if known := list(dict.fromkeys(name for name, place in former if _meet(mine, place))):
            yield (
                f"{source.name}: the archive has letters of this place from source {list_names(known)}, "
                "which is not configured any more, and what still lies there is archived again; to go on "
                f"with them, name the source {known[0]}"
            )


def _place(broker: Broker, reads: Mapping[str, Any]) -> _Place:
    return {**reads, "kind": broker.kind, "url": broker.url}


def _meet(one: _Place, other: _Place) -> bool:
    """Return whether a letter can be of both places; the name of a queue or a topic may be a pattern."""
    if any(one.get(key) != other.get(key) for key in {*one, *other} - {"queue", "topic"}):
        return False
    mine, its = (place.get("queue") or place.get("topic") for place in (one, other))
    means = plugin_of(one["kind"]).means
    return mine == its or (mine is not None and its is not None and (means(mine, its) or means(its, mine)))


def _archived_places(settings: Settings, store: Store) -> Iterator[tuple[str, _Place]]:
    """Yield (source, the place that it read) of the newest pulls from brokers that are configured."""
    for name, data in store.get_many(of_pull.list_names(store)[-_NEWEST:]).items():
        try:
            document = of_pull.read(name, data)
        except DlqError:
            continue
        broker, reads = settings.brokers.get(str(document.get("broker"))), document.get("reads")
        if broker and isinstance(reads, dict):
            yield str(document.get("source")), _place(broker, reads)
