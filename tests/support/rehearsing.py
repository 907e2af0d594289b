"""What rehearsal tests share: failures with names, and which of them a rehearsal says were fixed."""

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from support.waiting import PATIENCE

from dlq.operations.desk import Desk
from dlq.operations.plans import PlanWanted, make_plan
from dlq.operations.pulling import PullWanted, pull_sources
from dlq.operations.rehearsing import Rehearsed, rehearse_plan
from dlq.operations.rehearsing import Wanted as Sample
from dlq.replay.plan import Wanted

FAILURES = ("gateway", "stock", "tax", "address", "login")
"""Words, as numbers in a text are no part of a failure."""
OF_EACH = 4


def spring_headers(failure: str, queue: str) -> dict[str, str]:
    """What Spring leaves on a letter that it parks."""
    text = f"the {failure} is closed"
    return {"x-exception-message": text, "x-original-exchange": "shop", "x-original-routingKey": queue}


def fixed(document: Mapping[str, Any]) -> set[str]:
    """The failures that passed entirely, by the word that names each."""
    return {name for name, one in by_name(document).items() if one["sent"] == one["passed"] > 0}


def by_name(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The failures of a rehearsal, by these words."""
    return {next(name for name in FAILURES if name in one["what"]): one for one in document["failures"]}


def counts(document: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Of a failure: sent, passed, died, hung."""
    return tuple(by_name(document)[name][key] for key in ("sent", "passed", "died", "hung"))


def told_of(document: Mapping[str, Any], names: Collection[str]) -> set[str]:
    """Causes that copies of these failures died of."""
    return {death["cause"] for name in names for death in by_name(document)[name]["died_of"]}


def rehearse(
    desk: Desk, to: str, consume: Callable[[str, threading.Event], None], seconds: float = PATIENCE
) -> Rehearsed:
    """Capture what the desk's sources have, plan all of it, and rehearse that while `consume` reads the
    private place (its name) until it is over."""
    pull_sources(desk, PullWanted())
    plan = make_plan(desk, PlanWanted(how=Wanted(any_advice=True, to=to))).header.plan
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        consumer = pool.submit(consume, f"dlq.rehearsal.{plan}", over)
        try:
            done = rehearse_plan(desk, plan, Sample(seconds=seconds))
        finally:
            over.set()
        consumer.result()
    return done
