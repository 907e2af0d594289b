"""Each kind of target on ActiveMQ Classic, by each protocol that letters go out by, is proven by who
receives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.archives import letter
from support.brokers.activemq.fixtures import Place, on_newest_classic
from support.brokers.activemq.sending import sent_back
from support.faults import Archive
from support.waiting import eventually

from dlq.connectors.activemq.stomp.codec import encode, headers_of
from dlq.connectors.activemq.stomp.link import Link
from dlq.connectors.base import Target
from dlq.replay.plans import planfile
from dlq.replay.plans.planfile import Header

OF_CLASSIC: dict[str, Any] = {"broker_kind": "activemq", "body": b"for it", "body_size": 6}
REPLY = "/remote-temp-queue/ID:host-1-1:1:1"
pytestmark = [pytest.mark.activemq, on_newest_classic]


def subscribed(place: Place, *destinations: str) -> Link:
    """A client that receives from all of them."""
    link = place.link()
    for number, destination in enumerate(destinations):
        link.request("SUBSCRIBE", {"id": f"{link.token}-{number}", "destination": destination, "ack": "auto"})
    return link


def received(link: Link, number: int) -> list[str]:
    """The subscriptions that the next messages came to."""
    frames: list[Any] = []
    eventually(lambda: frames.extend(link.receive(0.1)) or len(frames) >= number)
    link.ping()
    frames += link.receive(0.1)
    link.close()
    return sorted(headers_of(frame.head)["subscription"].rpartition("-")[2] for frame in frames)


def test_a_letter_reaches_each_receiver_of_its_target_once(sender: Place) -> None:
    for n, (kind, name, receivers) in enumerate([
        ("queue", "{q}", ["/queue/{q}"]),
        ("topic", "{q}", ["/topic/{q}", "/topic/{q}"]),
        ("topic", "VirtualTopic.{q}",
         ["/queue/Consumer.a.VirtualTopic.{q}", "/queue/Consumer.b.VirtualTopic.{q}"]),
        ("queue", "Consumer.a.VirtualTopic.{q}", ["/queue/Consumer.a.VirtualTopic.{q}"]),
        ("queue", "{q}.one,{q}.two", ["/queue/{q}.one", "/queue/{q}.two"]),
        ("queue", "{q}.one,topic://{q}.two", ["/queue/{q}.one", "/topic/{q}.two"]),
    ]):  # fmt: skip
        own = f"{sender.queue}.{n}"
        link = subscribed(sender, *[one.format(q=own) for one in receivers])
        sent_back(sender, [letter(1, **OF_CLASSIC)], Target(kind, name.format(q=own)), own)
        assert received(link, len(receivers)) == [str(number) for number in range(len(receivers))], name


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
    [again] = sent_back(sender, [died], Target("queue", queue))
    assert received(link, 2) == ["0", "1"]
    said = " ".join(sender.connector.preview(again).warnings)
    assert "asks for JMSDestination found the topic" in said
    assert "its JMSReplyTo is a temporary destination" in said


DLQ = "ActiveMQ.DLQ"


def refused_by_stomp(place: Place, *destinations: str) -> None:
    """A client sends a letter to each of its own destinations, refuses it there, and goes."""
    link = place.link()
    for number, destination in enumerate(destinations):
        own = {"id": f"{link.token}-{number}", "destination": destination, "ack": "client-individual"}
        link.request("SUBSCRIBE", own)
        link.send(encode("SEND", {"destination": destination, "persistent": "true"}, b"died"))
        frames: list[Any] = []
        while not frames:
            frames += link.receive(0.5)
        link.request("NACK", {"id": headers_of(frames[0].head)["ack"]})
    link.close()


def by_stomp(place: Place) -> int:
    """A queue's letter is refused, a topic's has expired; returns how many letters died."""
    refused_by_stomp(place, "/temp-queue/answers")
    link = place.link()
    own = {"destination": "/temp-topic/news", "id": link.token}
    link.request("SUBSCRIBE", own)
    link.request("SEND", {"destination": own["destination"], "persistent": "true", "expires": "1"}, b"died")
    link.close()
    return 2


def by_java(place: Place) -> int:
    place.java("ActiveMqTemporary.java")
    return 1


def planned(archive: Archive, **wanted: Any) -> Header:
    return planfile.load(archive.store, archive.plan(**wanted))


@pytest.mark.parametrize(("die", "reads"), [(by_stomp, "stomp"), (by_java, "openwire")])
def test_what_died_in_a_temporary_destination_goes_only_where_it_is_told_to(
    stomp: Place, tmp_path: Path, die: Callable[[Place], int], reads: str
) -> None:
    refused_by_stomp(stomp, f"/queue/{stomp.queue}")  # now the queue of the dead is there
    stomp.drain(DLQ)
    temporary = die(stomp)
    reply = f"orders.reply.9a3c4e5f-0b1d-4c2a-8e7f-{stomp.broker.stomp:012d}"
    refused_by_stomp(stomp, f"/queue/{reply}")
    refused_by_stomp(stomp, f"/queue/{stomp.queue}")
    url = {"stomp": stomp.broker.url, "openwire": f"tcp://127.0.0.1:{stomp.broker.openwire}"}[reads]
    broker = {"kind": "activemq", "url": url}
    archive = Archive(tmp_path, broker, {"dead": {"queue": DLQ}})
    archive.pull_to_the_end("dead", temporary + 2)
    header = planned(archive)
    assert (header.letters, header.left_out) == (1, {"temporary": temporary + 1})
    archive.apply(header.plan)
    assert [record.body for record in stomp.drain()] == [b"died"]
    named = planned(archive, to=f"queue:{stomp.queue}")
    assert (named.letters, named.left_out.get("temporary")) == (temporary + 1, None)
    archive.apply(named.plan)
    assert archive.states(named.plan) == {"confirmed": temporary + 1}
    assert len(stomp.drain()) == temporary + 1
