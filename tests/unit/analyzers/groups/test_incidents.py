"""Incidents: which letters belong together, and which are just what is usual."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import pytest
from support.rows import each_row

from dlq.analyzers.groups.incidents import FRESH, SLOT, Slot, find, in_parts, incidents, kind_in, kind_of

MINUTE, HOUR, DAY = 60, 3_600, 86_400
START = 1_793_000_100  # 2026-10-26 07:35 UTC, where a slot begins
SPAN = 60 * DAY // SLOT


def letters(fingerprint: str, times: Iterable[float]) -> list[Slot]:
    """Letters of one failure that died so many seconds after START."""
    slots = Counter(int(START + at) // SLOT for at in times)
    return [Slot(fingerprint, slot, count) for slot, count in sorted(slots.items())]


def every(seconds: float, first: float, last: float) -> list[float]:
    return [first + n * seconds for n in range(int((last - first) / seconds) + 1)]


class Part(NamedTuple):
    """Of a failure in an incident: its first and last slot, and its letters."""

    first: str
    last: str
    letters: int


def found(kind: str, slots: list[Slot], span: int = SPAN) -> dict[tuple[str, str], Part]:
    """(incident, failure) -> what of it, in times after START."""
    told: dict[tuple[str, str], list[Slot]] = {}
    for one in find(kind, slots, span):
        told.setdefault((one.incident_id, one.slot.fingerprint), []).append(one.slot)
    return {
        key: Part(after(of[0].slot), after(of[-1].slot), sum(slot.letters for slot in of))
        for key, of in told.items()
    }


def after(slot: int) -> str:
    minutes = (slot * SLOT - START) // MINUTE
    return f"{minutes // 1440}d {minutes % 1440 // 60:02d}:{minutes % 60:02d}"


def test_an_incident_of_any_year_tells_its_kind() -> None:
    for year in (-1960, 0, 7000):
        slot = (START + year * 365 * DAY) // SLOT
        [told] = {one.incident_id for one in find("timed out", [Slot("f", slot, 50)], SPAN)}
        assert kind_in(told) == "timed out"


MINUTELY = every(2, 0, MINUTE)
BURST = every(20, 5 * DAY + HOUR, 5 * DAY + HOUR + 15 * MINUTE)
SERVICES = [slot for n in range(20) for slot in letters(f"f{n:02d}", [n, 60 + n])]

SCENES: list[tuple[str, str, list[Slot], dict[tuple[str, str], Part]]] = [
    ("nothing died", "k", [], {}),
    ("a burst among what is usual, and nothing else", "bursting", letters("f", [*every(2 * HOUR, 0, 10 * DAY), *BURST]),
     {("20261031-0835-bursting", "f"): Part("5d 01:00", "5d 01:15", 46)}),
    ("a steady stream is usual however many letters it has", "k", letters("f", every(10 * MINUTE, 0, 10 * DAY)), {}),
    ("four letters are no incident", "k", letters("f", range(4)), {}),
    ("half a dozen are", "k", letters("f", range(6)), {("20261026-0735-k", "f"): Part("0d 00:00", "0d 00:00", 6)}),
    ("few letters an hour are one when they go on", "slow", letters("f", every(12 * MINUTE, 0, 5 * HOUR)),
     {("20261026-0735-slow", "f"): Part("0d 00:00", "0d 05:00", 26)}),
    ("what lies hours apart are two", "k", letters("f", [*MINUTELY, *(at + 2 * HOUR for at in MINUTELY)]),
     {("20261026-0735-k", "f"): Part("0d 00:00", "0d 00:00", 31), ("20261026-0935-k", "f"): Part("0d 02:00", "0d 02:00", 31)}),
    ("bursts of two failures half an hour apart are one", "k",
     [*letters("f", MINUTELY), *letters("g", [at + HOUR / 2 for at in MINUTELY])],
     {("20261026-0735-k", "f"): Part("0d 00:00", "0d 00:00", 31), ("20261026-0735-k", "g"): Part("0d 00:30", "0d 00:30", 31)}),
    ("what many failures miss together is one, though none of them stands out", "dependency", SERVICES,
     {("20261026-0735-dependency", f"f{n:02d}"): Part("0d 00:00", "0d 00:00", 2) for n in range(20)}),
    ("one of them alone is none", "dependency", SERVICES[:1], {}),
    (
        "a letter between two bursts of its incident is of it, one behind them is not",
        "k",
        [
            *letters("f", [*every(120 * HOUR, 0, 50 * DAY), *(at + 10 * DAY + HOUR for at in MINUTELY),
                10 * DAY + HOUR + 20 * MINUTE, *(at + 10 * DAY + HOUR + 30 * MINUTE for at in MINUTELY),
                10 * DAY + 4 * HOUR]),
        ],
        {("20261105-0835-k", "f"): Part("10d 01:00", "10d 01:30", 63)},
    ),
    ("an archive of one bad hour is one", "k", letters("f", every(MINUTE, 0, HOUR - 1)),
     {("20261026-0735-k", "f"): Part("0d 00:00", "0d 00:55", 60)}),
]  # fmt: skip


@each_row(("kind", "slots", "told"), [scene[1:] for scene in SCENES], ids=[scene[0] for scene in SCENES])
def test_a_burst_is_an_incident(kind: str, slots: list[Slot], told: dict[tuple[str, str], Part]) -> None:
    assert found(kind, slots) == told


def test_the_order_of_the_slots_does_not_matter() -> None:
    slots = [*SERVICES, *letters("f", BURST)]
    assert find("k", slots[::-1], SPAN) == find("k", slots, SPAN)


def test_a_slot_of_an_incident_tells_its_failures_slot_before() -> None:
    away = letters("f", [at + days * DAY for days in (0, 20, 60) for at in MINUTELY])
    first, later, last = (one.slot for one in away)
    assert [(one.slot.slot, one.before) for one in find("away", away, SPAN)] == [
        (first, None), (later, first), (last, later),
    ]  # fmt: skip


def test_a_young_archive_is_taken_for_quiet_before() -> None:
    slots = letters("f", every(12 * MINUTE, 0, 5 * HOUR))
    assert found("k", slots, span=1) == found("k", slots, span=5 * HOUR // SLOT)


@pytest.mark.parametrize(("family", "cause", "kind"), [
    ("timeout", "application_error", "dependency"),
    ("throttled", "redelivery_exhausted", "dependency"),
    ("bug", "application_error", "bug"),
    (None, "expired", "expired"),
])  # fmt: skip
def test_letters_are_of_a_kind_for_the_reason_they_died_for(
    family: str | None, cause: str, kind: str
) -> None:
    assert kind_of(family, cause) == kind


def test_failures_are_never_split() -> None:
    slots = [
        Slot(name, n, 1) for name, count in (("a", 3), ("b", 2), ("c", 9), ("d", 1)) for n in range(count)
    ]
    parts = list(in_parts(slots, most=5))
    assert ["".join(sorted({slot.fingerprint for slot in part})) for part in parts] == ["ab", "c", "d"]
    assert [slot for part in parts for slot in part] == slots
    assert list(in_parts([])) == []


@pytest.mark.parametrize(("seconds", "ongoing"), [(0, True), (FRESH, True), (FRESH + 1, False), (30 * MINUTE, False)])  # fmt: skip
def test_it_goes_on_only_with_a_letter_in_the_minutes_before_the_pull(seconds: int, ongoing: bool) -> None:
    slot = START // SLOT
    slots = [Slot("f", slot, 40, START * 1_000_000, "r", (START + 60) * 1_000_000)]
    [told] = incidents(find("k", slots, SPAN), (START + 60 + seconds) * 1_000_000)
    assert told.ongoing is ongoing
