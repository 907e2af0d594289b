"""A Kafka of one broker that greets as it should and then lies: enough of the protocol for every command."""

import socket
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Answer = Callable[[tuple[str, int], bytes], bytes]
"""What is said, without its head, of the server's own address and the question."""
PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 3, 9, 10
DESCRIBE_GROUPS, LIST_GROUPS, API_VERSIONS, END_OF_EPOCH, DESCRIBE_CONFIGS = 15, 16, 18, 23, 32
VERSIONS = {
    PRODUCE: (3, 7), FETCH: (10, 10), LIST_OFFSETS: (1, 5), METADATA: (4, 10), OFFSET_FETCH: (1, 5),
    FIND_COORDINATOR: (0, 2), DESCRIBE_GROUPS: (0, 4), LIST_GROUPS: (0, 2), API_VERSIONS: (0, 3),
    END_OF_EPOCH: (2, 2), DESCRIBE_CONFIGS: (1, 1),
}  # fmt: skip
TOPIC_ID = bytes(range(16))
ALL_RIGHTS = 0x1FFF


def varint(number: int) -> bytes:
    """A signed number of a record, in zigzag."""
    return compact((number << 1) ^ (number >> 63))


def compact(number: int) -> bytes:
    """An unsigned number of seven bits a byte."""
    found = bytearray()
    number &= 2**64 - 1
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def text(value: str | bytes) -> bytes:
    """A string with its length before it."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">h", len(data)) + data


def short(value: str | bytes) -> bytes:
    """A string of the newer, compact sort."""
    data = value.encode() if isinstance(value, str) else value
    return compact(len(data) + 1) + data


def many(*items: bytes) -> bytes:
    """An array."""
    return struct.pack(">i", len(items)) + b"".join(items)


def several(*items: bytes) -> bytes:
    """An array of the newer, compact sort."""
    return compact(len(items) + 1) + b"".join(items)


def record(
    offset: int,
    value: bytes | None = b"x",
    key: bytes | None = None,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    time: int = 0,
    count: int | None = None,
) -> bytes:
    """A record of a batch; `offset` and `time` count from the batch's, `count` is what it says of headers."""
    said = varint(len(headers) if count is None else count)
    named = b"".join(_nullable(name) + _nullable(value) for name, value in headers)
    rest = b"\0" + varint(time) + varint(offset) + _nullable(key) + _nullable(value) + said + named
    return varint(len(rest)) + rest


def _nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def batch(
    base: int,
    records: Sequence[bytes],
    *,
    last: int | None = None,
    count: int | None = None,
    time: int = 1_700_000_000_000,
    size: int | None = None,
) -> bytes:
    """A batch of records (magic 2); `last`, `count` and `size` are what it says of itself."""
    packed = b"".join(records)
    last = len(records) - 1 if last is None else last
    count = len(records) if count is None else count
    inner = struct.pack(">hiqqqhii", 0, last, time, time, -1, -1, -1, count) + packed
    length = 9 + len(inner) if size is None else size
    return struct.pack(">qiibI", base, length, 0, 2, zlib.crc32(inner)) + inner


def told(topics: Sequence[str] = ("t",), partitions: int = 1) -> Answer:
    """An answer to METADATA 10."""

    def answer(address: tuple[str, int], _: bytes) -> bytes:
        host, port = address
        node = struct.pack(">i", 1) + short(host) + struct.pack(">i", port) + b"\0\0"
        parts = [
            struct.pack(">hiii", 0, number, 1, 0) + several(b"\0\0\0\1") * 2 + several() + b"\0"
            for number in range(partitions)
        ]
        rights = struct.pack(">i", ALL_RIGHTS)
        each = [
            b"\0\0" + short(topic) + TOPIC_ID + b"\0" + several(*parts) + rights + b"\0" for topic in topics
        ]
        cluster = short("cluster") + struct.pack(">i", 1)
        return bytes(4) + several(node) + cluster + several(*each) + rights + b"\0"

    return answer


def offsets(start: int = 0, end: int = 5, time: int = -1) -> Answer:
    """An answer to LIST_OFFSETS 5 about the first partition of t: by what it is asked for."""

    def answer(_: Any, asked: bytes) -> bytes:
        (number, _, wanted) = struct.unpack_from(">iiq", asked, 5 + 4 + 3 + 4)
        found = start if wanted == -2 or wanted >= 0 else end
        return bytes(4) + many(text("t") + many(struct.pack(">ihqqi", number, 0, time, found, 0)))

    return answer


def fetched(*batches: bytes, end: int = 5, size: int | None = None) -> Answer:
    """An answer to FETCH 10 about the first partition of t; `size` is what it says of itself."""
    data = b"".join(batches)

    def answer(_: Any, __: bytes) -> bytes:
        length = len(data) if size is None else size
        part = struct.pack(">ihqqqi", 0, 0, end, end, 0, -1) + struct.pack(">i", length) + data
        return bytes(10) + many(text("t") + many(part))

    return answer


def settings(**told: str | None) -> Answer:
    """An answer to DESCRIBE_CONFIGS 1 about whatever was asked."""

    def answer(_: Any, asked: bytes) -> bytes:
        kind, length = struct.unpack_from(">bh", asked, 4)
        name = asked[7 : 7 + length]
        said = {n: b"\xff\xff" if v is None else text(v) for n, v in told.items()}
        each = [text(n.replace("_", ".")) + v + b"\0\5\0" + many() for n, v in said.items()]
        return bytes(4) + many(b"\0\0" + text("") + bytes([kind]) + text(name) + many(*each))

    return answer


def coordinator(address: tuple[str, int], _: bytes) -> bytes:
    """An answer to FIND_COORDINATOR 2."""
    return bytes(6) + text("") + struct.pack(">i", 1) + text(address[0]) + struct.pack(">i", address[1])


def groups(*names: str) -> Answer:
    """An answer to LIST_GROUPS 2."""
    return lambda *_: bytes(6) + many(*(text(name) + text("consumer") for name in names))


def committed(offset: int = 3) -> Answer:
    """An answer to OFFSET_FETCH 5 about the first partition of t."""
    part = struct.pack(">iqi", 0, offset, -1) + text("") + b"\0\0"
    return lambda *_: bytes(4) + many(text("t") + many(part)) + b"\0\0"


def described(_: tuple[str, int], asked: bytes) -> bytes:
    """An answer to DESCRIBE_GROUPS 4: groups without members."""
    (number,), at, found = struct.unpack_from(">i", asked), 4, []
    rest = text("Stable") + text("consumer") + text("range") + many() + struct.pack(">i", -(2**31))
    for _number in range(number):
        end = at + 2 + int.from_bytes(asked[at : at + 2], "big")
        found.append(b"\0\0" + asked[at:end] + rest)
        at = end
    return bytes(4) + many(*found)


def versions(*_: Any) -> bytes:
    """An answer to API_VERSIONS 3."""
    each = [struct.pack(">hhh", api, *span) + b"\0" for api, span in VERSIONS.items()]
    return bytes(2) + several(*each) + bytes(4) + b"\0"


USUAL: Mapping[int, Answer] = {
    API_VERSIONS: versions,
    METADATA: told(),
    LIST_OFFSETS: offsets(),
    FETCH: fetched(batch(0, [record(n) for n in range(5)])),
    DESCRIBE_CONFIGS: settings(retention_ms="1000000000"),
    FIND_COORDINATOR: coordinator,
    LIST_GROUPS: groups("g"),
    OFFSET_FETCH: committed(),
    DESCRIBE_GROUPS: described,
    END_OF_EPOCH: lambda *_: bytes(4) + many(text("t") + many(struct.pack(">hiiq", 0, 0, 0, 5))),
}


def kafka(answers: Mapping[int, Answer]) -> Callable[[socket.socket], None]:
    """Kafka; `answers` are other than the usual, by the number of the question."""
    known = USUAL | dict(answers)

    def behave(peer: socket.socket) -> None:
        stream = peer.makefile("rb")
        while head := stream.read(4):
            asked = stream.read(int.from_bytes(head, "big"))
            api, version, number, client = struct.unpack_from(">hhih", asked)
            flexible = b"\0" if api == METADATA and version >= 9 else b""
            told = known[api](peer.getsockname(), asked[10 + max(0, client) :])
            said = struct.pack(">i", number) + flexible + told
            peer.sendall(struct.pack(">i", len(said)) + said)

    return behave
