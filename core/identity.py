"""Which message is which: record ids that are the same on every machine and in every run.

A record id is 32 hex digits. The id of the first message with some content is the digest of that
content; byte-identical messages are distinct letters, so the second one's id is the digest of the
first id and the ordinal 1, and so on. What changes at each delivery (`redelivered`, RabbitMQ's
x-delivery-count and x-acquired-count) must not be among the parts.
"""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

ID_HEX_DIGITS = 32
_ID = re.compile(rf"[0-9a-f]{{{ID_HEX_DIGITS}}}")


def is_record_id(text: str) -> bool:
    """Whether a text has the shape of one, and nothing else in it."""
    return _ID.fullmatch(text) is not None


def frame(*parts: bytes) -> bytes:
    """`parts` one after the other with their borders; what is framed may be joined."""
    return b"".join([b"%d:%b" % (len(part), part) for part in parts])


def content_id(*parts: bytes, after: bytes = b"") -> str:
    """The id of the first message whose content is `parts`; their borders count.

    `after` is framed already and comes first: parts that many messages share need framing once.
    """
    return sha256(after + frame(*parts)).hexdigest()[:ID_HEX_DIGITS]


def placed_ids(
    starts: Iterable[Any], places: Iterable[bytes], blocks: Iterable[bytes], digests: Iterable[bytes]
) -> list[str]:
    """`content_id` of many: of the place, the properties and the body's SHA-256 digest of each, after
    what is framed already (`starts`). They are framed here, at a third of the price.
    """
    return [
        sha256(b"%b%d:%b%d:%b32:%b" % (start, len(place), place, len(block), block, digest)).hexdigest()[
            :ID_HEX_DIGITS
        ]
        for start, place, block, digest in zip(starts, places, blocks, digests, strict=True)
    ]


def ordinal_id(first_id: str, ordinal: int) -> str:
    """The id of the `ordinal`-th message (from 0) with the content of `first_id`."""
    if ordinal == 0:
        return first_id
    return sha256(b"%b#%d" % (first_id.encode(), ordinal)).hexdigest()[:ID_HEX_DIGITS]


def digest_of_ids(record_ids: list[str]) -> str:
    """One digest over an ordered list of record ids, as manifests and plans carry it."""
    return sha256("\n".join(record_ids).encode()).hexdigest()
