"""Letters that were sent by another key of the ledger, or may have been: a key keeps what is sent from being
sent twice, and is of a letter and its target. To the same target a letter has another key where that was made
otherwise: of its business key, or of its record id alone."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

import pyarrow as pa

from dlq.archive.schema import REPLAYS
from dlq.archive.storage.store import Store
from dlq.replay.ledger.contract import Ledger
from dlq.replay.plans import planfile
from dlq.replay.plans.letters import Letter
from dlq.replay.plans.planfile import Header
from dlq.replay.states import MAY_SEND, SENT, State

_COLUMNS = ["record_id", "key", "state", "target"]
_UNSENT = (*MAY_SEND, "refused")
_GOING = "going"
"""In the place of a state of the ledger, which does not know of it yet."""
_LOCKS = "locks/plan-"
_AT_ONCE = 10_000
_CLOCKS_DIFFER = 86_400_000_000
"""Microseconds by which the clock of who made a plan may be ahead of the ledger's."""


class Replayed(NamedTuple):
    """One replay of a letter that was sent, or may have been."""

    key: str
    state: State
    target: str

    def __str__(self) -> str:
        """Return it in words."""
        state = "going to" if self.state == _GOING else f"{self.state.replace('_', ' ')} at"
        return f"{state} {self.target}"


Elsewhere = Mapping[str, Sequence[Replayed]]
"""Id of a letter -> its replays."""


def list_sent(replays: pa.Table | None) -> pa.Table:
    """List the ledger's replays that were sent, or may have been."""
    known = REPLAYS.empty_table() if replays is None else replays
    return _those_in(known, "state", SENT).select(_COLUMNS)


def list_unsent(replays: pa.Table | None) -> list[str]:
    """List the keys of the ledger's replays that no broker has, as it or somebody says; none of those that
    were given back unsent, of which nothing is said."""
    known = REPLAYS.empty_table() if replays is None else replays
    rows = _those_in(known, "state", _UNSENT).select(["key", "state", "detail"]).to_pylist()
    return [row["key"] for row in rows if row["detail"] or row["state"] == "refused"]


def list_going(store: Store, header: Header) -> pa.Table:
    """Return the letters of other plans that are being applied: each may be sent from now on. Who holds the
    lock of their own plan misses none, since who begins later finds that lock. Raises UsageError,
    ArchiveError, FormatTooNew."""
    plans = [name.removeprefix(_LOCKS) for name in store.list(_LOCKS)]
    held = [one for one in plans if one != header.plan and store.holder(f"plan-{one}") is not None]
    return _as_table(chain.from_iterable(_going_of(store, plan) for plan in held))


def _going_of(store: Store, plan: str) -> Iterator[Sequence[tuple[str, ...]]]:
    left = planfile.letters(store, plan)
    while some := [*islice(left, _AT_ONCE)]:
        yield [(one.record_id, one.key, _GOING, str(one.target)) for one in some]


def list_since(ledger: Ledger, header: Header, going: pa.Table | None = None) -> pa.Table:
    """Return what other plans have sent since this was made, or may have, and what is `going`
    (`list_going`)."""
    sent = _as_table(ledger.sent_since(max(0, header.made_at - _CLOCKS_DIFFER), header.plan))
    return sent if going is None else pa.concat_tables([going, sent])


def _as_table(chunks: Iterable[Sequence[tuple[str, ...]]]) -> pa.Table:
    tables = [pa.table([*map(pa.array, zip(*chunk, strict=True))], _COLUMNS) for chunk in chunks]
    return pa.concat_tables(tables or [REPLAYS.empty_table().select(_COLUMNS)])


def find_gone(ledger: Ledger, header: Header, sent: pa.Table, letters: Iterable[Letter]) -> dict[int, str]:
    """Return the letters of a plan, by their numbers, that it may not send as they went somewhere by what of
    `list_since` is of them, and where, in words. One that was made to send them again may, but to their own
    targets."""
    left, gone = iter(letters if sent.num_rows else ()), dict[int, str]()
    while some := [*islice(left, _AT_ONCE)]:
        found = find_sent(sent, [one.record_id for one in some])
        told = {one: where for one in some if (where := describe_sent(found, one, here=header.again))}
        own = ledger.states([one.key for one in told], header.plan, header.made_at) if told else {}
        gone |= {one.number: where for one, where in told.items() if own.get(one.key, "planned") in MAY_SEND}
    return gone


def find_sent(sent: pa.Table, record_ids: Collection[str]) -> Elsewhere:
    """Return what of `list_sent` is of these letters."""
    found: defaultdict[str, list[Replayed]] = defaultdict(list)
    for row in _those_in(sent, "record_id", record_ids).to_pylist():
        found[row.pop("record_id")].append(Replayed(**row))
    return found


def _those_in(table: pa.Table, column: str, values: Collection[str]) -> pa.Table:
    import pyarrow.compute as pc  # as long as all of the rest takes to import, and an apply needs it seldom

    return table.filter(pc.is_in(table[column], pa.array(values, pa.string())))


def _find_others(found: Elsewhere, letter: Letter, here: bool) -> Iterator[Replayed]:
    """Yield what a letter was sent by but this key; `here`: to its own target alone."""
    others = (one for one in found.get(letter.record_id, ()) if one.key != letter.key)
    return (one for one in others if not here or one.target == str(letter.target))


def find_here(found: Elsewhere, letter: Letter) -> State | None:
    """Return the state of a letter that was sent to its own target by another key; None: it was not."""
    return next((one.state for one in _find_others(found, letter, here=True)), None)


def describe_sent(found: Elsewhere, letter: Letter, here: bool = False) -> str | None:
    """Return in words where a letter was sent by another key, or whether `here`, to its own target; None:
    nowhere."""
    return ", ".join(sorted({*map(str, _find_others(found, letter, here))})) or None
