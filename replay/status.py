"""How far a plan is: every letter of it is in exactly one state."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice

from dlq.archive.storage.store import Store
from dlq.core.errors import ArchiveError
from dlq.replay import dismissals
from dlq.replay.dismissals import find_dismissed
from dlq.replay.ledger.contract import Ledger
from dlq.replay.plans import planfile
from dlq.replay.plans.planfile import Header
from dlq.replay.states import STATES, State

_CHUNK = 5_000
CountsOfAll = Mapping[str, Mapping[State, int]]
"""What `Ledger.counts_of_all` says."""


def counts(
    store: Store, ledger: Ledger | None, header: Header, every: CountsOfAll | None = None
) -> dict[State, int]:
    """Return state -> letters of the plan, and `dismissed` where some are closed that were not sent. A letter
    that another plan sent is in that replay's state. `every`: where that is known.

    Without a ledger nothing was ever sent. Raises ArchiveError for counts that cannot be.
    """
    found: dict[State, int] = dict.fromkeys(STATES, 0)
    if ledger:
        asked = header.plan, dismissals.PLAN
        own, closed = map(ledger.counts, asked) if every is None else (every.get(one, {}) for one in asked)
        known = _by_plan_or_key(store, ledger, header, own, is_any_closed=bool(closed))
        if max((*own.values(), *known.values()), default=0) > header.letters:
            raise ArchiveError(f"the ledger counts more replays of plan {header.plan} than it has letters")
        found |= {**known, "planned": 0}
    # While it is counted letters may go from one state to another, and be in both.
    found["planned"] = max(0, header.letters - sum(found.values()))
    return found


def is_over(states: Mapping[State, int]) -> bool:
    """Return whether nothing of the plan is left to send or to find out."""
    return not any(states[state] for state in ("planned", "sending", "in_doubt"))


def has_ended(store: Store, ledger: Ledger, header: Header) -> bool:
    """Return `is_over`, without counting a plan whose first letters were neither sent nor closed."""
    first = next(_names(store, header.plan), {})
    known = ledger.states([*first])
    rest = {record_id for key, record_id in first.items() if key not in known}
    return (not rest or find_dismissed(ledger, rest) == rest) and is_over(counts(store, ledger, header))


def _by_plan_or_key(
    store: Store, ledger: Ledger, header: Header, own: Mapping[State, int], is_any_closed: bool
) -> Mapping[State, int]:
    if sum(own.values()) == header.letters and not own.get("planned"):
        return own
    tally: Counter[State] = Counter()
    for some in _names(store, header.plan):
        known = ledger.states([*some], header.plan, header.made_at)
        tally.update(known.values())
        if is_any_closed:
            unsent = [one for key, one in some.items() if known.get(key, "planned") == "planned"]
            tally["dismissed"] += len(find_dismissed(ledger, unsent))
    return +tally


def _names(store: Store, plan: str) -> Iterator[dict[str, str]]:
    """Yield some letters of a plan at a time: key -> record id."""
    names = planfile.names(store, plan)
    while some := dict(islice(names, _CHUNK)):
        yield some
