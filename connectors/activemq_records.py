"""From a STOMP MESSAGE frame to a record, for ActiveMQ Classic and Artemis."""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import NamedTuple

from dlq.connectors.base import ReadRequest
from dlq.connectors.stomp_frames import Frame, headers_of
from dlq.core.clock import now
from dlq.core.identity import content_id, framed
from dlq.core.record import FLAG_INNER_NUL, NOTHING, Record

_PER_DELIVERY = (b"subscription:", b"ack:", b"redelivered:", b"message-id:", b"browser:")
"""Header lines that differ from one delivery to the next (Artemis' message-id begins with the consumer)."""
_NUMBERS = {str(n): n for n in range(256)}
"""Priorities; anything else is kept in the headers alone."""
# A named tuple's own constructor costs three times as much.
_record = Record._make


class Place(NamedTuple):
    """Where letters are read."""

    queue: str
    kind: str
    version: str
    node: str


def stable_lines(head: bytes) -> bytes:
    """The header lines that a message keeps for life, sorted: Classic's order is a hash map's."""
    return b"\n".join(sorted([line for line in head.split(b"\n") if not line.startswith(_PER_DELIVERY)]))


def bare_destination(destination: str | None) -> tuple[str | None, str | None]:
    """(queue or topic, name) of `/queue/orders`; Artemis writes the name alone. (None, None) for nothing."""
    for kind in ("queue", "topic"):
        if destination and destination.startswith((f"/{kind}/", f"{kind}://")):
            return kind, destination.removeprefix(f"/{kind}/").removeprefix(f"{kind}://")
    return ("queue", destination) if destination else (None, None)


def _classic_ids(headers: Mapping[str, str]) -> str:
    return headers.get("message-id", "")


def _artemis_ids(headers: Mapping[str, str]) -> str:
    """The core id that the message had where it died, else the one it has here."""
    return headers.get("_AMQ_ORIG_MESSAGE_ID") or headers.get("message-id", "").rpartition(",")[2]


def _artemis_origin(headers: Mapping[str, str]) -> tuple[str | None, str | None]:
    if headers.get("_AMQ_ORIG_ROUTING_TYPE") == "0" and headers.get("_AMQ_ORIG_ADDRESS"):
        return "topic", headers["_AMQ_ORIG_ADDRESS"]
    name = headers.get("_AMQ_ORIG_QUEUE") or headers.get("_AMQ_ORIG_ADDRESS")
    return ("queue", name) if name else (None, None)


def _classic_origin(headers: Mapping[str, str]) -> tuple[str | None, str | None]:
    return bare_destination(headers.get("original-destination"))


def _millis(text: str | None) -> int | None:
    """A header's milliseconds as microseconds; absent, zero and nonsense are None."""
    if not text or text == "0" or not text.isascii() or not text.isdigit() or len(text) > 15:
        return None
    return int(text) * 1000 or None


def record_maker(request: ReadRequest, place: Place) -> Callable[[Frame], Record]:
    """The function that turns this reading's frames into records."""
    source, broker = request.source.name, request.source.broker
    pull_id, mode, key_of = request.pull_id, request.mode, request.key_reader()
    queue, kind = place.queue, place.kind
    artemis = kind == "artemis"
    id_of, origin_of = (_artemis_ids, _artemis_origin) if artemis else (_classic_ids, _classic_origin)
    first_parts = framed(source.encode(), place.queue.encode())

    def make(frame: Frame) -> Record:
        head, body = frame.head, frame.body
        headers = headers_of(head)
        get = headers.get
        message_id = id_of(headers)
        digest = sha256(body).hexdigest()
        origin_kind, origin = origin_of(headers)
        return _record((
            content_id(message_id.encode(), stable_lines(head), digest.encode(), after=first_parts),
            source,
            broker,
            kind,
            queue,
            place.version,
            place.node,
            None,  # queue_id
            None,  # offset
            message_id,
            message_id,  # physical_id
            get("correlation-id"),
            (),  # keys
            key_of(message_id, headers, NOTHING, body),
            origin_kind,
            origin,
            None,  # origin_exchange
            None,  # origin_routing_key
            None,  # origin_group
            None,  # exchange
            None,  # routing_key
            now(),
            _millis(get("timestamp")),
            None,  # first_dead_at
            _millis(get("_AMQ_ACTUAL_EXPIRY")) if artemis else None,
            _millis(get("expires")),
            get("dlqDeliveryFailureCause"),
            (),  # deaths
            None,  # attempts
            get("redelivered") == "true",
            headers,
            head,
            NOTHING,  # properties
            body,
            len(body),
            digest,
            get("content-type"),
            None,  # content_encoding
            get("persistent") == "true",
            _NUMBERS.get(get("priority", "")),
            FLAG_INNER_NUL if frame.inner_nul else None,
            pull_id,
            mode,
        ))  # fmt: skip

    return make
