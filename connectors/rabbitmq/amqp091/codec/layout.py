"""Which properties an AMQP 0-9-1 property block holds, and where each begins and ends. No I/O.

Two octets of flags name the properties that follow, in this order (AMQP 0-9-1 section 4.2.6 and the
class `basic`).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from struct import Struct

from dlq.connectors.rabbitmq.amqp091.codec.fields import ends_at

SHORT, _TABLE, OCTET, TIME = "short string", "table", "octet", "timestamp"
_LAYOUT = (
    (1 << 15, "content_type", SHORT),
    (1 << 14, "content_encoding", SHORT),
    (1 << 13, "headers", _TABLE),
    (1 << 12, "delivery_mode", OCTET),
    (1 << 11, "priority", OCTET),
    (1 << 10, "correlation_id", SHORT),
    (1 << 9, "reply_to", SHORT),
    (1 << 8, "expiration", SHORT),
    (1 << 7, "message_id", SHORT),
    (1 << 6, "timestamp", TIME),
    (1 << 5, "type", SHORT),
    (1 << 4, "user_id", SHORT),
    (1 << 3, "app_id", SHORT),
    (1 << 2, "cluster_id", SHORT),
)
BIT = {name: bit for bit, name, _ in _LAYOUT}
KIND = {name: kind for _, name, kind in _LAYOUT}

_u16 = Struct(">H").unpack_from
_u32 = Struct(">I").unpack_from


@lru_cache(maxsize=512)
def layout(flags: int) -> tuple[tuple[str, str], ...]:
    """Return (name, kind) of the properties that the flags name, in order; raises ValueError for others."""
    if flags & 3:
        raise ValueError(f"property flags {flags:#06x} name properties that AMQP 0-9-1 does not have")
    return tuple((name, kind) for bit, name, kind in _LAYOUT if flags & bit)


def parts(block: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield (name, start, end) of each property; raises ValueError, IndexError or struct.error."""
    at = 2
    for name, kind in layout(_u16(block)[0]):
        start = at
        at += SPANS[kind](block, at)
        yield name, start, at
    ends_at(at, len(block))


SPANS: Mapping[str, Callable[[bytes, int], int]] = {
    SHORT: lambda block, at: 1 + block[at],
    _TABLE: lambda block, at: 4 + int(_u32(block, at)[0]),
    OCTET: lambda _block, _at: 1,
    TIME: lambda _block, _at: 8,
}
"""Kind -> octets of the property that begins there."""
