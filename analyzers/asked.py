"""What an analysis is about: handed to the engine that carries it out."""

from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import NamedTuple

from dlq.analyzers import topology
from dlq.analyzers.classification import Part
from dlq.analyzers.groups import stores
from dlq.analyzers.groups.contract import Context
from dlq.archive.manifests import Manifest
from dlq.archive.storage.store import Store
from dlq.archive.store_facts import Snapshot
from dlq.core import clock
from dlq.core.settings import Settings


class Asked(NamedTuple):
    """What an analysis is about."""

    store: Store
    settings: Settings
    since: int | None
    """Microseconds since the epoch: letters captured before are left out."""
    logs: Sequence[str]
    """Consumers' logs, joined with suppressed duplicates."""
    snapshots: Sequence[Snapshot]
    """What the stores of `[evidence.NAME]` said."""
    segments: Sequence[Manifest]
    """All that counts; with `since` more than is looked at."""
    name: str

    @property
    def folder(self) -> str:
        """Of its tables, in the archive."""
        return f"analyses/{self.name}"

    @property
    def chosen(self) -> list[Manifest]:
        """The segments that may hold letters of its time."""
        if (since := self.since) is None:
            return [*self.segments]
        return [m for m in self.segments if (clock.from_iso(m.created_at) or since) >= since]

    def asked_stores(self) -> list[tuple[Snapshot, stores.Asked]]:
        """Return each store outside as it was asked, and what it gave."""
        evidence = self.settings.evidence
        return [(one, stores.describe_store(evidence[one.name], one.taken_at)) for one in self.snapshots]

    def context(self, parts: Iterable[Part], shared: Set[int]) -> Context:
        """Return what is known beside the letters of these parts; `shared`: the keys that several of them
        have."""
        return Context(
            shared,
            topology.node_facts(self.store),
            self.settings.evidence,
            [(of_store, one.error is None) for one, of_store in self.asked_stores()],
            bool(self.logs),
            span_of(parts),
            topology.last_look(self.store, self.segments),
        )

    def fresh(self, kept: Sequence[Part]) -> list[Manifest]:
        """Return the segments that no kept part has."""
        known = {stem for part in kept for stem in part.stems}
        return [m for m in self.chosen if m.stem not in known]


class Done(NamedTuple):
    """What an engine has done, beside the tables that it wrote."""

    parts: Sequence[Part]
    taken_over: Mapping[str, Sequence[str]] = MappingProxyType({})
    """Table -> files of an analysis before that still hold."""


def span_of(parts: Iterable[Part]) -> int:
    """Return what the letters cover, in slots of `groups.incidents`."""
    slots = [slot for part in parts for slot in (part.first_slot, part.last_slot) if slot is not None]
    return max(slots, default=0) - min(slots, default=0) + 1
