"""What one reading of Kafka tells of a letter, for knowing it again. What a share group's dead letter points
to may be gone the next time, or be had then."""

from hashlib import sha256

from dlq.connectors.kafka.records.raw import decode, encode
from dlq.core.identity import Told, content_digest, take_out
from dlq.core.record import Record


def tell(record: Record) -> Told:
    """Return what is told (`dlq.core.brokers.Plugin.told`); a block that is none counts as it is."""
    block, depth = record.raw_properties or b"", 0
    try:
        raw = decode(block)
        own, depth = encode(raw._replace(original=None)), int(raw.original is not None)
    except ValueError:
        own = block
    properties = take_out(record.properties, ("pointer",))
    whole = content_digest(sha256(record.body).digest(), record.headers, properties, block)
    return Told(content_digest(own, take_out(properties, ("key",))), whole, depth)
