"""A death of which only the second is known, and a failure that was resolved within it."""

import duckdb
import pytest

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
def test_what_may_have_died_after_it_was_resolved_has_come_back(died: int, captured: int, state: str) -> None:
    connection = duckdb.connect()
    connection.execute(
        """CREATE TABLE letters AS SELECT 'f' AS fingerprint,
               make_timestamp(?::BIGINT) AS dead_at, NULL::TIMESTAMP AS published_at,
               make_timestamp(?::BIGINT) AS captured_at, NULL::TEXT AS replay_state,
               'expired' AS cause, 'r' AS rule""",
        [SECOND + died, SECOND + captured],
    )
    resolved = Event("1", SECOND + 500_000, "ann", "f", "resolve", "", "")
    assert states(connection, [resolved], SECOND + 9_000_000) == {"f": state}
