"""What is noted before a plan's first letter goes to ActiveMQ: the anchor of each run, and what Artemis has
counted at the targets. In the plan's file each is a number, under its name and its place."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dlq.connectors.activemq.look.queues import TO_OTHER_NODES
from dlq.connectors.base import Evidence


class Run(NamedTuple):
    """A run of a plan: the anchor that it leaves before its first letter, and the id of the Artemis that has
    it, where that is told."""

    anchor: str
    node: str = ""

    def write(self, queue: str) -> Evidence:
        """Return it as it is kept; `queue` has the plan's markers."""
        return {" ".join(filter(None, (queue, *self))): 0}


def read_runs(evidence: Evidence, queue: str) -> list[Run]:
    """Return the runs whose anchors lie in `queue`."""
    start = f"{queue} "
    named = [key.removeprefix(start).partition(" ") for key in evidence if key.startswith(start)]
    return [Run(anchor, node) for anchor, _, node in named]


class Count(NamedTuple):
    """What Artemis counts, as its management is asked for it: a number of a broker, of address.NAME or of
    queue.NAME. All only grow while it runs."""

    resource: str
    what: str


_UNROUTED, _ROUTED, _ADDED = "unRoutedMessageCount", "routedMessageCount", "messagesAdded"
_OF = {_UNROUTED: "address.", _ROUTED: "address.", _ADDED: "queue.", "started": "broker"}
STARTED, _APART = Count("broker", "started"), 5_000
"""When the broker was, in milliseconds of our clock; and how far apart two answers of one run may be."""
_AWAY = f"queue.{TO_OTHER_NODES}"


def counts_of(address: str, queues: Iterable[str]) -> list[Count]:
    """Return what is counted at an address, and at these of its queues."""
    named = [(_UNROUTED, address), (_ROUTED, address), *((_ADDED, queue) for queue in queues)]
    return [Count(f"{_OF[what]}{place}", what) for what, place in named]


def write_counts(counts: Mapping[Count, int]) -> Evidence:
    """Return counts as they are kept."""
    named = ((of.what, of.resource.removeprefix(_OF[of.what]), number) for of, number in counts.items())
    return {" ".join(filter(None, (what, place))): number for what, place, number in named}


def read_counts(evidence: Evidence) -> Mapping[Count, int]:
    """Return the counts that were kept."""
    named = ((*key.partition(" ")[::2], number) for key, number in evidence.items())
    return {Count(f"{_OF[what]}{place}", what): number for what, place, number in named if what in _OF}


def began_anew(before: Mapping[Count, int], after: Mapping[Count, int]) -> bool:
    """Return whether one of these counts is smaller now, or the broker was started at another time."""
    known = before.keys() & after.keys()
    is_other_run = STARTED in known and abs(after[STARTED] - before[STARTED]) > _APART
    return is_other_run or any(after[one] < before[one] for one in known - {STARTED})


def growth_of(before: Mapping[Count, int], after: Mapping[Count, int]) -> tuple[int, int, int]:
    """Return by how much the counts of addresses have grown: routed nowhere, routed, and what their queues
    got; where those are too many, or none is known, what was routed. What goes to other nodes of a cluster is
    of all addresses, and so counts as far as more was routed than the queues here got."""
    grown = {one: number - before.get(one, 0) for one, number in after.items()}
    unrouted, routed, added = (
        sum(n for one, n in grown.items() if one.what == what) for what in (_UNROUTED, _ROUTED, _ADDED)
    )
    here = sum(n for one, n in grown.items() if one.what == _ADDED and not one.resource.startswith(_AWAY))
    knows_queues = any(one.what == _ADDED for one in grown)
    return unrouted, routed, max(here, min(routed, added)) if knows_queues else routed
