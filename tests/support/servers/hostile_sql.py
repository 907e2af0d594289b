"""SQL servers that greet as they should and then mean harm: enough of each protocol for a driver to ask."""

import re
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import IO

Says = bytes | Callable[[socket.socket], None]
Answers = Mapping[str, Says]
"""Regular expression of a statement -> what comes instead of the usual answer, or who answers."""

TEXT, NUMBER, LIST = 25, 20, 1009
"""Types of PostgreSQL."""


def message(kind: bytes, content: bytes) -> bytes:
    """One of PostgreSQL's."""
    return kind + struct.pack(">I", 4 + len(content)) + content


def described(*columns: int) -> bytes:
    """Of which types the rows are that follow."""
    fields = (b"c\0" + struct.pack(">IHIhih", 0, 0, kind, -1, -1, 0) for kind in columns)
    return message(b"T", struct.pack(">H", len(columns)) + b"".join(fields))


def row(*cells: bytes | None) -> bytes:
    """A row of PostgreSQL; None is NULL."""
    said = (struct.pack(">i", -1) if cell is None else struct.pack(">I", len(cell)) + cell for cell in cells)
    return message(b"D", struct.pack(">H", len(cells)) + b"".join(said))


def done(tag: bytes = b"SELECT 1") -> bytes:
    """The end of an answer."""
    return message(b"C", tag + b"\0")


def failed(reason: bytes, code: bytes = b"XX000") -> bytes:
    """An error."""
    return message(b"E", b"SERROR\0C%b\0M%b\0\0" % (code, reason))


def rows(columns: Sequence[int], *cells: Sequence[bytes | None]) -> bytes:
    """A whole answer."""
    return described(*columns) + b"".join(row(*one) for one in cells) + done()


_VERSION_3 = b"\0\3\0\0"
_READY = message(b"Z", b"I")
_USUAL: Mapping[str, bytes] = {
    r"pg_catalog\.version": rows([TEXT], [b"PostgreSQL 16.4 on x86_64"]),
    r"current_schema": rows([TEXT], [b"public"]),
    r"isolation": rows([TEXT], [b"read committed"]),
    r"standard_conforming": rows([TEXT], [b"on"]),
    r"clock_timestamp": rows([NUMBER], [b"1700000000000000"]),
    r"pg_type": rows([TEXT]),
    r"relname|relkind": rows([TEXT], [b"replays"]),
    r"(?i)^select.*count": rows([TEXT, NUMBER]),
    r"(?i)^select": rows([TEXT]),
}


def postgresql(answers: Answers) -> Callable[[socket.socket], None]:
    """PostgreSQL, as far as its drivers ask by simple statements and by prepared ones."""
    known = {**answers, **_USUAL, **answers}

    def behave(peer: socket.socket) -> None:
        stream = peer.makefile("rb")
        while _sized(stream)[:4] != _VERSION_3:
            peer.sendall(b"N")  # no TLS
        peer.sendall(message(b"R", bytes(4)) + message(b"S", b"client_encoding\0UTF8\0") + _READY)
        said: Says = b""
        while kind := stream.read(1):
            content = _sized(stream)
            if kind in b"QP":
                sql = content.rstrip(b"\0").split(b"\0")[-1 if kind == b"Q" else 1].decode(errors="replace")
                said = next(
                    (a for like, a in known.items() if re.search(like, sql, re.S)), done(b"INSERT 0 1")
                )
            if callable(said) and kind in b"QE":
                return said(peer)
            of_cursor = kind == b"D" and content[:1] == b"P" and len(content) > 2
            peer.sendall(described(*[TEXT] * 5, NUMBER) if of_cursor else _postgresql_says(kind, said))
        return None

    return behave


def _sized(stream: IO[bytes]) -> bytes:
    head = stream.read(4) or b""
    if len(head) < 4:
        raise ConnectionResetError
    return stream.read(struct.unpack(">I", head)[0] - 4) or b""


def _postgresql_says(kind: bytes, said: Says) -> bytes:
    """What answers one message of a client: of a prepared statement first what its rows are, then they."""
    answer = said if isinstance(said, bytes) else b""
    end = 1 + int.from_bytes(answer[1:5], "big") if answer[:1] == b"T" else 0
    return {
        b"Q": answer + _READY, b"P": message(b"1", b""), b"B": message(b"2", b""), b"C": message(b"3", b""),
        b"D": answer[:end] or message(b"n", b""), b"E": answer[end:], b"S": _READY,
    }.get(kind, b"")  # fmt: skip


_CAPABILITIES = 0x0008 | 0x0200 | 0x8000 | 0x80000


def packet(number: int, content: bytes) -> bytes:
    """One of MySQL's."""
    return len(content).to_bytes(3, "little") + bytes([number]) + content


def mysql_rows(columns: Sequence[int], *cells: Sequence[bytes | None]) -> bytes:
    """A whole answer of MySQL; columns by MySQL's types."""
    named, end = b"\x03def\0\0\0\x01c\x01c\x0c", b"\xfe\0\0\x02\0"
    fields = [named + struct.pack("<HIBHBH", 45, 999, kind, 0, 0, 0) for kind in columns]
    told = [b"".join(b"\xfb" if c is None else bytes([len(c)]) + c for c in one) for one in cells]
    parts = [bytes([len(columns)]), *fields, end, *told, end]
    return b"".join(packet(n, part) for n, part in enumerate(parts, 1))


def greeting(plugin: bytes) -> bytes:
    """How MySQL begins, with the plugin that asks for a password, and without TLS."""
    low, high = _CAPABILITIES & 0xFFFF, _CAPABILITIES >> 16
    fields = struct.pack("<I8sBHBHHB10s13s", 7, b"x" * 8, 0, low, 45, 2, high, 21, b"", b"y" * 12)
    return packet(0, b"\x0a8.4.0\0" + fields + plugin + b"\0")


MYSQL_OK = packet(1, b"\0\x01\0\x02\0\0\0")
WORD, LARGE = 253, 8
"""Types of MySQL."""
_MYSQL_USUAL: Mapping[str, bytes] = {
    r"VERSION|version\(\)": mysql_rows([WORD], [b"8.4.0"]),
    r"sql_mode": mysql_rows([WORD], [b""]),
    r"lower_case": mysql_rows([WORD], [b"0"]),
    r"isolation": mysql_rows([WORD], [b"READ-COMMITTED"]),
    r"(?i)unix_timestamp": mysql_rows([LARGE], [b"1700000000000000"]),
    r"(?i)^(select|show|describe)": mysql_rows([WORD], [b"replays"]),
}


def mysql(answers: Answers) -> Callable[[socket.socket], None]:
    """MySQL, which lets anybody in."""
    known = {**answers, **_MYSQL_USUAL, **answers}

    def behave(peer: socket.socket) -> None:
        peer.sendall(greeting(b"mysql_native_password"))
        stream = peer.makefile("rb")
        _packet_of(stream)
        peer.sendall(packet(2, b"\0\0\0\x02\0\0\0"))
        while asked := _packet_of(stream):
            sql = asked[1:].decode(errors="replace")
            said = next((a for like, a in known.items() if re.search(like, sql, re.S)), MYSQL_OK)
            if callable(said):
                return said(peer)
            peer.sendall(said if asked[:1] == b"\x03" else MYSQL_OK)
        return None

    return behave


def _packet_of(stream: IO[bytes]) -> bytes:
    head = stream.read(4) or b""
    return (stream.read(int.from_bytes(head[:3], "little")) or b"") if len(head) == 4 else b""
