"""`dlq doctor` and `dlq pull` against brokers that mean harm: bounded memory and time, one clear line, the
right exit code, and what was archived before stays."""

import json
import os
import socket
import struct
import time
import zlib
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pika import spec
from support import preloaded
from support.brokers import hostile_kafka
from support.brokers.hostile import (
    OPENWIRE_CONNECT,
    Harm,
    amqp,
    amqp_delivery,
    amqp_frame,
    answers_to_nothing,
    flood,
    once,
    openwire,
    openwire_command,
    remoting,
    stomp,
)
from support.servers.hostile import Behaviour, Server
from support.waiting import PATIENCE, UNHURRIED

from dlq.connectors.rabbitmq.amqp091.codec.frames import encode_method

MEMORY = 1100 * 2**20
DRAIN = ("pull", "--mode", "drain")
HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n"
SILENCE = ("no answer", "gave nothing", "is this the OpenWire port")
"""What is said of brokers that a time-out ends."""


class Ended(NamedTuple):
    code: int
    printed: str
    errors: str
    memory: int
    seconds: float


def run(folder: Path, *words: str) -> Ended:
    began = time.monotonic()
    environment = {**os.environ, "HOSTILE": "s3cret", "XDG_CONFIG_HOME": str(folder)}
    process = preloaded.start(words, folder, environment)
    printed = process.communicate()
    return Ended(process.wait(), *printed, process.memory, time.monotonic() - began)


def configured(folder: Path, kind: str, url: str, source: str, words: str = "another end") -> None:
    """`words`: what will be said of the broker in the end."""
    timeout = "5s" if any(silence in words for silence in SILENCE) or not words else UNHURRIED
    text = f'[brokers.b]\nkind = "{kind}"\nurl = "{url}"\npassword_env = "HOSTILE"\ntimeout = "{timeout}"\n'
    (folder / "dlq.toml").write_text(f'{text}[sources.s]\nbroker = "b"\n{source}\n')


def asked(folder: Path, columns: str) -> dict[str, int]:
    """What the archive's records are."""
    return dict(json.loads(run(folder, "-o", "jsonl", "query", f"select {columns} from records").printed))


def check(ended: Ended, words: str, codes: tuple[int, ...] = (3, 4)) -> None:
    assert ended.code in codes, ended
    assert "Traceback" not in ended.errors
    assert "unexpected" not in ended.errors
    assert words in ended.errors
    assert all(len(line) < 1000 for line in ended.errors.splitlines())
    assert ended.memory < MEMORY
    assert ended.seconds < PATIENCE


DEEP = b"F".join([b"\0\0\0\x01\x01a"] * 15_000)
MESSAGE = b"MESSAGE\nsubscription:TOKEN\nmessage-id:ID:%d\ndestination:/queue/q\n"
STEERING = b"\x1b[2Jx\r\nab/" + b"../%" * 15_000
REFUSAL = openwire_command(31, b"NUMB\1\1\0\1e\1" + struct.pack(">H", len(STEERING)) + STEERING)


def receipts_for_ever(peer: socket.socket) -> None:
    for n in range(10**9):
        peer.sendall(b"RECEIPT\nreceipt-id:%d\n\n\0" % n)


CONSUMING: Mapping[str, tuple[Harm, str]] = {
    "a frame without its end": (once(amqp_frame(1, bytes(40))[:-1] + b"x" * 99), "does not end where"),
    "a body of 2^63 bytes": (flood(amqp_delivery(b"", 2**63), amqp_frame(3, bytes(131_000))),
     "a message of 9223372036854775808 bytes"),
    "a body longer than it says": (once(amqp_delivery(b"xxxx", 3)), "longer than its header says"),
    "a header that is cut off": (once(amqp_frame(2, b"\0\x3c\0")), "cut off"),
    "an unknown method": (once(amqp_frame(1, b"\xff\xff\xff\xff")), "cannot be read"),
    "tables in tables": (once(amqp_frame(1, b"\0\x0a\0\x0a\0\x09" + struct.pack(">I", len(DEEP)) + DEEP)),
     "cannot be read"),
    "a frame of no known type": (once(amqp_frame(77, b"")), "which AMQP has not"),
    "letters for ever": (flood(b"", amqp_delivery(b"x" * 99) * 999), "more than it was asked for"),
    "confirms for ever": (flood(b"", encode_method(1, spec.Basic.Ack(1)) * 9999),
     "more than it was asked for"),
}  # fmt: skip
ASKED: Mapping[str, tuple[Behaviour, str]] = {
    f"{harm} to {when}": (amqp(once(said), when), words)
    for when in ("Start", "Queue.Declare")
    for harm, said, words in (
        ("an unknown method", amqp_frame(1, b"\xff\xff\xff\xff", 0), "cannot be read (KeyError)"),
        ("no AMQP", HTTP * 9, "speaks HTTP" if when == "Start" else "a frame of"),
    )
}
BY_ACTIVEMQ: Mapping[str, tuple[str, Behaviour, str]] = {
    "no STOMP": ("stomp", stomp(once(HTTP), "CONNECT"), "speaks HTTP"),
    "headers without end": ("stomp", stomp(flood(b"CONNECTED\n", b"a:b\n" * 2**16), "CONNECT"), ""),
    "receipts for ever": ("stomp", stomp(receipts_for_ever, "SUBSCRIBE"), "more than it was asked for"),
    "a body of 10^18 bytes": ("stomp", stomp(
        flood(MESSAGE % 1 + b"content-length:999999999999999999\n\n", bytes(2**18)), "SUBSCRIBE"
    ), "more than 1073741824 bytes"),
    "answers to nothing": ("tcp", openwire(answers_to_nothing, OPENWIRE_CONNECT), "more than it was asked"),
    "a refusal that steers": ("tcp", openwire(once(REFUSAL), OPENWIRE_CONNECT), "check user and password"),
}  # fmt: skip


@pytest.mark.parametrize("harm", CONSUMING)
def test_a_rabbitmq_that_means_harm_while_it_is_drained(harm: str, tmp_path: Path) -> None:
    behaviour, words = CONSUMING[harm]
    with Server(amqp(behaviour, "Basic.Consume")) as server:
        configured(tmp_path, "rabbitmq", f"amqp://u@{server.address}", 'queue = "q"', words)
        check(run(tmp_path, *DRAIN), words)


@pytest.mark.parametrize("harm", ASKED)
def test_a_rabbitmq_that_means_harm_when_it_is_asked(harm: str, tmp_path: Path) -> None:
    behaviour, words = ASKED[harm]
    with Server(behaviour) as server:
        configured(tmp_path, "rabbitmq", f"amqp://u@{server.address}", 'queue = "q"', words)
        check(run(tmp_path, "doctor"), words, (4,))


@pytest.mark.parametrize("harm", BY_ACTIVEMQ)
def test_an_activemq_that_means_harm(harm: str, tmp_path: Path) -> None:
    scheme, behaviour, words = BY_ACTIVEMQ[harm]
    with Server(behaviour) as server:
        configured(tmp_path, "activemq", f"{scheme}://u@{server.address}", 'queue = "q"', words)
        ended = run(tmp_path, *DRAIN)
    assert ended.memory < 2.5 * 2**30, "a body of 1 GiB is believed, and once copied"
    check(ended._replace(memory=0), words)
    assert "\x1b" not in ended.errors


def pulled(body: bytes, stop: str = "5") -> tuple[dict[str, str], bytes]:
    return {"minOffset": "0", "maxOffset": stop, "nextBeginOffset": stop}, body


def stored(offset: int, body: bytes, sys_flag: int) -> bytes:
    """A message as brokers store it (magic V1)."""
    topic = b"%DLQ%g"
    rest = struct.pack(">iiiqqiq", 0, 0, 0, offset, offset * 1000, sys_flag, 1_700_000_000_000)
    rest += bytes(8) + struct.pack(">q", 1_700_000_000_000) + bytes(8)
    rest += struct.pack(">iqi", 0, 0, len(body)) + body
    rest += bytes([len(topic)]) + topic + bytes(2)
    return struct.pack(">iI", 8 + len(rest), 0xDAA320A7) + rest


def batch_of_millions() -> bytes:
    return zlib.compress(struct.pack(">iiiiiH", 22, 0, 0, 0, 0, 0) * (2**26 // 22 - 1))


WRITABLE = {"writeQueueNums": 1, "perm": 6}
ROCKET: Mapping[str, tuple[Mapping[int, Any] | Callable[[], Mapping[int, Any]], str]] = {
    "a frame below zero": ({106: once(b"\xff\xff\xff\xff" * 9)}, "a frame of"),
    "a header longer than its frame": ({106: once(struct.pack(">iI", 9, 2**24 - 1) + b"{}{}{")}, "header of"),
    "a header of 16 MiB": (
        {106: once(struct.pack(">iI", 2**24 + 3, 2**24 - 1) + b"[" * (2**24 - 1))},
        "a header of 16777215 bytes",
    ),
    "200,000 brackets": ({106: b"[" * 200_000}, "cannot be understood"),
    "a list": ({106: b"[1]"}, "no RocketMQ broker is registered"),
    "brokers that are none": ({106: {"brokerAddrTable": {"broker-a": 5}}}, "cannot be understood"),
    "offsets that are none": ({11: ({"minOffset": "x", "maxOffset": "y"}, b"")}, "cannot be understood"),
    "queues that are none": ({105: {"queueDatas": [{"brokerName": []}]}}, "cannot be understood"),
    "a billion queues": (
        {105: {"queueDatas": [{"brokerName": "broker-a", "readQueueNums": 10**9, **WRITABLE}]}},
        "cannot be true",
    ),
    "settings that are none": ({26: b"fileReservedTime=much\n"}, "cannot be understood"),
    "letters that are none": ({11: pulled(b"\0\0\0\x09" * 99)}, "what is no message"),
    "a batch of millions": (lambda: {11: pulled(stored(0, batch_of_millions(), 0xC1))}, "are gone"),
}


@pytest.mark.parametrize("harm", ROCKET)
def test_a_rocketmq_that_means_harm(harm: str, tmp_path: Path) -> None:
    answers, words = ROCKET[harm]
    answers = answers() if callable(answers) else answers  # what is large is made where it is used
    address: list[str] = []
    with Server(remoting(answers, address)) as server:
        address.append(server.address)
        configured(tmp_path, "rocketmq", f"rocketmq://{server.address}", 'group = "g"', words)
        check(run(tmp_path, "pull"), words)


def test_a_letter_that_is_a_zip_bomb_is_archived_as_it_is(tmp_path: Path) -> None:
    bomb = zlib.compress(bytes(2**30), 9)  # 1 MiB that is 1 GiB
    address: list[str] = []
    with Server(remoting({11: pulled(b"".join(stored(n, bomb, 1) for n in range(5)))}, address)) as server:
        address.append(server.address)
        configured(tmp_path, "rocketmq", f"rocketmq://{server.address}", 'group = "g"\nkey = "json:$.a"')
        check(run(tmp_path, "pull"), "", (0,))
    assert asked(tmp_path, "count(*) n, min(body_size) size") == {"n": 5, "size": len(bomb)}


FIVE = [hostile_kafka.record(n) for n in range(5)]
TWO_GIB = 2**31 - 1
LIES: Mapping[str, tuple[bytes, str | int]] = {
    "offsets that stand still": (hostile_kafka.batch(0, FIVE[:1] * 99, last=0), "offset 1"),
    "a batch that never ends": (hostile_kafka.batch(0, FIVE, last=-1), "offset 0"),
    "a batch of 2 GiB": (hostile_kafka.batch(0, FIVE, size=TWO_GIB), "gave nothing"),
    "a batch of no size": (hostile_kafka.batch(0, FIVE, size=0), "gave nothing"),
    "offsets below zero": (hostile_kafka.batch(-9, FIVE), "offset 0"),
    "offsets backwards": (hostile_kafka.batch(0, FIVE[::-1]), 1),
    "2^31 records": (hostile_kafka.batch(0, FIVE, count=TWO_GIB), 5),
    "2^31 headers": (hostile_kafka.batch(0, [hostile_kafka.record(n, count=TWO_GIB) for n in range(5)]), 5),
    "a time beyond the calendar": (hostile_kafka.batch(0, FIVE, time=2**63 - 1), 5),
}
"""What is said of it, or how many letters can be read and are archived."""


def pulled_from_kafka(
    folder: Path, answers: Mapping[int, hostile_kafka.Answer], words: str = "another end"
) -> Ended:
    with Server(hostile_kafka.kafka(answers)) as server:
        configured(folder, "kafka", f"kafka://{server.address}", 'topic = "t"', words)
        config = folder / "dlq.toml"
        config.write_text(config.read_text().replace('password_env = "HOSTILE"\n', ""))
        return run(folder, "-o", "json", "pull")


def fetched(batch: bytes) -> Mapping[int, hostile_kafka.Answer]:
    return {hostile_kafka.FETCH: hostile_kafka.fetched(batch)}


@pytest.mark.parametrize("lie", LIES)
def test_a_kafka_that_means_harm(lie: str, tmp_path: Path) -> None:
    batch, found = LIES[lie]
    if isinstance(found, str):
        check(pulled_from_kafka(tmp_path, fetched(batch), found), found, (4,))
        return
    ended = pulled_from_kafka(tmp_path, fetched(batch))
    check(ended, "", (0,))
    assert json.loads(ended.printed)["sources"][0]["captured"] == found
    check(run(tmp_path, "verify"), "", (0,))


def test_a_kafka_that_ends_the_client_library_loses_nothing(tmp_path: Path) -> None:
    """Null arrays where there are none end the library, and so the process."""
    usual, nulls = fetched(hostile_kafka.batch(0, FIVE)), {hostile_kafka.METADATA: lambda *_: bytes(99)}
    check(pulled_from_kafka(tmp_path, usual), "", (0,))
    assert pulled_from_kafka(tmp_path, nulls).code != 0
    check(run(tmp_path, "verify"), "", (0,))
    again = pulled_from_kafka(tmp_path, usual)
    assert json.loads(again.printed)["sources"][0]["recaptured"] == 5


def test_letters_that_came_before_the_harm_are_not_acknowledged_unarchived_and_come_once(
    tmp_path: Path,
) -> None:
    acknowledged: list[int] = []
    connections = count()

    def letters(peer: socket.socket) -> None:
        again = next(connections) > 0
        peer.sendall(b"".join(amqp_delivery(b"letter %d" % n, tag=n, again=again) for n in (1, 2, 3)))

    def letters_and_harm(peer: socket.socket) -> None:
        letters(peer)
        once(struct.pack(">BHI", 3, 1, 2**32 - 1) + bytes(99))(peer)

    def drain(harm: Harm) -> Ended:
        with Server(amqp(harm, "Basic.Consume", 3, acknowledged)) as server:
            configured(tmp_path, "rabbitmq", f"amqp://u@{server.address}", 'queue = "q"')
            return run(tmp_path, *DRAIN)

    check(drain(letters_and_harm), "more than was agreed")
    assert len(acknowledged) <= asked(tmp_path, "count(*) n")["n"]
    check(drain(letters), "", (0,))
    assert acknowledged[-1] == 3
    assert asked(tmp_path, "count(*) n") == {"n": 3}
