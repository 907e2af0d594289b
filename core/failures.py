"""The life of a failure (all letters of one fingerprint): from what people said, and how its letters die.

    new -> open -> snoozed -> open          snooze ends at a time, or at a number of letters
           open -> resolved -> regressed    a letter died after it was resolved, of that version or newer

What was said is a list of events, which only grows; the state follows from them each time it is asked for.
"""

import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from dlq.core.clock import from_iso, iso
from dlq.core.errors import UsageError
from dlq.core.values.versions import is_older

State = Literal["new", "open", "snoozed", "resolved", "regressed"]
ORDER: tuple[State, ...] = ("regressed", "new", "open", "resolved", "snoozed")
"""States as lists show them: what needs a person first."""
Action = Literal[
    "assign", "note", "snooze", "resolve", "reopen", "plan", "approve", "apply", "release", "propose",
    "unmask",
]  # fmt: skip
"""Of a failure, but for those OF_PLANS, which are of a plan (who made one stands in its file), and unmask,
which is of a letter: somebody saw it as it is."""


_LONGEST = 2_000
"""Characters of a text that somebody gives."""


class Event(NamedTuple):
    """What somebody said, once and for ever."""

    id: str
    """Of this event alone: written twice (an answer was lost), it is there once."""
    at: int
    """Microseconds since the epoch, by the clock of who said it."""
    actor: str
    subject: str
    """The fingerprint; of those OF_PLANS the plan."""
    action: Action
    value: str
    """Of assign the owner (`""`: nobody), of snooze its end (a time in ISO 8601, or `letters:N`), of resolve
    the version with the fix (`""`: none is said), of plan, approve and apply the plan's digest, of release
    the letter at which its key had stopped, of propose the command that a person may run."""
    reason: str


class Deaths(NamedTuple):
    """What the archive knows of a failure's letters. Times as `Event.at`."""

    letters: int = 0
    last: int | None = None
    """When the last one died."""
    by_version: Mapping[str | None, int] | None = None
    """Version of the application (None: nothing says it) -> when the last one of it died that died after the
    resolution; None: not asked."""


class Life(NamedTuple):
    """A failure as it stands."""

    state: State
    owner: str | None = None
    until: str | None = None
    """While it is snoozed: until when (ISO 8601), or until how many letters (`letters:N`)."""
    note: str | None = None
    """What somebody noted last; where nobody has, the last reason that was given."""
    actor: str | None = None
    changed_at: int | None = None
    resolved_in: str | None = None
    """While it is resolved, or regressed since: the version that was said to have the fix."""


def make_event(at: int, actor: str, subject: str, action: Action, value: str = "", reason: str = "") -> Event:
    """Return a new event."""
    return Event(secrets.token_hex(16), at, actor, subject, action, value, reason)


def check_length(*texts: str) -> None:
    """Raise UsageError for a text that is too long to be said once and for ever."""
    if any(len(text) > _LONGEST for text in texts):
        raise UsageError(
            f"give at most {_LONGEST:,} characters: put the rest into a ticket, and its address here"
        )


def by_fingerprint(events: Iterable[Event]) -> Mapping[str, list[Event]]:
    """Fingerprint -> the events about that failure, in the order in which they were written."""
    found: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.action not in (*OF_PLANS, *OF_LETTERS):
            found[event.subject].append(event)
    return found


def life(events: Sequence[Event], deaths: Deaths, now: int) -> Life:
    """Return how a failure stands now. `events` are its own, in the order in which they were written."""
    events = [event for event in events if event.action != "propose"]
    if not events:
        return Life("new")
    assigned = [event for event in events if event.action == "assign"]
    moved, fix = _last_move(events), find_fix(events)
    reasons = [event.reason for event in events if event.reason]
    notes = [event.reason for event in events if event.action == "note"] or reasons
    state = _state(moved, deaths, now) if moved else "open"
    return Life(
        state,
        (assigned[-1].value or None) if assigned else None,
        moved.value if moved and state == "snoozed" else None,
        notes[-1] if notes else None,
        events[-1].actor,
        events[-1].at,
        fix.value if fix else None,
    )


def find_fix(events: Sequence[Event]) -> Event | None:
    """Return the resolution of a failure that stands and says in which version, of the events about it."""
    last = _last_move(events)
    return last if last and last.action == "resolve" and last.value else None


OF_PLANS: tuple[Action, ...] = ("plan", "approve", "apply", "release")
OF_LETTERS: tuple[Action, ...] = ("unmask",)
_MOVES: tuple[Action, ...] = ("snooze", "resolve", "reopen")
"""Actions that say what the state is from then on; assign and note leave it, and end `new`."""
_LETTERS = "letters:"


def until_letters(count: int) -> str:
    """Return the end of a snooze that lasts while the failure has fewer letters than that."""
    return f"{_LETTERS}{count}"


def until_time(moment: int) -> str:
    """Return the end of a snooze at a moment, in microseconds since the epoch."""
    return iso(moment)


def _last_move(events: Sequence[Event]) -> Event | None:
    return next((event for event in reversed(events) if event.action in _MOVES), None)


def _state(last: Event, deaths: Deaths, now: int) -> State:
    if last.action == "snooze":
        return "snoozed" if _lasts(last.value, deaths.letters, now) else "open"
    if last.action == "resolve":
        return "regressed" if _came_back(last, deaths) else "resolved"
    return "open"


def _came_back(fix: Event, deaths: Deaths) -> bool:
    """Return whether a letter of the fixed version, or of one that may be it, died after the fix. While a fix
    is rolled out, letters of older versions still die."""
    last = {None: deaths.last} if deaths.by_version is None else deaths.by_version
    return any(
        died is not None and died > fix.at and not is_older(version, fix.value)
        for version, died in last.items()
    )


def _lasts(end: str, letters: int, now: int) -> bool:
    if end.startswith(_LETTERS):
        return letters < int(end.removeprefix(_LETTERS))
    return now < (from_iso(end) or 0)
