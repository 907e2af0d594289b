"""Each kind of target on ActiveMQ Classic, by each protocol that letters go out by, is proven by who
receives."""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from support.archives import letter
from support.brokers.activemq.fixtures import Place, by_openwire, on_classic
from support.brokers.activemq.sending import outgoing, published

from dlq.connectors.activemq.stomp import encode, headers_of
from dlq.connectors.activemq.stomp_connection import Link
from dlq.connectors.base import Target

REPLY = "/remote-temp-queue/ID:host-1-1:1:1"
pytestmark = [pytest.mark.activemq, on_classic]


@pytest.fixture(params=["stomp", "openwire"])
def sender(stomp: Place, request: pytest.FixtureRequest) -> Iterator[Place]:
    """A place whose letters go out by one protocol or the other."""
    place = stomp if request.param == "stomp" else by_openwire(stomp)
    yield place
    if place is not stomp:
        place.connector.close()


def subscribed(place: Place, *destinations: str) -> Link:
    """A client that receives from all of them."""
    link = place.link()
    for number, destination in enumerate(destinations):
        link.request("SUBSCRIBE", {"id": f"{link.token}-{number}", "destination": destination, "ack": "auto"})
    return link


def received(link: Link, number: int) -> list[str]:
    """The subscriptions that the next messages came to."""
    frames = []
    for _ in range(200):
        frames += link.receive(0.1)
        if len(frames) >= number:
            break
    link.ping()
    frames += link.receive(0.1)
    link.close()
    return sorted(headers_of(frame.head)["subscription"].rpartition("-")[2] for frame in frames)


@pytest.mark.parametrize(
    ("kind", "name", "receivers"),
    [
        ("queue", "{q}", ["/queue/{q}"]),
        ("topic", "{q}", ["/topic/{q}", "/topic/{q}"]),
        (
            "topic",
            "VirtualTopic.{q}",
            ["/queue/Consumer.a.VirtualTopic.{q}", "/queue/Consumer.b.VirtualTopic.{q}"],
        ),
        ("queue", "Consumer.a.VirtualTopic.{q}", ["/queue/Consumer.a.VirtualTopic.{q}"]),
        ("queue", "{q}.one,{q}.two", ["/queue/{q}.one", "/queue/{q}.two"]),
        ("queue", "{q}.one,topic://{q}.two", ["/queue/{q}.one", "/topic/{q}.two"]),
    ],
)
def test_a_letter_reaches_each_receiver_of_its_target_once(
    sender: Place, kind: str, name: str, receivers: list[str]
) -> None:
    link = subscribed(sender, *[one.format(q=sender.queue) for one in receivers])
    target = Target(kind, name.format(q=sender.queue))
    letters = outgoing([letter(1, broker_kind="activemq", body=b"x", body_size=1)], target)
    assert [s.outcome for s in published(sender, sender.queue, letters)] == ["confirmed"]
    assert received(link, len(receivers)) == [str(number) for number in range(len(receivers))]


def test_what_came_by_a_virtual_topic_is_of_the_queue_for_a_selector_when_it_comes_back(
    sender: Place,
) -> None:
    topic = f"VirtualTopic.{sender.queue}"
    queue = f"Consumer.a.{topic}"
    link = sender.link()
    for number, place in enumerate([f"topic://{topic}", f"queue://{queue}"]):
        how = {"ack": "auto", "selector": f"JMSDestination = '{place}'", "id": f"{link.token}-{number}"}
        link.request("SUBSCRIBE", {"destination": f"/queue/{queue}", **how})
    sender.send_frames([encode("SEND", {"destination": f"/topic/{topic}", "persistent": "true"}, b"first")])
    died = letter(1, broker_kind="activemq", origin=queue, origin_kind="queue", headers={"reply-to": REPLY})
    [again] = outgoing([died], Target("queue", queue))
    assert published(sender, sender.queue, [again])[0].outcome == "confirmed"
    assert received(link, 2) == ["0", "1"]
    said = " ".join(sender.connector.preview(again).warnings)
    assert "asks for JMSDestination found the topic" in said
    assert "its JMSReplyTo is a temporary destination" in said


def durable(place: Place, seconds: float) -> bytes:
    """What a durable subscription is given, while its client is there."""
    with socket.create_connection(("127.0.0.1", place.broker.stomp), 20) as link:
        link.sendall(encode("CONNECT", {"accept-version": "1.2", "host": "x", "client-id": place.queue}))
        assert link.recv(4096).startswith(b"CONNECTED")
        own = {"id": "1", "destination": f"/topic/{place.queue}", "activemq.subscriptionName": place.queue}
        link.sendall(encode("SUBSCRIBE", {**own, "ack": "auto", "receipt": "subscribed"}))
        found, deadline = b"", time.monotonic() + seconds
        while b"subscribed" not in found or (b"MESSAGE" not in found and time.monotonic() < deadline):
            link.settimeout(max(0.1, deadline - time.monotonic()))
            with suppress(TimeoutError):
                found += link.recv(65536)
        return found


def test_a_durable_subscription_gets_what_goes_to_its_topic_while_it_is_away(sender: Place) -> None:
    assert b"MESSAGE" not in durable(sender, 0)
    letters = outgoing(
        [letter(1, broker_kind="activemq", body=b"for it", body_size=6)], Target("topic", sender.queue)
    )
    assert [s.outcome for s in published(sender, sender.queue, letters)] == ["confirmed"]
    assert b"for it" in durable(sender, 20)
