"""What a ledger must do: it remembers what was sent, so that nothing is sent twice.

Every operation is atomic between processes, and between hosts where the ledger is a server.
"""

import os
import re
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from sys import maxsize
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dlq.archive.storage.processes import is_running
from dlq.core.documents import value
from dlq.core.errors import ArchiveError
from dlq.core.failures import Event
from dlq.core.runtime import bounded_json
from dlq.replay.states import State

if TYPE_CHECKING:
    from dlq.replay.plans.letters import Letter

COLUMNS = (
    "key", "plan", "number", "record_id", "target", "lap", "state", "owner", "lease_until", "sent_at",
    "updated_at", "detail",
)  # fmt: skip
"""All that a ledger holds of a replay, in the order of `all_rows` and `adopt`."""


_OWNER = re.compile(r"(.+)/([0-9]{1,9})/[^/]*", re.DOTALL)


class Result(NamedTuple):
    """What became of one claimed replay."""

    key: str
    state: State
    detail: str | None = None


class Entry(NamedTuple):
    """One replay as the ledger knows it. Times are microseconds since the epoch."""

    key: str
    plan: str
    number: int
    record_id: str
    target: str
    state: State
    owner: str
    sent_at: int
    detail: str | None


class Ledger(Protocol):
    """The store behind replays. Raises ArchiveError when it can't be read or written."""

    owner: str
    """Who claims by it (`new_owner`)."""

    def claim(
        self, plan: str, letters: "Sequence[Letter]", results: Sequence[Result] = (), made: int = maxsize
    ) -> set[str]:
        """Write `results`, then mark as `sending` what nobody has sent; both or neither. What a broker did
        not take before the plan was `made` (microseconds since the epoch) nobody has sent, either.

        Returns the keys that are ours to send. They are durable when this returns, and ours for
        `lease` seconds.
        """
        ...

    def renew(self, keys: Sequence[str]) -> set[str]:
        """Start the lease of our claims anew; returns those that are still ours."""
        ...

    def record_results(self, results: Sequence[Result]) -> None:
        """Write what became of our claims; `planned` gives one back unsent."""
        ...

    def expire(self) -> int:
        """Make claims whose owner is dead or whose lease has ended `in_doubt`; return how many."""
        ...

    def states(self, keys: Sequence[str], plan: str = "", made: int = 0) -> Mapping[str, State]:
        """Return the state of each of these keys that the ledger knows; for a plan, `made` then, `planned`
        where it may try again what a broker did not take."""
        ...

    def counts(self, plan: str) -> Mapping[State, int]:
        """Return how many replays of `plan` are in each state; those that another plan sent are not among
        them."""
        ...

    def counts_of_all(self) -> Mapping[str, Mapping[State, int]]:
        """Return `counts` of every plan that has replays."""
        ...

    def entries(self, plan: str, state: State, last: int | None = None) -> list[Entry]:
        """Return a plan's replays in one state, in the order of the plan; or the last so many of them."""
        ...

    def resolve(self, keys: Sequence[str], state: State, detail: str) -> int:
        """Reconcile: move replays on by proof or an operator's decision; returns how many moved."""
        ...

    def rows(self) -> Iterator[tuple[Sequence[object], ...]]:
        """Return every replay, in chunks: a sequence of values for each column of REPLAYS, in that order."""
        ...

    def sent_since(self, moment: int, plan: str) -> Iterator[Sequence[tuple[str, ...]]]:
        """Yield chunks of `record_id, key, state, target`: what another plan has sent since, or may have."""
        ...

    def all_rows(self) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Return all replays with all they hold, in chunks that `adopt` of another ledger takes."""
        ...

    def adopt(self, rows: Sequence[tuple[Any, ...]]) -> int:
        """Take in replays of another ledger; what is known here stays. Returns how many are new."""
        ...

    def forget(self, keys: Sequence[str]) -> int:
        """Take dismissals back, as if they had never been; returns how many there were."""
        ...

    def version(self) -> tuple[int, ...]:
        """Return another one after each change of a replay's state; what people say changes nothing of it."""
        ...

    def events(self) -> list[Event]:
        """Return what people said of failures, in the order in which it was written."""
        ...

    def append(self, events: Sequence[Event]) -> None:
        """Write events behind all others; those that are there stay as they are."""
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...


def event_of(text: str | bytes) -> Event:
    """Return an event as ledgers keep it. Raises ArchiveError."""
    try:
        kinds = tuple[str, int, str, str, str, str, str]
        return Event._make(value(kinds, bounded_json.loads(text.encode() if isinstance(text, str) else text)))
    except ValueError as error:
        raise ArchiveError(f"the ledger is damaged: of an event, {error}") from error


def new_owner() -> str:
    """Return who holds a claim: `host/pid/random`: host, process, and a word for each ledger opened."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


def is_dead(owner: str) -> bool:
    """Return whether the owner was a process of this host and is no more; of other hosts it is not known."""
    found = _OWNER.fullmatch(owner)
    return found is not None and found[1] == socket.gethostname() and not is_running(int(found[2]))
