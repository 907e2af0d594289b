"""A group that lived with its connections, or whose clients each get everything, is no target by itself."""

import json
from pathlib import Path
from typing import Any

import pytest
from support import preloaded
from support.brokers.rocketmq.fixtures import Rocket
from support.waiting import eventually

from dlq.connectors.base import Target

pytestmark = pytest.mark.rocketmq


def dlq(folder: Path, *words: str) -> Any:
    done = preloaded.run(["-o", "json", *words], folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def planned(folder: Path, rocket: Rocket, group: str, to: str) -> Any:
    """A plan of the dead letters of a group."""
    (folder / "dlq.toml").write_text(
        f'[brokers.b]\nkind = "rocketmq"\nurl = "{rocket.cluster.url}"\n'
        f'[sources.s]\nbroker = "b"\ngroup = "{group}"\n'
    )
    dlq(folder, "pull")
    return dlq(folder, "replay", "plan", "--any-advice", "--to", to)


@pytest.mark.parametrize("generated", ["4f8c1d0e-9a53-4f0a-9e6b-0d7c5b1f2a%02d", "console-consumer-%d"])
def test_a_group_with_a_generated_name_is_left_out_unless_a_target_is_named(
    rocket: Rocket, tmp_path: Path, generated: str
) -> None:
    group = generated % (rocket.number + 10)
    rocket.driver.dead_letter(rocket.topic, group, b"x")
    rocket.driver.read_retries(group)
    plan = planned(tmp_path, rocket, group, "group")
    assert (plan["selected"], plan["left_out"]) == (0, {"temporary": 1})
    named = planned(tmp_path, rocket, group, f"topic:{rocket.topic}")
    assert named["selected"] == 1


def test_a_group_that_consumes_in_broadcast_mode_is_left_out_with_the_reason(
    rocket: Rocket, tmp_path: Path
) -> None:
    rocket.driver.dead_letter(rocket.topic, rocket.group, b"x")
    rocket.driver.read_retries(rocket.group)
    target = Target("group", rocket.group)
    rocket.driver.consume(rocket.group, rocket.topic)
    assert rocket.connector.limits([target]) == {}, "each message goes to one client"
    rocket.driver.consume(rocket.group, rocket.topic, "BROADCASTING")
    eventually(lambda: rocket.connector.limits([target]))
    plan = planned(tmp_path, rocket, rocket.group, "group")
    assert (plan["selected"], plan["left_out"]) == (0, {"temporary": 1})
    assert any("consumes in broadcast mode" in warning for warning in plan["warnings"])
