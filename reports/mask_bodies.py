"""How bodies are written, as far as masking has to look into them: packed, or in UTF-16."""

import gzip
import zlib
from collections.abc import Callable, Sequence

_PACKED: Sequence[tuple[bytes, int, Callable[[bytes], bytes]]] = (
    (b"\x1f\x8b", 31, lambda plain: gzip.compress(plain, mtime=0)),
    (b"\x78", 15, zlib.compress),  # RocketMQ's clients
)
CLOSED = (b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"BZh", b"\xfd7zXZ", b"PK\x03\x04")
"""Zstandard, LZ4, bzip2, xz, zip: not looked into, so masked whole."""
MOST_UNPACKED = 4 * 2**20
"""Bytes: the largest message that RocketMQ takes by default. A search takes about half a second a MiB."""
DEEPEST = 4
"""Layers around one body, which is twice what any producer has been seen to make."""
_WIDE: Sequence[tuple[str, bytes, slice]] = (
    ("utf-16-le", b"\xff\xfe", slice(1, None, 2)),
    ("utf-16-be", b"\xfe\xff", slice(0, None, 2)),
)
"""UTF-16, its mark, and where Latin letters have their zero bytes."""


class Beyond(Exception):
    """A letter holds more than is unpacked of one, or packed more often."""


class Room:
    """What may still be unpacked of one letter: a few bytes can hold gigabytes, in any number of layers."""

    def __init__(self) -> None:
        self._left = MOST_UNPACKED

    def unpacked(self, body: bytes, layers: int) -> tuple[bytes, Callable[[bytes], bytes]] | None:
        """What is in a body with so many layers around it, and what packs it again; None when it is not
        packed. Raises Beyond."""
        for magic, wbits, pack in _PACKED:
            if body.startswith(magic) and (plain := self._inflated(body, wbits, layers)) is not None:
                return plain, pack
        return None

    def _inflated(self, body: bytes, wbits: int, layers: int) -> bytes | None:
        stream = zlib.decompressobj(wbits=wbits)
        try:
            plain = stream.decompress(body, self._left + 1)
        except zlib.error:
            return None
        if len(plain) > self._left or layers >= DEEPEST or not stream.eof:
            raise Beyond
        self._left -= len(plain)
        return plain


def wide(body: bytes) -> str | None:
    """Which UTF-16 a body is in: its mark says so, or the zero bytes of most of its letters."""
    for encoding, mark, high in _WIDE:
        zeros = body[high].count(0)
        if len(body) % 2 == 0 and (body.startswith(mark) or zeros > len(body) // 4 >= body.count(0) - zeros):
            return encoding
    return None
