"""Targets on Artemis that would drop a letter, or end with a connection, are known before it is sent."""

import json
from typing import Any

import pytest
from support.brokers.activemq.fixtures import Place, on_artemis

from dlq.connectors.activemq.artemis import Management
from dlq.connectors.base import Limits, Target

pytestmark = [pytest.mark.activemq, on_artemis]


def do(place: Place, operation: str, *arguments: Any) -> None:
    management = Management(place.settings)
    asked = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": operation}
    management._ask(asked, json.dumps(arguments))
    management.close()


def queue(place: Place, name: str, **more: Any) -> Target:
    settings = {"name": name, "address": name, "routing-type": "ANYCAST", "durable": True, **more}
    do(place, "createQueue", json.dumps(settings), True)
    return Target("queue", name)


def test_a_ring_drops_its_oldest(stomp: Place) -> None:
    target = queue(stomp, f"{stomp.queue}.ring", **{"ring-size": 5})
    stomp.send(b"1", b"2", b"3", queue=target.name)
    found = stomp.connector.limits([target])[target]
    assert (found.letters, found.why) == (
        2,
        f"queue {target.name} holds 3 letters and is a ring of 5: each one more drops its oldest",
    )


def test_an_address_that_drops_what_is_too_much(stomp: Place) -> None:
    name = f"{stomp.queue}.full"
    do(
        stomp,
        "addAddressSettings",
        name,
        json.dumps({"addressFullMessagePolicy": "DROP", "maxSizeMessages": 4}),
    )
    target = queue(stomp, name)
    stomp.send(b"1", b"2", b"3", queue=target.name)
    found = stomp.connector.limits([target])[target]
    assert found.letters == 1
    assert "takes 4 letters (address-full-policy DROP): what is more is dropped" in found.why


def test_a_volatile_queue_ends_with_its_consumers(stomp: Place) -> None:
    target = queue(stomp, f"{stomp.queue}.volatile", durable=False)
    assert "is temporary" in stomp.connector.limits([target])[target].temporary


def test_an_ordinary_queue_has_room(stomp: Place) -> None:
    target = queue(stomp, f"{stomp.queue}.orders")
    assert stomp.connector.limits([target]) == {target: Limits()}
