"""A `dlq replay apply` that dies, or stops, by its own hand, at a point that a signal from outside finds by
luck alone."""

import json
import os
import signal
from pathlib import Path
from unittest.mock import patch

from dlq.connectors.base import Sent
from dlq.replay.ledger.claims import Claims
from dlq.replay.plans.letters import Letter
from dlq.replay.states import State

DIED = "died.json"
"""In its folder: the numbers of the letters that were given and never written, and of those that were."""


def holding(unwritten: int, written: int, how: int = signal.SIGKILL, answered: int = 300) -> None:
    """Kill -9, or `how`, once, as soon as so many letters are answered, and the publisher has at least so
    many letters that it has not written yet, and so many that are written and not answered."""
    take, take_answer, so_far, signals = Claims.take, Claims.take_answer, 0, [how]

    def counting(claims: Claims, sent: Sent) -> State:
        nonlocal so_far
        so_far += 1
        return take_answer(claims, sent)

    def dying(claims: Claims, letter: Letter) -> bool:
        held = claims.in_flight.keys() - claims.written
        is_it = so_far >= answered and len(held) >= unwritten and len(claims.written) >= written
        if is_it and signals:
            Path(DIED).write_text(json.dumps({"held": sorted(held), "written": sorted(claims.written)}))
            os.kill(os.getpid(), signals.pop())
        return take(claims, letter)

    patch.object(Claims, "take_answer", counting).start()
    patch.object(Claims, "take", dying).start()
