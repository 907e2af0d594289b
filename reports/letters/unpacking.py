"""A body as its producer gave it, piece by piece: what is packed may unpack to more than any memory holds."""

import zlib
from collections.abc import Iterator, Mapping

_PIECE = 2**20
_FIRST, _STEP = 256, 2**16
"""Bytes that are unpacked at once, at the beginning of a member and at most: what it does not need of them is
copied, and there may be very many short ones."""
_NAMES = ("gzip", "x-gzip", "deflate", "zlib", "application/x-gzip")
"""The last is what kombu calls zlib, in a header of its own."""
_KOMBU = "compression"
_GZIP = b"\x1f\x8b\x08"


def packing_of(encoding: str | None, headers: Mapping[str, str]) -> str | None:
    """Return how a letter says that its body is packed."""
    by_kombu = headers.get(_KOMBU)
    return by_kombu if by_kombu in _NAMES else encoding


def packing(body: bytes, encoding: str | None) -> str | None:
    """Return how a body is packed, as its content encoding or its first bytes say; None: it is not."""
    name = (encoding or "").strip().lower()
    return name if name in _NAMES else "gzip" if body.startswith(_GZIP) else None


def pieces(body: bytes, encoding: str | None) -> Iterator[bytes]:
    """Yield the body's bytes, unpacked where it is packed, in pieces of up to a MiB; as they are where they
    do not unpack. A damaged end is left out."""
    if packing(body, encoding) is None:
        yield body
        return
    unpacked = members(body)
    try:
        first = next(unpacked, b"")
    except zlib.error:
        yield body
        return
    yield first
    try:
        yield from unpacked
    except zlib.error:
        return


def members(body: bytes) -> Iterator[bytes]:
    """Unpack zlib or gzip, by its header; a gzip may have several members. Raises zlib.error, also where it
    breaks off, or something else follows."""
    at = 0
    while at == 0 or body.startswith(_GZIP, at):
        stream, step = zlib.decompressobj(wbits=47), _FIRST
        while not stream.eof:
            if at == len(body):
                raise zlib.error("it breaks off")
            packed = body[at : at + step]
            at, step = at + len(packed), min(2 * step, _STEP)
            while not stream.eof and (piece := stream.decompress(packed, _PIECE)):
                yield piece
                packed = stream.unconsumed_tail
        at -= len(stream.unused_data)
    if at < len(body):
        raise zlib.error("something follows")
