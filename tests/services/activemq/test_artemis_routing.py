"""On Artemis a letter goes to the queue that is meant, by its type of routing, confirmed when there."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from support.archives import letter
from support.brokers.activemq.fixtures import Place, on_artemis
from support.brokers.activemq.sending import outgoing, published

from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.base import Outgoing, Search, SendRequest, Target
from dlq.core.record import Record

pytestmark = pytest.mark.activemq


def dead(address: str = "", queue: str = "", routing: str = "") -> Callable[[int], Record]:
    """Letters that died there; `routing` is what they tell of its type."""
    told = {"_AMQ_ORIG_ADDRESS": address, "_AMQ_ORIG_QUEUE": queue, "_AMQ_ORIG_ROUTING_TYPE": routing}
    where = {"headers": {n: v for n, v in told.items() if v}, "origin": queue, "origin_kind": "queue"}
    return lambda n: letter(n, broker_kind="artemis", body=b"%d" % n, body_size=1, **where)


def to(target: Target, make: Callable[[int], Record] | None = None, letters: int = 3) -> list[Outgoing]:
    return outgoing([(make or dead())(n) for n in range(letters)], target)


@on_artemis
def test_a_letter_of_a_subscription_reaches_its_queue_alone(sender: Place) -> None:
    """The queue may have the name of its address."""
    cases = [
        (f"{sender.queue}.{n}", name.format(q=f"{sender.queue}.{n}"), routing)
        for n, (name, routing) in enumerate((("{q}.own", ""), ("{q}.own", "0"), ("{q}", "0")))
    ]
    for news, own, _ in cases:  # all of them, before the broker is asked once what is there
        for queue in (own, f"{news}.other"):
            sender.make_queue(queue, news, "MULTICAST")
    for news, own, routing in cases:
        make = dead(news, own, routing)
        target = sender.connector.target_of(make(0), "origin")
        assert target == Target("queue", f"{news}::{own}")
        assert sender.connector.missing_targets([target]) == {}
        assert {s.outcome for s in published(sender, news, to(target, make))} == {"confirmed"}
        there = [r.body for r in sender.drain(own)], sender.drain(f"{news}.other")
        assert there == ([b"0", b"1", b"2"], [])


@on_artemis
def test_a_queue_is_reached_by_its_name_whatever_its_address_and_type(sender: Place) -> None:
    for routing in ("ANYCAST", "MULTICAST"):
        address, queue = f"{sender.queue}.{routing}", f"{sender.queue}.{routing}.q"
        sender.make_queue(queue, address, routing)
        for plan, name in ((f"{queue}.alone", queue), (f"{queue}.full", f"{address}::{queue}")):
            said = published(sender, plan, to(Target("queue", name)))
            assert ({s.outcome for s in said}, len(sender.drain(queue))) == ({"confirmed"}, 3), name
        assert queue not in (Management(sender.settings).attribute("broker", "addressNames") or [])


@on_artemis
def test_a_topic_reaches_each_subscription_and_without_any_it_is_returned(sender: Place) -> None:
    news = Target("topic", sender.queue)
    nobody = published(sender, f"{sender.queue}.none", to(news))
    assert {s.outcome for s in nobody} == {"returned"}
    assert "has no queue of a subscription" in (nobody[0].detail or "")
    queues = [f"{sender.queue}.{n}" for n in range(2)]
    for queue in queues:
        sender.make_queue(queue, news.name, "MULTICAST")
    assert set(sender.connector.consumers([news])[news]) == set(queues)
    assert {s.outcome for s in published(sender, sender.queue, to(news))} == {"confirmed"}
    assert [len(sender.drain(queue)) for queue in queues] == [3, 3]


@on_artemis
def test_where_nothing_would_arrive_is_known_before_anything_is_sent(stomp: Place) -> None:
    address = stomp.queue
    stomp.make_queue(f"{address}.sub", address, "MULTICAST")
    gone, wrong = Target("queue", f"{address}::gone"), Target("queue", address)
    found = stomp.connector.missing_targets([gone, wrong, Target("topic", address)])
    assert found == {
        gone: f"there is no queue 'gone' at address {address!r}",
        wrong: f"{address!r} is an address of MULTICAST alone (as topic:{address} it has a receiver)",
    }


@on_artemis
def test_what_a_full_address_drops_is_not_confirmed_and_not_proven_by_a_marker(sender: Place) -> None:
    full = Target("queue", f"full.{sender.queue}")
    sender.make_queue(full.name, full.name, "ANYCAST")
    settings = {"addressFullMessagePolicy": "DROP", "maxSizeBytes": 2000, "pageSizeBytes": 1000}
    sender.manage("addAddressSettings", full.name, settings)
    preview = sender.connector.preview(Outgoing(0, dead()(0), full, {}))
    assert "drops what comes while it is full" in preview.unless_named["target"]
    letters = to(full, lambda n: dead()(n)._replace(body=bytes(1500), body_size=1500), 20)
    before = sender.connector.bounds([full])
    said = {s.number: s.outcome for s in published(sender, sender.queue, letters)}
    assert "confirmed" not in said.values()
    again = [o._replace(provenance={"dlq_replay_id": f"again-{o.number}"}) for o in letters]
    assert {s.outcome for s in published(sender, f"{sender.queue}.2", again)} == {"refused"}
    found = sender.connector.find(Search(sender.queue, letters, 0, before))
    assert found.doubts
    lying = {record.headers["dlq_replay_id"] for record in sender.drain(full.name)}
    assert len(lying) < len(letters)
    assert found.shown == {
        o.number: "sent" if o.provenance["dlq_replay_id"] in lying else "unknown" for o in letters
    }


@on_artemis
def test_what_full_pages_drop_is_refused(sender: Place) -> None:
    full = sender.make_queue(f"pages.{sender.queue}")
    settings = {"pageFullMessagePolicy": "DROP", "maxSizeMessages": 1, "pageLimitMessages": 2}
    sender.manage("addAddressSettings", full.name, settings)
    preview = sender.connector.preview(Outgoing(0, dead()(0), full, {}))
    assert "drops what comes while it is full" in preview.unless_named["target"]
    for plan, outcome in (("1", "confirmed"), ("2", "refused")):  # a transaction may go beyond the limit
        letters = [o._replace(provenance={"dlq_replay_id": f"{plan}-{o.number}"}) for o in to(full, None, 20)]
        assert {s.outcome for s in published(sender, sender.queue + plan, letters)} == {outcome}
        assert sender.depth(full.name) == 20


@on_artemis
def test_a_growing_count_of_unrouted_messages_confirms_nothing(stomp: Place) -> None:
    news, sub = stomp.queue, f"{stomp.queue}.sub"
    stomp.make_queue(sub, news, "MULTICAST")
    target, letters = Target("topic", news), to(Target("topic", news))
    before = stomp.connector.bounds([target])
    publisher = stomp.connector.publisher(SendRequest(news, 1000))

    def while_the_subscription_goes() -> Iterator[Outgoing]:
        yield letters[0]
        stomp.manage("destroyQueue", sub, True)
        yield from letters[1:]

    said = list(publisher.publish(while_the_subscription_goes()))
    publisher.close()
    assert len(said) == 3
    assert "confirmed" not in {one.outcome for one in said}
    assert set(stomp.connector.find(Search(news, letters, 0, before)).shown.values()) == {"unknown"}


@on_artemis
def test_an_id_that_is_used_up_proves_no_arrival(sender: Place) -> None:
    news, sub = sender.queue, f"{sender.queue}.sub"
    sender.make_queue(f"{news}.anycast", news)  # with which the address stays, and the ids that it has taken
    sender.make_queue(sub, news, "MULTICAST")
    letters = to(Target("topic", news))
    publisher = sender.connector.publisher(SendRequest(news, 1000))

    def while_there_is_no_subscription() -> Iterator[Outgoing]:
        yield letters[0]
        sender.manage("destroyQueue", sub, True)
        yield from letters[1:]

    list(publisher.publish(while_there_is_no_subscription()))
    publisher.close()
    sender.make_queue(sub, news, "MULTICAST")
    again = {one.number: one for one in published(sender, news, letters)}
    there = {record.headers["dlq_replay_id"] for record in sender.drain(sub)}
    lost = {o.number for o in letters if o.provenance["dlq_replay_id"] not in there}
    assert lost
    assert {again[number].outcome for number in lost} == {"in_doubt"}
    assert "not at its target" in (again[max(lost)].detail or "")
    by_another = [letters[max(lost)]]
    [doubtful] = published(sender, f"{news}.2", by_another)
    assert (doubtful.outcome, "clearDuplicateIdCache" in (doubtful.detail or "")) == ("in_doubt", True)
    sender.manage("clearDuplicateIdCache", resource=f"address.{news}")
    assert [one.outcome for one in published(sender, f"{news}.3", by_another)] == ["confirmed"]


@on_artemis
def test_who_may_not_ask_is_told_what_confirmed_means_and_asked_for_the_type(
    stomp: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    news, sub = stomp.queue, f"{stomp.queue}.sub"
    stomp.make_queue(sub, news, "MULTICAST")
    monkeypatch.setattr(Management, "_ask_all", lambda _, questions: [None] * len(questions))
    told, untold = dead(news, sub, "0"), dead(news, sub)
    target = Target("queue", f"{news}::{sub}")
    known = stomp.connector.preview(Outgoing(0, told(0), target, {}))
    assert known.unless_named == {}
    assert any("confirmed means that a letter is committed" in warning for warning in known.warnings)
    assert (
        "names the routing type"
        in stomp.connector.preview(Outgoing(0, untold(0), target, {})).unless_named["target"]
    )
    for letters in (to(target, told), to(target._replace(kind="topic"), untold)):
        own = [o._replace(provenance={"dlq_replay_id": f"{o.target}{o.number}"}) for o in letters]
        assert {s.outcome for s in published(stomp, news, own)} == {"confirmed"}
    monkeypatch.undo()
    assert len(replace(stomp).drain(sub)) == 6


@on_artemis
def test_no_target_is_made_of_a_diverts_name(stomp: Place) -> None:
    divert = {"name": f"{stomp.queue}.divert", "address": stomp.queue, "forwarding-address": "DLQ"}
    stomp.manage("createDivert", divert)
    diverted = dead(stomp.queue, divert["name"], "1")(0)
    assert stomp.connector.target_of(diverted, "origin") is None
    assert stomp.connector.target_of(diverted, "queue:here") == Target("queue", "here")
    stomp.manage("destroyDivert", divert["name"])
