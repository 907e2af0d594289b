"""Growing steps: a consumer that still fails is found with a handful of letters, a healthy one gets all."""

from collections.abc import Callable

import pytest
from archives import letter
from replaying import Replaying, brokers, fill

from dlq.archive import segments
from dlq.core.clock import now
from dlq.replay.apply import applying
from dlq.replay.letters import REPLAY_ID, REPLAY_LAP
from dlq.replay.pace import Stop, request_stop
from dlq.replay.ramp import Ramp, came_back, ramp

MAX_SHARE = 0.1


class Consumer:
    """Takes what arrived; what it fails on dies again and is captured by the next look."""

    def __init__(self, replay: Replaying, fails: Callable[[int], bool]) -> None:
        self.replay, self.fails = replay, fails
        self.seen = 0

    def watch(self, plan: str) -> int:
        arrived = self.replay.queue.arrived()
        dead = [
            letter(10_000 + n, headers={REPLAY_ID: arrived[n], REPLAY_LAP: "1"}, captured_at=now())
            for n in range(self.seen, len(arrived))
            if self.fails(n)
        ]
        if dead:
            segments.commit(self.replay.store, "orders", f"look{self.seen}", 0, "drain", dead, {})
        self.seen = len(arrived)
        return came_back(self.replay.store, self.replay.config, plan)


def climb(replay: Replaying, plan: str, total: int, fails: Callable[[int], bool], wait: float = 0.0) -> Ramp:
    consumer = Consumer(replay, fails)
    stop = Stop(replay.store, plan)
    with (
        brokers(replay.config, replay.queue) as opened,
        applying(replay.store, replay.config, plan, opened, replay.ledger, stop) as send,
    ):
        return ramp(send, lambda: consumer.watch(plan), plan, total, wait, MAX_SHARE, stop)


def test_a_healthy_consumer_gets_all_in_growing_steps(replay: Replaying) -> None:
    fill(replay.store, 500)
    plan = replay.plan()
    done = climb(replay, plan, 500, lambda _n: False)
    assert [step.sent for step in done.steps] == [1, 10, 100, 389]
    assert (done.harm, done.harmful, done.run.sent, done.run.skipped) == (0, False, 500, 0)
    assert replay.states(plan) == {"confirmed": 500}


def test_a_consumer_that_fails_a_third_is_found_within_the_first_steps(replay: Replaying) -> None:
    fill(replay.store, 500)
    plan = replay.plan()
    done = climb(replay, plan, 500, lambda n: n % 3 == 2)
    assert [(step.sent, step.came_back) for step in done.steps] == [(1, 0), (10, 3)]
    assert (done.harm, done.harmful) == (3, True)
    assert replay.states(plan) == {"confirmed": 11, "planned": 489}


def test_a_few_that_die_again_do_not_stop_it(replay: Replaying) -> None:
    fill(replay.store, 300)
    plan = replay.plan()
    done = climb(replay, plan, 300, lambda n: n % 20 == 19)
    assert (done.harm, done.harmful, done.run.sent) == (15, False, 300)


def test_a_later_ramp_of_the_same_plan_goes_on_where_it_was_stopped(replay: Replaying) -> None:
    fill(replay.store, 100)
    plan = replay.plan()
    climb(replay, plan, 100, lambda _n: True)
    done = climb(replay, plan, 100, lambda _n: False)
    assert (done.run.sent, done.run.skipped, done.harm) == (99, 1, 0)
    assert sorted(replay.queue.arrived()) == sorted(replay.keys(plan))


def test_what_came_back_from_another_plan_is_not_its_harm(replay: Replaying) -> None:
    fill(replay.store, 20)
    first = replay.plan(limit=10)
    climb(replay, first, 10, lambda _n: True)
    assert came_back(replay.store, replay.config, "another plan") == 0


@pytest.mark.parametrize("at", [1, 5, 50])
def test_a_broker_that_fails_ends_the_ramp(replay: Replaying, at: int) -> None:
    fill(replay.store, 200)
    plan = replay.plan()
    replay.queue.dies_at = at
    done = climb(replay, plan, 200, lambda _n: False)
    assert done.run.lost == ["shop: the broker is gone"]
    assert replay.states(plan)["planned"] > 0


def test_stop_ends_the_wait(replay: Replaying) -> None:
    fill(replay.store, 200)
    plan = replay.plan()

    def fails(_number: int) -> bool:
        request_stop(replay.store, plan)
        return False

    done = climb(replay, plan, 200, fails, wait=0.6)
    assert done.run.stopped
    assert done.run.sent < 200
    assert replay.states(plan)["confirmed"] == done.run.sent


def test_a_plan_that_is_done_makes_no_step(replay: Replaying) -> None:
    fill(replay.store, 5)
    plan = replay.plan()
    replay.apply(plan)
    done = climb(replay, plan, 5, lambda _n: True)
    assert (done.steps, done.run.skipped, done.harmful) == ([], 5, False)
