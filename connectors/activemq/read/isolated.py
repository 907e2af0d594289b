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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dlq.connectors.activemq.amqp.read import OF_AMQP, ScanOfBoth
from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.records.frames import Maker
from dlq.connectors.activemq.stomp.codec import Frame, headers_of
from dlq.connectors.activemq.stomp.link import Link
from dlq.connectors.activemq.stomp.read import Acks
from dlq.connectors.base import Batch, Skipped
from dlq.connectors.net.web import whole
from dlq.connectors.queue import POLL, until_acknowledged
from dlq.core.errors import AccessDenied, BrokerError, DlqError
from dlq.core.record import Record

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
    """Where it died Artemis gave it a number of its own; elsewhere its producer's id must do."""
    found: list[_Listed] = []
    ids = [str(one.get("userID", "")) for one in messages]
    for one, user_id in zip(messages, ids, strict=True):
        number, core_id = whole(one.get("_AMQ_ORIG_MESSAGE_ID")), whole(one.get("messageID")) or 0
        if number is not None:
            found.append(_Listed(core_id, str(number), f"{OF_AMQP} AND _AMQ_ORIG_MESSAGE_ID = {number}"))
        elif user_id and ids.count(user_id) == 1:
            quoted = user_id.replace("'", "''")
            found.append(_Listed(core_id, user_id, f"{OF_AMQP} AND AMQUserID = '{quoted}'"))
        else:
            found.append(_Listed(core_id, f"message {core_id}", None))
    return found


@dataclass(frozen=True)
class IsolatedScan(ScanOfBoth):
    """How such a queue is read."""

    broker: ActiveMQBroker
    management: Management
    destination: Mapping[str, str]
    how: Callable[[Link], tuple[Maker, Callable[[Frame], str | None]]]
    """(Link) -> what makes records, and what says why a letter must stay."""

    def begin(self, limit: int | None) -> "IsolatedReading":
        """Connect. Raises BrokerError."""
        return IsolatedReading(self, limit)


class _Probe:
    """A queue of our own, in which copies are asked for one by one."""

    def __init__(self, scan: IsolatedScan) -> None:
        self._scan, self._queue = scan, f"dlq.reply.probe-{secrets.token_hex(8)}"
        self._link: Link | None = None
        self._is_there = False

    def is_shown(self, core_id: int) -> bool | None:
        """Whether STOMP shows this message; None where it could not be tried."""
        management = self._scan.management
        try:
            link = self._connected()
        except AccessDenied:
            return None
        if not management.copy(self._scan.queue, core_id, self._queue):
            return None
        try:
            heard = time.monotonic()
            while time.monotonic() - heard < _COPIED_SECONDS:
                if link.receive(POLL):
                    return True
        except BrokerError:
            self._close()
            management.empty(self._queue)
            return False
        return None

    def _connected(self) -> Link:
        if self._link is None:
            self._link = Link(self._scan.broker)
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
            self._scan.management.destroy(self._queue)
            self._is_there = False


class IsolatedReading:
    """See `dlq.connectors.chain.Part`. Positions count first what is no message of AMQP 1.0."""

    def __init__(self, scan: IsolatedScan, limit: int | None) -> None:
        self._scan = scan
        bounds = [bound for bound in (scan.depth, limit) if bound is not None]
        self._goal = min(bounds) if bounds else None
        self._met: set[int] = set()
        depth = None if scan.depth is None else max(0, scan.depth - len(self._list()))
        self._first = replace(scan.others, depth=depth).begin(limit)
        self.complete = False
        self._position = self._stay = self._settled = 0
        self._link: Link | None = None
        self._acks: Acks | None = None
        self._probe = _Probe(scan)
        self._held: list[str] = []
        self._opened = 0

    @property
    def position(self) -> int:
        """That of the last letter delivered."""
        return self._first.position + self._position

    @property
    def seen(self) -> int:
        """See `Part`."""
        return self._first.seen + self._position + self._stay

    def batches(self) -> Iterator[Batch]:
        """See `Part`."""
        yield from self._first.batches()
        while not self._is_reached() and (letters := self._list()):
            room = _AT_ONCE if self._goal is None else min(_AT_ONCE, self._goal - self.seen)
            self._met.update(letter.core_id for letter in letters[:room])
            yield from self._some(letters[:room])
        is_all = self._first.complete if self._goal is None else self._is_reached()
        self.complete = is_all and not self._stay

    def _is_reached(self) -> bool:
        return self._goal is not None and self.seen >= self._goal

    def _list(self) -> list[_Listed]:
        """What management lists, and was not met before."""
        messages = self._scan.management.messages(self._scan.queue, OF_AMQP) or []
        return [letter for letter in identify_messages(messages) if letter.core_id not in self._met]

    def _some(self, letters: Sequence[_Listed]) -> Iterator[Batch]:
        """Those that come are held until they are acknowledged, or given back."""
        reasons = {letter: self._why_not(letter) for letter in letters}
        self._link = link = Link(self._scan.broker)
        self._acks = Acks(link, cumulative=False)
        make, lossy = self._scan.how(link)
        frames = self._asked_for(link, [letter for letter in letters if reasons[letter] is None])
        taken: list[Frame] = []
        skipped: list[Skipped] = []
        for letter in letters:
            frame = frames.get(letter)
            why = reasons[letter] or (lossy(frame) if frame else _AWAY)
            if frame is None or why is not None:
                self._stay += 1
                skipped.append(Skipped(letter.name, why or _AWAY))
                continue
            taken.append(frame)
            self._position += 1
            if self._scan.others.request.mode == "drain":
                self._acks.owed.add(self.position, frame.head)
        records: Sequence[Record] = make(taken) if taken else ()
        yield Batch(records, self.position, skipped=skipped)
        yield from until_acknowledged(lambda: self._acks and self._acks.owed, self.position)
        self._let_go()

    def _why_not(self, letter: _Listed) -> str | None:
        """Why it cannot be had by STOMP, or None."""
        if letter.selector is None:
            return _NAMELESS
        return {True: None, False: _NOT_SHOWN, None: _AWAY}[self._probe.is_shown(letter.core_id)]

    def _asked_for(self, link: Link, letters: Sequence[_Listed]) -> dict[_Listed, Frame]:
        """The letters that come, each to a consumer of its own."""
        consumers = {}
        for letter in letters:
            self._opened += 1
            consumers[name := f"{link.token}-{self._opened}"] = letter
            own = {"id": name, "selector": letter.selector or "", "ack": "client-individual"}
            link.request("SUBSCRIBE", {**self._scan.destination, **own})
        self._held = list(consumers)
        found: dict[_Listed, Frame] = {}
        heard = time.monotonic()
        while len(found) < len(letters) and time.monotonic() - heard < _QUIET_SECONDS:
            for frame in link.receive(POLL):
                heard = time.monotonic()
                found[consumers[headers_of(frame.head).get("subscription", "")]] = frame
        return found

    def _let_go(self) -> None:
        """Give back what was not acknowledged, which counts no delivery."""
        if self._link is None or self._acks is None:
            return
        self._settled = max(self._settled, self._acks.settled_position())
        for consumer in self._held:
            self._link.request("UNSUBSCRIBE", {"id": consumer})
        self._link.close()
        self._link, self._acks, self._held = None, None, []

    def acknowledge(self, position: int) -> None:
        """See `Part`."""
        self._first.acknowledge(min(position, self._first.position))
        if self._acks is not None and position > self._first.position:
            self._acks.acknowledge(position)

    def settled_position(self) -> int:
        """See `Part`."""
        first = self._first.settled_position()
        if first < self._first.position:
            return first
        if self._acks is not None:
            self._settled = max(self._settled, self._acks.settled_position())
        return max(first, self._settled)

    def close(self) -> None:
        """Give back what was not acknowledged. Never raises."""
        with suppress(DlqError):
            self._let_go()
        if self._link is not None:
            self._link.close()
        self._probe.close()
        self._first.close()
