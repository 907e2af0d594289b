"""From an alarm to an approved replay, by the pages alone, in a real browser over real brokers: a failure is
found, planned, approved by somebody else, sent in a ramp that harm stops, mended, killed, reconciled, done.

What a page says is compared at each step with what the tests' own consumer was given by the broker.
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.brokers.activemq.broker import CLASSIC
from support.brokers.activemq.fixtures import Place
from support.brokers.kafka.fixtures import KafkaPlace
from support.brokers.rabbitmq.fixtures import Rabbit
from support.brokers.rocketmq.fixtures import Rocket
from support.brokers.rocketmq.install import VERSIONS as ROCKETMQ
from support.servers.chromium import Page, chromium
from support.servers.person import Person
from support.serving import serving
from support.teams import Consumer, Team, activemq_team, kafka_team, rabbitmq_team, rocketmq_team
from support.waiting import eventually

LETTERS, OF_THE_RAMP, RATE = 91, 11, 5
"""So many that the broker stands still long before all are sent."""
CONFIG = """\
archive = "archive"
{broker}
[replay]
approval = true
ramp_wait = "20s"
[serve]
proxies = ["127.0.0.1"]
roles = {{ plan = ["ada"], approve = ["bob"], apply = ["ada"] }}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with chromium() as page:
        yield page


@contextmanager
def frozen(team: Team) -> Iterator[None]:
    """The broker answers nothing meanwhile."""
    tell(team, signal.SIGSTOP)
    try:
        yield
    finally:
        tell(team, signal.SIGCONT)


def tell(team: Team, what: signal.Signals) -> None:
    """A helper of the broker may have ended since the team was made."""
    for pid in team.pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)


def go_the_whole_way(team: Team, browser: Page, folder: Path) -> None:
    (folder / "dlq.toml").write_text(CONFIG.format(broker=team.broker))
    consumer = Consumer(team)
    consumer.start()
    try:
        team.produce(range(LETTERS))
        eventually(lambda: consumer.fresh == LETTERS)
        with serving(folder) as server:
            person = Person(browser, server.port)
            person.sign_in("ada")
            capture(person)
            plan = find_and_plan(person)
            approve(person, plan)
            replay_until_harm(person, plan, consumer)
            consumer.mended = True
            kill_in_mid_flight(person, plan, consumer, team, folder)
            reconcile_and_finish(person, plan, consumer)
    finally:
        consumer.end()


def capture(person: Person) -> None:
    assert "Nothing is captured yet" in person.open("/")
    person.click("Pull now…", "/pull")
    # What the consumer has rejected may be on its way.
    eventually(lambda: re.search(rf"(copy|drain)\s+{LETTERS}", person.open("/pull")))
    person.click("Pull", "/commands/")
    person.wait_for("It ended with 0: done.")


def find_and_plan(person: Person) -> str:
    assert f"{LETTERS} dead letters in 1 source" in person.open("/")
    person.open("/failures")
    person.click(person.find_link("/failures/"), "/failures/")
    assert re.search(rf"{LETTERS}\s+wait", person.text)
    person.click("Plan a replay", "/plans/new")
    person.tick("any_advice")
    person.fill("rate", str(RATE))
    person.fill("reason", "mended in 2.4.1")
    person.click("Make the plan", r"/plans/\d")
    assert f"{LETTERS} letters, at most {RATE} a second" in person.text
    return person.place.removeprefix("/plans/")


def approve(person: Person, plan: str) -> None:
    assert "ada may not approve plans" in person.text
    assert "is not approved" in person.text
    person.sign_in("bob")
    assert "bob may not send" in person.open(f"/plans/{plan}")
    person.fill("reason", "seen")
    person.click("Approve", f"/plans/{plan}")
    assert "Approved by bob." in person.text
    person.sign_in("ada")


def replay_until_harm(person: Person, plan: str, consumer: Consumer) -> None:
    person.open(f"/plans/{plan}")
    person.click("Send", "/replays/")
    person.wait_for("The ramp was stopped: its letters died again.")
    person.wait_for("no run applies it")
    eventually(lambda: len(consumer.replayed) == OF_THE_RAMP)
    text = person.text
    assert f"{OF_THE_RAMP} of {LETTERS} confirmed; {LETTERS - OF_THE_RAMP} not sent" in text
    steps = re.findall(r"^(\d+)\t(\d+)\t", text, re.MULTILINE)
    assert [int(sent) for sent, _back in steps] == [1, 10]
    assert (int(steps[0][1]), len(consumer.done)) == (0, 1)
    assert 1 < int(steps[1][1]) <= len(consumer.failed) == OF_THE_RAMP - 1
    assert "What came back" in text


def kill_in_mid_flight(person: Person, plan: str, consumer: Consumer, team: Team, folder: Path) -> None:
    """The broker stands still with letters that it has not answered, and the apply dies."""
    person.open(f"/plans/{plan}")
    person.tick("ramp", on=False)
    person.click("Send", "/replays/")
    eventually(lambda: len(consumer.replayed) > OF_THE_RAMP)
    with frozen(team):
        person.wait_for(r"sending\s+[1-9]")
        time.sleep(3 / RATE)
        kill_the_apply(folder)
        person.wait_for(r"in doubt\s+[1-9]")


def kill_the_apply(folder: Path) -> None:
    """Those processes alone whose words name this test's configuration."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            ours = os.readlink(path / "cwd") == str(folder)
            if ours and b"apply" in words and b"dlq.cli" in words and words[0] != b"/bin/sh":
                os.kill(int(path.name), signal.SIGKILL)
        except OSError:
            continue


def reconcile(person: Person, plan: str) -> None:
    """Again, while a busy broker still names the client that is dead among its connections."""

    def nothing_is_in_doubt() -> bool:
        if "nothing is in doubt" in person.open(f"/replays/{plan}"):
            return True
        person.click("Reconcile", "/replays/")
        person.wait_for(r"(?s)\A(?!.*, begun by)")
        return False

    eventually(nothing_is_in_doubt)


def reconcile_and_finish(person: Person, plan: str, consumer: Consumer) -> None:
    reconcile(person, plan)
    if "nothing of it is left to send" not in person.open(f"/plans/{plan}"):  # or all had reached the broker
        person.tick("ramp", on=False)
        person.click("Send", "/replays/")
    else:
        person.open(f"/replays/{plan}")
    person.wait_for(f"{LETTERS} of {LETTERS} confirmed")
    eventually(lambda: len(consumer.replayed) == LETTERS)
    assert len(set(consumer.replayed)) == LETTERS, "each came once"
    assert "The numbers of the books add up" in person.open("/books")
    person.click("Prove them", "/books")
    person.wait_for("The books balance")


@pytest.mark.parametrize("rabbit_node", ["4"], indirect=True)
def test_rabbitmq(rabbit: Rabbit, browser: Page, tmp_path: Path) -> None:
    go_the_whole_way(rabbitmq_team(rabbit), browser, tmp_path)


@pytest.mark.activemq
@pytest.mark.parametrize("stomp_broker", [CLASSIC[-1]], indirect=True)
def test_activemq(stomp: Place, browser: Page, tmp_path: Path) -> None:
    go_the_whole_way(activemq_team(stomp), browser, tmp_path)


@pytest.mark.rocketmq
@pytest.mark.parametrize("rocket_server", ROCKETMQ[:1], indirect=True)
def test_rocketmq(rocket: Rocket, browser: Page, tmp_path: Path) -> None:
    go_the_whole_way(rocketmq_team(rocket), browser, tmp_path)


@pytest.mark.kafka
def test_kafka(kafka: KafkaPlace, browser: Page, tmp_path: Path) -> None:
    go_the_whole_way(kafka_team(kafka), browser, tmp_path)
