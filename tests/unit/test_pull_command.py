"""What `dlq pull` says beside its table."""

import pytest

from dlq.capture.pull import PullResult
from dlq.cli.context import Context
from dlq.cli.pull import _say_notes


def test_a_note_that_several_sources_share_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    notes = {"orders": ["held until the end"], "bills": ["held until the end", "1 other consumer"], "new": []}
    _say_notes(Context(), [PullResult(name, "p", "copy", notes=said) for name, said in notes.items()])
    assert capfd.readouterr().err.splitlines() == [
        "orders, bills: held until the end",
        "bills: 1 other consumer",
    ]
