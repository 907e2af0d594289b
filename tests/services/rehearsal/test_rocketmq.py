"""On a real RocketMQ: what a consumer has fixed is what a rehearsal says, and no topic of it stays."""

import threading
from pathlib import Path

import pytest
from support.brokers.rocketmq.fixtures import Rocket
from support.rehearsing import FAILURES, OF_EACH, counts, fixed, rehearse, spring_headers

from dlq.core.configuration import parse
from dlq.operations.workspace import Notes, Workspace, open_workspace

pytestmark = pytest.mark.rocketmq


@pytest.fixture
def workspace(rocket: Rocket, tmp_path: Path) -> Workspace:
    for failure in FAILURES:
        for _ in range(OF_EACH):
            told = spring_headers(failure, rocket.topic)
            rocket.driver.dead_letter(rocket.topic, rocket.group, failure.encode(), told)
    broker = {"kind": "rocketmq", "url": rocket.cluster.url}
    source = {"broker": "pay", "group": rocket.group}
    archive = str(tmp_path / "archive")
    config = {"archive": archive, "brokers": {"pay": broker}, "sources": {"orders": source}}
    return open_workspace(parse(config), Notes())


class FixedSome:
    """Gives up one of the `broken` failures at once, sends the other back for a later try."""

    def __init__(self, rocket: Rocket, broken: tuple[str, str]) -> None:
        self.driver, self.broken = rocket.driver, broken

    def __call__(self, name: str, over: threading.Event) -> None:
        place, done = name.replace(".", "_"), 0
        while not over.wait(0.1):
            for message in self.driver.messages(place, start=done):
                body = message.body.decode()
                if body in self.broken:
                    delay = -1 if body == self.broken[0] else 3
                    self.driver.send_back(message, place, delay, maximum=16)
                done = message.queue_offset + 1
                self.driver.commit_offset(place, place, done)


def test_precision_and_recall_are_one(rocket: Rocket, workspace: Workspace) -> None:
    consumer = FixedSome(rocket, ("stock", "login"))
    before = rocket.driver.end(rocket.topic)
    done = rehearse(workspace, f"topic:{rocket.topic}", consumer)
    assert fixed(done.document) == {*FAILURES} - {*consumer.broken}
    for name in consumer.broken:
        assert counts(done.document, name) == (OF_EACH, 0, OF_EACH, 0)
    assert rocket.driver.end(rocket.topic) == before
    assert done.document["removed"]
    assert not [topic for topic in rocket.connector.cluster.topics() if "rehearsal" in topic]
