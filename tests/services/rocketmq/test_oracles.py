"""Programs that are not ours read what we wrote, and we read what they wrote."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.brokers.rocketmq.fixtures import Rocket
from support.brokers.rocketmq.sending import outgoing, published
from support.waiting import PATIENCE, eventually

from dlq.connectors.base import Target

pytestmark = pytest.mark.rocketmq


NATIVE = """
import json, sys
from rocketmq.client import Message, Producer, PullConsumer

def connected(client, servers):
    client.set_namesrv_addr(servers)
    client.start()
    return client

def send(servers, topic):
    producer = connected(Producer("native", timeout=30000), servers)
    for body in (b"small", b"large " * 2000):
        message = Message(topic)
        message.set_keys("k1 k2")
        message.set_tags("tag")
        message.set_property("user", "\\u65e5\\u672c")
        message.set_body(body)
        yield {"id": producer.send_sync(message).msg_id}
    producer.shutdown()

def pull(servers, topic):
    consumer = connected(PullConsumer("TOOLS_CONSUMER"), servers)
    for seen in consumer.pull(topic):
        texts = {"body": seen.body, "keys": seen.keys, "tag": seen.tags}
        texts |= {name: seen[name] for name in ("user", "dlq_replay_id")}
        texts = {name: text.decode() for name, text in texts.items()}
        yield {"id": seen.id, "offset": seen.queue_offset, **texts}
    consumer.shutdown()

verb = {"send": send, "pull": pull}[sys.argv[1]]
for row in verb(*sys.argv[2:]):
    print(json.dumps(row), flush=True)
"""


def run_native(rocket: Rocket, folder: Path, verb: str) -> list[dict[str, Any]]:
    """What the C++ client of 2018 sends or reads; in a process of its own, with its logs in `folder`."""
    command = [sys.executable, "-c", NATIVE, verb, rocket.cluster.name_server, rocket.topic]
    environment = {**os.environ, "HOME": str(folder)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE, env=environment
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert rows, done.stdout + done.stderr
    return rows


def test_the_native_client_and_we_read_what_the_other_wrote(rocket: Rocket, tmp_path: Path) -> None:
    sent = run_native(rocket, tmp_path, "send")
    for message in rocket.driver.newest(rocket.topic, count=2):
        rocket.driver.send_back(message, rocket.group)
    rocket.driver.newest(rocket.dead, count=2)
    records = rocket.read().records
    assert {record.message_id for record in records} == {row["id"] for row in sent}
    assert {(*record.keys, record.properties["TAGS"], record.properties["user"]) for record in records} == {
        ("k1", "k2", "tag", "日本")
    }
    letters = outgoing(records, Target("topic", rocket.topic))
    assert [answer.outcome for answer in published(rocket.connector, letters)] == ["confirmed"] * 2
    eventually(lambda: rocket.driver.end(rocket.topic) == 4)
    # Threads of the broker write a window, so its letters may change places.
    seen = sorted(
        run_native(rocket, tmp_path, "pull"), key=lambda row: (row["dlq_replay_id"], int(row["offset"]))
    )
    assert [row["dlq_replay_id"] for row in seen] == ["", "", f"{0:032x}", f"{1:032x}"]
    again = [{**row, "offset": 0, "dlq_replay_id": ""} for row in seen]
    assert again[:2] == again[2:]
    assert [row["body"] for row in again[:2]] == ["small", "large " * 2000]
