"""Targets on Artemis that would drop a letter, or end with a connection, are known before it is sent."""

from dataclasses import replace
from typing import Any

import pytest
from support.archives import letter
from support.brokers.activemq.fixtures import Place, on_artemis

from dlq.connectors.activemq.plugin.connector import ActiveMQConnector
from dlq.connectors.base import Limits, Outgoing, Target

pytestmark = [pytest.mark.activemq, on_artemis]


@pytest.mark.parametrize(("settings", "traits", "letters", "why"), [
    ({}, {}, None, ""),
    ({}, {"ring_size": 5}, 2, "holds 3 letters and is a ring of 5: each one more drops its oldest"),
    ({"defaultRingSize": 7}, None, 7, ""),
    ({"addressFullMessagePolicy": "DROP", "maxSizeMessages": 4}, {}, 1,
     "takes 4 letters (address-full-policy DROP): what is more is dropped"),
    ({"pageFullMessagePolicy": "DROP", "maxSizeMessages": 1, "pageLimitMessages": 3}, {}, 1,
     "takes 4 letters (page-full-policy DROP): what is more is dropped"),
    ({"pageFullMessagePolicy": "DROP", "maxSizeMessages": 1, "pageLimitBytes": 1000}, {}, None,
     "takes 1,000 bytes (page-full-policy DROP): what is more is dropped"),
    ({"pageFullMessagePolicy": "DROP", "maxSizeMessages": 1}, {}, None, ""),
])  # fmt: skip
def test_a_target_says_what_room_it_has(
    stomp: Place, settings: dict[str, Any], traits: dict[str, Any] | None, letters: int | None, why: str
) -> None:
    target = made(stomp, settings, traits)
    if traits is not None:
        stomp.send(b"1", b"2", b"3", queue=target.name)
    found = stomp.connector.limits([target])[target]
    assert (found.letters, why in found.why) == (letters, True)
    assert (risk(stomp, target) is None, found.temporary) == ("DROP" not in why, "")


def test_a_volatile_queue_ends_with_its_consumers(stomp: Place) -> None:
    target = made(stomp, {}, {"durable": False})
    assert "is temporary" in stomp.connector.limits([target])[target].temporary


def made(place: Place, settings: dict[str, Any], traits: dict[str, Any] | None) -> Target:
    """A queue by its address settings; its first letter makes it where it has no traits."""
    if settings:
        place.manage("addAddressSettings", place.queue, settings)
    return Target("queue", place.queue) if traits is None else place.make_queue(**traits)


def risk(place: Place, target: Target) -> str | None:
    """Why a letter goes there only where the user names it."""
    return place.connector.preview(one_to(target)).unless_named.get("target")


def one_to(target: Target) -> Outgoing:
    return Outgoing(0, letter(0, broker_kind="artemis"), target, {"dlq_replay_id": "r"})


NEWEST = "keeps the newest message of each key alone"


@pytest.mark.parametrize(("settings", "traits", "said"), [
    ({}, {"last_value": True}, f"{NEWEST} (last-value)"),
    ({}, {"last_value_key": "k"}, f"{NEWEST} (last-value)"),
    ({"defaultLastValueQueue": True}, None, NEWEST),
    ({"defaultLastValueKey": "k"}, None, NEWEST),
    ({"defaultNonDestructive": True}, None, "is non-destructive"),
])  # fmt: skip
def test_a_queue_that_keeps_the_newest_of_each_key_or_all_has_to_be_named(
    stomp: Place, settings: dict[str, Any], traits: dict[str, Any] | None, said: str
) -> None:
    target = made(stomp, settings, traits)
    assert said in (risk(stomp, target) or "")
    if traits is not None:
        assert said in (risk(stomp, target._replace(name=f"{target.name}::{target.name}")) or "")


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
    more: dict[str, dict[str, Any]] = {"all": {}, "latest": {"last_value": True}, "some": {"ring_size": 5}}
    for name, traits in more.items():
        stomp.make_queue(f"{address}.{name}", address, "MULTICAST", **traits)
    topic = Target("topic", address)
    assert "keeps the newest message" in (risk(stomp, topic) or "")
    assert stomp.connector.limits([topic])[topic].letters == 5
    alone = Target("topic", f"{address}::{address}.all")
    assert (risk(stomp, alone), stomp.connector.limits([alone])[alone]) == (None, Limits())


def test_a_divert_that_takes_letters_elsewhere_is_named(stomp: Place) -> None:
    target = stomp.make_queue(f"{stomp.queue}.watched")
    divert = {"name": f"{stomp.queue}.audit", "address": target.name, "forwarding-address": "audit"}
    stomp.manage("createDivert", divert)
    said = stomp.connector.preview(one_to(target)).warnings
    stomp.manage("destroyDivert", divert["name"])
    assert f"a divert, {divert['name']}, takes what comes to {target.name} to audit" in said


def test_what_nobody_tells_of_a_target_is_said(stomp: Place) -> None:
    warnings = stomp.as_reader().connector.preview(one_to(Target("queue", "q"))).warnings
    assert any("the newest of a key alone" in said for said in warnings)
