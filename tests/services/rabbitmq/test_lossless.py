"""What goes through a real broker is captured byte for byte, whatever its types."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pika import frame, spec
from support.brokers.rabbitmq.amqp10 import plain, send
from support.brokers.rabbitmq.fixtures import KINDS, Rabbit, on_private_nodes, on_rabbitmq_4

from dlq.archive.schema import to_records, to_table
from dlq.connectors.base import Mode
from dlq.connectors.rabbitmq.amqp091.codec import table
from dlq.connectors.rabbitmq.amqp091.codec.frames import encode_method
from dlq.connectors.rabbitmq.amqp091.link.duplex import DuplexLink
from dlq.connectors.rabbitmq.link import parameters
from dlq.core.errors import ConnectionLost
from dlq.core.record import FLAG_AMQP10_BODY, Record

_u32 = struct.Struct(">I").pack


def packed(
    kind: str, form: str, numbers: st.SearchStrategy[float] | st.SearchStrategy[int]
) -> st.SearchStrategy[bytes]:
    return numbers.map(lambda number: kind.encode() + struct.pack(">" + form, number))


def integers(kind: str, form: str) -> st.SearchStrategy[bytes]:
    """All of a type, as `struct` writes them."""
    bits = 8 * struct.calcsize(">" + form)
    low = -(2 ** (bits - 1)) if form.islower() else 0
    return packed(kind, form, st.integers(low, low + 2**bits - 1))


def sized(kind: bytes, content: bytes) -> bytes:
    return kind + _u32(len(content)) + content


decimals = st.tuples(st.integers(0, 255), st.integers(-(2**31), 2**31 - 1))
# L is missing: the broker gives it back as l.
scalars = st.one_of(
    st.sampled_from([b"t\0", b"t\1", b"V", b"A\0\0\0\0", b"F\0\0\0\0"]),
    *[integers(kind, form) for kind, form in ("bb", "BB", "sh", "uH", "Ii", "iI", "lq", "TQ")],
    packed("f", "f", st.floats(width=32, allow_nan=False, allow_infinity=False)),
    packed("d", "d", st.floats(allow_nan=False, allow_infinity=False)),
    decimals.map(lambda d: b"D" + struct.pack(">Bi", *d)),
    *[st.binary(max_size=300).map(lambda raw, kind=kind: sized(kind, raw)) for kind in (b"S", b"x")],
)
names = st.binary(min_size=1, max_size=40).filter(lambda name: not name.startswith((b"x-", b"CC", b"BCC")))


def fields(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """A table's content; its names sorted and distinct, as RabbitMQ 4 would leave them."""
    tables = st.dictionaries(names, values, max_size=6)
    return tables.map(lambda t: b"".join(bytes((len(k),)) + k + t[k] for k in sorted(t)))


values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        fields(inner).map(lambda content: sized(b"F", content)),
        st.lists(inner, max_size=4).map(lambda items: sized(b"A", b"".join(items))),
    ),
    max_leaves=12,
)


def short(text: bytes) -> bytes:
    return bytes((len(text),)) + text


texts = st.binary(max_size=60).map(short)
PROPERTIES: dict[int, st.SearchStrategy[bytes]] = {
    15: texts, 14: texts,  # content_type and content_encoding
    13: fields(values).map(lambda content: _u32(len(content)) + content),
    12: st.sampled_from([b"\1", b"\2"]),  # delivery_mode
    11: st.integers(0, 255).map(lambda n: bytes((n,))),  # priority
    10: texts, 9: texts, 7: texts,  # correlation_id, reply_to and message_id
    6: st.integers(0, 2**64 - 1).map(struct.Struct(">Q").pack),  # timestamp
    5: texts, 3: texts, 2: texts,  # type, app_id and cluster_id
}  # fmt: skip


@st.composite
def blocks(draw: Callable[[st.SearchStrategy[bytes]], bytes]) -> bytes:
    """A property block without expiration (it might expire) and user_id (it must be ours)."""
    flags, parts = 0, []
    for bit, strategy in PROPERTIES.items():
        if draw(st.sampled_from([b"", b"y"])):
            flags |= 1 << bit
            parts.append(draw(strategy))
    return struct.pack(">H", flags) + b"".join(parts)


def open_link(rabbit: Rabbit) -> DuplexLink:
    return DuplexLink(parameters(rabbit.broker()), lambda code, text: ConnectionLost(f"{code} {text}"))


def publish_raw(
    rabbit: Rabbit, queue: str, messages: list[tuple[bytes, bytes]], link: DuplexLink | None = None
) -> None:
    """Publish (block, body) pairs exactly as they are."""
    link = link or open_link(rabbit)
    for block, body in messages:
        header = struct.pack(">HHQ", spec.BasicProperties.INDEX, 0, len(body)) + block
        link.put(encode_method(1, spec.Basic.Publish(exchange="", routing_key=queue)))
        link.put(struct.pack(">BHI", spec.FRAME_HEADER, 1, len(header)) + header + b"\xce")
        if body:
            link.put(frame.Body(1, body).marshal())
    while link.unsent:
        link.turn(1.0)
    link.call(spec.Queue.Declare(queue=queue, passive=True), spec.Queue.DeclareOk)
    link.close()
    rabbit.wait_for(queue, len(messages))


def capture(rabbit: Rabbit, queue: str, mode: Mode = "drain") -> list[Record]:
    """Drain, and go through the archive's columns and back."""
    reading = rabbit.read(queue, mode)
    found: list[Record] = []
    for batch in reading.batches():
        found += to_records(to_table(batch.records))
        reading.acknowledge(batch.position)
    reading.settled_position()
    reading.close()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_generated_message_is_captured_byte_for_byte(rabbit: Rabbit, kind: str) -> None:
    queue = rabbit.queue(kind)
    message = st.tuples(blocks(), st.binary(max_size=2000))
    usual = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    quick = settings(max_examples=10, phases=[Phase.generate], deadline=None, suppress_health_check=usual)

    @quick
    @given(st.lists(message, min_size=1, max_size=20))
    def check(messages: list[tuple[bytes, bytes]]) -> None:
        publish_raw(rabbit, queue, messages)
        found = [(one.raw_properties or b"", one.body) for one in capture(rabbit, queue)]
        # A quorum queue of RabbitMQ 4 orders by priority.
        came, went = (sorted((stable(block), body) for block, body in some) for some in (found, messages))
        assert came == went

    check()


def stable(block: bytes) -> bytes:
    return table.stable(block, table.decode(block).headers)


def header(name: bytes, value: bytes) -> bytes:
    return short(name) + value


def test_duplicate_headers_stay_as_the_broker_stores_them(rabbit: Rabbit) -> None:
    queue = rabbit.queue("classic")
    content = header(b"k", b"I\0\0\0\1") + header(b"k", b"I\0\0\0\2")
    publish_raw(rabbit, queue, [(b"\x20\0" + _u32(len(content)) + content, b"")])
    [record] = capture(rabbit, queue)
    kept = header(b"k", b"I\0\0\0\1") if rabbit.version >= (4,) else content
    assert record.raw_properties == b"\x20\0" + _u32(len(kept)) + kept
    assert record.headers == {"k": "1"}


@on_private_nodes
@pytest.mark.parametrize("kind", [*KINDS, "stream"])
def test_header_blocks_larger_than_a_frame_that_others_agreed_on_are_captured(
    rabbit: Rabbit, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker cannot split them, and sends them to whom they are too large for."""
    queue, content = rabbit.queue(kind), header(b"stack", sized(b"S", b"x" * 900_000))
    rabbit.node.evaluate("application:set_env(rabbit,frame_max,1048576)")
    try:
        with monkeypatch.context() as patch:
            patch.setattr("dlq.connectors.rabbitmq.amqp091.link.channel.MAX_FRAME", 2**20)
            link = open_link(rabbit)
    finally:
        rabbit.node.evaluate("application:set_env(rabbit,frame_max,131072)")
    block = b"\x20\0" + _u32(len(content)) + content
    publish_raw(rabbit, queue, [(b"\0\0", b"a"), (block, b"b"), (b"\0\0", b"c")], link)
    found = capture(rabbit, queue, "copy" if kind == "stream" else "drain")
    assert [record.body for record in found] == [b"a", b"b", b"c"]
    assert len(found[1].headers.get("stack", "")) == 900_000


@on_rabbitmq_4
@pytest.mark.parametrize("kind", [*KINDS, "stream"])
def test_application_properties_larger_than_a_frame_are_captured(rabbit: Rabbit, kind: str) -> None:
    queue = rabbit.queue(kind)
    sizes = ((b"a", 1), (b"b", 900_000), (b"c", 1))
    send(rabbit, queue, *[plain(body, properties={"stack": "x" * size}) for body, size in sizes])
    rabbit.wait_for(queue, 3)
    found = capture(rabbit, queue, "copy" if kind == "stream" else "drain")
    assert [record.body for record in found] == [b"a", b"b", b"c"]
    assert len(found[1].headers["stack"]) == 900_000


def test_an_amqp_1_body_is_flagged(rabbit: Rabbit) -> None:
    queue = rabbit.queue("classic")
    rabbit.publish(queue, [b"\0Sw\xa1\3abc"], type="amqp-1.0")
    rabbit.publish(queue, [b"text"], type="order")
    rabbit.wait_for(queue, 2)
    assert [record.flags for record in capture(rabbit, queue)] == [FLAG_AMQP10_BODY, None]


def test_a_message_without_an_id_is_called_as_its_framework_calls_it(rabbit: Rabbit) -> None:
    queue = rabbit.queue("classic")
    rabbit.publish(queue, [b"[]"], headers={"task": "shop.pay", "id": "t-1"})
    rabbit.publish(queue, [b'{"actor_name": "pay", "message_id": "d-1"}'])
    rabbit.publish(queue, [b"[]"], message_id="m-1", headers={"task": "shop.pay", "id": "t-1"})
    rabbit.publish(queue, [b"{}"])
    rabbit.wait_for(queue, 4)
    found = [(record.message_id, record.key) for record in capture(rabbit, queue)]
    assert found == [("t-1", "t-1"), ("d-1", "d-1"), ("m-1", "m-1"), (None, None)]
