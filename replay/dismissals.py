"""Letters that are closed without a replay: who, when and why, in the ledger beside the replays.

A dismissal is a row of its own, under a key that no replay has, so it moves with the ledger, and taking it
back leaves what the ledger knows of the letter's replays as it was.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from dlq.core.clock import Clock, now
from dlq.replay.actor import actor
from dlq.replay.ledger.contract import Ledger

PLAN = "dismissed"
"""Stands where a replay has its plan."""
_PREFIX = "dismissed:"
_CHUNK = 5_000
_BRACKETS = re.compile(r"[()]")
"""What a name has none of in the text that ends with it."""


def dismiss(
    ledger: Ledger, record_ids: Collection[str], reason: str, clock: Clock = now, who: str | None = None
) -> int:
    """Close these letters on behalf of `who` (None: of this process' user); returns how many were not closed
    before."""
    who, moment = _BRACKETS.sub(" ", who or actor()), clock()
    about = ("dismissed", who, 0, moment, moment, f"{reason} ({who})")
    return sum(
        ledger.adopt([(_PREFIX + one, PLAN, 0, one, "", 0, *about) for one in some])
        for some in _chunks(record_ids)
    )


def undo(ledger: Ledger, record_ids: Collection[str]) -> int:
    """Open these letters (record ids) again; returns how many were closed. Raises ArchiveError."""
    return sum(ledger.forget([_PREFIX + one for one in some]) for some in _chunks(record_ids))


def find_dismissed(ledger: Ledger, record_ids: Collection[str]) -> set[str]:
    """Return those of these letters (record ids) that are closed. Raises ArchiveError."""
    return {key.removeprefix(_PREFIX) for key in ledger.states([_PREFIX + one for one in record_ids])}


def _chunks(record_ids: Collection[str]) -> Iterator[Sequence[str]]:
    rest = iter(record_ids)
    while some := list(islice(rest, _CHUNK)):
        yield some
