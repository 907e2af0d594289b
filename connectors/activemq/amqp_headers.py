"""The expiry inside an AMQP 1.0 message, which Classic stores encoded as it came.

Replayed like that, a letter brings its old expiry along, and an AMQP client refuses it at once (seen with
Qpid JMS on 5.18.6 and 6.3.1: it dies again, and its consumer never sees it).
"""

from collections.abc import Iterator

_EXPIRY = {0x70: 2, 0x73: 8}
"""Section -> place of the field: `ttl` of the header, `absolute-expiry-time` of the properties."""
_WIDTHS = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
"""First half of a type's code -> bytes of a value, for those of a fixed width (AMQP 1.0, part 1.2)."""
_NULL = b"\x40"
_LIST_8, _LIST_32 = 0xC0, 0xD0


def without_expiry(message: bytes) -> bytes:
    """The message without its ttl and absolute-expiry-time; unchanged where it is no AMQP message."""
    try:
        return b"".join(_sections(message))
    except (IndexError, ValueError):
        return message


def _sections(message: bytes) -> Iterator[bytes]:
    """The sections up to the properties, changed where that is needed, and the rest."""
    at = code = 0
    while at < len(message) and code < max(_EXPIRY):
        code, begin = _descriptor(message, at)
        end = _end(message, begin)
        section = message[begin:end]
        yield message[at:begin] + (_nulled(section, _EXPIRY[code]) if code in _EXPIRY else section)
        at = end
    yield message[at:]


def _descriptor(message: bytes, at: int) -> tuple[int, int]:
    """A section's code, and where its value begins. The code is a small ulong, or a long one."""
    if message[at : at + 2] == b"\x00\x53":
        return message[at + 2], at + 3
    if message[at : at + 2] == b"\x00\x80":
        return int.from_bytes(message[at + 2 : at + 10]), at + 10
    raise ValueError("no section of an AMQP message")


def _end(data: bytes, at: int) -> int:
    """Where the value at this place ends."""
    kind = data[at] >> 4
    if kind == 0:  # a descriptor and a value
        return _end(data, _end(data, at + 1))
    if kind in _WIDTHS:
        end = at + 1 + _WIDTHS[kind]
    else:  # a size of one byte or of four
        size = 4 if kind % 2 else 1
        end = at + 1 + size + int.from_bytes(data[at + 1 : at + 1 + size])
    if end > len(data):
        raise ValueError("the message breaks off")
    return end


def _nulled(fields: bytes, place: int) -> bytes:
    """A list with null at one place; unchanged where it ends before."""
    kind, size = fields[0], 4 if fields[0] == _LIST_32 else 1
    first = 1 + 2 * size
    count = int.from_bytes(fields[1 + size : first])
    if kind not in (_LIST_8, _LIST_32) or place >= count:
        return fields
    at = first
    for _ in range(place):
        at = _end(fields, at)
    items = fields[first:at] + _NULL + fields[_end(fields, at) :]
    return b"".join([bytes([kind]), (len(items) + size).to_bytes(size), count.to_bytes(size), items])
