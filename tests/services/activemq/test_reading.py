"""Reading ActiveMQ Classic and Artemis: nothing is lost, nothing that STOMP cannot carry is acknowledged."""

import os
from pathlib import Path

import pytest
from support import connector_contract
from support.brokers.activemq.fixtures import (
    Place,
    by_openwire,
    on_all,
    on_artemis,
    on_classic,
    on_newest_classic,
)
from support.connector_contract import ReadingContract
from support.ports import free_ports
from support.waiting import eventually

from dlq.analyzers.rules import Facts, judge
from dlq.connectors.activemq.look.queues import Queues
from dlq.connectors.activemq.stomp.codec import encode
from dlq.connectors.base import Mode
from dlq.core.errors import HarmRefused, NotFound

pytestmark = pytest.mark.activemq


def readable(stomp: Place, place: Place) -> connector_contract.Place:
    """What is sent by STOMP is read by `place`."""
    sent = iter(range(10**6))
    stomp.send(b"")  # the queue exists before the first test looks
    place.drain()

    def fill(number: int) -> list[bytes]:
        bodies = [f"letter {next(sent)}".encode() for _ in range(number)]
        if bodies:
            stomp.send(*bodies)
        return bodies

    return connector_contract.Place(place.connector, place.request().source, fill)


@on_all
class TestContract(ReadingContract):
    @pytest.fixture
    def place(self, stomp: Place) -> connector_contract.Place:
        return readable(stomp, stomp)


@on_classic
class TestByOpenWire(ReadingContract):
    @pytest.fixture
    def place(self, stomp: Place) -> connector_contract.Place:
        return readable(stomp, by_openwire(stomp))


@on_all
def test_a_drain_keeps_bodies_headers_and_origin_byte_for_byte(stomp: Place) -> None:
    body = bytes(range(256)) + b"\0MESSAGE\n\n\0"
    odd = {"correlation-id": "a:b\\c\nd\re", "ünïcode": "wört 😀", "empty": ""}
    stomp.send(body, **odd)
    [record] = stomp.drain()
    assert record.body == body
    assert {name: record.headers[name] for name in odd} == odd
    assert record.correlation_id == odd["correlation-id"]
    assert record.raw_properties is not None
    assert b"correlation-id:a\\cb\\\\c\\nd\\re" in record.raw_properties.split(b"\n")
    assert (record.persistent, record.dead_letter_queue) == (True, stomp.queue)


@on_all
def test_large_letters_come_whole(stomp: Place) -> None:
    bodies = [os.urandom(10 * 2**20), b"x" * 3_000_000]
    stomp.send(*bodies)
    assert [record.body for record in stomp.drain()] == bodies


@on_all
def test_a_queue_that_is_not_there_is_said(stomp: Place) -> None:
    with pytest.raises(NotFound, match=r"no queue 'no\.such\.queue'"):
        stomp.connector.read(stomp.request(queue="no.such.queue"))


@on_all
def test_a_pattern_reads_every_queue_it_means(stomp: Place) -> None:
    for name in ("a", "b"):
        stomp.send(name.encode(), queue=f"{stomp.queue}.DLQ.{name}")
    stomp.send(b"other", queue=f"{stomp.queue}.other")
    both = [(f"{stomp.queue}.DLQ.a", b"a"), (f"{stomp.queue}.DLQ.b", b"b")]
    looked = stomp.pull("copy", f"{stomp.queue}.DLQ.>", force=True)[0]
    assert [(r.dead_letter_queue, r.body) for r in looked] == both
    assert [(r.dead_letter_queue, r.body) for r in stomp.drain(queue=f"{stomp.queue}.DLQ.*")] == both


@on_classic
def test_a_property_that_looks_like_the_end_of_a_browse_ends_none(stomp: Place) -> None:
    for body in (b"1", b"2", b"3"):
        stomp.send(body, browser="end")
    records, left, reading = stomp.pull("copy")
    assert ([r.body for r in records], left, reading.complete) == ([b"1", b"2", b"3"], [], True)


@on_classic
def test_a_browse_that_the_broker_caps_is_not_complete_and_force_takes_all(stomp: Place) -> None:
    capped = f"ttl.{stomp.queue}"  # a queue with a policy: a browse shows 400
    stomp.send(*[b"x"] * 500, queue=capped)
    records, _, reading = stomp.pull("copy", capped)
    assert (len(records), reading.snapshot, reading.complete) == (400, 500, False)
    records, _, reading = stomp.pull("copy", capped, force=True)
    assert (len(records), reading.complete) == (500, True)
    assert len(stomp.drain(capped)) == 500


@on_classic
def test_a_memory_limit_stalls_no_drain(stomp: Place) -> None:
    small = f"mem.{stomp.queue}"  # 200 KiB
    stomp.send(*[b"x" * 2048] * 300, queue=small)
    assert len(stomp.drain(small)) == 300


@on_classic
def test_a_jolokia_that_is_down_stops_neither_pull_nor_doctor_and_is_named(stomp: Place) -> None:
    stomp.send(b"a", b"b")
    [dead] = free_ports(1)
    place = stomp.by(jolokia_url=f"http://127.0.0.1:{dead}/jolokia/")
    why = f"not proven: brokers.legacy.jolokia_url (127.0.0.1:{dead}): Connection refused."
    seen = place.connector.inspect(place.request().source)
    assert (seen.depth, [why in warning for warning in seen.warnings].count(True)) == (None, 1)
    records, _, reading = place.pull("drain")
    assert (len(records), reading.snapshot, reading.complete) == (2, None, True)
    assert [note for note in reading.notes if str(dead) in note]


@on_all
def test_who_proves_the_end_of_a_queue_where_there_is_no_jolokia(stomp: Place) -> None:
    """The plugin of Classic; Artemis is asked by STOMP."""
    stomp.send(b"a", b"b")
    copied, _, reading = stomp.pull("copy", force=stomp.broker.artemis)
    assert (len(copied), reading.snapshot, reading.complete) == (2, 2, True)
    place = stomp.by(jolokia_url="http://127.0.0.1:1/jolokia/" if stomp.broker.artemis else None)
    records, _, reading = place.pull("drain")
    assert not any(record.redelivered for record in records), "a copy changes nothing"
    counted, said = (2, "Jolokia was not asked") if stomp.broker.artemis else (None, "not proven")
    assert (len(records), reading.snapshot, reading.complete) == (2, counted, True)
    assert any(said in note for note in reading.notes)
    if stomp.broker.artemis:
        return
    stomp.send(b"a", b"b")
    place = place.by(statistics_plugin=True)
    records, _, reading = place.pull("drain")
    assert (len(records), reading.snapshot, reading.complete) == (2, 2, True)
    assert not any("not proven" in note for note in reading.notes)
    elsewhere = place.connector.inspect(place.request(queue="not.there").source)
    assert any("statisticsBrokerPlugin" in warning for warning in elsewhere.warnings)


@on_artemis
def test_artemis_refuses_a_copy_unless_forced_and_then_counts_no_delivery(stomp: Place) -> None:
    stomp.send(*[b"%d" % n for n in range(30)])
    with pytest.raises(HarmRefused, match="--force"):
        stomp.connector.read(stomp.request("copy"))
    for _ in range(12):
        assert len(stomp.pull("copy", force=True)[0]) == 30
    records = stomp.drain()
    assert [r.body for r in records] == [b"%d" % n for n in range(30)]
    assert not any(record.redelivered for record in records)


@on_artemis
def test_artemis_gives_texts_of_any_content_and_keeps_what_stomp_cannot_carry(stomp: Place) -> None:
    stomp.java("ActiveMqBodies.java", stomp.queue)
    carried = [
        b"\x00\x01\x02\xff", b"", b"", "emoji 😀 é".encode(), b"nul\0in\0MESSAGE\n text", b"after nul",
        b"last\x1b",
    ]  # fmt: skip
    classes = ["map", "stream", "stream", "plain", "object"]
    modes: tuple[Mode, Mode] = ("copy", "drain")
    for mode in modes:
        records, left, _ = stomp.pull(mode, include_empty=True, force=True)
        assert [r.body for r in records] == carried
        assert left == [f"a message of class {name}: STOMP cannot carry its content" for name in classes]
    assert (stomp.drain(), len(stomp.pull("drain")[1])) == ([], 5)


@on_classic
def test_dead_letters_say_where_and_why_they_died(stomp: Place) -> None:
    origin = f"ttl.{stomp.queue}"
    stomp.send(b"late", queue=origin, expires="1")
    [record] = [r for r in stomp.drain("ActiveMQ.DLQ") if r.origin == origin]
    assert (record.origin_kind, record.origin) == ("queue", origin)
    assert record.failure_text == "java.lang.Throwable: Message Expired. Expiration:1"


@on_artemis
def test_a_letter_of_artemis_that_no_queue_took_names_an_empty_queue(stomp: Place) -> None:
    address = f"noroute.{stomp.queue}"
    stomp.send_frames([encode("SEND", {"destination": address, "persistent": "true"}, b"x")])
    [record] = [r for r in stomp.drain("DLQ") if r.origin == address]
    assert record.headers["_AMQ_ORIG_QUEUE"] == ""
    assert judge(record, Facts()).cause == "unroutable"


@on_artemis
def test_questions_to_artemis_leave_no_queue_behind(stomp: Place) -> None:
    stomp.connector.close()

    def answers() -> set[str]:
        asking = Queues(stomp.settings, "artemis")
        names = asking.names() or []
        asking.close()
        return {name for name in names if name.startswith("dlq.reply.")}

    of_others = answers()
    asked = answers() - of_others
    assert len(asked) == 1
    eventually(lambda: not asked & answers())


@on_all
def test_doctor_says_version_and_depth(stomp: Place) -> None:
    stomp.send(b"a", b"b")
    seen = stomp.connector.inspect(stomp.request().source)
    assert (seen.version.split()[1], seen.depth) == (stomp.broker.version, 2)
    assert set(seen.changes) == {"copy", "drain"}
    assert bool(seen.harm) == stomp.broker.artemis


def test_dead_letter_queues_are_discovered(stomp: Place) -> None:
    dead, alive = f"DLQ.{stomp.queue}", stomp.queue
    for queue in (dead, alive):
        stomp.send(b"letter", queue=queue)
    by_jolokia = stomp.by(jolokia_url=stomp.broker.jolokia)
    found = {place.name: place for place in by_jolokia.connector.discover()}
    assert (found[dead].depth, found[dead].source) == (1, {"queue": dead})
    assert alive not in found


@on_newest_classic
def test_letters_that_expire_by_their_strategy_are_said_to(stomp: Place, tmp_path: Path) -> None:
    xml, source = tmp_path / "activemq.xml", stomp.request().source
    stomp.send(b"letter")
    by_xml = stomp.by(activemq_xml=str(xml)).connector
    assert any(f"{xml} cannot be read" in one for one in by_xml.inspect(source).warnings)
    xml.write_text(
        f"""<broker><destinationPolicy><policyMap><policyEntries><policyEntry queue=">"><deadLetterStrategy>
        <sharedDeadLetterStrategy deadLetterQueue="{stomp.queue}" expiration="60000"/></deadLetterStrategy>
        </policyEntry></policyEntries></policyMap></destinationPolicy></broker>"""
    )
    said = f"{stomp.queue}: letters expire here 1m after they came (expiration of"
    assert any(said in one for one in by_xml.inspect(source).warnings)
