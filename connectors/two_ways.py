"""Letters of two kinds on their way back in the order of their plan, each kind by its own protocol."""

from collections.abc import Callable, Iterator

from dlq.connectors.base import Outgoing, Publisher, Sent, Writing, keep_no_mark
from dlq.core.errors import DlqError

_ENDED = "the connection ended while it was sent"


class TwoWayPublisher:
    """Each run of letters of one kind goes by its way; the second is connected to when there is one for
    it."""

    def __init__(
        self, first: Publisher, second: Callable[[], Publisher], goes_second: Callable[[Outgoing], bool]
    ) -> None:
        self._first, self._connect, self._goes_second = first, second, goes_second
        self.anchor = first.anchor
        self._second: Publisher | None = None
        self._next: Outgoing | None = None

    def publish(self, outgoing: Iterator[Outgoing], writing: Writing = keep_no_mark) -> Iterator[Sent]:
        """See `Publisher.publish`."""
        self._next = next(outgoing, None)
        try:
            while self._next is not None:
                publisher = self._publisher_of(self._next)
                yield from publisher.publish(self._run(outgoing), writing)
        except DlqError:
            if self._next is not None:
                yield Sent(self._next.number, "in_doubt", _ENDED)
            raise

    def _publisher_of(self, letter: Outgoing) -> Publisher:
        if not self._goes_second(letter):
            return self._first
        if self._second is None:
            self._second = self._connect()
        return self._second

    def _run(self, outgoing: Iterator[Outgoing]) -> Iterator[Outgoing]:
        """Yield letters up to the first of the other kind, which waits."""
        kind = self._goes_second(self._next) if self._next else False
        while self._next is not None and self._goes_second(self._next) is kind:
            letter, self._next = self._next, None
            yield letter
            self._next = next(outgoing, None)

    def close(self) -> None:
        """See `Publisher.close`."""
        self._first.close()
        if self._second is not None:
            self._second.close()
