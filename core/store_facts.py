"""What a store outside says of a message, whatever kind of store it is."""

from typing import NamedTuple


class Fact(NamedTuple):
    """What lies under one of a store's keys.

    `key` and `state` are the kind's own: `rocketmq-dedup` has application:topic[:tag]:key, and CONSUMING or
    CONSUMED; `shine-mq` has message:ID or work:ID, and prepared, ready, rolled_back or retries.
    """

    key: str
    state: str
    until: int | None = None
    """When the store forgets it, in microseconds since the epoch; None: never."""
    number: int | None = None
    """A counter's value."""
