"""Properties with the names of STOMP's headers, as Artemis' STOMP shows them (2.56.0).

Its own headers come first and in one order (StompUtils#copyStandardHeadersFromMessageToFrame), then all
properties but `destination` and `content-length`, and then the id for acknowledgements. What a STOMP client
wrote is among the properties, too, but means STOMP's header there; clients of Core and OpenWire leave
`__AMQ_CID`.
"""

from collections.abc import Mapping, Sequence

from dlq.connectors.activemq.look.jolokia import PROPERTY
from dlq.connectors.activemq.records.frames import Maker
from dlq.connectors.activemq.records.openwire import CLASS
from dlq.connectors.activemq.stomp.codec import OF_STOMP, Frame, unescape
from dlq.core.record import Record

_IN_ORDER = (
    b"subscription", b"content-length", b"message-id", b"destination", b"correlation-id", b"expires",
    b"redelivered", b"priority", b"persistent", b"reply-to", b"timestamp", b"type", b"destination-type",
)  # fmt: skip
_OF_A_CLIENT = b"\n__AMQ_CID:"
_NAMES = frozenset(name.encode() for name in OF_STOMP)
_LENGTH = b"\ncontent-length:"


def _told_apart(head: bytes) -> tuple[bytes, Mapping[str, str]]:
    """Return the header lines without the properties that have names of headers, and those, as a record's
    `properties`."""
    if not is_of_a_client(head):
        return head, {}
    lines = head.split(b"\n")
    names = [line.partition(b":")[0] for line in lines]
    properties = range(_first_property(names), _last(names, b"ack"))
    taken = {at for at in properties if names[at] in _NAMES}
    parts = [lines[at].decode("utf-8", "replace").partition(":") for at in sorted(taken)]
    own = [line for at, line in enumerate(lines) if at not in taken]
    return b"\n".join(own), {f"{PROPERTY}{name}": unescape(text) for name, _, text in parts}


def _last(names: Sequence[bytes], wanted: bytes) -> int:
    """Return where a name comes last; behind all where it does not come."""
    return max((at for at, name in enumerate(names) if name == wanted), default=len(names))


def _first_property(names: Sequence[bytes]) -> int:
    """Return where the headers end: a name that comes again, or out of order, is a property's."""
    place = -1
    for at, name in enumerate(names):
        found = _IN_ORDER.index(name) if name in _IN_ORDER else -1
        if found <= place:
            return at
        place = found
    return len(names)


def is_of_a_client(head: bytes) -> bool:
    """Return whether a client of Core or OpenWire has sent it, so that its properties are its own."""
    return _OF_A_CLIENT in head


def _text_of(frame: Frame) -> bytes | None:
    """Return a text that is shown as Artemis stores it, because it has a property `content-length`: whether
    it is there, its length, UTF-16. None of any other letter."""
    body, kind = frame.body, (frame.properties or {}).get(CLASS, "text")
    is_stored = body[:1] == b"\x01" and int.from_bytes(body[1:5]) == len(body) - 5
    if not (is_stored and kind == "text" and is_of_a_client(frame.head) and _LENGTH in frame.head):
        return None
    return body[5:].decode("utf-16-le", "replace").encode("utf-8", "replace")


def with_shadows(make: Maker) -> Maker:
    """Return records whose headers and properties are two maps; their ids stay those of the lines as they
    came."""

    def made(frames: Sequence[Frame]) -> Sequence[Record]:
        records = make(frames)
        told = [(*_told_apart(frame.head), _text_of(frame)) for frame in frames]
        if not any(shadowing or text is not None for _, shadowing, text in told):
            return records
        return [
            _true(make, record, frame, *known) if any(known[1:]) else record
            for record, frame, known in zip(records, frames, told, strict=True)
        ]

    return made


def _true(
    make: Maker, record: Record, frame: Frame, head: bytes, shadowing: Mapping[str, str], text: bytes | None
) -> Record:
    body = frame.body if text is None else text
    properties = {**(frame.properties or {}), **shadowing}
    [true] = make([frame._replace(head=head, raw=frame.raw or frame.head, body=body, properties=properties)])
    return true._replace(record_id=record.record_id)
