"""What is noted before a plan's first letter goes to ActiveMQ: the anchor of each run, and what Artemis has
counted at the targets. In the plan's file each is a number, under its name and its place."""

from collections.abc import Mapping
from typing import NamedTuple

from dlq.connectors.activemq.look.queues import TO_OTHER_NODES
from dlq.connectors.base import Evidence

_STARTED, _APART = "started", 5_000
"""Milliseconds: how far apart two answers of one run of the broker may be."""
UNROUTED, ROUTED, ADDED = "unRoutedMessageCount", "routedMessageCount", "messagesAdded"
_OF = {UNROUTED: "address", ROUTED: "address", ADDED: "queue"}


class Run(NamedTuple):
    """A run of a plan, by what it leaves before its first letter."""

    anchor: str
    node: str = ""
    """Of Artemis, the id of the broker that has it; empty where it does not tell."""


def write_run(queue: str, run: Run) -> Evidence:
    """Return the evidence of a run; `queue` has the plan's markers."""
    return {" ".join(filter(None, (queue, *run))): 0}


def read_runs(evidence: Evidence, queue: str) -> list[Run]:
    """Return the runs whose anchors lie in `queue`."""
    start = f"{queue} "
    named = [key.removeprefix(start).partition(" ") for key in evidence if key.startswith(start)]
    return [Run(anchor, node) for anchor, _, node in named]


class Count(NamedTuple):
    """What Artemis counts since its start, as its management is asked for it."""

    resource: str
    """address.NAME or queue.NAME"""
    what: str

    @property
    def is_away(self) -> bool:
        """Whether it is of letters on their way to other nodes of a cluster."""
        return self.resource.startswith(f"queue.{TO_OTHER_NODES}")


def count_at(what: str, place: str) -> Count:
    """Return what is counted at the address or the queue of that name."""
    return Count(f"{_OF[what]}.{place}", what)


class Counts(NamedTuple):
    """What Artemis had counted at one time."""

    numbers: Mapping[Count, int]
    started: int | None = None
    """When the broker was, in milliseconds of our clock; None: it does not tell."""

    def are_anew(self, before: "Counts") -> bool:
        """Return whether one of these, which only grow, was greater before, or the broker was started at
        another time."""
        pairs = [(before.numbers[one], now) for one, now in self.numbers.items() if one in before.numbers]
        if any(now < was for was, now in pairs):
            return True
        times = before.started, self.started
        return times[0] is not None and times[1] is not None and abs(times[1] - times[0]) > _APART


def write_counts(counts: Counts) -> Evidence:
    """Return the evidence of what was counted."""
    found = {f"{one.what} {one.resource.partition('.')[2]}": n for one, n in counts.numbers.items()}
    return found if counts.started is None else {_STARTED: counts.started, **found}


def read_counts(evidence: Evidence) -> Counts:
    """Return what was counted."""
    named = [(*key.partition(" ")[::2], number) for key, number in evidence.items()]
    numbers = {count_at(what, place): number for what, place, number in named if what in _OF}
    return Counts(numbers, evidence.get(_STARTED))


class Growth(NamedTuple):
    """By how much counts have grown: routed nowhere, routed, and what queues got."""

    unrouted: int
    routed: int
    arrived: int


def growth_of(before: Mapping[Count, int], after: Mapping[Count, int]) -> Growth:
    """Return the growth. Where the queues are too many, or none is known, they got what was routed. What goes
    to other nodes of a cluster is of all addresses, and so counts as far as more was routed than the queues
    here got."""
    grown = {one: number - before.get(one, 0) for one, number in after.items()}
    unrouted, routed, added = (
        [n for one, n in grown.items() if one.what == what] for what in (UNROUTED, ROUTED, ADDED)
    )
    away = sum(n for one, n in grown.items() if one.is_away)
    here = sum(added) - away
    arrived = max(here, min(sum(routed), sum(added))) if added else sum(routed)
    return Growth(sum(unrouted), sum(routed), arrived)
