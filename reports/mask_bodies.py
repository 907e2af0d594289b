"""How bodies are written, as far as masking has to look into them: packed, or in UTF-16."""

import gzip
import zlib
from collections.abc import Callable, Sequence

from dlq.reports.mask_paths import MASKED

_PACKED: Sequence[tuple[bytes, int, Callable[[bytes], bytes]]] = (
    (b"\x1f\x8b", 31, lambda plain: gzip.compress(plain, mtime=0)),
    (b"\x78", 15, zlib.compress),  # RocketMQ's clients
)
CLOSED = (b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"BZh", b"\xfd7zXZ", b"PK\x03\x04")
"""Zstandard, LZ4, bzip2, xz, zip: not looked into, so masked whole."""
_LARGEST_INFLATED = 64 * 2**20
_WIDE: Sequence[tuple[str, bytes, slice]] = (
    ("utf-16-le", b"\xff\xfe", slice(1, None, 2)),
    ("utf-16-be", b"\xfe\xff", slice(0, None, 2)),
)
"""UTF-16, its mark, and where Latin letters have their zero bytes."""


def unpacked(body: bytes) -> tuple[bytes, Callable[[bytes], bytes]] | None:
    """What is in a packed body, and what packs it again; None when it is not packed."""
    for magic, wbits, pack in _PACKED:
        if body.startswith(magic) and (plain := _inflated(body, wbits)) is not None:
            return plain, pack
    return None


def wide(body: bytes) -> str | None:
    """Which UTF-16 a body is in: its mark says so, or the zero bytes of most of its letters."""
    for encoding, mark, high in _WIDE:
        zeros = body[high].count(0)
        if len(body) % 2 == 0 and (body.startswith(mark) or zeros > len(body) // 4 >= body.count(0) - zeros):
            return encoding
    return None


def _inflated(body: bytes, wbits: int) -> bytes | None:
    """The unpacked body; None when it is not packed after all. What is too large is masked whole."""
    stream = zlib.decompressobj(wbits=wbits)
    try:
        plain = stream.decompress(body, _LARGEST_INFLATED)
    except zlib.error:
        return None
    return plain if stream.eof else MASKED.encode()
