"""Applying beside others: killed processes, signals, two applies at once, two hosts with one ledger."""

import signal
import threading
from collections import Counter
from pathlib import Path

import pytest
from support.replaying import QueueFile, Replaying, Strike, brokers, child, fill
from support.waiting import PATIENCE

from dlq.archive.store import LocalStore
from dlq.core.settings import Settings
from dlq.replay.apply import Run, apply
from dlq.replay.ledger import opened

WINDOW = 40


@pytest.mark.parametrize(
    ("place", "letters"), [("marked", 1), ("taken", 35), ("written", 35), ("answered", 60)]
)
def test_kill_minus_nine_in_mid_apply(replay: Replaying, place: str, letters: int) -> None:
    plan = replay.planned(200, witness=True)
    running = child(replay, plan, Strike(place, letters))
    assert running.wait() == -signal.SIGKILL, running.communicate()
    running.communicate()
    replay.queue.witnesses.append(plan)
    replay.apply(plan)
    assert 0 < replay.states(plan)["in_doubt"] <= WINDOW
    resolved = replay.reconcile(plan)
    assert resolved["unknown"] == 0
    replay.apply(plan)
    assert replay.states(plan) == {"confirmed": 200}
    assert Counter(replay.queue.arrived()) == Counter(replay.keys(plan))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_what_is_in_flight_be_answered(replay: Replaying, number: signal.Signals) -> None:
    plan = replay.planned(200)
    running = child(replay, plan, Strike("written", 50, number))
    out, err = running.communicate(timeout=PATIENCE)
    assert (running.returncode, err) == (0, "")
    sent = int(out.split()[0])
    assert 50 <= sent <= 50 + WINDOW
    assert replay.states(plan) == {"confirmed": sent, "planned": 200 - sent}


@pytest.mark.parametrize("plans", [1, 2])
def test_two_applies_at_once_send_each_letter_once(replay: Replaying, plans: int) -> None:
    fill(replay.store, 200)
    names = [replay.plan() for _ in range(plans)]
    running = [child(replay, plan) for plan in names * (3 - plans)]
    results = [(*process.communicate(timeout=PATIENCE), process.returncode) for process in running]
    assert all("Busy" in err if plans == 1 else False for _, err, code in results if code)
    assert Counter(replay.queue.arrived()) == Counter(replay.keys(names[0]))


def test_two_applies_at_once_to_two_targets_send_each_letter_to_one(replay: Replaying) -> None:
    fill(replay.store, 200)
    plans = [replay.plan(), replay.plan(to="queue:second")]
    running = [child(replay, plan) for plan in plans]
    errors = [process.communicate(timeout=PATIENCE)[1] for process in running]
    assert errors == ["", ""]
    for plan in plans:
        replay.apply(plan)  # both may have left a letter to the other
    arrived = Counter(replay.queue.arrived())
    assert [arrived[one] + arrived[other] for one, other in zip(*map(replay.keys, plans), strict=True)] == [
        1
    ] * 200


def test_two_hosts_with_one_ledger(replay: Replaying, config: Settings, tmp_path: Path) -> None:
    """Two archives can't lock each other out: only the ledger stands between them."""
    plan = replay.planned(100)
    runs: list[Run] = []

    def host() -> None:
        with (
            opened(config.ledger, replay.store) as book,
            brokers(config, QueueFile(replay.queue.path)) as some,
        ):
            runs.append(apply(_Unlocked(replay.store.location), config, plan, some, book))

    hosts = [threading.Thread(target=host) for _ in range(2)]
    for one in hosts:
        one.start()
    for one in hosts:
        one.join()
    assert sum(run.sent for run in runs) == 100
    assert Counter(replay.queue.arrived()) == Counter(replay.keys(plan))


class _Unlocked(LocalStore):
    """A store whose locks another host does not see."""

    def lock(self, name: str):  # type: ignore[no-untyped-def]
        return super().lock(f"{threading.get_ident()}-{name}")
