"""What lies on the wire, and to the byte what the archive holds of it: a record id that changes would archive
letters twice.

`golden/WAY.json` keeps both for one way of reading:

    wire        letters: a word on what is odd about each, and its bytes in hexadecimal digits
    archived    the rows of the archive, every column, in the order of the letters
    checkpoint  where the next pull would go on, where the archive remembers that

A connector that is built anew changes the functions here, which lead from the wire to records, and never a
golden file. Where another result is meant, or a letter was added to `wire` by hand, this writes the rest,
and `git diff` shows what has changed:

    python tests/unit/connectors/test_golden.py WAY...
"""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import MagicMock, Mock, patch

from confluent_kafka import KafkaError, Message
from support.rows import each_row

from dlq.archive.schema import SEGMENT, to_records, to_table
from dlq.archive.storage.store import LocalStore
from dlq.capture.deduplication import Deduplicator
from dlq.connectors.activemq.openwire.codec import commands as openwire
from dlq.connectors.activemq.openwire.codec.messages import Dispatch
from dlq.connectors.activemq.read.browse import Browsed
from dlq.connectors.activemq.read.scan import with_details
from dlq.connectors.activemq.records import amqp10 as artemis_amqp10
from dlq.connectors.activemq.records import openwire as openwire_records
from dlq.connectors.activemq.records.frames import Place
from dlq.connectors.activemq.records.frames import record_maker as activemq_record_maker
from dlq.connectors.activemq.records.shadows import with_shadows
from dlq.connectors.activemq.stomp import codec
from dlq.connectors.amqp10.codec import message as amqp10_message
from dlq.connectors.base import NO_CHECKPOINT, Checkpoint, ReadRequest
from dlq.connectors.file import FileConnector
from dlq.connectors.jsonl.console_formats import Reader, reader_of
from dlq.connectors.jsonl.format import line_of, parse_line, record_of
from dlq.connectors.kafka.link.fetch import headers_in
from dlq.connectors.kafka.look.cluster import Log, Topic
from dlq.connectors.kafka.look.cluster import Place as KafkaPlace
from dlq.connectors.kafka.read.pointers import Pointers
from dlq.connectors.kafka.read.snapshot import plan_of as kafka_plan_of
from dlq.connectors.kafka.records.columns import Letters, Original
from dlq.connectors.kafka.records.columns import letters_of as kafka_letters_of
from dlq.connectors.kafka.records.messages import record_maker as kafka_record_maker
from dlq.connectors.rabbitmq.amqp091.codec import frames as amqp
from dlq.connectors.rabbitmq.look.topology import version_of
from dlq.connectors.rabbitmq.records import amqp10 as rabbitmq_amqp10
from dlq.connectors.rabbitmq.records.deliveries import record_maker as rabbitmq_record_maker
from dlq.connectors.rabbitmq.streams.look import StreamLook
from dlq.connectors.rabbitmq.streams.read import offset_of
from dlq.connectors.rocketmq.link.message import encode, expand, is_batch, parse, queue_offset, split
from dlq.connectors.rocketmq.read.queue import MessageQueue
from dlq.connectors.rocketmq.read.snapshot import QueueOffsets, checkpoint_of
from dlq.connectors.rocketmq.read.snapshot import plan_of as rocketmq_plan_of
from dlq.connectors.rocketmq.records.messages import record_maker as rocketmq_record_maker
from dlq.core.brokers import resolve
from dlq.core.errors import BrokerError
from dlq.core.record import Death, Record
from dlq.core.settings import Source

GOLDEN = Path(__file__).with_name("golden")
NOW = 1_795_000_000_000_000
"""When every letter was captured, in microseconds since the epoch."""


class Read(NamedTuple):
    """What one batch of letters came to."""

    records: Sequence[Record]
    checkpoint: Checkpoint = NO_CHECKPOINT


class Way(NamedTuple):
    """One way of reading. `read` gets the letters in `wire`, in order."""

    source: Source
    read: Callable[[ReadRequest, Sequence[Any]], Read]
    unique_ids: bool = False
    """As the reading says it."""
    mode: Any = "drain"


def source_of(key: str = "message_id", **place: Any) -> Source:
    return Source("golden", "shop", key=key, **place)


def to_bytes(pieces: Sequence[str]) -> bytes:
    return bytes.fromhex("".join(pieces))


def read_rabbitmq(request: ReadRequest, wire: Sequence[str]) -> Read:
    """Frames: basic.deliver, content header, bodies."""
    reader = amqp.FrameReader()
    reader.feed(to_bytes(wire))
    return Read(rabbitmq_record_maker(request, "4.3.6")(reader.take(len(wire))))


def read_rabbitmq_stream(request: ReadRequest, wire: Sequence[str]) -> Read:
    """The same with x-stream-offset among the headers."""
    reader = amqp.FrameReader()
    reader.feed(to_bytes(wire))
    offset = offset_of(reader.take(len(wire))[-1])
    return Read(read_rabbitmq(request, wire).records, {str(request.source.queue): offset + 1})


def read_rabbitmq_amqp10(request: ReadRequest, wire: Sequence[str], version: str = "4.3.6") -> Read:
    """Whole messages: what the transfers of one hold together. What 0-9-1 carries, too, is left to it."""
    make, messages = rabbitmq_amqp10.record_maker(request, version), map(bytes.fromhex, wire)

    def is_carried(message: bytes) -> bool:
        parts = amqp10_message.parts(amqp10_message.split(message)[0])
        return rabbitmq_amqp10.is_carried_by_0_9_1(parts, version_of(version))

    return Read([make(message) for message in messages if not is_carried(message)])


def read_rabbitmq_stream_amqp10(request: ReadRequest, wire: Sequence[str]) -> Read:
    """The same of a stream, with x-stream-offset among the annotations."""
    session = MagicMock()
    session.take.return_value = [Mock(message=bytes.fromhex(one), number=n) for n, one in enumerate(wire)]
    seen = StreamLook(session, request, "4.3.6").next_letters()
    records = [one.record for one in seen if one.record is not None]
    return Read(records, {str(request.source.queue): seen[-1].offset + 1})


def read_activemq_stomp(request: ReadRequest, wire: Sequence[str]) -> Read:
    """MESSAGE frames of the subscription `t`."""
    return Read(activemq_record_maker(request, CLASSIC)(stomp_frames(wire)))


def read_activemq_both(request: ReadRequest, wire: Sequence[Mapping[str, Any]]) -> Read:
    """What STOMP brings of each, and what Jolokia shows of it."""
    shown = {one["jolokia"]["JMSMessageID"]: one["jolokia"] for one in wire}
    queues: Any = Mock(message=lambda _queue, message_id: shown[message_id])
    make = with_details(activemq_record_maker(request, CLASSIC), queues, CLASSIC.queue)
    return Read(make(stomp_frames([one["stomp"] for one in wire])))


def read_artemis_stomp(request: ReadRequest, wire: Sequence[str]) -> Read:
    """MESSAGE frames of the subscription `t`."""
    return Read(with_shadows(activemq_record_maker(request, ARTEMIS))(stomp_frames(wire)))


def stomp_frames(wire: Sequence[str]) -> list[codec.Frame]:
    *letters, _receipt = codec.FrameReader("t").feed(to_bytes(wire) + b"RECEIPT\nreceipt-id:t-1\n\n\0\n")
    return letters


def read_activemq_openwire(request: ReadRequest, wire: Sequence[str], modified: bool = False) -> Read:
    """Commands of type MessageDispatch, each with its length before it. `modified`: of brokers before 5.18.6,
    whose STOMP shows texts in Java's UTF-8."""
    letters = openwire_letters(wire)
    make = activemq_record_maker(request, CLASSIC)
    framed = [(one, openwire_records.frame_of(one, modified)) for one in letters]
    return Read(openwire_records.records_of(make, framed))


def openwire_letters(wire: Sequence[str]) -> list[Dispatch]:
    reader = openwire.Reader()
    reader.feed(openwire.greeting() + to_bytes(wire))
    return [*reader.dispatched]


def read_artemis_both(request: ReadRequest, wire: Sequence[Mapping[str, str]]) -> Read:
    """What STOMP brings of each, and what a browse by OpenWire shows of it."""
    seen = Browsed(ARTEMIS.node)
    for letter in openwire_letters([one["openwire"] for one in wire]):
        seen.keep(letter)
    frames = stomp_frames([one["stomp"] for one in wire])
    make = with_shadows(activemq_record_maker(request, ARTEMIS))
    return Read(make([*map(seen.complete, frames)]))


def read_artemis_amqp10(request: ReadRequest, wire: Sequence[str]) -> Read:
    """Whole messages: what the transfers of one hold together."""
    make = artemis_amqp10.record_maker(request, ARTEMIS)
    return Read([make(bytes.fromhex(message)) for message in wire])


def read_rocketmq(request: ReadRequest, wire: Sequence[str]) -> Read:
    """Stored messages, as the body of an answer holds them."""
    messages = [inner for message in split(to_bytes(wire)) for inner in expand_batch(message)]
    records = rocketmq_record_maker(request, "5.5.0", "broker-a")(messages)
    queues = groupby(sorted(messages, key=to_queue), to_queue)
    return Read(
        records, dict(chain.from_iterable(to_checkpoint(queue, [*some]).items() for queue, some in queues))
    )


def expand_batch(message: bytes) -> list[bytes]:
    return [*map(encode, expand(parse(message)))] if is_batch(message) else [message]


def to_queue(message: bytes) -> MessageQueue:
    found = parse(message)
    return MessageQueue(found.topic, "broker-a", found.queue_id)


def to_checkpoint(queue: MessageQueue, messages: Sequence[bytes]) -> Checkpoint:
    """None of a real message, which is read beside its transaction."""
    if not queue.topic.startswith(("%DLQ%", "RMQ_SYS_", "TRANS_")):
        return NO_CHECKPOINT
    end = queue_offset(messages[-1]) + 1
    [of_queue] = rocketmq_plan_of([QueueOffsets(queue, 0, end)], {}).ranges
    return checkpoint_of(of_queue.key, end, messages)


def read_kafka(
    request: ReadRequest,
    wire: Sequence[Mapping[str, Any]],
    look_up: Callable[[Letters], Mapping[int, Original]] = lambda _letters: {},
) -> Read:
    """What the client library says of each; `fetched` is the answer to a fetch where headers need one."""
    letters = kafka_letters_of([*map(to_message, wire)], [*map(to_headers, wire)])
    ids = {name: topic.id for name, topic in TOPICS.items()}
    records = kafka_record_maker(request, CLUSTER, ids)(letters, look_up(letters))
    ends = {KafkaPlace(one["topic"], one["partition"]): one["offset"] + 1 for one in wire}
    logs = [Log(place, 0, end, end) for place, end in ends.items()]
    plan = kafka_plan_of(CLUSTER, TOPICS.values(), logs, NO_CHECKPOINT)
    return Read(records, {one.key: one.end for one in plan.ranges})


def read_kafka_pointers(request: ReadRequest, wire: Sequence[Mapping[str, Any]]) -> Read:
    """The same of share groups' dead letters; `there`, of all letters of the golden file, is what lies in the
    topics to which they point."""
    letters = [one["letter"] for one in stored("kafka_pointers")["wire"]]
    cluster: Any = ClusterOfOriginals([to_message(one) for letter in letters for one in letter["there"]])
    pointers = Pointers(cluster, NO_CHECKPOINT, NOW // 1000)
    found = read_kafka(request, wire, pointers.originals_of)
    return found._replace(checkpoint={**found.checkpoint, **pointers.first_seen()})


def to_message(letter: Mapping[str, Any]) -> Message:
    headers = None if "fetched" in letter else to_headers(letter)
    key, value = (None if letter[name] is None else bytes.fromhex(letter[name]) for name in ("key", "value"))
    return Message(
        topic=letter["topic"], partition=letter["partition"], offset=letter["offset"], key=key, value=value,
        headers=headers, timestamp=tuple(letter["timestamp"]),
    )  # fmt: skip


def to_headers(letter: Mapping[str, Any]) -> Any:
    if "fetched" in letter:
        return headers_in(bytes.fromhex(letter["fetched"]))[letter["offset"]]
    return [(name, None if value is None else bytes.fromhex(value)) for name, value in letter["headers"]]


def read_import(request: ReadRequest, wire: Sequence[str]) -> Read:
    """Lines of one file."""
    return Read(read_file(request, "\n".join(wire)))


def read_prints(request: ReadRequest, wire: Sequence[Mapping[str, str]]) -> Read:
    """What consoles and clients have printed, each in a file of its own."""
    files = (read_file(request, one["print"], resolve(reader_of(one["from"]))) for one in wire)
    return Read([*chain.from_iterable(files)])


def read_file(request: ReadRequest, text: str, printed: Reader | None = None) -> list[Record]:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_text(text, "utf-8")
        reading = FileConnector(file.name, printed).read(request)
        batches = [*reading.batches()]
        reading.close()
    assert not any(batch.skipped for batch in batches)
    return [*chain.from_iterable(batch.records for batch in batches)]


class ClusterOfOriginals:
    """A cluster and its consumer. Retention took what lay before offset 5 of each partition."""

    id, name, timeout = "MkU3OEVBNTcwNTJENDM2Qg", "shop", 1.0

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def find_topic(self, name: str) -> Topic | None:
        return TOPICS.get(name)

    def topics(self, names: Sequence[str]) -> Mapping[str, Topic]:
        return {name: TOPICS[name] for name in names if name in TOPICS}

    def leader(self, place: KafkaPlace) -> tuple[str, int]:
        raise BrokerError(f"nobody leads {place}, so the client library's headers are taken")

    def consumer(self, _settings: Mapping[str, Any], committed: bool) -> "ClusterOfOriginals":
        return self

    def assign(self, places: Sequence[Any]) -> None:
        [self._at] = places

    def fetch(self, _consumer: object, _most: int) -> list[Message]:
        topic, partition, offset = self._at.topic, self._at.partition, self._at.offset
        if offset < 5:
            return [Message(topic=topic, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))]
        for one in self._messages:
            if (one.topic(), one.partition()) == (topic, partition) and (one.offset() or 0) >= offset:
                self._at.offset = (one.offset() or 0) + 1
                return [one]
        return [Message(topic=topic, error=KafkaError(KafkaError._PARTITION_EOF))]


CLUSTER = ClusterOfOriginals.id
TOPICS = {
    "orders-dlt": Topic("orders-dlt", "4nLoQreZSe6jKF9WXt9QFw", 3),
    "error.orders.pay": Topic("error.orders.pay", "Zk1vT2pXQkS2m5rYc0aB3g", 3),
    "orders": Topic("orders", "h3Rr0mQzS0iVb2kK8eXw5A", 3),
}
CLASSIC = Place("ActiveMQ.DLQ", "activemq", "6.1.7", "localhost")
ARTEMIS = Place("DLQ", "artemis", "2.56.0", "3e6ea720-e7fc-11f1-a23a-828394a878bd")
WAYS = {
    "activemq_stomp": Way(source_of(queue="ActiveMQ.DLQ"), read_activemq_stomp),
    "activemq_openwire": Way(source_of(queue="ActiveMQ.DLQ"), read_activemq_openwire),
    "activemq_openwire_before_5_18": Way(
        source_of(queue="ActiveMQ.DLQ"), partial(read_activemq_openwire, modified=True)
    ),
    "activemq_stomp_and_jolokia": Way(source_of(queue="ActiveMQ.DLQ"), read_activemq_both),
    "artemis_stomp": Way(source_of("header:tenant", queue="DLQ"), read_artemis_stomp),
    "artemis_stomp_and_openwire": Way(source_of(queue="DLQ"), read_artemis_both),
    "artemis_amqp10": Way(source_of(queue="DLQ"), read_artemis_amqp10),
    "rocketmq": Way(source_of("property:KEYS", group="pay"), read_rocketmq, True),
    "rocketmq_transactions": Way(source_of(transactions=True), read_rocketmq, True),
    "kafka": Way(source_of("json:$.id", topic="*"), read_kafka, True),
    "kafka_odd_headers": Way(source_of(topic="orders-dlt"), read_kafka, True),
    "kafka_pointers": Way(source_of(topic="orders-dlt"), read_kafka_pointers, True),
    "import": Way(source_of(), read_import, True),
    "import_of_prints": Way(source_of(), read_prints, True),
    "rabbitmq_0_9_1": Way(source_of("json:$.id", queue="orders.dlq"), read_rabbitmq),
    "rabbitmq_stream": Way(source_of(queue="events"), read_rabbitmq_stream, True, "copy"),
    "rabbitmq_amqp10": Way(source_of(queue="orders.dlq"), read_rabbitmq_amqp10),
    "rabbitmq_amqp10_before_4_2": Way(
        source_of(queue="orders.dlq"), partial(read_rabbitmq_amqp10, version="4.1.0")
    ),
    "rabbitmq_stream_amqp10": Way(source_of(queue="events"), read_rabbitmq_stream_amqp10, True, "copy"),
}


def stored(way: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / f"{way}.json").read_text("ascii"))
    return found


def read_letters(way: str, wire: Sequence[Any]) -> Read:
    """Letters as one batch, at a time that stands still."""
    with patch("time.time_ns", return_value=NOW * 1000):
        return WAYS[way].read(ReadRequest(WAYS[way].source, WAYS[way].mode, "pull-1"), wire)


def document_of(way: str, wire: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a golden file of these letters holds: each has an id of its own, as a pull gives it."""
    found = read_letters(way, [one["letter"] for one in wire])
    with tempfile.TemporaryDirectory() as folder:
        new, _ = Deduplicator(LocalStore(folder), "golden", WAYS[way].unique_ids).sort_out(found.records)
    document = {"wire": wire, "archived": to_rows(new), "checkpoint": dict(found.checkpoint)}
    parsed: dict[str, Any] = json.loads(text_of(document))
    return parsed


def to_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """As the archive gives them back, in words that JSON has."""
    return [
        {name: _portable(value) for name, value in record._asdict().items()}
        for record in to_records(to_table(records))
    ]


def _portable(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Death):
        return {name: _portable(each) for name, each in value._asdict().items()}
    if isinstance(value, tuple):
        return [_portable(each) for each in value]
    return value


def text_of(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


@each_row("way", WAYS)
def test_what_is_archived_of_each_letter_is_what_always_was(way: str) -> None:
    golden = stored(way)
    found = document_of(way, golden["wire"])
    assert {tuple(row) for row in golden["archived"]} == {tuple(SEGMENT.names)}
    assert found == golden
    assert text_of(found) == text_of(golden)  # headers stay in their order, too


@each_row("way", sorted(WAYS.keys() - {"import"}))  # a line's number is part of its id
def test_a_letter_has_one_record_whichever_others_are_read_with_it(way: str) -> None:
    """Those that are alike are read together, by columns: so each is read thrice, and any are mixed."""
    wire, chance = [one["letter"] for one in stored(way)["wire"]], Random(way)
    alone = [to_rows(read_letters(way, [letter]).records) for letter in wire]
    places = range(len(wire))
    thrice, mixed = ([one] * 3 for one in places), (chance.choices(places, k=8) for _ in range(20))
    for batch in (places, *thrice, *mixed):
        found = to_rows(read_letters(way, [wire[place] for place in batch]).records)
        assert found == [*chain.from_iterable(alone[place] for place in batch)], batch


@each_row("way", WAYS)
def test_a_letter_that_was_exported_and_imported_again_is_the_same(way: str) -> None:
    records = read_letters(way, [one["letter"] for one in stored(way)["wire"]]).records
    for record in records:
        line = json.dumps(line_of(record))
        again = record_of(parse_line(line), record.source, record.broker, "1", lambda *_: None)
        of_the_pull = {name: getattr(record, name) for name in ("captured_at", "pull_id", "mode")}
        assert to_rows([again._replace(**of_the_pull)]) == to_rows([record])


def test_each_way_has_its_golden_file() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == WAYS.keys()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        text = text_of(document_of(name, stored(name)["wire"]))
        (GOLDEN / f"{name}.json").write_text(text, "ascii")
