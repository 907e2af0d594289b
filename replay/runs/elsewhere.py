"""Letters that were sent to another target, or may have been: the ledger's key, which keeps what is sent from
being sent twice, is of a letter and its target."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import pyarrow as pa

from dlq.archive.schema import REPLAYS
from dlq.archive.storage.store import Store
from dlq.replay.ledger.contract import Ledger
from dlq.replay.plans import planfile
from dlq.replay.plans.letters import Letter
from dlq.replay.plans.planfile import Header
from dlq.replay.states import MAY_SEND, SENT

_COLUMNS = ["record_id", "key", "state", "target"]
_UNSENT = (*MAY_SEND, "refused")
_GOING = "going"
"""In the place of a state of the ledger, which does not know of it yet."""
_LOCKS = "locks/plan-"
_AT_ONCE = 10_000
_CLOCKS_DIFFER = 86_400_000_000
"""Microseconds by which the clock of who made a plan may be ahead of the ledger's."""

Elsewhere = Mapping[str, Sequence[tuple[str, str]]]
"""Id of a letter -> the key of each replay of it that was sent, or may have been, and that in words."""


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
    """Return the letters of other plans that are being applied: each may be sent from now on. Nothing for a
    plan that was made to send them again. Who holds the lock of their own plan misses none, since who begins
    later finds that lock. Raises UsageError, ArchiveError, FormatTooNew."""
    names = () if header.again else store.list(_LOCKS)
    plans = [name.removeprefix(_LOCKS) for name in names]
    held = [one for one in plans if one != header.plan and store.holder(f"plan-{one}") is not None]
    return _as_table(chain.from_iterable(_going_of(store, plan) for plan in held))


def _going_of(store: Store, plan: str) -> Iterator[Sequence[tuple[str, ...]]]:
    left = planfile.letters(store, plan)
    while some := [*islice(left, _AT_ONCE)]:
        yield [(one.record_id, one.key, _GOING, str(one.target)) for one in some]


def list_since(ledger: Ledger, header: Header, going: pa.Table | None = None) -> pa.Table:
    """Return what other plans have sent since this was made, or may have, and what is `going` (`list_going`);
    nothing for one that was made to send it again."""
    since = max(0, header.made_at - _CLOCKS_DIFFER)
    sent = _as_table(() if header.again else ledger.sent_since(since, header.plan))
    return sent if going is None else pa.concat_tables([going, sent])


def _as_table(chunks: Iterable[Sequence[tuple[str, ...]]]) -> pa.Table:
    tables = [pa.table([*map(pa.array, zip(*chunk, strict=True))], _COLUMNS) for chunk in chunks]
    return pa.concat_tables(tables or [REPLAYS.empty_table().select(_COLUMNS)])


def find_gone(ledger: Ledger, header: Header, sent: pa.Table, letters: Iterable[Letter]) -> dict[int, str]:
    """Return the letters of a plan, by their numbers, that it may not send as they went to another target by
    what of `list_since` is of them, and where, in words."""
    left, gone = iter(letters if sent.num_rows else ()), dict[int, str]()
    while some := [*islice(left, _AT_ONCE)]:
        found = find_sent(sent, [one.record_id for one in some])
        told = {one: where for one in some if (where := describe_sent(found, one.record_id, one.key))}
        own = ledger.states([one.key for one in told], header.plan, header.made_at) if told else {}
        gone |= {one.number: where for one, where in told.items() if own.get(one.key, "planned") in MAY_SEND}
    return gone


def find_sent(sent: pa.Table, record_ids: Collection[str]) -> Elsewhere:
    """Return what of `list_sent` is of these letters."""
    found: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in _those_in(sent, "record_id", record_ids).to_pylist():
        state = "going to" if row["state"] == _GOING else f"{row['state'].replace('_', ' ')} at"
        found[row["record_id"]].append((row["key"], f"{state} {row['target']}"))
    return found


def _those_in(table: pa.Table, column: str, values: Collection[str]) -> pa.Table:
    import pyarrow.compute as pc  # as long as all of the rest takes to import, and an apply needs it seldom

    return table.filter(pc.is_in(table[column], pa.array(values, pa.string())))


def describe_sent(found: Elsewhere, record_id: str, key: str) -> str | None:
    """Return where else a letter was sent than by the replay of this key, in words; None: nowhere."""
    others = {words for other, words in found.get(record_id, ()) if other != key}
    return ", ".join(sorted(others)) or None
