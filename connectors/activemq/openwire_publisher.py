"""Replays to Classic by its own protocol, OpenWire: less work for the broker, and properties keep types.

STOMP stays the way to read, and to look for markers; so before anything is sent a marker goes out by
OpenWire and is looked for by STOMP. Two addresses of different brokers would send letters that are never
found again.
"""

import contextlib
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count

from dlq.connectors.activemq import openwire
from dlq.connectors.activemq.description import ActiveMQBroker
from dlq.connectors.activemq.marker import check_rights, committed, marker_body, marker_queue
from dlq.connectors.activemq.openwire import Reader
from dlq.connectors.activemq.refusals import RolledBack, refusal
from dlq.connectors.activemq.republishing import content, types_of
from dlq.connectors.activemq.sockets import open_socket, openwire_address_of, password_for
from dlq.connectors.activemq.stomp import text_of
from dlq.connectors.activemq.stomp_connection import Link, unanswered
from dlq.connectors.base import Inspection, Outgoing
from dlq.core import units
from dlq.core.errors import AccessDenied, BrokerError, ConfigError, ConnectionLost, DlqError, Unreachable

_RECEIVE, _PIECE = 2**16, 2**17
_REASON_SECONDS = 0.5
_SPARE = 1000
"""Answers beyond those that we asked for."""
_CHECK = "1"
"""The transaction of `check`; those of a replay are numbered from there on, which the broker allows."""
_REPLY_TO = {
    "/queue/": "queue",
    "/topic/": "topic",
    "/remote-temp-queue/": "temp-queue",
    "/remote-temp-topic/": "temp-topic",
}
_numbers = count(1)


class OpenWireSender:
    """One connection; see `Sender`."""

    artemis = False

    def __init__(self, broker: ActiveMQBroker) -> None:
        """Connects. Raises ConfigError, Unreachable, AccessDenied."""
        address = openwire_address_of(broker)
        self._broker, self._timeout = broker, units.seconds(broker.timeout)
        self._socket, self.node = open_socket(broker, address)
        self._socket.settimeout(self._timeout)
        self._reader = Reader()
        self._issued = 0
        self._answered: set[int] = set()
        self._refused: dict[int, BrokerError] = {}
        # Never used before: a broker drops what a known connection seems to repeat.
        name = f"ID:dlq-{os.getpid()}-{time.time_ns() // 1_000_000}-{secrets.token_hex(4)}:{next(_numbers)}"
        self._writer = openwire.Writer(name)
        try:
            self._login(address.user)
        except BaseException:
            self.close()
            raise

    def _login(self, user: str) -> None:
        secret = password_for(self._broker, user)
        self.send(openwire.greeting())
        deadline = time.monotonic() + self._timeout
        while not self._reader.version:
            if time.monotonic() > deadline:
                raise Unreachable(f"{self._place}: no answer; is this the OpenWire port?")
            self._read(1.0)
        if self._reader.version < openwire.VERSION:
            said = f"the broker speaks OpenWire {self._reader.version}, not {openwire.VERSION}"
            raise BrokerError(f"{self._place}: {said}; take openwire_url out")
        receipt = self.new_receipt()
        self.send(self._writer.connect(user or None, secret if user else None, int(receipt)))
        try:
            self.wait_for(receipt)
        except ConnectionLost:
            raise
        except BrokerError as error:
            raise AccessDenied(f"{error}; check user and password") from error

    @property
    def _place(self) -> str:
        return f"{self._broker.name} ({self.node})"

    def check(self, plan: str) -> None:
        """Commit a marker by OpenWire, and look for it by STOMP: both addresses must be of one broker."""
        link, token = Link(self._broker), f"check-{secrets.token_hex(8)}"
        try:
            check_rights(link, plan)
            written, done = self.new_receipt(), self.new_receipt()
            commands = (
                self.begin(_CHECK),
                self.marker(plan, [token], _CHECK, written),
                self.commit(_CHECK, done),
            )
            self.send(b"".join(commands))
            self.wait_for(done)
            if token not in committed(link, plan):
                other = f"{self.node} is another broker than {link.node} of url"
                raise ConfigError(
                    f"brokers.{self._broker.name}.openwire_url: {other}; what is sent there is not found here"
                )
        finally:
            link.close()

    def new_receipt(self) -> str:
        """The next number: OpenWire's answers name the number of their command."""
        self._issued += 1
        return str(self._issued)

    def proven(self, plan: str) -> set[str]:
        """By the markers, over a STOMP connection."""
        link = Link(self._broker)
        try:
            return committed(link, plan)
        finally:
            link.close()

    def begin(self, transaction: str) -> bytes:
        """TransactionInfo that begins it."""
        return self._writer.transaction("begin", int(transaction))

    def commit(self, transaction: str, receipt: str) -> bytes:
        """TransactionInfo that commits in one phase; the broker answers it."""
        return self._writer.transaction("commit", int(transaction), int(receipt))

    def letter(self, letter: Outgoing, transaction: str) -> bytes:
        """The message with its types; the broker does not answer it, only the commit."""
        return self._writer.message(message_of(letter), int(transaction))

    def marker(self, plan: str, replay_ids: Sequence[str], transaction: str, receipt: str) -> bytes:
        """A persistent message into the plan's queue; the broker answers it."""
        place = openwire.destination("queue", marker_queue(plan))
        message = openwire.Letter(place, False, marker_body(replay_ids), openwire.properties({}, {}), _now())
        return self._writer.message(message, int(transaction), int(receipt))

    def send(self, data: bytes) -> None:
        """In pieces: the time-out is for each, however large a body is."""
        try:
            for at in range(0, len(data), _PIECE):
                self._socket.sendall(data[at : at + _PIECE])
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error

    def wait_for(self, receipt: str) -> None:
        """At least 30 seconds, or the time-out. Raises what the broker refused, else ConnectionLost."""
        number, patience = int(receipt), max(self._timeout, 30.0)
        deadline = time.monotonic() + patience
        while number not in self._answered:
            if number in self._refused:
                raise self._refused[number]
            if time.monotonic() > deadline:
                raise unanswered(self._place, patience)
            self._read(1.0)
        self._answered.discard(number)

    def was_refused(self, receipt: str) -> bool:
        """Whether the broker answered that number with an exception."""
        return int(receipt) in self._refused

    def _read(self, wait: float) -> None:
        """Keep the answers that come within `wait` seconds. Raises the first refusal."""
        self._socket.settimeout(wait)
        try:
            data = self._socket.recv(_RECEIVE)
        except TimeoutError:
            return
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error
        finally:
            self._socket.settimeout(self._timeout)
        if not data:
            raise self._lost("closed by the broker")
        answers = self._reader.feed(data)
        self._answered.update(answer.receipt for answer in answers if answer.error is None)
        refused = {a.receipt: refusal(self._place, a.error, a.thrown) for a in answers if a.error is not None}
        self._refused |= refused
        if len(self._answered) + len(self._refused) > self._issued + _SPARE:
            raise self._lost("the broker answers more than it was asked")
        if refused:
            raise self._explained(next(iter(refused.values())))

    def _explained(self, refused: BrokerError) -> BrokerError:
        """Which letter it refused the broker says from another thread, maybe after COMMIT's answer."""
        if not isinstance(refused, RolledBack):
            return refused
        until = time.monotonic() + _REASON_SECONDS
        with contextlib.suppress(BrokerError):  # the reason, which is kept, or the end of the connection
            while not self._reasons() and time.monotonic() < until:
                self._read(_REASON_SECONDS)
        reason = next(iter(self._reasons()), None)
        return refused if reason is None else type(reason)(f"{reason} ({refused})")

    def _reasons(self) -> list[BrokerError]:
        return [error for error in self._refused.values() if not isinstance(error, RolledBack)]

    def _lost(self, reason: str) -> ConnectionLost:
        hint = "" if self._reader.version else "; is this the OpenWire port?"
        return ConnectionLost(f"{self._place}: the connection ended: {reason}{hint}")

    def close(self) -> None:
        """Say goodbye (ShutdownInfo) and close the socket."""
        with contextlib.suppress(BrokerError, OSError):
            self.send(openwire.goodbye())
        with contextlib.suppress(OSError):
            self._socket.close()


def with_openwire(found: Inspection, broker: ActiveMQBroker) -> Inspection:
    """What `dlq doctor` says, and whether replays could go by OpenWire."""
    try:
        sender = OpenWireSender(broker)
    except DlqError as error:
        return replace(found, warnings=[*found.warnings, f"Replays would not be sent: {error}."])
    sender.close()
    return replace(found, facts={**found.facts, "replays": f"by OpenWire, to {sender.node}"})


def _now() -> int:
    return time.time_ns() // 1_000_000


def message_of(letter: Outgoing) -> openwire.Letter:
    """A letter as a message: what STOMP calls headers goes into its fields, the rest are properties."""
    _, record, target, provenance, keep_headers = letter
    headers, body, measured = content(record, target, provenance, keep_headers, to_artemis=False)
    field = {name: headers.pop(name) for name in _FIELDS if name in headers}
    is_text = not measured or field.get("amq-msg-type") == "text"
    return openwire.Letter(
        openwire.destination(letter.target.kind, letter.target.name),
        is_text,
        openwire.modified_utf8(text_of(body) or "") if is_text else body,
        openwire.properties(headers, types_of(letter.record)),
        _number(field.get("timestamp"), 0, 2**63 - 1) or _now(),
        _number(field.get("priority"), 4, 9),
        field.get("correlation-id"),
        _reply_to(field.get("reply-to", "")),
        field.get("type"),
        field.get("JMSXGroupID"),
    )


_FIELDS = (
    "destination", "persistent", "amq-msg-type", "timestamp", "priority", "correlation-id", "reply-to",
    "type", "JMSXGroupID",
)  # fmt: skip


def _number(text: str | None, otherwise: int, most: int) -> int:
    return min(int(text), most) if text is not None and text.isascii() and text.isdigit() else otherwise


@lru_cache(1024)
def _reply_to(text: str) -> bytes:
    """As the broker shows destinations to STOMP clients (its FrameTranslator); none for anything else."""
    for prefix, kind in _REPLY_TO.items():
        if text.startswith(prefix):
            return openwire.destination(kind, text.removeprefix(prefix))
    return openwire.NONE
