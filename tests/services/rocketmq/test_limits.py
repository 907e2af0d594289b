"""What a broker does not take is refused by name, with the limit and the remedy, and the rest goes."""

from pathlib import Path
from typing import Any

import pytest
from support import wire_builders
from support.brokers.rocketmq.broker import RocketMQ
from support.brokers.rocketmq.driver import unique_key
from support.brokers.rocketmq.fixtures import Rocket
from support.waiting import eventually
from support.wire_builders import dlq_aloud as dlq

from dlq.connectors.base import Outgoing, Search, Target
from dlq.core.clock import now
from dlq.core.headers.provenance import REPLAY_ID

pytestmark = pytest.mark.rocketmq


def configure(folder: Path, cluster: RocketMQ, group: str) -> None:
    broker = f'kind = "rocketmq"\nurl = "{cluster.url}"'
    wire_builders.configure(folder, broker, f'group = "{group}"\nmode = "drain"')


def test_old_values_go_to_a_compacted_topic_only_if_it_is_named(rocket: Rocket, tmp_path: Path) -> None:
    """Before 5.0 there is none."""
    is_there = rocket.cluster.version.startswith("5")
    driver, topic = rocket.driver, f"prices-{rocket.number}"
    if is_there:
        driver.create_topic(topic, attributes="+cleanup.policy=COMPACTION,+message.type=DELAY")
    else:
        driver.create_topic(topic)
    driver.create_topic(rocket.dead)
    driver.send(rocket.dead, b"7", {"KEYS": "tea", "UNIQ_KEY": unique_key(), "RETRY_TOPIC": topic})
    eventually(lambda: driver.end(rocket.dead) == 1)
    rocket.wait_for_routes(topic)
    configure(tmp_path, rocket.cluster, rocket.group)
    dlq(tmp_path, "pull")
    made, _ = dlq(tmp_path, "replay", "plan", "--any-advice", "--to", "origin")
    assert made["left_out"] == ({"risky": 1} if is_there else {})
    assert (
        f"{topic} is compacted: an old value would replace a newer one" in str(made["warnings"])
    ) == is_there
    made, _ = dlq(tmp_path, "replay", "plan", "--any-advice", "--to", f"topic:{topic}")
    assert made["selected"] == 1
    assert ("for delayed messages: a letter goes back without its delay" in str(made["warnings"])) == is_there
    target = Target("topic", topic)
    record = rocket.read().records[0]
    lost = Outgoing(0, record, target, {REPLAY_ID: "0" * 32})
    before = rocket.connector.bounds([target])
    found = rocket.connector.find(Search("plan", [lost], now(), before))
    assert found.shown == {0: "unknown" if is_there else "not_sent"}
    assert any("compacted, which may have removed it" in why for why in found.doubts) == is_there


def planned_to(folder: Path, rocket: Rocket, group: str, to: str) -> Any:
    """A plan of the dead letters of a group."""
    configure(folder, rocket.cluster, group)
    dlq(folder, "pull")
    return dlq(folder, "replay", "plan", "--any-advice", "--to", to)[0]


def test_a_group_with_a_generated_name_is_left_out_unless_a_target_is_named(
    rocket: Rocket, tmp_path: Path
) -> None:
    group = f"console-consumer-{rocket.number + 10}"
    rocket.driver.dead_letter(rocket.topic, group, b"x")
    rocket.driver.read_retries(group)
    rocket.wait_for_routes(f"%RETRY%{group}")
    plan = planned_to(tmp_path, rocket, group, "group")
    assert (plan["selected"], plan["left_out"]) == (0, {"temporary": 1})
    named = planned_to(tmp_path, rocket, group, f"topic:{rocket.topic}")
    assert named["selected"] == 1


def test_a_group_that_consumes_in_broadcast_mode_is_left_out_with_the_reason(rocket: Rocket) -> None:
    target = Target("group", rocket.group)
    rocket.driver.consume(rocket.group, rocket.topic)
    assert rocket.connector.limits([target]) == {}, "each message goes to one client"
    rocket.driver.consume(rocket.group, rocket.topic, "BROADCASTING")
    limits = eventually(lambda: rocket.connector.limits([target]))
    assert "consumes in broadcast mode" in limits[target].temporary
