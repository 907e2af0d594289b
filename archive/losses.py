"""Letters that are known to be lost: a log had them, and has lost them before anybody captured them.

`losses/<time>-<random>.json` holds what happened, in the order of the names, and never changes: offsets that
were found missing (`found`), and what people said of a source's losses (`dismissed`, `reopened`).
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

from dlq.archive import manifests, segments
from dlq.archive.schema import FORMAT_VERSION
from dlq.archive.storage.store import Store, build
from dlq.core import documents
from dlq.core.clock import from_iso, iso, now
from dlq.core.errors import ArchiveError

_FOLDER = "losses/"
_NAMED = 5


class Missing(NamedTuple):
    """Offsets [first, end) of a place that hold nothing any more; without an end nobody knows how many. `log`
    tells apart what lay at one place one after another: a store that was replaced, a topic made anew."""

    place: str
    first: int
    end: int | None
    log: str = ""


@dataclass(frozen=True)
class Loss:
    """Missing offsets of a source. Of some logs not every offset is a letter, so `letters` is the most that
    can be lost; None: nobody knows."""

    source: str
    place: str
    first: int
    end: int | None
    log: str
    read_at: str | None
    """When the source was last read before that; None: never."""
    found_at: str
    dismissed: bool = False
    reason: str | None = None

    @property
    def letters(self) -> int | None:
        return None if self.end is None else self.end - self.first

    def as_json(self) -> dict[str, Any]:
        """Return the document for scripts."""
        return {**asdict(self), "letters": self.letters}

    def __str__(self) -> str:
        when = f"found {self.found_at[:19]}" + (f", last read {self.read_at[:19]}" if self.read_at else "")
        if self.end is None:
            return f"{self.place}: what came after offset {self.first - 1}, nobody knows how many ({when})"
        return f"{self.place}: offsets {self.first} to {self.end - 1} ({when})"


def keep(store: Store, source: str, missing: Sequence[Missing]) -> None:
    """Remember what is not known yet, durably. What the archive has is not lost."""
    known = read_losses(store, source)
    rest = [
        part for one in missing for part in _subtract(one, known) for part in _lost_parts(store, source, part)
    ]
    if rest:
        read_at = max((m.created_at for m in manifests.list_committed(store, source)), default=None)
        _write(store, _Event("found", source, iso(now()), tuple(rest), read_at))


def dismiss(store: Store, source: str, reason: str, actor: str) -> int:
    """Close the losses of a source; returns how many there were open."""
    said = _Event("dismissed", source, iso(now()), reason=reason, actor=actor)
    return _record_event(store, said, is_open=True)


def reopen(store: Store, source: str, actor: str) -> int:
    """Open what was dismissed; returns how many there were."""
    return _record_event(store, _Event("reopened", source, iso(now()), actor=actor), is_open=False)


def _record_event(store: Store, event: "_Event", is_open: bool) -> int:
    found = [loss for loss in read_losses(store, event.source) if loss.dismissed is not is_open]
    if found:
        _write(store, event)
    return len(found)


def read_losses(store: Store, source: str | None = None) -> list[Loss]:
    """Return all losses, of one source or of all, oldest first. Raises ArchiveError, FormatTooNew."""
    found: dict[str, list[Loss]] = {}
    for event in _read_events(store):
        if source in (None, event.source):
            found[event.source] = _EVENTS[event.event](found.get(event.source, []), event)
    return [loss for losses in found.values() for loss in losses]


def _read_events(store: Store) -> "list[_Event]":
    names = [name for name in store.list(_FOLDER) if name.endswith(".json")]
    contents = store.get_many(names)
    if missing := sorted(set(names) - contents.keys()):
        raise ArchiveError(f"the archive {store.location} lists {missing[0]!r}, which is not there")
    return [build(name, contents[name], _build_event) for name in sorted(names)]


def _build_event(document: Mapping[str, Any]) -> "_Event":
    event = documents.build(_Event, document)
    if not all(one.first >= 0 and (one.end is None or one.first < one.end) for one in event.missing):
        raise ValueError("missing: offsets must be from 0, and first before end")
    return event


def open_ones(store: Store, source: str | None = None) -> list[Loss]:
    """Return the losses that nobody has dismissed."""
    return [loss for loss in read_losses(store, source) if not loss.dismissed]


def open_by_source(store: Store) -> Mapping[str, Sequence[Loss]]:
    """Return those of each source that has any."""
    found: dict[str, list[Loss]] = {}
    for loss in open_ones(store):
        found.setdefault(loss.source, []).append(loss)
    return found


def letters(losses: Iterable[Loss]) -> int:
    """Return how many they are at most, as far as that is known."""
    return sum(loss.letters or 0 for loss in losses)


def in_words(losses: Sequence[Loss]) -> str:
    """Return what is lost of one source, where, and how that is closed."""
    count, source = letters(losses), losses[0].source
    places = "; ".join(map(str, losses[:_NAMED])) + ("; …" if len(losses) > _NAMED else "")
    return (
        f"{count:,} letters at most are lost: {places}. `dlq dismiss --lost {source} --reason TEXT` closes it"
    )


@dataclass(frozen=True)
class _Event:
    """What is kept of one moment."""

    event: Literal["found", "dismissed", "reopened"]
    source: str
    at: str
    missing: tuple[Missing, ...] = ()
    read_at: str | None = None
    reason: str | None = None
    actor: str | None = None


def _add_found(losses: list[Loss], event: _Event) -> list[Loss]:
    return [*losses, *(Loss(event.source, *one, event.read_at, event.at) for one in event.missing)]


def _dismiss_all(losses: list[Loss], event: _Event) -> list[Loss]:
    return [one if one.dismissed else replace(one, dismissed=True, reason=event.reason) for one in losses]


def _reopen_all(losses: list[Loss], _event: _Event) -> list[Loss]:
    return [replace(one, dismissed=False, reason=None) for one in losses]


_EVENTS = {"found": _add_found, "dismissed": _dismiss_all, "reopened": _reopen_all}


def _write(store: Store, event: _Event) -> None:
    """Write an event behind all that are known: the clocks of hosts differ."""
    last = max((from_iso(one.at) or 0 for one in _read_events(store)), default=0)
    event = replace(event, at=max(event.at, iso(last + 1)))
    name = f"{_FOLDER}{event.at[:26].translate(str.maketrans('', '', '-:.'))}-{os.urandom(4).hex()}.json"
    missing = [one._asdict() for one in event.missing]
    document = {"format": FORMAT_VERSION, **asdict(event), "missing": missing}
    store.put(name, json.dumps(document).encode())


def _subtract(one: Missing, known: Iterable[Loss]) -> list[Missing]:
    """Return the parts of it that no known loss of the same log covers."""
    parts = [one]
    for loss in known:
        if (loss.place, loss.log) == (one.place, one.log):
            parts = [rest for part in parts for rest in _cut(part, loss.first, loss.end)]
    return parts


def _cut(part: Missing, first: int, end: int | None) -> Iterator[Missing]:
    if part.end is None or end is None:
        if (part.end, part.first) != (end, first):
            yield part
        return
    if part.first < min(part.end, first):
        yield part._replace(end=min(part.end, first))
    if max(part.first, end) < part.end:
        yield part._replace(first=max(part.first, end))


def _lost_parts(store: Store, source: str, one: Missing) -> Iterator[Missing]:
    """Yield the parts of it that the archive does not have, by offset."""
    if one.end is None or one.log.rpartition(":")[2].partition("~")[1]:
        yield one  # of a second log: the offsets that were captured may be those of the first
        return
    at = one.first
    for offset in sorted(_captured_offsets(store, source, one)):
        if offset > at:
            yield one._replace(first=at, end=offset)
        at = offset + 1
    if at < one.end:
        yield one._replace(first=at)


def _captured_offsets(store: Store, source: str, one: Missing) -> Iterator[int]:
    columns = ("dead_letter_queue", "broker_node", "queue_id", "offset")
    for manifest in manifests.list_committed(store, source):
        for batch in segments.batches(store, manifest.segment, columns) if manifest.segment else ():
            for queue, node, number, offset in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                is_there = one.place in (f"{queue}@{node}:{number}", f"{queue}-{number}", queue)
                if is_there and offset is not None and one.first <= offset < (one.end or 0):
                    yield offset
