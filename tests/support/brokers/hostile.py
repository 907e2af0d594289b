"""Brokers that greet as they should and then mean harm: enough of each protocol to be pulled from."""

import json
import re
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pika import spec

from dlq.connectors import open_connector
from dlq.connectors.activemq.openwire.codec.commands import Letter, Writer, destination, greeting, properties
from dlq.connectors.activemq.openwire.codec.messages import TEXT
from dlq.connectors.base import ReadRequest
from dlq.connectors.rabbitmq.amqp091.codec.frames import FrameReader, encode_method
from dlq.core.settings import Broker, Source

Harm = Callable[[socket.socket], None]


def drain(broker: Broker, **place: str) -> None:
    """Read to its end what lies at a place of the broker, and keep nothing."""
    source = Source("s", broker.name, **place)
    for _ in open_connector(broker).read(ReadRequest(source, "drain", "p")).batches():
        pass


def flood(beginning: bytes, piece: bytes) -> Harm:
    """Say `beginning`, then `piece` for ever."""

    def harm(peer: socket.socket) -> None:
        peer.sendall(beginning)
        while True:
            peer.sendall(piece)

    return harm


def once(data: bytes) -> Harm:
    """Say this, then listen until the other side hangs up."""

    def harm(peer: socket.socket) -> None:
        peer.sendall(data)
        while peer.recv(2**16):
            pass

    return harm


def listen(peer: socket.socket) -> None:
    """Say nothing, until the other side hangs up."""
    while peer.recv(2**16):
        pass


def hang_up(_peer: socket.socket) -> None:
    """End the connection without a word."""
    raise ConnectionResetError


def amqp(
    harm: Harm, when: str, depth: int = 5, acknowledged: list[int] | None = None
) -> Callable[[socket.socket], None]:
    """RabbitMQ; `harm` comes with the answer to the method `when`, e.g. Basic.Consume, or at once (Start).
    Tags that are acknowledged go into a list."""

    def behave(peer: socket.socket) -> None:
        peer.recv(8)
        reader = FrameReader()
        if when == "Start":
            return harm(peer)
        start = spec.Connection.Start(0, 9, {"version": "3.13.7"}, "PLAIN", "en_US")
        peer.sendall(encode_method(0, start))
        while data := peer.recv(2**16):
            reader.feed(data)
            for channel, method in reader.methods:
                for answer in _amqp_answers(method, depth):
                    peer.sendall(encode_method(channel, answer))
                if method.NAME == "Basic.Ack" and acknowledged is not None:
                    acknowledged.append(method.delivery_tag)
                if when == method.NAME:
                    harm(peer)
            reader.methods.clear()
        return None

    return behave


def _amqp_answers(method: Any, depth: int) -> Iterator[Any]:
    simple = {
        "Connection.StartOk": spec.Connection.Tune(2047, 131072, 60),
        "Connection.Open": spec.Connection.OpenOk(),
        "Connection.Close": spec.Connection.CloseOk(),
        "Channel.Open": spec.Channel.OpenOk(),
        "Channel.Close": spec.Channel.CloseOk(),
        "Basic.Qos": spec.Basic.QosOk(),
        "Confirm.Select": spec.Confirm.SelectOk(),
        "Queue.Declare": spec.Queue.DeclareOk("q", depth, 0),
    }
    if method.NAME in simple:
        yield simple[method.NAME]
    elif method.NAME == "Basic.Consume":
        yield spec.Basic.ConsumeOk(method.consumer_tag)
    elif method.NAME == "Basic.Cancel":
        yield spec.Basic.CancelOk(method.consumer_tag)


def amqp_frame(kind: int, payload: bytes, channel: int = 1, size: int | None = None) -> bytes:
    """A frame; `size` is what it says of itself."""
    said = len(payload) if size is None else size
    return struct.pack(">BHI", kind, channel, said) + payload + b"\xce"


def amqp_delivery(
    body: bytes, size: int | None = None, block: bytes = b"\0\0", tag: int = 1, again: bool = False
) -> bytes:
    """A letter, `again` where it was delivered before; `size` is what its header says of its body, `block`
    its property flags and list."""
    deliver = encode_method(1, spec.Basic.Deliver("c", tag, again, "", "q"))
    header = struct.pack(">HHQ", 60, 0, len(body) if size is None else size) + block
    return deliver + amqp_frame(2, header) + (amqp_frame(3, body) if body else b"")


def stomp(harm: Harm, when: str, server: str = "ActiveMQ/5.18.6") -> Callable[[socket.socket], None]:
    """ActiveMQ; receipts are given for everything."""

    def behave(peer: socket.socket) -> None:
        heard = b""
        while data := peer.recv(2**16):
            heard += data
            *frames, heard = heard.split(b"\0")
            for frame in frames:
                command = frame.lstrip(b"\n").partition(b"\n")[0].decode()
                if command == when:
                    token = re.search(rb"\nid:([^\n]+)", frame)
                    peer.sendall(_receipt(frame))
                    return harm(_Filled(peer, b"TOKEN", token[1] if token else b""))  # type: ignore[arg-type]
                if command == "CONNECT":
                    peer.sendall(f"CONNECTED\nversion:1.2\nserver:{server}\n\n\0\n".encode())
                peer.sendall(_receipt(frame))
        return None

    return behave


def _receipt(frame: bytes) -> bytes:
    asked = re.search(rb"\nreceipt:([^\n]+)", frame)
    return b"RECEIPT\nreceipt-id:%b\n\n\0\n" % asked[1] if asked else b""


class _Filled:
    """A socket that writes what was heard where a mark stands."""

    def __init__(self, peer: socket.socket, mark: bytes, heard: bytes) -> None:
        self._peer, self._mark, self._heard = peer, mark, heard

    def sendall(self, data: bytes) -> None:
        self._peer.sendall(data.replace(self._mark, self._heard))

    def recv(self, size: int) -> bytes:
        return self._peer.recv(size)


def remoting(answers: Mapping[int, Any], address: list[str]) -> Callable[[socket.socket], None]:
    """RocketMQ, name server and broker in one at `address[0]`. `answers`: by request code, a body as bytes or
    as a document, (fields, body), or a `Harm`."""

    def behave(peer: socket.socket) -> None:
        usual: dict[int, Any] = {
            106: {"brokerAddrTable": {"broker-a": {"brokerAddrs": {"0": address[0]}}}},
            105: {
                "queueDatas": [{"brokerName": "broker-a", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}]
            },
            206: {"topicList": ["%DLQ%g", "%RETRY%g"]},
            11: ({"minOffset": "0", "maxOffset": "5", "nextBeginOffset": "0"}, b""),
            26: b"fileReservedTime=72\n",
            30: ({"offset": "0"}, b""),
        }
        known = usual | dict(answers)
        stream = peer.makefile("rb")
        while head := stream.read(4):
            frame = stream.read(int.from_bytes(head, "big"))
            length = int.from_bytes(frame[1:4], "big")
            asked = json.loads(frame[4 : 4 + length])
            answer = known.get(asked["code"], b"{}")
            if callable(answer):
                return answer(peer)
            fields, body = answer if isinstance(answer, tuple) else ({}, answer)
            peer.sendall(remoting_frame(asked["opaque"], fields, body))
        return None

    return behave


def remoting_frame(opaque: int, fields: Mapping[str, str], body: Any, code: int = 0) -> bytes:
    """An answer."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    said = {
        "code": code, "opaque": opaque, "flag": 1, "version": 409, "language": "JAVA", "extFields": fields,
    }  # fmt: skip
    header = json.dumps(said).encode()
    return struct.pack(">iI", 4 + len(header) + len(content), len(header)) + header + content


def openwire_command(kind: int, rest: bytes, answers: int | None = None) -> bytes:
    """A command as ActiveMQ sends it; `answers` is the number of the command that it answers."""
    body = bytes([kind]) + b"\0\0\0\1\0" + (b"" if answers is None else struct.pack(">i", answers)) + rest
    return struct.pack(">i", len(body)) + body


OPENWIRE_CONNECT, OPENWIRE_CONSUME = 3, 5
_PLACE = destination("queue", "q")


def openwire_dispatch(body: bytes) -> bytes:
    """A message as ActiveMQ gives it to a consumer."""
    sent = Writer("ID:a-1-2-3:1").message(Letter(_PLACE, TEXT, body, properties({}, {}), 0), None)
    head = struct.calcsize(">iB")
    who = struct.pack(">BBBH12sqq", 1, 122, 1, 12, b"ID:a-1-2-3:1", 1, 1)
    command = b"\x15\0\0\0\0\0" + who + _PLACE + b"\1" + sent[head - 1 : head] + sent[head:] + bytes(4)
    return struct.pack(">i", len(command)) + command


def openwire(harm: Harm, when: int) -> Callable[[socket.socket], None]:
    """ActiveMQ by OpenWire; `harm` comes instead of the answer to the command `when`, or at once (0)."""

    def behave(peer: socket.socket) -> None:
        if when == 0:
            peer.recv(2**16)
            return harm(peer)
        peer.sendall(greeting())
        stream = peer.makefile("rb")
        while size := stream.read(4):
            command = stream.read(int.from_bytes(size, "big"))
            kind, number, is_asked = struct.unpack_from(">Bi?", command)
            if kind == when:
                return harm(_Filled(peer, b"NUMB", number.to_bytes(4, "big")))  # type: ignore[arg-type]
            if kind != 1 and is_asked:
                peer.sendall(openwire_command(30, b"", number))
        return None

    return behave


def answers_to_nothing(peer: socket.socket) -> None:
    """Answers to commands that nobody has sent, for ever."""
    for number in range(10**6, 10**9):
        peer.sendall(openwire_command(30, b"", number))
