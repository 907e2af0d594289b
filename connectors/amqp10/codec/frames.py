"""Frames of AMQP 1.0 and what they say: bytes in, performatives out, and the way back. No I/O.

A frame is its size, where its body begins, its type (AMQP or SASL) and its channel; its body is a described
list, the performative, and after a transfer some octets of a message (OASIS AMQP 1.0, parts 2 and 5).
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Any, NamedTuple

from dlq.connectors.amqp10.codec.values import (
    NULL,
    binary,
    boolean,
    described_value,
    long,
    mapping,
    plain,
    read,
    sequence,
    string,
    symbol,
    ubyte,
    uint,
    ushort,
)
from dlq.connectors.net.links import FrameError

SASL_HEADER, AMQP_HEADER = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
MAX_FRAME = 131_072
"""Octets: what we agree to, as over 0-9-1."""
HEARTBEAT = b"\x00\x00\x00\x08\x02\x00\x00\x00"

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SASL_INIT, SASL_OUTCOME = 0x41, 0x44
ACCEPTED, REJECTED, RELEASED, MODIFIED = range(0x24, 0x28)
_SOURCE, _TARGET = 0x28, 0x29
_COORDINATOR, _DECLARE, _DISCHARGE, DECLARED, TRANSACTIONAL = range(0x30, 0x35)
SENDER, RECEIVER = False, True
"""Roles."""
_FIELDS_BEFORE_FILTER, _FIELDS_BEFORE_CAPABILITIES = 6, 5
_OFFSET = "rabbitmq:stream-offset-spec"
_UNLIMITED = 2**31 - 1
_VALUE = 0x77
"""The section of a message that is a value."""
_FIRST = 0
_frame = Struct(">IBBH")
_AMQP, _SASL = 0, 1
_LEAST = 8


class Frame(NamedTuple):
    """A performative: its code, its fields without types (those at the end may be absent), and what follows
    it. `code` 0 is a heartbeat."""

    code: int
    fields: list[Any]
    payload: bytes

    def field(self, place: int, default: Any = None) -> Any:
        """Return a field, or `default` where it is absent or null."""
        found = self.fields[place] if place < len(self.fields) else None
        return default if found is None else found

    def number(self, place: int, default: int = 0, most: int = 2**32 - 1) -> int:
        """Return the same of a number without a sign: an uint, or one up to `most`. Raises FrameError."""
        found = self.field(place, default)
        if type(found) is not int or not 0 <= found <= most:
            raise FrameError(f"field {place} of a frame of kind {self.code:#x} is no number")
        return found


class FrameReader:
    """Cuts one connection's bytes into frames."""

    def __init__(self) -> None:
        self._rest = b""
        self._header = SASL_HEADER

    def expect(self, header: bytes) -> None:
        """Expect the header of the next layer, which comes before its first frame."""
        self._header = header

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are whole now. Raises FrameError."""
        data = self._rest + data if self._rest else data
        at, frames = 0, []
        while True:
            if self._header:
                if len(data) - at < len(self._header):
                    break
                at = self._take_header(data, at)
            elif (end := self._end(data, at)) is None:
                break
            else:
                frames.append(_parse(data, at, end))
                at = end
                if frames[-1].code == SASL_OUTCOME:
                    self._header = AMQP_HEADER
        self._rest = data[at:]
        return frames

    def _take_header(self, data: bytes, at: int) -> int:
        came, end = data[at : at + len(self._header)], at + len(self._header)
        if came != self._header:
            raise FrameError(f"it answers with {came!r}; does the node speak AMQP 1.0?")
        self._header = b""
        return end

    def _end(self, data: bytes, at: int) -> int | None:
        if len(data) - at < _LEAST:
            return None
        size = int.from_bytes(data[at : at + 4], "big")
        if not _LEAST <= size <= MAX_FRAME:
            raise FrameError(f"a frame of {size} bytes, more than was agreed on")
        return at + size if len(data) - at >= size else None


def _parse(data: bytes, at: int, end: int) -> Frame:
    begin = at + 4 * data[at + 4]
    if begin == end:
        return Frame(0, [], b"")
    try:
        value, stop = read(data[begin:end])
        code, fields = plain(value)
    except (ValueError, TypeError) as error:
        raise FrameError(f"a frame that cannot be read: {error}") from error
    if not isinstance(code, int) or not isinstance(fields, list):
        raise FrameError("a frame without a performative")
    return Frame(code, fields, data[begin + stop : end])


def frame(code: int, fields: Iterable[bytes], payload: bytes = b"", kind: int = _AMQP) -> bytes:
    """Return the frame of a performative, on channel 0."""
    body = described_value(code, sequence(fields))
    return _frame.pack(8 + len(body) + len(payload), 2, kind, 0) + body + payload


def sasl_plain(user: str, password: str) -> bytes:
    """Return who asks."""
    return frame(SASL_INIT, [symbol("PLAIN"), binary(f"\0{user}\0{password}".encode())], kind=_SASL)


def open_connection(host: str, idle_milliseconds: int, properties: Mapping[str, str]) -> bytes:
    """Return a connection to a host. The broker's lists show the `properties`."""
    place = [string("dlq"), string(host), uint(MAX_FRAME), ushort(0), uint(idle_milliseconds)]
    shown = mapping([symbol(name) + string(text) for name, text in properties.items()])
    return frame(OPEN, [*place, NULL, NULL, NULL, NULL, shown])


def begin_session(most_links: int) -> bytes:
    """Return the one session of a connection."""
    return frame(BEGIN, [NULL, uint(_FIRST), uint(_UNLIMITED), uint(_UNLIMITED), uint(most_links)])


def terminus(role: bool, address: str, *wanted: bytes) -> bytes:
    """Return what a link leads to: the source that we receive from, where `wanted` are its fields from the
    filters on, or the target that we send to, where it is its capabilities."""
    before = _FIELDS_BEFORE_FILTER if role is RECEIVER else _FIELDS_BEFORE_CAPABILITIES
    fields = sequence([string(address), *[NULL] * before, *wanted])
    return described_value(_SOURCE if role is RECEIVER else _TARGET, fields)


COORDINATOR = described_value(_COORDINATOR, sequence([]))
"""The target that transactions are begun and ended at."""


def declare() -> bytes:
    """Return a message to the coordinator that begins a transaction; its outcome, DECLARED, holds the id."""
    return described_value(_VALUE, described_value(_DECLARE, sequence([])))


def discharge(transaction: bytes, fail: bool) -> bytes:
    """Return a message to the coordinator that commits a transaction, or rolls it back."""
    return described_value(
        _VALUE, described_value(_DISCHARGE, sequence([binary(transaction), boolean(fail)]))
    )


def state(outcome: int) -> bytes:
    """Return what became of a letter."""
    return described_value(outcome, sequence([]))


def in_transaction(transaction: bytes, outcome: int | None = None) -> bytes:
    """Return the state of a transfer that belongs to a transaction, or of a letter whose outcome does."""
    became = NULL if outcome is None else state(outcome)
    return described_value(TRANSACTIONAL, sequence([binary(transaction), became]))


def attach(name: str, handle: int, role: bool, there: bytes) -> bytes:
    """Return a link by which we receive from, or send to, what is there; each letter is settled by itself."""
    source = there if role is RECEIVER else described_value(_SOURCE, sequence([]))
    target = there if role is SENDER else described_value(_TARGET, sequence([]))
    first_settle_mode = ubyte(0)
    fields = [string(name), uint(handle), boolean(role), ubyte(0), first_settle_mode, source, target]
    return frame(ATTACH, [*fields, NULL, NULL, uint(0) if role is SENDER else NULL])


def from_offset(offset: int | str) -> bytes:
    """Return the filter of a stream that is read from an offset on, or from its `first` or `last` chunk."""
    value = string(offset) if isinstance(offset, str) else long(offset)
    return mapping([symbol(_OFFSET) + b"\0" + symbol(_OFFSET) + value])


def flow(next_incoming: int, next_outgoing: int, link: Iterable[bytes] = ()) -> bytes:
    """Return the state of the session, and of one link (`credit`)."""
    window = uint(_UNLIMITED)
    return frame(FLOW, [uint(next_incoming), window, uint(next_outgoing), window, *link])


def credit(handle: int, delivery_count: int, letters: int) -> list[bytes]:
    """Grant credit for so many letters; the sender answers when they came, or it has no more (drain)."""
    return [uint(handle), uint(delivery_count), uint(letters), NULL, boolean(True)]


def transfer(handle: int, number: int, payload: bytes, more: bool, first: bool, state: bytes = NULL) -> bytes:
    """Return a part of a message, unsettled; `state`: see `in_transaction`."""
    tag = binary(number.to_bytes(4, "big"))
    known = [uint(number), tag, uint(0), boolean(False)] if first else [NULL, NULL, NULL, NULL]
    return frame(TRANSFER, [uint(handle), *known, boolean(more), NULL, state], payload)


def disposition(first: int, last: int, became: bytes, settled: bool) -> bytes:
    """Return what became of letters that we received (`state`); one that is not settled is answered."""
    return frame(DISPOSITION, [boolean(RECEIVER), uint(first), uint(last), boolean(settled), became])


def detach(handle: int) -> bytes:
    """Return the end of a link."""
    return frame(DETACH, [uint(handle), boolean(True)])


def farewell(code: int) -> bytes:
    """Return END or CLOSE."""
    return frame(code, [])
