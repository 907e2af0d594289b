"""What a real Artemis leaves on letters of several ways proves what the rules say that it proves."""

from dataclasses import replace
from typing import Any

import pytest
from support.brokers.activemq.fixtures import Place, on_artemis
from support.waiting import eventually

from dlq.analyzers.rules import Facts, Verdict, judge
from dlq.connectors.activemq.look import artemis
from dlq.core.clock import now
from dlq.core.record import Record

pytestmark = [pytest.mark.activemq, on_artemis]


@pytest.fixture(autouse=True)
def _too_many_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that letters name are asked for, as other tests have made many on the same broker."""
    monkeypatch.setattr(artemis, "MOST_ASKED", 0)


def verdict_of(place: Place, origin: str, queue: str = "DLQ") -> Verdict:
    """On the one letter of an address, once it has died, with what the pull learned of the broker."""

    def pulled() -> tuple[list[Record], Any] | None:
        records, _, reading = place.pull("drain", queue)
        found = [r for r in records if r.headers.get("_AMQ_ORIG_ADDRESS") == origin]
        return (found, reading) if found else None

    [letter], reading = eventually(pulled)
    told = reading.topology
    assert told["places_of_the_dead"][origin] == ["DLQ", "ExpiryQueue"]
    places = {address: (dead, expired) for address, (dead, expired) in told["places_of_the_dead"].items()}
    source = letter.source
    facts = Facts(
        diverts={source: tuple(told["diverts"])},
        places_of_the_dead={source: places},
        most_attempts={source: told["max_delivery_attempts"]},
        killed_none={source: told["killed_none"]},
    )
    return judge(letter._replace(published_at=now() + 3_600_000_000), facts)


def reject(place: Place) -> None:
    """By a client of AMQP 1.0."""
    place.java("ActiveMqReject.java", place.queue, "2")


def test_a_reject_is_likely_alone(stomp: Place) -> None:
    stomp.send(b"x")
    reject(stomp)
    found = verdict_of(stomp, stomp.queue)
    assert (found.cause, found.proof) == ("redelivery_exhausted", "likely")
    assert "poison_ack" in found.also_possible


def test_an_expired_letter_in_the_place_of_the_expired_is_proven(stomp: Place) -> None:
    stomp.send(b"late", expires="1000")
    stomp.drain()  # a consumer brings the broker to look
    found = verdict_of(stomp, stomp.queue, "ExpiryQueue")
    assert (found.cause, found.proof, found.origin) == ("expired", "proven", stomp.queue)


def test_an_older_expiry_is_no_cause(stomp: Place) -> None:
    stomp.send(b"late", expires="1000")
    stomp.drain()
    stomp.manage("retryMessages", f"_AMQ_ORIG_ADDRESS = '{stomp.queue}'", resource="queue.ExpiryQueue")
    reject(stomp)
    found = verdict_of(stomp, stomp.queue)
    assert (found.cause, found.proof, found.stale_evidence) == ("redelivery_exhausted", "likely", True)


def test_what_a_divert_put_there_did_not_die(stomp: Place) -> None:
    name = f"{stomp.queue}.divert"
    divert = {"name": name, "address": stomp.queue, "forwarding-address": "DLQ", "exclusive": True}
    stomp.manage("createDivert", divert)
    stomp.send(b"x")
    found = verdict_of(stomp, stomp.queue)
    stomp.manage("destroyDivert", name)
    assert (found.cause, found.proof, found.origin) == ("unknown", None, stomp.queue)
    assert name in (found.evidence or "")


def test_what_an_operator_moved_is_among_the_possible(stomp: Place) -> None:
    stomp.send(b"x")
    stomp.manage("sendMessagesToDeadLetterAddress", "", resource=f"queue.{stomp.queue}")
    found = verdict_of(replace(stomp), stomp.queue)
    assert (found.cause, "moved" in found.also_possible) == ("redelivery_exhausted", True)


def test_the_broker_counts_what_it_killed_so_that_a_move_is_known(stomp: Place) -> None:
    stomp.make_queue(stomp.queue)
    stomp.send(b"x")
    stomp.manage("moveMessages", "", "DLQ", resource=f"queue.{stomp.queue}")
    found = verdict_of(stomp, stomp.queue)
    assert (found.cause, found.rule) == ("unknown", "artemis-moved")
    stomp.send(b"x")
    reject(stomp)
    assert verdict_of(stomp, stomp.queue).cause == "redelivery_exhausted"


def test_where_the_settings_never_give_up_a_reject_is_the_usual_cause(stomp: Place) -> None:
    stomp.make_queue(stomp.queue)
    endless = {"deadLetterAddress": "DLQ", "expiryAddress": "ExpiryQueue", "maxDeliveryAttempts": -1}
    stomp.manage("addAddressSettings", stomp.queue, endless)
    stomp.send(b"x")
    reject(stomp)
    found = verdict_of(stomp, stomp.queue)
    assert (found.cause, found.proof, found.also_possible) == ("poison_ack", "likely", ("moved",))


def test_what_an_operator_moved_to_a_queue_of_his_own_did_not_die(stomp: Place) -> None:
    parked = f"parked.{stomp.queue}"
    stomp.make_queue(parked)
    stomp.make_queue(stomp.queue)
    stomp.send(b"x")
    reject(stomp)
    stomp.send(b"x")
    stomp.manage("moveMessages", "", parked, resource=f"queue.{stomp.queue}")
    assert verdict_of(stomp, stomp.queue, parked).cause == "unknown"
    assert verdict_of(stomp, stomp.queue).cause == "redelivery_exhausted"
