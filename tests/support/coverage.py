"""What `dlq coverage` said beside what became of messages, as a confusion matrix."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from support.waiting import PATIENCE

from dlq.connectors.base import Fate


@dataclass
class Case:
    """A message that dies; `sure`: such a key certainly comes, else it may."""

    kind: str
    name: str
    death: str
    key: str = ""
    sure: bool = True


class Outcome(NamedTuple):
    """Where one was found, and whether another was lost for it."""

    case: Case
    places: frozenset[str]
    costs: bool = False

    @property
    def verdict(self) -> str:
        return "kept" if self.places and not self.costs else "lost"


def compare(fates: Iterable[Fate], outcomes: Iterable[Outcome]) -> None:
    """Every row that was tried says what was found: lost where one that surely comes was lost, unknown where
    it depends on a key that nobody knows."""
    said = {(fate.kind, fate.name, fate.death): fate for fate in fates}
    tried: dict[tuple[str, str, str], list[Outcome]] = {}
    for one in outcomes:
        tried.setdefault((one.case.kind, one.case.name, one.case.death), []).append(one)
    matrix: Counter[tuple[str, str]] = Counter()
    wrong = []
    for row, found in tried.items():
        truth = _truth(found)
        fate = said.get(row)
        matrix[fate.verdict if fate else "nothing", truth] += 1
        places = tuple(sorted(frozenset().union(*(one.places for one in found))))
        if fate is None or fate.verdict != truth or (truth == "kept" and fate.leads_to != places):
            tells = [(one.case.key, *one[1:]) for one in found]
            wrong.append(f"{row}: said {fate and fate[3:6]}, found {truth} {tells}")
    print({f"said {said}, was {was}": n for (said, was), n in sorted(matrix.items())})
    assert tried
    assert not wrong, f"{len(wrong)} of {len(tried)} rows: " + "\n".join(wrong[:20])


def compare_late(fates: Iterable[Fate], find: Callable[[], Iterable[Outcome]]) -> None:
    """The same of what is found as soon as it is what was said: a broker takes its time to move a message."""
    said, deadline = [*fates], time.monotonic() + PATIENCE
    while True:
        try:
            return compare(said, find())
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.5)


def _truth(found: list[Outcome]) -> str:
    verdicts = {one.verdict for one in found}
    if any(one.verdict == "lost" and one.case.sure for one in found):
        return "lost"
    return verdicts.pop() if len(verdicts) == 1 else "unknown"
