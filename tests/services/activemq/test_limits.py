"""Targets on Artemis that would drop a letter, or end with a connection, are known before it is sent."""

from dataclasses import replace
from typing import Any

import pytest
from support.archives import letter
from support.brokers.activemq.fixtures import Place, on_artemis

from dlq.connectors.activemq.plugin.connector import ActiveMQConnector
from dlq.connectors.base import Limits, Outgoing, Target

pytestmark = [pytest.mark.activemq, on_artemis]


def test_a_ring_drops_its_oldest(stomp: Place) -> None:
    target = stomp.make_queue(f"{stomp.queue}.ring", ring_size=5)
    stomp.send(b"1", b"2", b"3", queue=target.name)
    found = stomp.connector.limits([target])[target]
    assert (found.letters, found.why) == (
        2,
        f"queue {target.name} holds 3 letters and is a ring of 5: each one more drops its oldest",
    )


def risk(place: Place, target: Target) -> str | None:
    """Why a letter goes there only where the user names it."""
    one = Outgoing(0, letter(0, broker_kind="artemis"), target, {"dlq_replay_id": "r"})
    return place.connector.preview(one).unless_named.get("target")


@pytest.mark.parametrize("trait", [{"last-value": True}, {"last-value-key": "k"}])
def test_a_queue_that_keeps_the_newest_of_each_key_has_to_be_named(
    stomp: Place, trait: dict[str, Any]
) -> None:
    target = stomp.make_queue(f"{stomp.queue}.latest", **trait)
    assert "keeps the newest message of each key alone (last-value)" in (risk(stomp, target) or "")
    full = target._replace(name=f"{target.name}::{target.name}")
    assert "keeps the newest message" in (risk(stomp, full) or "")


@pytest.mark.parametrize(("setting", "said"), [
    ({"defaultLastValueQueue": True}, "keeps the newest message of each key alone"),
    ({"defaultLastValueKey": "k"}, "keeps the newest message of each key alone"),
    ({"defaultNonDestructive": True}, "is non-destructive"),
])  # fmt: skip
def test_a_queue_that_its_first_letter_makes_has_to_be_named_by_its_address_settings(
    stomp: Place, setting: dict[str, Any], said: str
) -> None:
    name = f"{stomp.queue}.unmade"
    stomp.manage("addAddressSettings", name, setting)
    assert said in (risk(stomp, Target("queue", name)) or "")


@pytest.mark.parametrize("place", ["", "nobody.reads"])
def test_a_target_that_drops_what_dies_has_to_be_named(stomp: Place, place: str) -> None:
    target = stomp.make_queue(f"{stomp.queue}.mortal")
    if place:
        stomp.manage("createAddress", place, "ANYCAST")
    stomp.manage("addAddressSettings", target.name, {"deadLetterAddress": place})
    assert "what fails there again is dropped" in (risk(stomp, target) or "")
    stomp.manage(
        "addAddressSettings", target.name, {"deadLetterAddress": place, "autoCreateDeadLetterResources": True}
    )
    again = replace(stomp, connector=ActiveMQConnector(stomp.settings))
    assert (risk(again, target) is None) == bool(place)


def test_an_address_of_which_one_subscription_keeps_the_newest_has_to_be_named(stomp: Place) -> None:
    address = f"{stomp.queue}.news"
    for name, more in {"all": {}, "latest": {"last-value": True}, "some": {"ring-size": 5}}.items():
        made = {"name": f"{address}.{name}", "address": address, "routing-type": "MULTICAST", **more}
        stomp.manage("createQueue", made, True)
    topic = Target("topic", address)
    assert "keeps the newest message" in (risk(stomp, topic) or "")
    assert stomp.connector.limits([topic])[topic].letters == 5
    alone = Target("topic", f"{address}::{address}.all")
    assert (risk(stomp, alone), stomp.connector.limits([alone])[alone]) == (None, Limits())


def test_a_ring_that_its_first_letter_makes_has_room_for_what_its_address_settings_say(stomp: Place) -> None:
    target = Target("queue", f"{stomp.queue}.unmade")
    stomp.manage("addAddressSettings", target.name, {"defaultRingSize": 7})
    assert stomp.connector.limits([target])[target].letters == 7


def test_a_divert_that_takes_letters_elsewhere_is_named(stomp: Place) -> None:
    target = stomp.make_queue(f"{stomp.queue}.watched")
    divert = {"name": f"{stomp.queue}.audit", "address": target.name, "forwarding-address": "audit"}
    stomp.manage("createDivert", divert)
    one = Outgoing(0, letter(0, broker_kind="artemis"), target, {"dlq_replay_id": "r"})
    said = stomp.connector.preview(one).warnings
    stomp.manage("destroyDivert", divert["name"])
    assert f"a divert, {divert['name']}, takes what comes to {target.name} to audit" in said


def test_what_nobody_tells_of_a_target_is_said(stomp: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READS", "reads")
    url = stomp.settings.url.replace("admin@", "reader@")
    reader = ActiveMQConnector(replace(stomp.settings, url=url, password_env="READS"))
    one = Outgoing(0, letter(0, broker_kind="artemis"), Target("queue", "q"), {"dlq_replay_id": "r"})
    assert any("the newest of a key alone" in said for said in reader.preview(one).warnings)


def test_an_address_that_drops_what_is_too_much(stomp: Place) -> None:
    name = f"{stomp.queue}.full"
    stomp.manage("addAddressSettings", name, {"addressFullMessagePolicy": "DROP", "maxSizeMessages": 4})
    target = stomp.make_queue(name)
    stomp.send(b"1", b"2", b"3", queue=target.name)
    found = stomp.connector.limits([target])[target]
    assert found.letters == 1
    assert "takes 4 letters (address-full-policy DROP): what is more is dropped" in found.why


def test_a_volatile_queue_ends_with_its_consumers(stomp: Place) -> None:
    target = stomp.make_queue(f"{stomp.queue}.volatile", durable=False)
    assert "is temporary" in stomp.connector.limits([target])[target].temporary


def test_an_ordinary_queue_has_room(stomp: Place) -> None:
    target = stomp.make_queue(f"{stomp.queue}.orders")
    assert stomp.connector.limits([target]) == {target: Limits()}
    assert risk(stomp, target) is None
