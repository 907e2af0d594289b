"""Reading Classic by OpenWire: every class of message makes the trip there and back, and has one id."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support import connector_contract
from support.brokers.activemq.broker import CLASSIC, OLDER
from support.brokers.activemq.fixtures import Place, by_openwire, on_classic
from support.brokers.activemq.sending import outgoing, published
from support.connector_contract import ReadingContract
from support.servers.cutter import Cutter

from dlq.archive import manifests
from dlq.archive.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.activemq.plugin.connector import ActiveMQConnector
from dlq.connectors.base import Outgoing, Target
from dlq.core.clock import now
from dlq.core.errors import BrokerError, ConnectionLost
from dlq.core.record import Record
from dlq.core.settings import Source

pytestmark = pytest.mark.activemq


def shown(place: Place, queue: str) -> list[str]:
    """What a Java consumer gets there."""
    return [bytes.fromhex(each).decode() for each in place.java("ActiveMqClasses.java", "show", queue)]


@on_classic
class TestContract(ReadingContract):
    @pytest.fixture
    def place(self, stomp: Place) -> connector_contract.Place:
        here = by_openwire(stomp)
        sent = iter(range(10**6))
        stomp.send(b"")  # the queue exists before the first test looks
        here.drain()

        def fill(number: int) -> list[bytes]:
            bodies = [f"letter {next(sent)}".encode() for _ in range(number)]
            if bodies:
                stomp.send(*bodies)
            return bodies

        return connector_contract.Place(here.connector, Source("letters", "legacy", queue=stomp.queue), fill)


@pytest.mark.parametrize("stomp_broker", [OLDER, *CLASSIC], indirect=True)
def test_every_class_of_message_comes_back_as_java_sent_it(stomp: Place) -> None:
    here, back = by_openwire(stomp), f"{stomp.queue}.back"
    stomp.java("ActiveMqClasses.java", "send", stomp.queue)
    before = shown(stomp, stomp.queue)
    assert len(before) == 22
    stomp.java("ActiveMqClasses.java", "send", stomp.queue)
    records, left, reading = here.pull("drain")
    assert (len(records), left, reading.complete, reading.settled_position()) == (22, [], True, 22)
    assert {r.properties["class"] for r in records} == {
        "map", "stream", "object", "bytes", "blob", "text", "plain",
    }  # fmt: skip
    letters = outgoing(records, Target("queue", back))
    problems = [here.connector.preview(o).problem for o in letters]
    assert problems == [None] * 22
    assert {sent.outcome for sent in published(here, stomp.queue, letters)} == {"confirmed"}
    assert shown(stomp, back) == before


@on_classic
def test_a_letter_has_one_id_whichever_way_it_was_read(stomp: Place) -> None:
    stomp.java("ActiveMqTyped.java", "send", stomp.queue)
    stomp.java("ActiveMqAmqp.java", stomp.queue, "a", ids="UUID")
    odd = {"correlation-id": "a:b\\c\nd\re", "ünïcode": "wört €", "empty": "", "JMSXGroupID": "g"}
    stomp.send(bytes(range(256)) + b"\0MESSAGE\n\n\0", b"", **odd)
    looked = stomp.pull("copy")[0]
    seen = by_openwire(stomp).pull("copy")[0]
    taken = by_openwire(stomp).pull("drain")[0]
    assert len(looked) == 5
    assert differences(looked, seen) == differences(looked, taken) == []
    assert [r.record_id for r in looked] == [r.record_id for r in seen] == [r.record_id for r in taken]


@pytest.mark.parametrize("stomp_broker", [OLDER, *CLASSIC], indirect=True)
def test_a_text_with_nul_is_one_letter_whichever_way_it_was_read(stomp: Place, tmp_path: Path) -> None:
    stomp.java("ActiveMqBodies.java", stomp.queue)
    store, here, back = LocalStore(str(tmp_path)), by_openwire(stomp), f"{stomp.queue}.back"
    [looked] = [r for r in stomp.pull("copy")[0] if r.body.startswith(b"nul")]
    copied = pull(store, stomp.connector, stomp.request().source, PullOptions("copy"))
    drained_too = pull(store, here.connector, stomp.request().source, PullOptions("drain"))
    assert (copied.captured, drained_too.captured, drained_too.recaptured) == (7, 5, 7)
    assert here.drain() == []
    [letter] = outgoing([looked], Target("queue", back))
    assert here.connector.preview(Outgoing(0, looked, letter.target, {})).problem is None
    assert [sent.outcome for sent in published(here, stomp.queue, [letter])] == ["confirmed"]
    [again] = here.drain(back)
    assert (again.body, again.properties["class"]) == (looked.body, "text")


@on_classic
@pytest.mark.parametrize("levels", [17, 45])
def test_a_property_that_nests_deeper_than_is_shown_is_drained_and_sent_again_as_it_came(
    stomp: Place, levels: int
) -> None:
    here, back = by_openwire(stomp), f"{stomp.queue}.back"
    stomp.send(b"x", deep="later")
    [plain] = here.drain()
    value = (b"\x0c\0\0\0\2\1\1\x0b\0\0\0\1\0\1k" * levels + b"\5\0\0\0\7").hex()
    nested = plain._replace(properties={**plain.properties, "value of deep": value})
    [letter] = outgoing([nested], Target("queue", stomp.queue))
    assert [sent.outcome for sent in published(here, "first", [letter])] == ["confirmed"]
    [looked] = stomp.pull("copy")[0]
    [taken] = here.drain()
    assert here.drain() == []
    assert (taken.record_id, taken.headers["deep"]) == (looked.record_id, looked.headers["deep"])
    assert taken.headers["deep"] == "[true, {k=" * levels + "7" + "}]" * levels
    assert taken.properties["value of deep"] == value
    [again] = outgoing([taken], Target("queue", back))
    assert here.connector.preview(again).problem is None
    assert [sent.outcome for sent in published(here, "second", [again])] == ["confirmed"]
    [came] = here.drain(back)
    assert came.properties["value of deep"] == value


def differences(some: Sequence[Record], others: Sequence[Record]) -> list[object]:
    """Headers and bodies that are not the same, but for those of each delivery."""
    of_delivery = {"ack", "subscription", "redelivered"}
    return [
        (one.headers.get(name), other.headers.get(name), name)
        for one, other in zip(some, others, strict=True)
        for name in sorted({*one.headers, *other.headers} - of_delivery)
        if one.headers.get(name) != other.headers.get(name, "").replace("😀", "\ufffd\ufffd")
    ] + [(one.body, other.body) for one, other in zip(some, others, strict=True) if one.body != other.body]


@on_classic
def test_a_letter_says_when_it_died_and_one_that_was_only_sent_here_does_not(stomp: Place) -> None:
    began, origin = now(), f"ttl.{stomp.queue}"
    stomp.send(b"late", queue=origin, expires="1")
    [died] = [r for r in by_openwire(stomp).drain("ActiveMQ.DLQ") if r.origin == origin]
    assert died.dead_at is not None
    assert began - 1000 <= died.dead_at <= now()
    stomp.send(b"by hand", **{"original-destination": "/queue/orders"})
    assert [r.dead_at for r in by_openwire(stomp).drain()] == [None]


def drained(place: Place) -> tuple[list[bytes], int]:
    """What came, and how many of them the broker has said to have let go, before the connection ended."""
    reading = place.connector.read(place.request("drain"))
    taken: list[bytes] = []
    settled = 0
    with contextlib.suppress(ConnectionLost):
        for batch in reading.batches():
            taken += [r.body for r in batch.records]
            reading.acknowledge(batch.position)
            settled = reading.settled_position()
    reading.close()
    return taken, settled


@on_classic
@pytest.mark.parametrize("answers", [0, 60, 300, 2_000, 60_000, 400_000])
def test_a_connection_that_is_cut_loses_nothing(stomp: Place, answers: int) -> None:
    bodies = [b"%d" % n for n in range(2000)]
    stomp.send(*bodies)
    with Cutter(f"127.0.0.1:{stomp.broker.openwire}") as cutter:
        cutter.answers = answers
        here = by_openwire(stomp)
        cut = replace(
            here, connector=ActiveMQConnector(replace(here.settings, openwire_url=f"tcp://{cutter.address}"))
        )
        try:
            taken, settled = drained(cut)
        except BrokerError:
            taken, settled = [], 0
    rest = [r.body for r in eventually_drained(here)]
    assert {*taken, *rest} == set(bodies)
    assert not {*taken[:settled]} & {*rest}


def eventually_drained(place: Place) -> list[Record]:
    """All letters, once the broker has noticed that the other consumer is gone."""
    found: list[Record] = []
    while not (more := place.pull("drain"))[2].complete or more[0]:
        found += more[0]
    return found


@on_classic
def test_what_openwire_tells_of_a_letter_replaces_what_a_copy_by_stomp_kept(
    stomp: Place, tmp_path: Path
) -> None:
    stomp.java("ActiveMqTyped.java", "send", stomp.queue)
    stomp.java("ActiveMqTyped.java", "send", stomp.queue)
    store = LocalStore(str(tmp_path / "archive"))
    source = stomp.request().source
    assert pull(store, stomp.connector, source, PullOptions("copy")).captured == 4
    here = by_openwire(stomp).connector
    drained = pull(store, here, source, PullOptions("drain", limit=3))
    assert (drained.captured, drained.recaptured, drained.acknowledged) == (0, 3, 3)
    letters = archived(store)
    assert len({record["record_id"] for record in letters}) == 4
    told = [dict(record["properties"]) for record in letters]
    assert [properties.get("type of double") for properties in told].count("double") == 3
    assert [properties.get("JMSXGroupID") for properties in told].count("g") == 3
    assert pull(store, here, source, PullOptions("drain")).recaptured == 1
    assert all(dict(record["properties"])["type of int"] == "int" for record in archived(store))


def archived(store: LocalStore) -> list[dict[str, Any]]:
    """The rows of all segments that count."""
    tables = [pq.read_table(store.url(m.segment)) for m in manifests.list_committed(store) if m.rows]
    return [row for table in tables for row in table.to_pylist()]
