"""Targets that would lose a letter, or something living through it, or live with a connection."""

from dataclasses import replace

import pytest
from support.planning import Planning
from support.replaying import Replaying, fill
from support.rows import each_row

from dlq.connectors.base import Fate, Limits, Target, least
from dlq.core.headers.provenance import REPLAY_ID
from dlq.replay.plans.destinations import why_temporary
from dlq.replay.plans.wanted import Wanted

ORDERS = Target("queue", "orders")
WHY = "queue orders holds 3 letters and takes 5 letters (drop-head): each one more drops its oldest"


def test_what_finds_no_room_is_risky_with_figures_unless_the_target_is_named(plan: Planning) -> None:
    fill(plan.store, 6, body=b"12345", body_size=5)
    plan.queue.known_limits = {ORDERS: Limits(2, None, WHY)}
    header = plan()
    assert (header.letters, header.left_out) == (2, {"risky": 4})
    assert header.warnings == {f"left out as risky: {WHY}; name the target with --to to send it": 4}
    assert plan(Wanted(to="queue:orders")).letters == 6
    plan.queue.known_limits = {ORDERS: Limits(None, 12, WHY)}
    assert plan().left_out == {"risky": 4}, "room is measured in bytes too"


def test_the_narrowest_of_several_places_counts() -> None:
    some = [Limits(), Limits(9, None, "nine"), Limits(2, 70, "two"), Limits(None, 50, "bytes")]
    assert least(some) == Limits(2, 50, "two")
    assert least([Limits(), Limits()]) == Limits() == least([])


LOST_AGAIN = Fate("queue", "orders", "reject", "lost", (), "it has no dead-letter exchange")
DIES = "queue:orders: what dies there again is lost (reject: it has no dead-letter exchange)"
UNSEEN = "queue:orders: whether what dies there again is lost is not known"
RISKY = "left out as risky: {}; dlq coverage says how to fix it, or name it with --to"


def test_what_would_be_lost_when_it_dies_again_is_said_and_left_out_of_a_source_that_requires_coverage(
    plan: Planning,
) -> None:
    fill(plan.store, 3)
    plan.queue.known_fates = [LOST_AGAIN]
    assert (plan().letters, plan().warnings) == (3, {DIES: 3})
    source = replace(plan.config.sources["orders"], coverage="required")
    plan.config = replace(plan.config, sources={"orders": source})
    for fates, said in (([LOST_AGAIN], DIES), ([], UNSEEN)):
        plan.queue.known_fates = fates
        assert (plan().left_out, plan().warnings) == ({"risky": 3}, {RISKY.format(said): 3})
    assert plan(Wanted(to="queue:orders")).letters == 3
    plan.queue.known_fates = [LOST_AGAIN._replace(verdict="kept")]
    assert plan().letters == 3


HEX = "3c4f2e2c-9a1b-4f7e-8d7a-0242ac130003"
TEMPORARY = [
    "queue:ID:host-41234-1700000000000-1:1:1", "topic:ID:host-41234-1700000000000-1:1:1",
    "queue:/remote-temp-queue/ID:host-1", "queue:temp-queue://ID:host-1", f"queue:orders::{HEX}",
    f"queue:{HEX}", "topic:DefaultCluster_REPLY_TOPIC", "group:console-consumer-81234", f"group:{HEX}",
    "queue:amq.gen-JzTY20BRgKO-HjmUJj0wLg", "queue:amq.rabbitmq.reply-to.g1h2AA5yZXBseUAyMTEyMzQ1",
    "queue:spring.gen-1Rx9HOqvTAaHeeZrQWu8Pg", "queue:orders.anonymous.1Rx9HOqvTAaHeeZrQWu8Pg",
    "queue:celery@host.celery.pidbox", "queue:easynetq.response.9c2d",
    "queue:HOST_App_bus_6ejoyyrbkbyf8rfrbdp3y6cpcz",
]  # fmt: skip


@each_row("target", TEMPORARY)
def test_a_name_that_lived_with_a_connection_is_no_target(target: str) -> None:
    assert why_temporary(Target(*target.split(":", 1)))


@each_row("name", [
    "orders", "ID", "orders::durable", f"tenant-{HEX}", "temp-orders",
    "anonymous.orders",
])  # fmt: skip
def test_other_names_are_targets(name: str) -> None:
    assert why_temporary(Target("queue", name)) is None
    assert why_temporary(Target("exchange", "amq.gen-x", "key")) is None


def test_it_is_left_out_with_the_reason_unless_a_target_is_named(plan: Planning) -> None:
    fill(plan.store, 2)
    plan.queue.known_limits = {ORDERS: Limits(temporary="queue orders is exclusive")}
    header = plan()
    assert (header.letters, header.left_out) == (0, {"temporary": 2})
    assert header.warnings == {"left out: queue orders is exclusive; name a target with --to": 2}
    assert plan(Wanted(to="queue:orders")).letters == 2


@pytest.fixture
def again(replay: Replaying) -> Planning:
    return Planning(replay.store, replay.config, replay.queue)


def test_what_was_refused_goes_again_unless_it_died_again(replay: Replaying, again: Planning) -> None:
    """It would be there twice."""
    replay.queue.fate = lambda _number: "refused"
    plan = replay.planned(2)
    replay.apply(plan)
    assert again().left_out == {"refused": 2}
    assert again(Wanted(any_advice=True)).letters == 2
    fill(replay.store, 1, None, start=10, headers={REPLAY_ID: replay.keys(plan)[0]}, captured_at=1)
    first = Wanted(any_advice=True, where="record_id < '0000000000000000000000000000000a'")
    assert again(first).left_out == {"refused": 1}
    replay.queue.known_limits = {ORDERS: Limits(9, None, "full", refused_die_again=True)}
    assert again(first).left_out == {"refused": 2}
