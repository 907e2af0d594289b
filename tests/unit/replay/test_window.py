"""How many letters of a replay are open at once: claimed, on their way, or not answered yet."""

from dataclasses import replace

import pytest
from support.replaying import QueueFile, Replaying, fill

from dlq.replay.apply import Run


@pytest.mark.parametrize("window", [2, 3, 10, 40, 1000])
def test_claimed_and_in_flight_are_never_more_than_the_window(replay: Replaying, window: int) -> None:
    assert most_open(replay, window) <= window


def test_without_a_window_the_brokers_own_counts(replay: Replaying, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueFile, "window", 16)
    assert most_open(replay, None) <= 16


def most_open(replay: Replaying, window: int | None) -> int:
    """How many of 120 letters were claimed and not answered at once, when all were sent in this window."""
    fill(replay.store, 120)
    replay.config = replace(replay.config, replay=replace(replay.config.replay, window=window))
    plan = replay.plan()
    open_at_once: list[int] = []

    def look(_run: Run) -> None:
        open_at_once.append(replay.states(plan).get("sending", 0))

    replay.apply(plan, progress=look)
    assert replay.states(plan) == {"confirmed": 120}
    return max(open_at_once)
