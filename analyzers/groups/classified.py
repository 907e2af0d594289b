"""A letter after the first step of an analysis: classified by itself, not yet compared with others."""

from collections.abc import Sequence
from hashlib import sha256
from struct import Struct
from typing import NamedTuple

from dlq.analyzers.rules.rocketmq import Stored

Identity = tuple[str, str]
"""Source and record_id: a letter that was imported under a second source is there twice."""


class Duplicate(NamedTuple):
    """What a letter is to others. A flag that is None cannot be told."""

    duplicate_group: str | None = None
    duplicate_kind: str | None = None
    first_of_group: bool | None = None
    """It is the oldest."""
    repeats_id: bool = False
    """An older letter has its message id."""
    exact_copy: bool | None = False
    """And the same body."""


class Classified(NamedTuple):
    """What the comparison between letters needs to know of one. Times are microseconds since the epoch."""

    source: str
    record_id: str
    broker: str
    broker_kind: str
    broker_node: str | None
    dead_letter_queue: str
    message_id: str | None
    key: str | None
    body_sha256: str | None
    body_size: int
    published_at: int | None
    dead_at: int | None
    captured_at: int
    cause: str | None
    mechanism: str | None
    rule: str | None
    evidence: str | None
    also_possible: Sequence[str] | None
    transaction_state: str | None
    origin: str | None
    exception_family: str | None
    fingerprint: str
    laps: int
    producer_id: str | None
    producer_seq: int | None
    consumer_id: str | None
    connection_id: str | None
    advice: str
    advice_reason: str
    coordinator: str | None
    work: str | None
    role: str | None
    unique_key: str | None
    rocket: Stored | None
    subscription: str | None
    """Of an address, in which it died: each has its own copy of a message."""
    keys: Sequence[int] = ()
    """What it may share with others (`relations.keys_of`)."""
    user_rule: str | None = None
    """Which of the user's speaks of it. The rest is what relations have found."""
    duplicate: Duplicate = Duplicate()
    store_state: str | None = None
    incident_id: str | None = None
    burst_reason: str | None = None
    """What its burst says of a suppressed duplicate."""
    beside_the_letter: bool = False
    """Another record stands for its transaction."""

    @property
    def identity(self) -> Identity:
        """What no other letter has."""
        return self.source, self.record_id

    @property
    def is_of_burst(self) -> bool:
        """Whether it is a suppressed duplicate of a known connection: `bursts` is about these."""
        return self.cause == "suppressed_duplicate" and self.connection_id is not None


class Sharing(NamedTuple):
    """What tells what a letter may share with others: columns of `Classified`."""

    source: str
    broker: str
    broker_kind: str
    dead_letter_queue: str
    message_id: str | None
    key: str | None
    body_sha256: str | None
    body_size: int
    origin: str | None
    laps: int
    connection_id: str | None
    work: str | None
    role: str | None
    rocket: Stored | None
    subscription: str | None


Key = tuple[str | int, ...]
"""Its kind, and the values that letters have in common."""


def number_of(key: Key) -> int:
    """Return a number that no other key has, though letters are made to look alike."""
    number: int = _first_eight(sha256(repr(key).encode()).digest())[0]
    return number


_first_eight = Struct(">q").unpack_from
