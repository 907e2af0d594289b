"""Which message is which: record ids that are the same on every machine and in every run.

A record id is 32 hex digits. The id of the first message with some content is the digest of that
content; byte-identical messages are distinct letters, so the second one's id is the digest of the
first id and the ordinal 1, and so on. What changes at each delivery (`redelivered`, RabbitMQ's
x-delivery-count and x-acquired-count) must not be among the parts.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from dlq.core.record import Record

ID_HEX_DIGITS = 32
_ID = re.compile(rf"[0-9a-f]{{{ID_HEX_DIGITS}}}")


def is_record_id(text: str) -> bool:
    """Return whether a text has the shape of one, and nothing else in it."""
    return _ID.fullmatch(text) is not None


def frame(*parts: bytes) -> bytes:
    """Return `parts` one after the other with their borders; what is framed may be joined."""
    return b"".join([b"%d:%b" % (len(part), part) for part in parts])


def content_id(*parts: bytes, after: bytes = b"") -> str:
    """Return the id of the first message whose content is `parts`; their borders count.

    `after` is framed already and comes first: parts that many messages share need framing once.
    """
    return sha256(after + frame(*parts)).hexdigest()[:ID_HEX_DIGITS]


def content_ids(starts: Iterable[bytes], blocks: Iterable[bytes], digests: Iterable[bytes]) -> list[str]:
    """`content_id` of many: of the properties and the body's SHA-256 digest (in hex) of each, after what is
    framed already (`starts`). They are framed here, at a third of the price.
    """
    return [
        sha256(b"%b%d:%b64:%b" % (start, len(block), block, digest)).hexdigest()[:ID_HEX_DIGITS]
        for start, block, digest in zip(starts, blocks, digests, strict=True)
    ]


def placed_ids(
    starts: Iterable[Any], places: Iterable[bytes], blocks: Iterable[bytes], digests: Iterable[bytes]
) -> list[str]:
    """Return `content_id` of many: of the place, the properties and the body's SHA-256 digest of each, after
    what is framed already (`starts`).
    """
    return [
        sha256(b"%b%d:%b%d:%b32:%b" % (start, len(place), place, len(block), block, digest)).hexdigest()[
            :ID_HEX_DIGITS
        ]
        for start, place, block, digest in zip(starts, places, blocks, digests, strict=True)
    ]


class Told(NamedTuple):
    """What one delivery tells of a letter, as digests of what stays the same at each: an id is a name, which
    anybody can write into a file."""

    shown: str
    """Of what every way of reading shows."""
    hidden: str = ""
    """Of what is shown by some of them."""
    depth: int = 0
    """How much of that is told: more by a protocol that hides less."""

    def is_same(self, other: "Told") -> bool:
        """Return whether both are of one letter: what only one of the two tells says nothing against it."""
        return self.shown == other.shown and (self.depth != other.depth or self.hidden == other.hidden)


def content_digest(*parts: bytes | Mapping[str, str] | None) -> str:
    """Return the digest of blocks, and of headers or properties, whose order does not count."""
    told = [sorted(part.items()) if isinstance(part, Mapping) else part or b"" for part in parts]
    return sha256(repr(told).encode()).hexdigest()[:ID_HEX_DIGITS]


def told_of(record: Record, block: bytes | None = None, but: Iterable[str] = ()) -> Told:
    """Return what is told of a letter of which every way of reading shows all: body, headers and properties
    `but` those of these names, and its property block, or what of it stays the same (`block`)."""
    headers, properties = take_out(record.headers, but), take_out(record.properties, but)
    kept = record.raw_properties if block is None else block
    return Told(content_digest(sha256(record.body).digest(), headers, properties, kept))


def take_out(texts: Mapping[str, str], names: Iterable[str]) -> Mapping[str, str]:
    """Return the map without these names."""
    taken = texts.keys() & set(names)
    return {name: text for name, text in texts.items() if name not in taken} if taken else texts


def ordinal_id(first_id: str, ordinal: int) -> str:
    """Return the id of the `ordinal`-th message (from 0) with the content of `first_id`."""
    if ordinal == 0:
        return first_id
    return sha256(b"%b#%d" % (first_id.encode(), ordinal)).hexdigest()[:ID_HEX_DIGITS]


def digest_of_ids(record_ids: list[str]) -> str:
    """Return one digest over an ordered list of record ids, as manifests and plans carry it."""
    return sha256("\n".join(record_ids).encode()).hexdigest()
