"""What `dlq coverage` says of RocketMQ is what becomes of messages: random settings of groups and of
their topics, in which one is given up in each way, and looked for as a consumer would."""

import json
import random
from contextlib import suppress

import pytest
from support.brokers.rocketmq.driver import AdminCode, unique_key
from support.brokers.rocketmq.fixtures import Rocket
from support.coverage import Case, Outcome, compare
from support.waiting import eventually

from dlq.connectors.rocketmq.look.coverage import CONSUMER

pytestmark = [pytest.mark.rocketmq]


def make(rocket: Rocket, chance: random.Random, group: str) -> list[Case]:
    """A group, and what there is of its topics; each death has a group of its own with the same settings."""
    queues, perms = chance.choice((1, 1, 1, 0)), [chance.choice((None, 6, 6, 2, 4)) for _ in range(2)]
    readable = {"%DLQ%": chance.choice((1, 1, 1, 0))}
    cases = [Case("group", f"{group}-{death.split()[0]}", death) for death in ("give-up", "delivery limit")]
    for case in cases:
        settings = {"retryMaxTimes": 0, "retryQueueNums": queues, "consumeEnable": True}
        told = json.dumps({"groupName": case.name, **settings})
        rocket.driver.ok(AdminCode.CREATE_GROUP, {}, told.encode())
        for prefix, permission in zip(("%RETRY%", "%DLQ%"), perms, strict=True):
            if permission is not None:
                topic = f"{prefix}{case.name}"
                rocket.driver.create_topic(topic, permission=permission, readable=readable.get(prefix))
    return cases


def kill(rocket: Rocket, case: Case) -> Outcome:
    before = rocket.driver.end(rocket.topic)
    key = unique_key()
    rocket.driver.send(rocket.topic, key.encode(), {"UNIQ_KEY": key})
    eventually(lambda: rocket.driver.end(rocket.topic) > before)
    (message,) = rocket.driver.messages(rocket.topic, start=before)[:1]
    refused = True
    with suppress(AssertionError):
        rocket.driver.send_back(message, case.name, delay=-1 if case.death == "give-up" else 0)
        refused = False
    places = {CONSUMER} if refused else set()
    rocket.driver.send(rocket.topic, b"later")
    eventually(lambda: rocket.driver.end(rocket.topic) > before + 1)  # what lay before it is indexed by now
    for topic in (f"%DLQ%{case.name}", f"%RETRY%{case.name}"):
        if any(key.encode() == one.body for one in rocket.driver.messages(topic)):
            places.add(topic)
    return Outcome(case, frozenset(places))


def run(rocket: Rocket, seed: int, number: int) -> None:
    chance = random.Random(seed)
    cases = [case for at in range(number) for case in make(rocket, chance, f"g{rocket.number}-{at}")]
    fates = rocket.connector.coverage()
    compare(fates, [kill(rocket, case) for case in cases])


def test_a_handful_leads_where_it_was_said(rocket: Rocket) -> None:
    run(rocket, 1, 6)


def test_each_death_leads_where_it_was_said(rocket: Rocket) -> None:
    run(rocket, 2, 40)
