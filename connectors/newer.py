"""Whether the log that a letter came from holds a newer message of its key: the question, and the answer.

Nothing is concluded from absence: a letter has no newer one only where its own message still lies in the log
and all that came behind it was looked at. Everything else is said to be not looked at, and why.
"""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from dlq.core.clock import iso
from dlq.core.keys import KeyReader
from dlq.core.record import Record
from dlq.core.values.units import human_seconds


class Bound:
    """How long, and at how much, one broker is looked at. The time runs from now on."""

    def __init__(self, seconds: float, messages: int, size: int) -> None:
        """`size` in bytes."""
        self.messages, self._size = messages, size
        self._most = f"not within {human_seconds(seconds)}, {messages:,} messages and {size >> 30} GiB"
        self._until = time.monotonic() + seconds

    def take(self, messages: int, size: int) -> None:
        """Note that so much more was looked at."""
        self.messages -= messages
        self._size -= size

    def is_reached(self) -> bool:
        """Return whether nothing more is looked at."""
        return self.messages <= 0 or self._size <= 0 or time.monotonic() > self._until

    def __str__(self) -> str:
        """Return why no more was looked at."""
        return self._most


class Sought(NamedTuple):
    """A letter of which something newer may be in a log."""

    record: Record
    reads: KeyReader
    """The business key of its source."""
    is_asked: bool = True
    """False: its place alone is wanted, to compare others with."""


@dataclass(frozen=True)
class NewerSearch:
    """Letters of one broker that may be superseded; they come once, and may be many."""

    letters: Iterable[Sought]
    died: Collection[tuple[str | None, str]]
    """(Consumer group, message id) of messages that died themselves: they replaced nothing."""
    bound: Bound
    begin: Callable[[int], None]
    """To be told, before the first message, how many are looked at, at most."""


class Newer(NamedTuple):
    """A newer message of a letter's key that did not die, as far as the archive knows."""

    place: str
    offset: int
    sent_at: int | None
    """Microseconds since the epoch."""
    group: str | None
    """The one that failed on the letter."""
    is_consumed: bool | None
    """By that group; None: nobody tells."""

    def __str__(self) -> str:
        """Return the words for a person."""
        sent = f", sent {iso(self.sent_at)}" if self.sent_at is not None else ""
        has = "has consumed it" if self.is_consumed else "has not consumed it yet"
        consumed = "who has consumed it is not known" if self.is_consumed is None else f"{self.group} {has}"
        return f"{self.place} holds a newer one of its key at offset {self.offset}{sent}; {consumed}"


@dataclass
class NewerProof:
    """What a log shows of the letters of a search, by their numbers in it, from 0."""

    newer: dict[int, Newer] = field(default_factory=dict)
    unlooked: dict[int, str] = field(default_factory=dict)
    """Why it is not known of a letter that was asked for."""
    places: dict[int, tuple[str, int]] = field(default_factory=dict)
    """In which log a letter's own message lay, and where: of two in one log the higher is the newer."""
