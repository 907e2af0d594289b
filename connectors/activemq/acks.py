"""Acknowledgements of one reading: what is owed to the broker, in blocks.

The last letter's goes alone and with a receipt: Classic syncs the disk for every letter that a receipt
covers (KahaDBStore#removeMessage), and one sync holds all before it.
"""

from collections import deque

from dlq.connectors.activemq.stomp_connection import Link
from dlq.connectors.activemq.unnamed import is_unnamed, take

PAGE = 200
"""Classic pages in 200 letters (maxPageSize) at each event of a queue, such as an acknowledgement or a new
consumer, and then stops, however large the window: seen on 5.18.6 and 6.3.1. So one acknowledgement covers
no more, and until the first one the queue is nudged."""


class Acks:
    """Positions are the reading's. With `cumulative` an acknowledgement covers all letters before it."""

    def __init__(self, link: Link, cumulative: bool) -> None:
        self._link, self.cumulative = link, cumulative
        self._open: deque[tuple[int, bytes]] = deque()
        """Position and head."""
        self._unnamed: list[tuple[int, bytes]] = []
        """Those of them that are durable, but that no acknowledgement names nor covers yet."""
        self._awaited: tuple[str, int] | None = None
        self._settled = 0
        self.begun = False

    def owe(self, position: int, head: bytes) -> None:
        """A letter that is to be acknowledged once it is durable."""
        self._open.append((position, head))

    @property
    def pending(self) -> bool:
        """Whether the caller holds letters that are not durable yet."""
        return bool(self._open)

    def acknowledge(self, position: int) -> bool:
        """Send what is owed up to there; whether that was anything."""
        ids, reached = self._durable(position)
        if not ids:
            return False
        self.begun = True
        self._awaited = (self._link.new_receipt(), reached)
        before = ids[-2 :: -PAGE if self.cumulative else -1][::-1]
        last = b"ACK\nid:%b\nreceipt:%b\n\n\0" % (ids[-1], self._awaited[0].encode())
        self._link.send(b"".join([b"ACK\nid:%b\n\n\0" % ack_id for ack_id in before]) + last)
        return True

    def _durable(self, position: int) -> tuple[list[bytes], int]:
        """Ack ids up to there, and how far they reach: before what they neither name nor cover."""
        ids: list[bytes] = []
        reached = 0
        while self._open and self._open[0][0] <= position:
            place, head = self._open.popleft()
            if is_unnamed(head, self._link.artemis):
                self._unnamed.append((place, head))
                continue
            reached = place
            ids.append(ack_id(head))
            if self.cumulative:
                self._unnamed.clear()
        return ids, min(reached, self._unnamed[0][0] - 1) if self._unnamed else reached

    def settled(self) -> int:
        """Wait for the answer; the position that it covers. Raises BrokerError."""
        if self._awaited is not None:
            receipt, position = self._awaited
            self._link.wait_for(receipt)
            self._settled, self._awaited = position, None
        return self._settled

    def has_unnamed(self) -> bool:
        """Whether some are owed that no acknowledgement can name."""
        return bool(self._unnamed) or any(is_unnamed(head, self._link.artemis) for _, head in self._open)

    def take_unnamed(self, destination: str) -> None:
        """Remove them, once no consumer holds them any more and nothing is pending. Raises BrokerError."""
        if self._unnamed:
            take(self._link, destination, [head for _, head in self._unnamed])
            self._settled = max(self._settled, self._unnamed[-1][0])
            self._unnamed.clear()


def ack_id(head: bytes) -> bytes:
    """The `ack` header as it came: it goes back escaped as it is."""
    begin = 4 if head.startswith(b"ack:") else head.find(b"\nack:") + 5
    end = head.find(b"\n", begin)
    return head[begin:] if end < 0 else head[begin:end]
