"""The one loop that waits: when it has its turns, by a clock that only its pauses move."""

from types import SimpleNamespace

import pytest
from support.rows import each_row

from dlq.core import patience


@each_row("seconds, pause, longest, turns", [
    (0.0, 1.0, 0.0, [0.0]),
    (-1.0, 1.0, 0.0, [0.0]),
    (2.5, 1.0, 0.0, [0.0, 1.0, 2.0, 2.5]),
    (8.0, 1.0, 3.0, [0.0, 1.0, 3.0, 6.0, 8.0]),
])  # fmt: skip
def test_the_first_turn_is_at_once_and_the_last_when_the_time_is_over(
    seconds: float, pause: float, longest: float, turns: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    slept = lambda pause: now.append(now[-1] + pause)  # noqa: E731
    monkeypatch.setattr(patience, "time", SimpleNamespace(monotonic=lambda: now[-1], sleep=slept))
    assert [now[-1] for _ in patience.tries(seconds, pause, longest)] == turns
