"""What one delivery of ActiveMQ tells of a letter, for knowing it again by STOMP, OpenWire or AMQP 1.0.

OpenWire tells more than STOMP with Jolokia's help, and that more than STOMP alone. What all of them show of
headers is compared as STOMP shows it.
"""

import re
from collections.abc import Mapping
from hashlib import sha256

from dlq.connectors.activemq.amqp.codec import BLOCK
from dlq.connectors.activemq.look.jolokia import PROPERTY
from dlq.connectors.activemq.records.amqp10 import is_of_amqp
from dlq.connectors.activemq.records.frames import PER_DELIVERY
from dlq.connectors.activemq.records.openwire import CLASS
from dlq.connectors.activemq.stomp.codec import headers_of, unescape
from dlq.connectors.amqp10.codec import message
from dlq.core.identity import Told, content_digest, frame, take_out, told_of
from dlq.core.record import Record

_NOT_SHOWN_ALIKE = (
    *(line.decode().rstrip(":") for line in PER_DELIVERY), "content-length", "destination"
)  # fmt: skip
"""Headers that differ from one delivery to the next; those that tell what is known of body and queue are not
replaced by a property of their name everywhere."""
_UNSHOWN = re.compile("[\U00010000-\U0010ffff\ufffd]+")
"""Characters that STOMP shows as they are or as U+FFFD, one or several of them."""
_ODD_NAME = re.compile(rb"^[^:\n]*:[^:\n]*:", re.M)
"""Classic escapes each colon of a value, and none of a name."""
_COUNTED = ("redelivery counter",)
_WHOLE = 2


def tell(record: Record) -> Told:
    """Return what is told (`dlq.core.brokers.Plugin.told`); a block that is none counts as it is."""
    block, properties = record.raw_properties or b"", record.properties
    if is_of_amqp(record):
        try:
            return told_of(record, frame(*message.stable(block, lambda _name: False)))
        except ValueError:
            return told_of(record)
    depth = _depth(block, properties)
    # An older dlq knew one of several names that begin alike, and have a colon.
    in_whole = depth < _WHOLE and _ODD_NAME.search(block)
    headers = headers_of(block, of_message=True) if in_whole else record.headers
    shown = content_digest(
        sha256(record.body).digest(), _as_stomp_shows(headers, properties), _native(properties)
    )
    return Told(shown, content_digest(take_out(properties, _COUNTED)), depth)


def _as_stomp_shows(headers: Mapping[str, str], properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers as STOMP shows them: a property with a header's name takes that one's place. An
    older dlq left names escaped."""
    begin = len(PROPERTY)
    shadows = {name[begin:]: text for name, text in properties.items() if name.startswith(PROPERTY)}
    shown = take_out({**headers, **shadows}, _NOT_SHOWN_ALIKE)
    return {
        unescape(name) if "\\" in name else name: text if text.isascii() else _UNSHOWN.sub("\ufffd", text)
        for name, text in shown.items()
    }


def _native(properties: Mapping[str, str]) -> bytes:
    """Return what is around the body of a message that Classic got by AMQP 1.0."""
    return properties.get(BLOCK, "").encode()


def _depth(block: bytes, properties: Mapping[str, str]) -> int:
    """Return how much a delivery shows: 0 by STOMP alone, 1 with Jolokia, 2 by OpenWire. A marshalled message
    begins with a number and a truth value, header lines with a name."""
    if CLASS not in properties:
        return 0
    return _WHOLE if block[4:5] in (b"\0", b"\1") else 1
