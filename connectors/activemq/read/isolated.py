"""One scan of an Artemis queue where AMQP 1.0 is not spoken: what came by it is tried on a copy first.

Over a message of AMQP 1.0 that Artemis cannot convert for STOMP it ends the connection, and counts a delivery
for each letter that was in flight over it (2.56.0); at the limit they go from the DLQ to the DLQ and lose
their origin. So management copies each such message to a queue of our own, and the copy is asked for there:
one whose copy does not come is passed over and named, and nothing has touched it. The others are then taken,
each by what management lists of it.

Management lists the messages of AMQP 1.0 among the first 200 that lie in the queue and are not in flight
(management-browse-page-size). So it is asked when the others are in flight, and again when those that it
listed are gone, until it lists none that was not met before.
"""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from dlq.connectors.activemq.amqp.read import OF_AMQP
from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.stomp.codec import Frame, headers_of
from dlq.connectors.activemq.stomp.link import Link
from dlq.connectors.activemq.stomp.read import Scan, StompReading
from dlq.connectors.base import Batch, Skipped
from dlq.connectors.net.web import whole
from dlq.connectors.queue import POLL, IdleTimer
from dlq.core.errors import AccessDenied, BrokerError

_AT_ONCE = 100
_QUIET_SECONDS, _COPIED_SECONDS = 1.0, 3.0
_NOT_SHOWN = "a message of AMQP 1.0 that STOMP cannot show: it stays; set amqp_url"
_NAMELESS = (
    "a message of AMQP 1.0 without an id, which STOMP cannot be asked for alone: it stays; set amqp_url"
)
_AWAY = (
    "a message of AMQP 1.0 that could not be copied, to see whether STOMP shows it: it stays; set amqp_url"
)


class _Listed(NamedTuple):
    """A message as management lists it: its number, its name, and what selects it alone (None: nothing)."""

    core_id: int
    name: str
    selector: str | None


def identify_messages(messages: Sequence[Mapping[str, Any]]) -> list[_Listed]:
    """Identify each by the number that Artemis gave it where it died, and by the queue, as the same number
    is in each queue of an address; elsewhere its producer's id must do."""
    found: list[_Listed] = []
    ids = [str(one.get("userID", "")) for one in messages]
    for one, user_id in zip(messages, ids, strict=True):
        number, core_id = whole(one.get("_AMQ_ORIG_MESSAGE_ID")), whole(one.get("messageID")) or 0
        if number is not None:
            queue = str(one.get("_AMQ_ORIG_QUEUE", "")).replace("'", "''")
            where = f" AND _AMQ_ORIG_QUEUE = '{queue}'" if queue else ""
            selector = f"{OF_AMQP} AND _AMQ_ORIG_MESSAGE_ID = {number}{where}"
            found.append(_Listed(core_id, str(number), selector))
        elif user_id and ids.count(user_id) == 1:
            quoted = user_id.replace("'", "''")
            found.append(_Listed(core_id, user_id, f"{OF_AMQP} AND AMQUserID = '{quoted}'"))
        else:
            found.append(_Listed(core_id, f"message {core_id}", None))
    return found


def list_messages(management: Management, queue: str) -> list[_Listed]:
    """Return those of AMQP 1.0 that management lists."""
    return identify_messages(management.messages(queue, OF_AMQP) or [])


class _Probe:
    """A queue of our own, in which copies are asked for one by one."""

    def __init__(self, broker: ActiveMQBroker, management: Management, source: str) -> None:
        self._broker, self._management, self._source = broker, management, source
        self._queue = f"dlq.reply.probe-{secrets.token_hex(8)}"
        self._link: Link | None = None
        self._is_there = False

    def is_shown(self, core_id: int) -> bool | None:
        """Return whether STOMP shows this message; None where it could not be tried."""
        try:
            link = self._connect()
        except AccessDenied:
            return None
        if not self._management.copy(self._source, core_id, self._queue):
            return None
        try:
            heard = time.monotonic()
            while time.monotonic() - heard < _COPIED_SECONDS:
                if link.receive(POLL):
                    return True
        except BrokerError:
            self._close()
            self._management.empty(self._queue)
            return False
        return None

    def _connect(self) -> Link:
        if self._link is None:
            self._link = Link(self._broker)
            own = {"id": self._link.token, "destination": self._queue, "ack": "auto"}
            self._link.request("SUBSCRIBE", {**own, "subscription-type": "ANYCAST"})
            self._is_there = True
        return self._link

    def _close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def close(self) -> None:
        """Take the queue away. Never raises."""
        self._close()
        if self._is_there:
            self._management.destroy(self._queue)
            self._is_there = False


class IsolatedReading(StompReading):
    """Read each by a consumer of its own; those that come are held until acknowledged or given back."""

    def __init__(self, scan: Scan, broker: ActiveMQBroker, management: Management, limit: int | None) -> None:
        """Connects. Raises BrokerError."""
        super().__init__(scan, limit)
        self._probe = _Probe(broker, management, scan.queue)
        self._list = partial(list_messages, management, scan.queue)
        self._met: set[int] = set()

    def batches(self) -> Iterator[Batch]:
        """See `Part`."""
        yield from super().batches()
        self.complete = self.complete and not self._stays

    def consume(self) -> None:
        """See `prepare`."""

    def prepare(self) -> Iterator[Batch]:
        """Ask for what management lists and was not met before; what cannot be had stays."""
        if self._arrived:
            return
        yield from self._release()
        if self._ended:
            return
        room = _AT_ONCE if self._goal is None else min(_AT_ONCE, self._goal - self.seen)
        letters = [letter for letter in self._list() if letter.core_id not in self._met][:room]
        self._met.update(letter.core_id for letter in letters)
        self._ended = not letters
        skipped = [Skipped(letter.name, why) for letter in letters if (why := self._why_not(letter))]
        self._stays += len(skipped)
        self.seen += len(skipped)
        yield Batch((), self.position, skipped=skipped)

    def _why_not(self, letter: _Listed) -> str | None:
        """Return why it cannot be had by STOMP; else it arrives."""
        if letter.selector is None:
            return _NAMELESS
        is_shown = self._probe.is_shown(letter.core_id)
        self._link.receive(0)  # a heart-beat: several copies may take as long as Artemis waits for one
        if not is_shown:
            return _AWAY if is_shown is None else _NOT_SHOWN
        self._opened += 1
        self._consumers.append(name := f"{self._link.token}-{self._opened}")
        self._link.request("SUBSCRIBE", {**self._subscribe, "id": name, "selector": letter.selector})
        frames, silence = list[Frame](), IdleTimer()
        while not frames and silence.seconds < _QUIET_SECONDS:
            came = self._link.receive(POLL)
            silence.wait(POLL, self._link.unfinished_bytes)
            frames = [frame for frame in came if headers_of(frame.head).get("subscription") == name]
        self._arrived.extend(frames)
        return None if frames else _AWAY

    def receive(self, _wait: float) -> Sequence[Frame]:
        """See `prepare`."""
        return ()

    def close(self) -> None:
        """See `Part`."""
        super().close()
        self._probe.close()
