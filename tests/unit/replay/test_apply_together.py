"""Applying beside others: signals, two applies at once, and an apply that was killed, of which only what was
written and not answered is in doubt."""

import errno
import mmap
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.replaying import PLACES, QueueFile, Replaying, Strike, child, fill, settings
from support.waiting import PATIENCE

from dlq.archive.storage.store import LocalStore
from dlq.replay.ledger import opened
from dlq.replay.runs import marks

WINDOW = 40


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


def test_two_archives_with_one_ledger_send_each_letter_once(tmp_path: Path) -> None:
    """They do not see each other's locks: the claims in the ledger are what keeps them apart."""
    queue, url = QueueFile(tmp_path / "orders.queue"), f"sqlite:///{tmp_path}/ledger.db"
    places = [tmp_path / name / "archive" for name in ("one", "two")]
    stores = [LocalStore(str(place)) for place in places]
    for store in stores:
        fill(store, 200)
    configs = [settings(place, replay={"window": WINDOW}, ledger={"url": url}) for place in places]
    with opened(configs[0].ledger, stores[0]) as ledger:
        both = [
            Replaying(store, config, queue, ledger) for store, config in zip(stores, configs, strict=True)
        ]
        plans = [replay.plan() for replay in both]
        running = [child(replay, plan) for replay, plan in zip(both, plans, strict=True)]
        assert [process.communicate(timeout=PATIENCE)[1] for process in running] == ["", ""]
        assert Counter(queue.arrived()) == Counter(both[0].keys(plans[0])) == Counter(both[1].keys(plans[1]))
        for replay, plan in zip(both, plans, strict=True):
            assert replay.states(plan) == {"confirmed": 200}


def test_two_applies_at_once_to_two_targets_send_each_letter_to_one(replay: Replaying) -> None:
    fill(replay.store, 200)
    plans = [replay.plan(), replay.plan(to="queue:second")]
    running = [child(replay, plan) for plan in plans]
    assert [process.communicate(timeout=PATIENCE)[1] for process in running] == ["", ""]
    for plan in plans:
        replay.apply(plan)  # both may have left a letter to the other
    arrived = Counter(replay.queue.arrived())
    assert all(arrived[one] + arrived[two] == 1 for one, two in zip(*map(replay.keys, plans), strict=True))


IN_THE_MIDDLE = Strike("written", 50)


def killed(replay: Replaying, strike: Strike = IN_THE_MIDDLE, **wanted: Any) -> str:
    """The plan of an apply that was killed there."""
    plan = replay.planned(500, **wanted)
    running = child(replay, plan, strike)
    assert running.wait() == -signal.SIGKILL, running.communicate()
    running.communicate()
    return plan


def in_state(replay: Replaying, plan: str, state: Any) -> set[str]:
    return {entry.key for entry in replay.ledger.entries(plan, state)}


@pytest.mark.parametrize(
    ("place", "rate"), [*((place, None) for place in PLACES), ("marked", 500.0), ("written", 500.0)]
)
def test_what_was_never_sent_is_planned_again(replay: Replaying, place: str, rate: float | None) -> None:
    """Of what is in doubt one letter may not have arrived: that which was marked, and not sent any more. What
    the witness shows of it ends all doubt."""
    plan = killed(replay, Strike(place, 50), rate=rate)
    claimed = in_state(replay, plan, "sending")
    resolved = replay.reconcile(plan)
    arrived, doubtful = set(replay.queue.arrived()), in_state(replay, plan, "in_doubt")
    assert len(doubtful - arrived) == (place == "marked")
    assert doubtful & arrived
    assert in_state(replay, plan, "planned") & arrived == set()
    assert in_state(replay, plan, "confirmed") <= arrived
    assert resolved == {
        "sent": len(claimed & in_state(replay, plan, "confirmed")),
        "not_sent": len(claimed - arrived - doubtful),
        "unknown": len(doubtful),
    }
    assert resolved["not_sent"] > 0
    replay.apply(plan)
    assert set(replay.states(plan)) == {"confirmed", "in_doubt"}
    replay.queue.witnesses.append(plan)
    assert replay.reconcile(plan)["unknown"] == 0
    replay.apply(plan)
    assert Counter(replay.queue.arrived()) == Counter(replay.keys(plan))


@pytest.mark.parametrize(("numbers", "bytes_then"), [
    ([], b"\0\0\2\0\0\0\0\0"), ([7], b"\0\0\2\0\0\0\0\1"), ([3, 4, 5], b"\0\0\2\1\1\1\0\0"),
    ([5, 3, 4], b"\0\0\2\1\1\1\0\0"), ([3, 1, 0, 5], b"\1\1\2\1\0\1\0\0"),
])  # fmt: skip
def test_a_mark_leaves_others_alone(replay: Replaying, numbers: Sequence[int], bytes_then: bytes) -> None:
    with marks.Mark(replay.store, "plan", "host/1", 8) as mark:
        mark.confirm(2)
        mark.note_writing(numbers)
        (file,) = Path(replay.store.location, "locks").glob("*.mark")
        assert file.read_bytes()[marks.OWNER_BYTES :] == bytes_then


@pytest.mark.parametrize("content", [None, b"", b"{", b"null", b"{}", b'{"owner": 1, "boot": 2}'])
def test_a_damaged_mark_or_one_of_before_the_host_was_restarted_counts_for_nothing(
    replay: Replaying, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    plan = killed(replay)
    (mark,) = Path(replay.store.location, "locks").glob("*.mark")
    if content is None:
        monkeypatch.setattr(marks, "boot_id", lambda: "another boot")
    else:
        mark.write_bytes(content)
    claimed = in_state(replay, plan, "sending")
    assert replay.reconcile(plan) == {"sent": 0, "not_sent": 0, "unknown": len(claimed)}


def test_a_mark_that_cannot_be_written_goes(replay: Replaying, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replay.planned(10)
    refused, locks = [], Path(replay.store.location, "locks")

    def mapped(_file: int, length: int) -> None:
        refused.append(length)
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as full:
        full.setattr(mmap, "mmap", mapped)
        replay.apply(plan)
    assert replay.states(plan) == {"confirmed": 10}
    assert refused == [marks.OWNER_BYTES + 10]
    assert list(locks.glob("*.mark")) == []
    fill(replay.store, 10, start=10)
    assert replay.apply(replay.plan()).sent == 10
    assert list(locks.glob("*.mark")) == [], "nor does an apply that ends leave one"
