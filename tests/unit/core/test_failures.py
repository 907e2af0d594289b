"""The life of a failure: a table of what was said and what its letters did, and the state that follows."""

from support.rows import each_row

from dlq.core.failures import Action, Deaths, Event, State, by_fingerprint, life, make_event, until_letters
from dlq.core.failures import until_time as until

SECOND = 1_000_000


def event(at: int, action: Action, value: str = "", reason: str = "", actor: str = "ann@a") -> Event:
    return make_event(at * SECOND, actor, "f1", action, value, reason)


ASSIGN, NOTE, REOPEN = event(1, "assign", "ann"), event(1, "note", "", "seen"), event(20, "reopen")
RESOLVE, FIXED = event(10, "resolve"), event(10, "resolve", "2.4.1")
FOR_A_WHILE = event(10, "snooze", until(50 * SECOND))
TO_FIVE = event(10, "snooze", until_letters(5))

TABLE: list[tuple[list[Event], int, int | None, int, State]] = [
    # events, letters, when the last one died, now -> state
    ([], 3, 1, 99, "new"),
    ([ASSIGN], 3, 1, 99, "open"),
    ([NOTE], 3, 99, 99, "open"),
    ([FOR_A_WHILE], 3, 1, 49, "snoozed"),
    ([FOR_A_WHILE], 3, 49, 49, "snoozed"),
    ([FOR_A_WHILE], 3, 1, 50, "open"),
    ([FOR_A_WHILE, NOTE], 3, 1, 49, "snoozed"),
    ([TO_FIVE], 4, 99, 99, "snoozed"),
    ([TO_FIVE], 5, 1, 11, "open"),
    ([RESOLVE], 3, 10, 99, "resolved"),
    ([RESOLVE], 0, None, 99, "resolved"),
    ([RESOLVE], 3, None, 99, "resolved"),
    ([RESOLVE], 3, 11, 99, "regressed"),
    ([RESOLVE, ASSIGN], 3, 11, 99, "regressed"),
    ([RESOLVE, NOTE], 3, 9, 99, "resolved"),
    ([RESOLVE, REOPEN], 3, 11, 99, "open"),
    ([RESOLVE, REOPEN, event(30, "resolve")], 3, 11, 99, "resolved"),
    ([RESOLVE, event(12, "snooze", until(50 * SECOND))], 3, 11, 40, "snoozed"),
    ([RESOLVE, event(12, "snooze", until(50 * SECOND))], 3, 11, 60, "open"),
]


@each_row(("events", "letters", "last", "now", "state"), TABLE)
def test_a_state_follows_from_events_and_letters(
    events: list[Event], letters: int, last: int | None, now: int, state: State
) -> None:
    died = None if last is None else last * SECOND
    assert life(events, Deaths(letters, died), now * SECOND).state == state


BY_VERSION: list[tuple[list[Event], dict[str | None, int] | None, State]] = [
    # events, when the last one of each version died (None: not asked) -> state, where the last died at 11
    ([FIXED], {"2.4.0": 11}, "resolved"),
    ([FIXED], {"2.4.0": 11, "2.4.1": 10}, "resolved"),
    ([FIXED], {"2.4.0": 10, "2.4.1": 11}, "regressed"),
    ([FIXED], {"2.10.0": 11}, "regressed"),
    ([FIXED], {"2.4.1-rc1": 11}, "resolved"),
    ([FIXED], {"2.4.0": 11, None: 11}, "regressed"),
    ([FIXED], {"latest": 11}, "regressed"),
    ([FIXED], None, "regressed"),
    ([RESOLVE], {"2.4.0": 11}, "regressed"),
    ([FIXED, RESOLVE], {"2.4.0": 11}, "regressed"),
    ([FIXED, REOPEN], {"2.4.1": 11}, "open"),
    ([event(10, "resolve", "soon")], {"2.4.0": 11}, "regressed"),
]


@each_row(("events", "by_version", "state"), BY_VERSION)
def test_only_letters_of_the_version_with_the_fix_or_newer_bring_a_failure_back(
    events: list[Event], by_version: dict[str | None, int] | None, state: State
) -> None:
    died = by_version and {version: at * SECOND for version, at in by_version.items()}
    assert life(events, Deaths(3, 11 * SECOND, died), 99 * SECOND).state == state


def test_a_failure_says_in_which_version_it_was_resolved_while_that_stands() -> None:
    for events, version in (([FIXED, NOTE], "2.4.1"), ([RESOLVE], None), ([FIXED, REOPEN], None)):
        assert life(events, Deaths(), 0).resolved_in == version


def test_the_last_owner_and_the_last_reason_stand() -> None:
    events = [ASSIGN, NOTE, event(3, "assign", "bob"), event(4, "resolve", "", "", "bob@b")]
    found = life(events, Deaths(), 9 * SECOND)
    assert (found.owner, found.note, found.actor, found.changed_at) == ("bob", "seen", "bob@b", 4 * SECOND)
    assert life([ASSIGN, event(2, "assign", "")], Deaths(), 0).owner is None, "it was given back"
    assert (life([TO_FIVE], Deaths(4), 0).until, life([TO_FIVE], Deaths(5), 0).until) == ("letters:5", None)
    written = [event(90, "resolve"), event(10, "reopen")]  # whatever the clock of its host says
    assert life(written, Deaths(), 99 * SECOND).state == "open"


def test_events_are_sorted_by_failure_and_keep_their_order() -> None:
    other = make_event(1, "ann@a", "f2", "note", "", "x")
    assert by_fingerprint([ASSIGN, other, NOTE]) == {"f1": [ASSIGN, NOTE], "f2": [other]}
