"""How far a plan is: every letter of it is in exactly one state."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice

from dlq.archive.storage.store import Store
from dlq.core.errors import ArchiveError
from dlq.replay.ledger.contract import Ledger
from dlq.replay.plans import planfile
from dlq.replay.plans.planfile import Header
from dlq.replay.states import MAY_SEND_AGAIN, STATES, State

_CHUNK = 5_000


def counts(
    store: Store, ledger: Ledger | None, header: Header, own: Mapping[State, int] | None = None
) -> dict[State, int]:
    """Return state -> letters of the plan. A letter that another plan sent is in that replay's state. `own`:
    what `Ledger.counts` says of it, where that is known.

    Without a ledger nothing was ever sent. Raises ArchiveError for counts that cannot be.
    """
    own = ledger.counts(header.plan) if ledger and own is None else own
    known = _by_plan_or_key(store, ledger, header, own or {}) if ledger else {}
    found: dict[State, int] = {state: known.get(state, 0) for state in STATES}
    if max(found.values()) > header.letters:
        raise ArchiveError(f"the ledger counts more replays of plan {header.plan} than it has letters")
    # While it is counted letters may go from one state to another, and be in both.
    found["planned"] += max(0, header.letters - sum(found.values()))
    return found


def is_over(states: Mapping[State, int]) -> bool:
    """Return whether nothing of the plan is left to send or to find out."""
    return not any(states[state] for state in ("planned", "sending", "in_doubt"))


def has_ended(store: Store, ledger: Ledger, header: Header) -> bool:
    """Return `is_over`, without counting a plan whose first letters were never sent."""
    first = next(_keys(store, header.plan), [])
    return len(ledger.states(first)) == len(first) and is_over(counts(store, ledger, header))


def _by_plan_or_key(
    store: Store, ledger: Ledger, header: Header, own: Mapping[State, int]
) -> Mapping[State, int]:
    if sum(own.values()) == header.letters:
        return own
    tally: Counter[State] = Counter()
    for keys in _keys(store, header.plan):
        tally.update(ledger.states(keys).values())
    # What the broker did not take from another plan is this plan's to send.
    return {**tally, **{state: own.get(state, 0) for state in MAY_SEND_AGAIN}}


def _keys(store: Store, plan: str) -> Iterator[list[str]]:
    keys = planfile.keys(store, plan)
    while some := [*islice(keys, _CHUNK)]:
        yield some
