"""Where targets of a plan ended before its letters went there: noted once, and before the first of them."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, islice

from dlq.archive.storage.store import Store
from dlq.connectors.base import Connector, Evidence, Target
from dlq.core.errors import UsageError
from dlq.replay.ledger.contract import Ledger
from dlq.replay.plans import planfile
from dlq.replay.plans.letters import Letter
from dlq.replay.states import State

_AT_ONCE = 1000
_UNPROVEN: Sequence[State] = ("sending", "in_doubt")
"""States that bounds may be asked about."""
_NO_BOUNDS = (
    "plan {0} has {1} letter(s) in doubt on {2}, and plans/{0}.{2}.bounds.json, which says where its targets "
    "ended before they were sent, is not there: what would be noted now proves nothing of them. Look if they "
    "are there, and say so first: dlq replay reconcile {0} (--sent ID, --not-sent ID, --hold ID)"
)


class Bounds:
    """The bounds of a plan that is held."""

    def __init__(self, store: Store, plan: planfile.Checked, ledger: Ledger) -> None:
        self._store, self._plan, self._ledger = store, plan, ledger
        self._noted: defaultdict[str, set[Target]] = defaultdict(set)

    @cached_property
    def _unproven(self) -> defaultdict[str, Counter[Target]]:
        """Broker -> target -> how many letters were in doubt, or being sent by others, before we sent any."""
        entries = (self._ledger.entries(self._plan.header.plan, state) for state in _UNPROVEN)
        numbers = {entry.number for entry in chain.from_iterable(entries)}
        found: defaultdict[str, Counter[Target]] = defaultdict(Counter)
        for letter in self._plan.letters() if numbers else ():
            found[letter.broker][letter.target] += letter.number in numbers
        return found

    def note_first(self, broker: str, connector: Connector, letters: Iterator[Letter]) -> Iterator[Letter]:
        """Yield the letters for a broker, each when it is noted where its target ended before."""
        noted = self._noted[broker]
        while some := [*islice(letters, _AT_ONCE)]:
            new = {letter.target for letter in some} - noted
            if new and (asked := self._without_late(broker, new)):
                self.note(broker, connector.bounds(asked))
            noted |= new
            yield from some

    def _without_late(self, broker: str, targets: set[Target]) -> set[Target]:
        """Leave out targets of letters in doubt: what was not noted before those would be noted too late."""
        known = planfile.bounds_of(self._store, self._plan.header.plan, broker)
        return targets - (+self._unproven[broker]).keys() if known else targets

    def note(self, broker: str, evidence: Evidence) -> None:
        """Note evidence. Raises UsageError where letters that are in doubt were sent before any was noted."""
        plan, lost = self._plan.header.plan, self._unproven[broker].total()
        if evidence and lost and not planfile.bounds_of(self._store, plan, broker):
            raise UsageError(_NO_BOUNDS.format(plan, lost, broker))
        planfile.keep_bounds(self._store, plan, broker, evidence)
