"""Bodies that a RocketMQ client compressed: zlib, and since 4.9.4 LZ4 (frame format) and Zstandard."""

import zlib
from collections.abc import Callable, Mapping
from importlib import import_module

from dlq.connectors.rocketmq.link.remoting import ProtocolError
from dlq.core.runtime.budget import most_unpacked

COMPRESSED = 0x1


def plain_body(body: bytes, sys_flag: int, limit: int | None = None) -> bytes:
    """Return the body as the producer gave it. Raises ProtocolError when it is damaged, or larger than
    `limit`, else than its size allows."""
    if not sys_flag & COMPRESSED:
        return body
    limit = most_unpacked(len(body)) if limit is None else limit
    decompress = _DECOMPRESSORS.get(sys_flag >> 8 & 7)
    if decompress is None:
        raise ProtocolError(f"unknown compression {sys_flag >> 8 & 7}")
    try:
        return decompress(body, limit)
    except ImportError as error:
        raise ProtocolError(
            f"the body is compressed; pip install 'dlq[lz4]' reads it ({error.name})"
        ) from error
    except (ValueError, OSError, RuntimeError, EOFError, zlib.error) as error:
        raise ProtocolError(f"a damaged compressed body: {type(error).__name__}") from error


def _zlib(body: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj()
    return _whole(stream.decompress(body, limit + 1), stream.eof, limit)


def _lz4(body: bytes, limit: int) -> bytes:
    stream = import_module("lz4.frame").LZ4FrameDecompressor()
    return _whole(stream.decompress(body, max_length=limit + 1), stream.eof, limit)


def _zstd(body: bytes, limit: int) -> bytes:
    module = import_module("zstandard")
    try:
        plain = module.ZstdDecompressor().stream_reader(body).read(limit + 1)
    except module.ZstdError as error:
        raise ValueError("zstd") from error
    return _whole(plain, True, limit)


def _whole(plain: bytes, complete: bool, limit: int) -> bytes:
    if len(plain) > limit or not complete:
        raise ValueError("incomplete or too large")
    return plain


_DECOMPRESSORS: Mapping[int, Callable[[bytes, int], bytes]] = {0: _zlib, 1: _lz4, 2: _zstd, 3: _zlib}


def unpack_body(body: bytes, sys_flag: int, limit: int) -> bytes | None:
    """Return the body as the producer gave it; None where no client compressed it. Raises ProtocolError."""
    return plain_body(body, sys_flag, limit) if sys_flag & COMPRESSED else None
