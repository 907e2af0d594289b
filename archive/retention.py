"""Which letters may leave the archive: by age, by what became of them, and by the archive's size.

Never a letter whose replay has begun and is not over (`_OPEN`), and never one of a segment that is not
settled: its broker may still deliver it again. What a copy has left in its queue is not settled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dlq.archive.compaction import size_of
from dlq.archive.manifests import Manifest
from dlq.archive.segments import read
from dlq.archive.storage.parquet import readable
from dlq.archive.storage.store import Store
from dlq.core.settings import Retain
from dlq.core.values import units

_OPEN = pa.array(["planned", "sending", "in_doubt", "held"])
_COLUMNS = ["record_id", "captured_at"]


@dataclass(frozen=True)
class Choice:
    """What leaves (stem -> record ids); `bytes` is those letters' share of their segments."""

    removals: Mapping[str, pa.Array]
    kept: int
    bytes: int

    @property
    def removed(self) -> int:
        """How many letters leave."""
        return sum(map(len, self.removals.values()))


class _Letters:
    """Which letters the ledger and the rules allow to leave."""

    def __init__(self, store: Store, rules: Retain, replays: pa.Table | None) -> None:
        self._store, self._states = store, rules.states
        rows = pa.table({"record_id": [], "state": []}) if replays is None else replays
        state = rows["state"].cast(pa.string())
        self._open = rows.filter(pc.is_in(state, value_set=_OPEN))["record_id"].cast(pa.string())
        self._replayed = rows.filter(pc.equal(state, "confirmed"))["record_id"].cast(pa.string())
        self._dismissed = rows.filter(pc.equal(state, "dismissed"))["record_id"].cast(pa.string())

    def removable(self, manifest: Manifest) -> pa.Table:
        """Record ids and capture times of what may leave this segment."""
        if not (manifest.settled and manifest.rows):
            return pa.table({name: [] for name in _COLUMNS})
        with readable(manifest.segment):
            letters = read(self._store, manifest, _COLUMNS)
        ids = letters["record_id"]
        replayed = pc.is_in(ids, value_set=self._replayed.combine_chunks())
        dismissed = pc.and_not(pc.is_in(ids, value_set=self._dismissed.combine_chunks()), replayed)
        waiting = pc.invert(pc.or_(replayed, dismissed))
        allowed = pa.array([False] * len(ids))
        for state, of_it in {"replayed": replayed, "dismissed": dismissed, "waiting": waiting}.items():
            if state in self._states:
                allowed = pc.or_(allowed, of_it)
        is_open = pc.is_in(ids, value_set=self._open.combine_chunks())
        return letters.filter(pc.and_(allowed, pc.invert(is_open)))


def choose(
    store: Store, committed: Sequence[Manifest], rules: Retain, replays: pa.Table | None, now: int
) -> Choice:
    """Return what `rules` remove from the archive at the time `now`. `replays` is the ledger's table.

    Age comes first. Where the segments are still larger than `max_size`, whatever may leave the oldest
    segments leaves, one segment after the other. Raises UsageError, ArchiveError.
    """
    letters = _Letters(store, rules, replays)
    oldest_first = sorted((m for m in committed if m.rows), key=lambda manifest: manifest.created_at)
    sizes = {manifest.stem: size_of(store, manifest) for manifest in oldest_first}
    chosen: dict[str, pa.Array] = {}
    if rules.max_age is not None:
        before = now - int(units.seconds(rules.max_age) * 1_000_000)
        for manifest in oldest_first:
            chosen[manifest.stem] = _captured_before(letters.removable(manifest), before)

    def share(manifest: Manifest) -> int:
        """Return how many bytes its chosen letters free."""
        return sizes[manifest.stem] * len(chosen.get(manifest.stem, ())) // manifest.rows

    freed = sum(map(share, oldest_first))
    if rules.max_size is not None:
        surplus = sum(sizes.values()) - units.size(rules.max_size)
        for manifest in oldest_first:
            if freed >= surplus:
                break
            freed -= share(manifest)
            chosen[manifest.stem] = letters.removable(manifest)["record_id"].combine_chunks()
            freed += share(manifest)
    removals = {stem: ids for stem, ids in chosen.items() if len(ids)}
    kept = sum(manifest.rows for manifest in committed) - sum(map(len, removals.values()))
    return Choice(removals, kept, freed)


def still_chosen(
    store: Store, manifest: Manifest, chosen: pa.Array, rules: Retain, replays: pa.Table | None
) -> pa.Array:
    """Return those of the chosen letters of a segment that may still leave, as the ledger has it now:
    somebody may have sent one since, or opened it again. Raises ArchiveError."""
    may = _Letters(store, rules, replays).removable(manifest)["record_id"]
    return chosen.filter(pc.is_in(chosen, value_set=may.cast(pa.string()).combine_chunks()))


def _captured_before(letters: pa.Table, moment: int) -> pa.Array:
    captured = letters["captured_at"].cast(pa.int64())
    return letters["record_id"].filter(pc.less(captured, moment)).combine_chunks()
