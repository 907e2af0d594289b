"""Publishing over AMQP 0-9-1 with confirms: the frames of a message, and who was confirmed. No I/O.

What the broker guarantees, and all that is relied on (https://www.rabbitmq.com/docs/confirms):
a basic.return comes before the ack of its message; acks and nacks may overtake each other and may be
`multiple`, which means "all that are still open up to this tag", never "the highest tag so far".
A return has no delivery tag and its ack need not be the next one, so it is told by its header.
"""

from collections import deque
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from dlq.connectors.rabbitmq.amqp091.codec import edits

_CHANNEL = 1
_METHOD, _HEADER, _BODY = 1, 2, 3
_END = b"\xce"
_FRAME_OVERHEAD = 8
_PUBLISH = b"\0\x3c\0\x28\0\0"
_MANDATORY = b"\x01"
_frame = Struct(">BHI").pack
_header = Struct(">BHIHHQ").pack


@lru_cache(maxsize=4096)
def _publish(exchange: str, routing_key: str) -> bytes:
    """Return the whole frame of a mandatory basic.publish."""
    names = [name.encode() for name in (exchange, routing_key)]
    payload = _PUBLISH + b"".join([bytes((len(name),)) + name for name in names]) + _MANDATORY
    return _frame(_METHOD, _CHANNEL, len(payload)) + payload + _END


def message(exchange: str, routing_key: str, block: bytes, body: bytes, frame_max: int) -> bytes:
    """Return all frames of one message. Raises ValueError where a name is longer than 255 bytes."""
    size = len(body)
    head = _header(_HEADER, _CHANNEL, 12 + len(block), 60, 0, size)
    most = frame_max - _FRAME_OVERHEAD
    if 0 < size <= most:
        whole = (
            _publish(exchange, routing_key),
            head,
            block,
            _END,
            _frame(_BODY, _CHANNEL, size),
            body,
            _END,
        )
        return b"".join(whole)
    parts = [_publish(exchange, routing_key), head, block, _END]
    for at in range(0, size, most):
        part = body[at : at + most]
        parts += (_frame(_BODY, _CHANNEL, len(part)), part, _END)
    return b"".join(parts)


class Open(NamedTuple):
    """A message that was given to the broker and has no answer yet."""

    number: int
    replay_id: str
    exchange: str
    queue: str = ""
    """The one queue that it is for."""
    routing_key: str = ""


class Confirms:
    """The messages in flight on one channel, in the order in which they were sent."""

    def __init__(self) -> None:
        self._tag = 0
        self._open: dict[int, Open] = {}
        self._order: deque[int] = deque()
        self._tags: dict[str, int] = {}
        self._returned: set[int] = set()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, entry: Open) -> None:
        """Add the next message of the channel."""
        self._tag += 1
        self._open[self._tag] = entry
        self._order.append(self._tag)
        self._tags[entry.replay_id] = self._tag

    def take_return(self, block: bytes, name: str) -> None:
        """Take the content of a basic.return: the header `name` says whose it is."""
        tag = self._tags.get(edits.text_header(block, name) or "")
        if tag is not None:
            self._returned.add(tag)

    def take_answer(self, tag: int, multiple: bool, unwritten: int = 0) -> list[tuple[Open, bool]]:
        """Take an ack or nack: return the messages that it answers, each with whether it was returned. The
        last ones, so many as are `unwritten`, it cannot answer."""
        last = self._tag - unwritten
        tags = self._up_to(min(tag, last)) if multiple else [tag] * (tag <= last)
        return [self._close(tag) for tag in tags if tag in self._open]

    def _up_to(self, tag: int) -> list[int]:
        tags = []
        while self._order and self._order[0] <= tag:
            tags.append(self._order.popleft())
        return tags

    def _close(self, tag: int) -> tuple[Open, bool]:
        entry = self._open.pop(tag)
        self._tags.pop(entry.replay_id, None)
        if not self._returned:
            return entry, False
        returned = tag in self._returned
        self._returned.discard(tag)
        return entry, returned

    def give_up(self) -> list[Open]:
        """Return all that are open, in the order in which they were sent; none is afterwards."""
        rest = list(self._open.values())
        self._open.clear()
        self._order.clear()
        self._tags.clear()
        self._returned.clear()
        return rest
