"""A death of which only the second is known, and a failure that was resolved within it."""

from pathlib import Path

import pytest
from support.archives import letter, write_analysis, write_segment

from dlq.archive import views
from dlq.archive.store import LocalStore
from dlq.core.failures import Event
from dlq.reports.failures import states

SECOND = 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("died", "captured", "state"),
    [
        (0, 3_000_000, "regressed"),
        (0, 700_000, "regressed"),
        (0, 400_000, "resolved"),
        (-1_000_000, 3_000_000, "resolved"),
        (400_000, 3_000_000, "resolved"),
        (600_000, 3_000_000, "regressed"),
    ],
)
def test_what_may_have_died_after_it_was_resolved_has_come_back(
    tmp_path: Path, died: int, captured: int, state: str
) -> None:
    store = LocalStore(str(tmp_path / "archive"))
    one = letter(1, dead_at=SECOND + died, captured_at=SECOND + captured)
    write_segment(store, "p-0", [one])
    write_analysis(store, "a", [{"record_id": one.record_id, "cause": "expired", "fingerprint": "f"}])
    resolved = Event("1", SECOND + 500_000, "ann", "f", "resolve", "", "")
    with views.connect(store) as connection:
        assert states(connection, [resolved], SECOND + 9_000_000) == {"f": state}
