"""Messages that go to RocketMQ in one request.

A batch (code 320) is stored whole or not at all, each message of it under its own offset, flag and
properties (CommitLog.asyncPutMessages, MessageExtBatchEncoder); it costs the broker little more than one
message. The compression bits are the request's, so those of a batch are alike. Brokers take no batches for
retry topics.
"""

import struct
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache

from dlq.connectors.rocketmq.connection import Link
from dlq.connectors.rocketmq.remoting import Ask, written
from dlq.connectors.rocketmq.republishing import SHARDING_KEY, Message
from dlq.connectors.rocketmq.routes import Place

_GROUP = "dlq-replay"
"""Names us as a producer; brokers keep nothing of it."""
_MOST_LETTERS = 64
_MOST_BYTES = 64 * 1024
_MOST_CHARACTERS = 8_000
"""Of the properties of a message that goes with others: a batch counts them in 15 bits, as UTF-8."""
_INNER = struct.Struct(">iiiii")
_LENGTH = struct.Struct(">h")
_AROUND = _INNER.size + _LENGTH.size


class Parcel:
    """Messages for one queue, by the numbers of their letters."""

    __slots__ = ("messages", "numbers", "place", "room", "since", "tries")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.numbers: list[int] = []
        self.messages: list[Message] = []
        self.room = _MOST_BYTES
        self.since, self.tries = 0.0, 0

    def add(self, number: int, message: Message) -> None:
        """One more letter."""
        self.numbers.append(number)
        self.messages.append(message)
        self.room -= len(message.body)

    def apart(self) -> Iterator["Parcel"]:
        """Each letter in a parcel of its own."""
        for number, message in zip(self.numbers, self.messages, strict=True):
            one = Parcel(self.place)
            one.add(number, message)
            yield one

    @property
    def is_full(self) -> bool:
        """Whether it should be on its way."""
        return self.room <= 0 or len(self.numbers) >= _MOST_LETTERS


def may_share(message: Message) -> bool:
    """Whether a message may go with others. Ordered ones go one at a time, and what a broker may refuse for
    itself goes alone."""
    properties = message.properties
    return (
        message.reconsume_limit is None
        and 0 < len(message.body) <= _MOST_BYTES
        and sum(map(len, properties)) + sum(map(len, properties.values())) <= _MOST_CHARACTERS
        and SHARDING_KEY not in properties
    )


def framed(link: Link, parcel: Parcel) -> tuple[int, bytes]:
    """The request, not sent yet, and its opaque number."""
    first, is_batch = parcel.messages[0], len(parcel.messages) > 1
    own = {
        "g": str(time.time_ns() // 1_000_000),
        "i": "" if is_batch else _properties(first),
        "m": "true" if is_batch else "false",
    }
    body = _batch(parcel.messages) if is_batch else first.body
    code = Ask.SEND_BATCH if is_batch else Ask.SEND_V2
    shared = (first.topic, parcel.place[1], first.sys_flag, first.flag, first.reconsume_limit)
    if link.signs:
        return link.frame(code, {**_fields(*shared), **own}, body)
    return link.frame_of(code, f"{_written(*shared)},{written(own)}", body)


def _properties(message: Message) -> str:
    return "".join([f"{name}\x01{value}\x02" for name, value in message.properties.items()])


def _batch(messages: Sequence[Message]) -> bytes:
    """See MessageDecoder.encodeMessages; magic and checksum are the broker's to fill in."""
    parts: list[bytes] = []
    for message in messages:
        block = _properties(message).encode(errors="replace")
        size = _AROUND + len(message.body) + len(block)
        parts += (
            _INNER.pack(size, 0, 0, message.flag, len(message.body)),
            message.body,
            _LENGTH.pack(len(block)),
            block,
        )
    return b"".join(parts)


def _fields(topic: str, queue: int, sys_flag: int, flag: int, reconsume_limit: int | None) -> dict[str, str]:
    """SEND_MESSAGE_V2's short names. The topic is its own default topic, so that none is made by mistake."""
    fields = {
        "a": _GROUP,
        "b": topic,
        "c": topic,
        "d": "1",
        "e": str(queue),
        "f": str(sys_flag),
        "h": str(flag),
        "j": "0",
        "k": "false",
    }
    return fields if reconsume_limit is None else {**fields, "l": str(reconsume_limit)}


@lru_cache(maxsize=4096)
def _written(topic: str, queue: int, sys_flag: int, flag: int, reconsume_limit: int | None) -> str:
    return written(_fields(topic, queue, sys_flag, flag, reconsume_limit))
