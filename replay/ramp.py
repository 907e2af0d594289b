"""Send a plan in growing steps, and stop when its letters come back to their dead-letter queue.

After each step somebody watches for a while: a consumer that still fails is found with a handful of
letters, a healthy one gets the rest at full speed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dlq.archive import views
from dlq.archive.store import Store
from dlq.core.settings import Settings
from dlq.replay import ledger as ledgers
from dlq.replay.apply import Run, Send
from dlq.replay.letters import REPLAY_ID

_GROWTH = 10
_NAP_SECONDS = 0.2
_CAME_BACK = f"""
    SELECT count(DISTINCT p.key) FROM replays p
    JOIN (
        SELECT coalesce(headers['{REPLAY_ID}'], properties['{REPLAY_ID}']) AS id FROM records
    ) r ON r.id = p.key
    WHERE p.plan = ?"""


@dataclass
class Step:
    """One step: how many were sent, and how many letters of the plan have come back since the step before."""

    sent: int
    came_back: int


@dataclass
class Ramp:
    """All steps. `harm`: letters of the plan that died again; `harmful`: that is why it was stopped."""

    run: Run
    steps: list[Step] = field(default_factory=list)
    harm: int = 0
    harmful: bool = False


Watch = Callable[[], int]
"""How many letters of the plan have come back so far."""


def ramp(
    send: Send, watch: Watch, plan: str, total: int, wait: float, max_share: float, stop: Callable[[], bool]
) -> Ramp:
    """Steps of 1, 10, 100, ... letters; `wait` seconds after each, then the look.

    Ends when all are sent, when `stop` says so, when a broker fails, or when more than `max_share` (0 to 1)
    of what a step sent has come back.
    """
    done = Ramp(Run(plan, total))
    before = watch()
    size, over = 1, False
    while not over:
        step = send(size)
        _add(done.run, step, first=not done.steps)
        if step.sent:
            _sleep(wait, stop)
            came_back = watch() - before
            done.steps.append(Step(step.sent, came_back - done.harm))
            done.harm = came_back
            done.harmful = done.steps[-1].came_back > max_share * step.sent
        done.run.stopped = step.stopped or stop()
        over = done.harmful or done.run.stopped or bool(step.lost) or step.sent < size
        size *= _GROWTH
    return done


def came_back(store: Store, settings: Settings, plan: str) -> int:
    """How many replays of `plan` the archive holds as dead letters again."""
    connection = views.connect(store, ledgers.as_arrow(settings.ledger, store))
    try:
        row = connection.execute(_CAME_BACK, [plan]).fetchone()
    finally:
        connection.close()
    return int(row[0]) if row else 0


def _add(whole: Run, step: Run, first: bool) -> None:
    """What a later step skips are the letters of the steps before."""
    whole.sent += step.sent
    whole.skipped += step.skipped if first else 0
    whole.seconds += step.seconds
    whole.lost += step.lost
    whole.notes += step.notes
    for outcome, count in step.outcomes.items():
        whole.outcomes[outcome] = whole.outcomes.get(outcome, 0) + count


def _sleep(duration: float, stop: Callable[[], bool]) -> None:
    until = time.monotonic() + duration
    while (left := until - time.monotonic()) > 0 and not stop():
        time.sleep(min(left, _NAP_SECONDS))
