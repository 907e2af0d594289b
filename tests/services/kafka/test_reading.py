"""What lies in a topic of dead letters is read to the byte, once, and what is gone is said."""

import gzip
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import AcknowledgeType
from support.brokers.kafka import raw as by_hand
from support.brokers.kafka.driver import Driver, eventually
from support.brokers.kafka.fixtures import KafkaPlace, connector_of
from support.brokers.kafka.letters import headers_by_our_own_connection

from dlq.archive import losses
from dlq.archive.storage.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.base import Outgoing, ReadRequest, Target
from dlq.connectors.kafka.link import fetch
from dlq.connectors.kafka.link.connection import Link
from dlq.connectors.kafka.records.messages import UNRESOLVED
from dlq.connectors.kafka.records.raw import RawRecord, decode
from dlq.core.errors import BrokerError
from dlq.core.record import Record
from dlq.core.runtime import patience

pytestmark = pytest.mark.kafka

ODD = [
    ("a", b"1"), ("nul", None), ("empty", b""), ("a", b"2"), ("bin", b"\xff\x00"), ("", b"noname"),
    ("\u00e9", b"x"),
]  # fmt: skip


def raw(record: Record) -> RawRecord:
    assert record.raw_properties is not None
    return decode(record.raw_properties)


def test_null_and_empty_values_keys_and_headers_are_told_apart(kafka: KafkaPlace) -> None:
    kafka.driver.create_topic(kafka.dead, retention_ms=-1)
    kafka.driver.send_all(
        kafka.dead, [(None, None, ()), (b"", b"", ()), (b"v", b"\xff", ODD), (None, b"k", ())], timestamp=1
    )
    records = kafka.read().records
    assert [(record.body, raw(record).is_null) for record in records] == [
        (b"", True), (b"", False), (b"v", False), (b"", True)
    ]  # fmt: skip
    assert [raw(record).key for record in records] == [None, b"", b"\xff", b"k"]
    assert raw(records[2]).headers == ODD
    assert records[2].headers == {
        "nul": "", "empty": "", "a": "2", "bin": "base64:/wA=", "": "noname", "\u00e9": "x"
    }  # fmt: skip
    assert {raw(record).timestamp for record in records} == {1}
    assert not raw(records[0]).is_log_append
    assert len({record.record_id for record in records}) == 4


def test_the_time_of_appending_is_told_from_that_of_the_producer(kafka: KafkaPlace) -> None:
    kafka.driver.create_topic(kafka.dead, message_timestamp_type="LogAppendTime")
    kafka.driver.send(kafka.dead, b"v", timestamp=1)
    [record] = kafka.read().records
    assert raw(record).is_log_append
    assert raw(record).timestamp > 1_600_000_000_000
    assert record.properties["timestampType"] == "LogAppendTime"


def test_aborted_letters_never_died_and_an_open_transaction_holds_back_what_it_hides(
    kafka: KafkaPlace,
) -> None:
    driver = kafka.driver
    driver.create_topic(kafka.dead)
    producer = driver.transactional(f"t-{kafka.number}")
    for ends in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(kafka.dead, ends.__name__.encode())
        producer.flush()
        ends()
    driver.send(kafka.dead, b"plain")
    producer.begin_transaction()
    producer.produce(kafka.dead, b"open")
    producer.flush()
    driver.send(kafka.dead, b"behind")
    seen = kafka.read()
    assert [record.body for record in seen.records] == [b"commit_transaction", b"plain"]
    assert seen.snapshot == 2, "control records and aborted ones are no letters"
    assert not seen.complete
    assert any("an open transaction holds back" in note and "2 at most" in note for note in seen.notes)
    assert seen.gaps == []
    producer.commit_transaction()
    driver.wait_for_markers(kafka.dead)
    rest = kafka.read(seen.checkpoint)
    assert [record.body for record in rest.records] == [b"open", b"behind"]
    assert rest.complete


def test_what_retention_took_is_a_gap_only_where_it_was_never_read(kafka: KafkaPlace) -> None:
    kafka.driver.create_topic(kafka.dead)
    kafka.driver.send_all(kafka.dead, [(b"%d" % number, None, ()) for number in range(6)])
    first = kafka.read(limit=2)
    assert [record.body for record in first.records] == [b"0", b"1"]
    kafka.driver.delete_records(kafka.dead, before=2)
    assert kafka.read(first.checkpoint).gaps == []
    kafka.driver.delete_records(kafka.dead, before=4)
    seen = kafka.read(first.checkpoint)
    assert [record.body for record in seen.records] == [b"4", b"5"]
    assert [gap[:3] for gap in seen.gaps] == [(f"{kafka.dead}-0", 2, 4)]


def test_a_topic_that_was_made_again_is_read_anew_and_that_is_said(kafka: KafkaPlace) -> None:
    kafka.driver.create_topic(kafka.dead)
    kafka.driver.send_all(kafka.dead, [(b"old", None, ()), (b"old", None, ())])
    first = kafka.read()
    kafka.driver.delete_topic(kafka.dead)
    kafka.driver.create_topic(kafka.dead)
    kafka.driver.send(kafka.dead, b"new")
    seen = kafka.read(first.checkpoint)
    assert [record.body for record in seen.records] == [b"new"]
    assert not seen.complete
    assert any("another topic id" in note and "0 at 2" in note for note in seen.notes)
    later = kafka.read({**first.checkpoint, **seen.checkpoint})
    assert not any("another topic id" in note for note in later.notes)


@pytest.mark.parametrize("again", [0, 3_000])
def test_letters_of_a_topic_that_is_deleted_in_mid_drain_are_gone_and_its_namesake_is_read_anew(
    kafka: KafkaPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: int
) -> None:
    kafka.driver.create_topic(kafka.dead)
    kafka.driver.send_all(kafka.dead, [(b"%d" % number, None, ()) for number in range(2_000)])
    store, source = LocalStore(str(tmp_path)), kafka.request().source
    connector = connector_of(kafka.node, timeout="10s")  # for so long it asks for what is gone
    begin = connector.read

    def begin_and_delete(asked: ReadRequest) -> Any:
        reading = begin(asked)
        kafka.driver.delete_topic(kafka.dead)
        if again:
            kafka.driver.create_topic(kafka.dead)
            kafka.driver.send_all(kafka.dead, [(b"new", b"%d" % number, ()) for number in range(again)])
        return reading

    with monkeypatch.context() as patch:
        patch.setattr(connector, "read", begin_and_delete)
        done = pull(
            store, connector, source, PullOptions("drain"), depth=lambda: connector.gauge(source).depth
        )
    taken = done.captured + done.recaptured
    if not again:  # nobody says that it is gone: a broker may not know it yet, and then the next pull goes on
        assert (done.partial, taken + done.left, done.gone) == (True, 2_000, 0)
        assert "is not shown any more" in str(done.error)
    else:
        assert (done.partial, done.error, done.left, taken + done.gone) == (True, None, 0, 2_000)
        later = pull(store, connector, source, PullOptions("drain"))
        assert later.captured + later.recaptured == again
    connector.close()


def test_no_group_is_left_behind(kafka: KafkaPlace) -> None:
    kafka.driver.create_topic(kafka.dead)
    kafka.driver.send(kafka.dead, b"v")
    kafka.read()
    assert "dlq" not in {group.group_id for group in kafka.driver.admin.list_consumer_groups().result().valid}


class Shared:
    """A share group that rejects everything, and where its dead letters lie."""

    def __init__(self, kafka: KafkaPlace, copies: bool = False, **settings: object) -> None:
        """`settings` of the topic that it reads."""
        self.kafka, self.dead, self.group = kafka, f"dlq.{kafka.number}", f"share-{kafka.number}"
        kafka.driver.create_topic(kafka.topic, retention_ms=-1, **settings)
        kafka.driver.create_topic(self.dead, errors_deadletterqueue_group_enable="true")
        copied = {"errors_deadletterqueue_copy_record_enable": str(copies).lower()}
        kafka.driver.share_group(self.group, self.dead, **copied)

    def reject(self, count: int) -> None:
        self.kafka.driver.share(self.group, self.kafka.topic, lambda _: AcknowledgeType.REJECT, count)
        eventually(lambda: self.kafka.driver.end(self.dead) >= count)


@pytest.mark.parametrize("copies", [False, True], ids=["pointers", "copies"])
def test_a_share_groups_dead_letter_is_kept_with_the_record_that_it_points_to(
    kafka: KafkaPlace, copies: bool
) -> None:
    shared = Shared(kafka, copies)
    sent: list[Any] = [(b"body", b"k", ODD), (None, b"tomb", ())]
    kafka.driver.send_all(kafka.topic, sent, timestamp=1_600_000_000_000)
    shared.reject(2)
    body, tombstone = kafka.read(topic=shared.dead).records
    assert (body.body, body.origin, body.origin_group) == (b"body", kafka.topic, shared.group)
    assert (body.message_id, body.properties["pointer"]) == (f"{kafka.topic}-0@0", "resolved")
    assert raw(body).key == (b"k" if copies else None), "the pointer"
    assert dict(raw(body).headers)["__dlq.errors.offset"] == b"0"
    original = raw(body).original
    assert original is not None
    assert (original.key, original.headers, original.timestamp) == (b"k", ODD, 1_600_000_000_000)
    assert body.published_at == 1_600_000_000_000_000
    assert raw(tombstone).original == RawRecord(b"tomb", [], 1_600_000_000_000, is_null=True)
    assert not (tombstone.flags or 0) & UNRESOLVED


def test_a_pointer_whose_record_is_gone_or_not_proven_is_said_so(kafka: KafkaPlace) -> None:
    shared = Shared(kafka)
    kafka.driver.send_all(kafka.topic, [(b"%d" % number, None, ()) for number in range(2)])
    shared.reject(2)
    kafka.driver.delete_records(kafka.topic, before=1)
    gone, there = kafka.read(topic=shared.dead).records
    assert (gone.flags or 0) & UNRESOLVED
    assert gone.properties["pointer"].startswith("gone: ")
    assert there.body == b"1"
    kafka.driver.delete_topic(kafka.topic)
    gone, _ = kafka.read(topic=shared.dead).records
    assert gone.properties["pointer"] == "gone: its topic does not exist here"
    kafka.driver.create_topic(kafka.topic)
    kafka.driver.send_all(kafka.topic, [(b"somebody else", None, ())] * 2)
    strangers = kafka.read(topic=shared.dead).records
    assert {record.properties["pointer"] for record in strangers} == {
        "not proven: what lies there now is younger than the dead letter"
    }
    assert {record.body for record in strangers} == {b""}
    assert [record.record_id for record in strangers] == [gone.record_id, there.record_id]


def test_what_somebody_made_up_of_an_original_harms_no_pull(kafka: KafkaPlace) -> None:
    """Each letter points elsewhere, to what is not there, and in numbers that are none."""
    kafka.driver.create_topic(kafka.topic)
    kafka.driver.create_topic(kafka.dead)
    numbers = ["99999999999", "9" * 5000, "²", "-1", ""]
    made_up = [(number, "0") for number in numbers] + [("0", number) for number in ["9" * 20, *numbers[1:]]]
    there = [(f"{2**31 - 1}", "0"), ("0", f"{2**63 - 1}")]
    told = [(kafka.topic, *place) for place in (*made_up, *there)]
    nowhere = ["n" * 300, "no/name", "..", "\0", *(f"nowhere-{number}" for number in range(20))]
    told += [(name, "0", "0") for name in nowhere]
    names = [f"__dlq.errors.{name}" for name in ("topic", "partition", "offset")]
    headers = [[(n, t.encode()) for n, t in zip(names, one, strict=True)] for one in told]
    kafka.driver.send_all(kafka.dead, [(b"", None, one) for one in headers])
    began = time.monotonic()
    said = [record.properties["pointer"] for record in kafka.read().records]
    assert said == [
        *["not proven: what it says of its original cannot be read"] * len(made_up),
        "gone: its topic has no such partition",
        "gone: the original was deleted (retention)",
        *["gone: its topic does not exist here"] * len(nowhere),
    ]
    assert time.monotonic() - began < 20 * patience.REPLY, "a batch waits once for what is not shown"


def test_a_pointer_whose_record_was_compacted_away_does_not_take_its_neighbour(kafka: KafkaPlace) -> None:
    shared = Shared(kafka, cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01)
    kafka.driver.send_all(kafka.topic, [(b"old", b"k", ()), (b"neighbour", b"n", ())])
    shared.reject(2)

    def without_the_first() -> bool:
        kafka.driver.send(kafka.topic, b"new", key=b"k")
        return kafka.driver.records(kafka.topic)[0].offset() == 1

    eventually(without_the_first)
    gone, there = kafka.read(topic=shared.dead).records
    assert (gone.body, gone.properties["pointer"]) == (b"", "gone: the original was compacted away")
    assert (gone.flags or 0) & UNRESOLVED
    assert (there.body, there.properties["pointer"]) == (b"neighbour", "resolved")


def test_an_older_record_in_a_topic_that_was_made_again_is_not_taken_for_the_original(
    kafka: KafkaPlace,
) -> None:
    shared = Shared(kafka)
    kafka.driver.send(kafka.topic, b"first", timestamp=1)
    shared.reject(1)
    first = kafka.read(topic=shared.dead)
    kafka.driver.delete_topic(kafka.topic)
    kafka.driver.create_topic(kafka.topic, retention_ms=-1)
    kafka.driver.send(kafka.topic, b"somebody else", timestamp=1)
    resume = {key: at for key, at in first.checkpoint.items() if key.startswith("#seen")}
    [record] = kafka.read(resume, topic=shared.dead).records
    assert record.properties["pointer"] == "not proven: its topic was deleted and made again"
    assert record.body == b""


UNSAYABLE: list[by_hand.RawHeaders] = [
    [(b"ok", b"0")], [(b"ok", b"1"), (b"\xff\xfe", b"odd"), (b"nul", None)],
    [(b"na\0me", b"2"), (b"empty", b"")], [(b"na\0me", b"3"), (b"empty", b"")], [(b"ok", b"4")],
    [(b"ok\0", b"cut, and like the others then")],
]  # fmt: skip
COMPRESSED: dict[int, Callable[[bytes], bytes]] = {
    1: gzip.compress,
    2: lambda plain: pa.Codec("snappy").compress(plain, asbytes=True),
    4: lambda plain: pa.Codec("zstd").compress(plain, asbytes=True),
}


def with_odd_headers(kafka: KafkaPlace, topic: str, codec: int = 0) -> None:
    """Records as the client library can neither write nor say them, in one batch."""
    records = [by_hand.record(n, b"%d" % n, b"k", names) for n, names in enumerate(UNSAYABLE)]
    packed = COMPRESSED[codec](b"".join(records)) if codec else None
    moment = int(time.time() * 1000) - 1000
    by_hand.produce(kafka.node.bootstrap, topic, by_hand.batch(records, moment, codec, packed))


def names_of(record: RawRecord) -> list[tuple[bytes, bytes | None]]:
    return [(name.encode("utf-8", "surrogateescape"), value) for name, value in record.headers]


def test_headers_that_the_client_library_cannot_say_are_kept_to_the_byte(kafka: KafkaPlace) -> None:
    for codec in (0, *COMPRESSED):
        topic = f"{kafka.topic}-{codec}-dlt"
        kafka.driver.create_topic(topic)
        with_odd_headers(kafka, topic, codec)
        seen = kafka.read(topic=topic)
        assert [record.body for record in seen.records] == [b"%d" % n for n in range(len(UNSAYABLE))], codec
        assert [names_of(raw(record)) for record in seen.records] == [list(names) for names in UNSAYABLE]
        assert seen.records[1].headers == {"ok": "1", "\\xff\\xfe": "odd", "nul": ""}
        assert seen.complete


def test_a_pointer_to_a_record_with_such_headers_is_resolved(kafka: KafkaPlace) -> None:
    shared = Shared(kafka)
    with_odd_headers(kafka, kafka.topic)
    shared.reject(len(UNSAYABLE))
    records = kafka.read(topic=shared.dead).records
    originals = [raw(record).original for record in records]
    assert [names_of(one) for one in originals if one] == [list(names) for names in UNSAYABLE]


def test_a_letter_with_a_header_that_cannot_be_sent_is_left_out_of_a_plan(kafka: KafkaPlace) -> None:
    kafka.driver.create_topic(kafka.dead)
    with_odd_headers(kafka, kafka.dead)
    previews = [
        kafka.connector.preview(Outgoing(0, record, Target("topic", kafka.dead), {}))
        for record in kafka.read().records
    ]
    assert ["cannot send" in str(preview.problem) for preview in previews] == [
        False, True, True, True, False, True,
    ]  # fmt: skip


def test_what_a_client_has_compressed_is_taken_apart(kafka: KafkaPlace) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = f"{kafka.topic}-{codec}"
        kafka.driver.create_topic(topic)
        client = Driver(kafka.node.bootstrap, **{"compression.type": codec})
        client.send_all(topic, [(b"letter" * 100, b"k", ODD)] * 20)
        assert headers_by_our_own_connection(kafka.connector.cluster, topic) == dict.fromkeys(range(20), ODD)


def test_a_record_above_what_the_client_library_takes_by_itself_is_read(kafka: KafkaPlace) -> None:
    large = 101_000_000
    kafka.driver.create_topic(kafka.dead, max_message_bytes=large + 1000)
    client = Driver(kafka.node.bootstrap, **{"message.max.bytes": large + 1000})
    client.send_all(kafka.dead, [(b"before", None, ()), (b"x" * large, None, ()), (b"behind", None, ())])
    assert [record.body_size for record in kafka.read().records] == [6, large, 6]


def test_a_record_that_nobody_can_say_is_told_again_by_each_pull_until_it_is_dismissed(
    kafka: KafkaPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise fetch.Unreadable("a batch of an older format, which does not tell")

    kafka.driver.create_topic(kafka.dead)
    with_odd_headers(kafka, kafka.dead)
    monkeypatch.setattr(fetch, "headers_in", refuse)
    store, request = LocalStore(str(tmp_path / "archive")), kafka.request()
    pulls = [pull(store, kafka.connector, request.source, PullOptions(mode="drain")) for _ in range(2)]
    assert [len(one.left_letters) for one in pulls] == [1, 0]
    assert [(one.partial, one.lost) for one in pulls] == [(True, 1), (True, 1)]
    [loss] = pulls[1].losses
    assert (loss.place, loss.first, loss.end) == (f"{kafka.dead}-0", 1, 2)
    assert losses.dismiss(store, "s", "an old record", "me") == 1
    assert pull(store, kafka.connector, request.source, PullOptions(mode="drain")).lost == 0


def test_a_copy_looks_again_at_what_nobody_could_say(
    kafka: KafkaPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.driver.create_topic(kafka.dead)
    with_odd_headers(kafka, kafka.dead)
    with monkeypatch.context() as broken:
        broken.setattr(Link, "ask", lambda *_: (_ for _ in ()).throw(BrokerError("broken off")))
        seen = kafka.read(mode="copy")
    assert [one.passed for batch in seen.batches for one in batch.skipped] == [None]
    assert len(kafka.read(mode="copy").records) == len(seen.records) + 1
