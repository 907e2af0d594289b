"""OpenWire: what is sent, byte for byte, and answers whole, byte by byte, cut off, or of something else."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.brokers.hostile import listen, openwire_command
from support.rows import each_row
from support.servers.hostile import Server
from support.waiting import PATIENCE

from dlq.connectors.activemq.link import sockets
from dlq.connectors.activemq.link.refusals import RolledBack
from dlq.connectors.activemq.openwire.codec import commands
from dlq.connectors.activemq.openwire.codec.commands import MAX_FRAME, Answer, Reader
from dlq.connectors.activemq.openwire.send import OpenWireSender
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.send import Sender, StompSender
from dlq.connectors.net.links import FrameError


def thrown(name: str, message: str | None) -> bytes:
    """A Throwable without its stack."""
    text = b"\0" if message is None else struct.pack(">?H", True, len(message)) + message.encode()
    return struct.pack(">??H", True, True, len(name)) + name.encode() + text


GREETING = commands.greeting()
STREAM = (
    GREETING
    + openwire_command(2, b"broker info, of no interest")
    + openwire_command(30, b"", answers=1)
    + openwire_command(31, thrown("java.lang.SecurityException", "User dlq is not authorized"), answers=2)
    + openwire_command(16, thrown("javax.jms.JMSException", None) + b"\0")
    + openwire_command(31, b"\0", answers=3)
)
ANSWERS = [
    Answer(1, None),
    Answer(2, "java.lang.SecurityException: User dlq is not authorized", "java.lang.SecurityException"),
    Answer(0, "javax.jms.JMSException", "javax.jms.JMSException"),
    Answer(3, "no reason given"),
]


def read(*pieces: bytes) -> list[Answer]:
    reader = Reader()
    return [answer for piece in pieces for answer in reader.feed(piece)]


def test_receipts_and_refusals_are_told_and_the_rest_is_left_out() -> None:
    assert read(STREAM) == ANSWERS


def test_the_version_of_the_broker_is_known_once_it_has_greeted() -> None:
    reader = Reader()
    reader.feed(GREETING[:-1])
    assert reader.version == 0
    reader.feed(GREETING[-1:])
    assert reader.version == commands.VERSION


@each_row("data", [
    b"HTTP/1.1 400 Bad Request\r\n", b"ERROR\nmessage:Unknown STOMP action\n\n\0",
    struct.pack(">i", MAX_FRAME + 1) + b"x", struct.pack(">i", 0), openwire_command(30, b"", answers=1),
    GREETING + openwire_command(30, b"\0\1"), GREETING + struct.pack(">iB", 1, 31),
    GREETING + openwire_command(31, b"\1\1\0", answers=1),
])  # fmt: skip
def test_what_is_no_openwire_ends_the_connection(data: bytes) -> None:
    with pytest.raises(FrameError):
        read(data)


@each_row(("text", "data"), [
    ("", b""), ("wört", "wört".encode()), ("a\0b", b"a\xc0\x80b"), ("😀", b"\xed\xa0\xbd\xed\xb8\x80"),
    ("\ud83d", b"\xed\xa0\xbd"),
])  # fmt: skip
def test_text_is_written_as_java_reads_it(text: str, data: bytes) -> None:
    assert commands.modified_utf8(text) == data


@each_row(("text", "kind", "data"), [
    ("true", "boolean", b"\1\1"), ("-1", "byte", b"\2\xff"), ("258", "short", b"\4\1\2"),
    ("-2", "int", b"\5\xff\xff\xff\xfe"), ("1", "long", b"\6\0\0\0\0\0\0\0\1"),
    ("-0.0", "double", b"\7\x80\0\0\0\0\0\0\0"), ("Infinity", "float", b"\x08\x7f\x80\0\0"),
    ("x", None, b"\x09\0\1x"), ("300", "byte", b"\x09\0\x03300"), ("many", "int", b"\x09\0\4many"),
    ("1", "decimal", b"\x09\0\x011"),
    ("x" * 70_000, None, b"\x0d" + struct.pack(">i", 70_000) + b"x" * 70_000),
])  # fmt: skip
def test_a_property_has_its_type_where_that_holds_it_and_is_text_else(
    text: str, kind: str | None, data: bytes
) -> None:
    types = {"p": kind} if kind else {}
    assert commands.properties({"p": text}, types) == b"\0\0\0\1\0\1p" + data


def test_artemis_gets_texts_as_it_reads_them() -> None:
    given: Any = {"p": "a\0😀", "n": "7"}, {"n": "int"}
    text = "a\0😀".encode()
    plain = b"\0\1p\x09" + struct.pack(">H", len(text)) + text
    for_artemis = commands.properties(*given, for_artemis=True)
    assert for_artemis == b"\0\0\0\2" + plain + b"\0\1n\5\0\0\0\7"
    assert commands.map_for_artemis(commands.properties(*given)) == for_artemis
    assert commands.map_for_artemis(b"") == b"\0\0\0\0"


def test_messages_of_a_connection_are_numbered_so_that_none_is_taken_for_another() -> None:
    sender = commands.Writer("ID:x:1")
    letter = commands.Letter(commands.destination("queue", "q"), False, b"body", b"\0\0\0\0", 1)
    one, two = sender.message(letter, 1), sender.message(letter, 1)
    assert len(one) == len(two)
    assert [(a, b) for a, b in zip(one, two, strict=True) if a != b] == [(1, 2)]


LOGIN = GREETING + openwire_command(30, b"", answers=1)
ROLLED_BACK = openwire_command(31, thrown("XAException", "Transaction marked rollback only"), answers=2)
FORBIDDEN = openwire_command(16, thrown("SecurityException", "not authorized"))


BY_STOMP = b"CONNECTED\nversion:1.2\nserver:ActiveMQ/6.3.1\n\n\0"


def stomp_error(said: str, *headers: str) -> bytes:
    return "\n".join(["ERROR", f"message:{said}", *headers, "", "\0"]).encode()


STOMP_ROLLED_BACK = stomp_error("COMMIT FAILED: Transaction marked rollback only", "receipt-id:2")
STOMP_FORBIDDEN = stomp_error("User dlq is not authorized")


@contextmanager
def connected(login: bytes, *answers: bytes) -> Iterator[Sender]:
    """A connection to a broker that greets, takes the login, and says the rest piece by piece."""

    is_in = threading.Event()

    def behave(peer: socket.socket) -> None:
        peer.sendall(login)
        is_in.wait(PATIENCE)
        for piece in answers:
            peer.sendall(piece)
            time.sleep(0.05)
        listen(peer)

    with Server(behave) as server:
        make, scheme = (StompSender, "stomp") if login is BY_STOMP else (OpenWireSender, "tcp")
        sender = make(ActiveMQBroker("legacy", "activemq", f"{scheme}://{server.address}"))
        is_in.set()
        yield sender


@each_row(("answers", "told"), [
    ([LOGIN, ROLLED_BACK, FORBIDDEN], r"not authorized \(.*marked rollback only\)"),
    ([LOGIN, ROLLED_BACK + FORBIDDEN], r"not authorized \(.*marked rollback only\)"),
    ([LOGIN, ROLLED_BACK, openwire_command(30, b"", answers=9), FORBIDDEN],
     r"not authorized \(.*rollback only\)"),
    ([LOGIN, ROLLED_BACK], r"Transaction marked rollback only$"),
    ([BY_STOMP, STOMP_ROLLED_BACK, STOMP_FORBIDDEN], r"not authorized \(.*marked rollback only\)"),
    ([BY_STOMP, STOMP_ROLLED_BACK + STOMP_FORBIDDEN], r"not authorized \(.*marked rollback only\)"),
    ([BY_STOMP, STOMP_ROLLED_BACK], r"Transaction marked rollback only$"),
])  # fmt: skip
def test_why_a_transaction_was_rolled_back_is_said_also_when_it_comes_later(
    answers: list[bytes], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "REASON_SECONDS", 0.2 if told.endswith("$") else PATIENCE)
    with connected(*answers) as sender:
        with pytest.raises(RolledBack, match=told):  # so nothing of it is stored
            sender.wait_for("2")
        assert sender.was_refused("2")
        sender.close()
