"""One letter of a plan: who it is, which trip this is, and what its replay is called."""

from hashlib import sha256
from typing import NamedTuple, Protocol

from dlq.connectors.base import Outgoing, Target
from dlq.core.brokers import plugin_of, resolve
from dlq.core.headers.failure_headers import Keep
from dlq.core.headers.provenance import REPLAY_ID, REPLAY_LAP, REPLAY_OF
from dlq.core.record import Record

_KEY_HEX_DIGITS = 32


class Letter(NamedTuple):
    """One line of a plan. `number` counts from 0; `segment` and `row` say where the record lies."""

    number: int
    record_id: str
    key: str
    lap: int
    broker: str
    segment: str
    row: int
    target: Target
    content: str = ""
    """The digest of what is sent (`dlq.replay.plans.content`); empty in a plan of an older dlq."""
    business_key: str = ""
    """In a plan in order: what it goes after the others of; empty: it goes at any time."""


class Located(Protocol):
    """A letter of a plan, or a `Place`: enough to find the record."""

    @property
    def record_id(self) -> str:
        """Whose row it is."""

    @property
    def segment(self) -> str:
        """The stem of the segment when the plan was made."""

    @property
    def row(self) -> int:
        """The row in that segment, from 0."""


class Place(NamedTuple):
    """Where a record lies, before it is a letter of a plan."""

    record_id: str
    segment: str
    row: int


def lap_of(record: Record) -> int:
    """Return which trip a replay of `record` would be: 1, or one more than the trip it came back from."""
    text = record.headers.get(REPLAY_LAP) or record.properties.get(REPLAY_LAP)
    return int(text) + 1 if text and text.isascii() and text.isdigit() and len(text) < 9 else 1


def transaction_of(record: Record) -> str | None:
    """Return the transaction that a half message belongs to; all its copies have the same."""
    reference = plugin_of(record.broker_kind).transaction
    found: str | None = resolve(reference)(record) if reference else None
    return found


def replay_key(
    record: Record, target: Target, by_business_key: bool, lap: int, transaction: str | None
) -> str:
    """Return the ledger's key: one message, on one trip, to one place, has the same key everywhere.

    The broker is called what it was called at the pull: another name for it must not send everything again.
    A transaction has one key for good: to resume it, to publish it, or to send another copy of it is the same
    business once more.
    """
    if transaction:
        parts: tuple[str, ...] = (record.broker, f"transaction:{transaction}")
    else:
        parts = (record.broker, *target, str(lap), _identity(record, by_business_key))
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_KEY_HEX_DIGITS]


def _identity(record: Record, by_business_key: bool) -> str:
    """Return what makes it the same message: its business key if the source names one, else the record id."""
    return f"key:{record.key}" if by_business_key and record.key else f"record:{record.record_id}"


def make_outgoing(letter: Letter, record: Record, keep_headers: Keep) -> Outgoing:
    """Return a letter of a plan as the connector gets it, with the headers of every replayed message."""
    provenance = {REPLAY_ID: letter.key, REPLAY_LAP: str(letter.lap), REPLAY_OF: letter.record_id}
    return Outgoing(letter.number, record, letter.target, provenance, keep_headers)
