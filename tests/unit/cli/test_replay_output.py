"""What `dlq replay` tells a person who has to decide."""

import io
from typing import Any, cast

from rich.console import Console
from support.rows import each_row

from dlq.cli.context import Context
from dlq.cli.replay_output import show_plans, show_resolved, show_status
from dlq.replay.states import STATES

_NONE = dict.fromkeys(STATES, 0)


class _Shown:
    """A context of 80 columns, and what it has printed."""

    def __init__(self) -> None:
        self.file = io.StringIO()
        self.console = Console(file=self.file, width=80, force_terminal=True, color_system=None)
        self.output = "table"

    def emit_rows(self, columns: Any, rows: Any) -> None:
        Context.emit_rows(cast("Any", self), columns, rows)

    def say(self, _text: str) -> None:
        pass

    @property
    def text(self) -> str:
        return self.file.getvalue()


def _resolved(held: int, **counts: int) -> str:
    shown = _Shown()
    document = {"plan": "P", "held": held, "resolved": {"sent": 0, "not_sent": 0, "unknown": 0, **counts}}
    show_resolved(cast("Context", shown), document)
    return shown.text


@each_row(("held", "counts", "told"), [
    (0, {}, "Plan P: no letter is in doubt\n"),
    (2, {}, "Plan P: no letter is in doubt, 2 are set aside\n"),
    (0, {"sent": 3}, "Plan P: 3 arrived, 0 did not, 0 are still in doubt\n"),
])  # fmt: skip
def test_a_reconcile_that_found_nothing_in_doubt_counts_nothing(
    held: int, counts: dict[str, int], told: str
) -> None:
    assert _resolved(held, **counts) == told


def test_letters_in_doubt_can_be_listed_and_the_others_sent() -> None:
    assert "dlq ls --where \"replay_state = 'in_doubt'\"" in _resolved(0, unknown=27, not_sent=434)
    assert "Next: dlq replay apply P" in _resolved(0, not_sent=434)


def test_a_status_counts_letters_and_calls_none_in_doubt_sent() -> None:
    shown = _Shown()
    states = {**_NONE, "in_doubt": 27, "confirmed": 3}
    document = {"plan": "P", "states": states, "sent": 30, "skipped": 0, "seconds": 0.0}
    show_status(cast("Context", shown), document)
    assert shown.text.startswith("Plan P: 30 letters\n")
    assert "sent" not in shown.text


def test_a_list_of_plans_cuts_no_state() -> None:
    shown = _Shown()
    row = {**_NONE, "planned": 14562, "confirmed": 4873, "in_doubt": 627}
    plan = {"plan": "20261130T175500-7e05a9", "created_at": "", "letters": 20062, "targets": "queue:orders"}
    show_plans(cast("Context", shown), [{**plan, **row, "where": "source IN ('orders.dlq')"}])
    assert all(word in shown.text for word in ("14,562 planned", "627 in_doubt"))
