"""Messages of the client library, column by column: thousands of them have most things in common."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from dlq.connectors.kafka.records.raw import Alike, Headers, RawRecord, alike
from dlq.core.columns import Column, collapse
from dlq.core.headers.kafka_headers import SHARE_GROUP

_POINTS_TO = f"{SHARE_GROUP}offset"


class Original(NamedTuple):
    """What a pointer led to: the record, or why there is none to show."""

    raw: RawRecord | None = None
    value: bytes | None = None
    why_not: str = ""


class Letters(NamedTuple):
    """What one or more messages are."""

    topics: Column
    partitions: Column
    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]
    same_names: Alike | None
    """The headers once more, where all have the same names in the same order."""
    timestamps: list[int]
    """Milliseconds since the epoch; -1 where a message has none."""
    is_log_append: Column

    def pointers(self) -> list[int]:
        """Return the numbers of those that a share group's broker wrote (KIP-1191), with the record or
        without."""
        if self.same_names is not None and all(name != _POINTS_TO for name, _ in self.same_names):
            return []
        return [
            number
            for number, headers in enumerate(self.headers)
            if any(name == _POINTS_TO for name, _ in headers)
        ]

    def with_originals(self, originals: Mapping[int, Original]) -> "Letters":
        """Return the same, with key, value, headers and time of the original where a pointer led to one."""
        if all(original.raw is None for original in originals.values()):
            return self
        found = self._replace(
            keys=[*self.keys], values=[*self.values], headers=[*self.headers], same_names=None
        )
        for number, (raw, value, _) in originals.items():
            if raw is not None:
                found.keys[number], found.values[number], found.headers[number] = raw.key, value, raw.headers
        return found


def letters_of(messages: Sequence[Any], headers: list[Headers]) -> Letters:
    """Return messages as they came, with the headers of each; null is None."""
    kinds, times = zip(*map(Message.timestamp, messages), strict=True)
    offsets: Iterable[Any] = map(Message.offset, messages)
    return Letters(
        collapse([*map(Message.topic, messages)]),
        collapse([*map(Message.partition, messages)]),
        [*offsets],
        [*map(Message.key, messages)],
        [*map(Message.value, messages)],
        headers,
        alike(headers),
        [time if kind else -1 for kind, time in zip(kinds, times, strict=True)],
        collapse([kind == TIMESTAMP_LOG_APPEND_TIME for kind in kinds]),
    )


def raw_of(message: Any, headers: Headers) -> RawRecord:
    """Return what one is beside its value."""
    kind, timestamp = message.timestamp()
    return RawRecord(
        message.key(),
        headers,
        timestamp if kind else -1,
        kind == TIMESTAMP_LOG_APPEND_TIME,
        message.value() is None,
    )
