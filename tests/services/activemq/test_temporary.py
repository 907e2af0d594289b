"""Letters whose origin lived with a connection: a plan leaves them out unless a target is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.brokers.activemq.fixtures import Place, on_classic
from support.faults import Archive

from dlq.connectors.activemq.stomp import encode, headers_of
from dlq.replay import planfile
from dlq.replay.planfile import Header

pytestmark = [pytest.mark.activemq, on_classic]
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


@pytest.mark.parametrize("reads", ["stomp", "openwire"])
@pytest.mark.parametrize("die", [by_stomp, by_java])
def test_what_died_in_a_temporary_destination_goes_only_where_it_is_told_to(
    stomp: Place, tmp_path: Path, die: Callable[[Place], int], reads: str
) -> None:
    refused_by_stomp(stomp, f"/queue/{stomp.queue}")  # now the queue of the dead is there
    stomp.drain(DLQ)
    temporary = die(stomp)
    reply = f"orders.reply.9a3c4e5f-0b1d-4c2a-8e7f-{stomp.broker.stomp:012d}"
    refused_by_stomp(stomp, f"/queue/{reply}")
    refused_by_stomp(stomp, f"/queue/{stomp.queue}")
    address = {"openwire_url": f"tcp://127.0.0.1:{stomp.broker.openwire}"} if reads == "openwire" else {}
    broker = {"kind": "activemq", "url": stomp.broker.url, **address}
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
