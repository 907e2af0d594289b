"""The ledger remembers what was sent, so that nothing is sent twice. This is its contract.

Every operation is atomic between processes, and between hosts where the ledger is a server.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from dlq.archive.files import make_private
from dlq.archive.store import Store
from dlq.core.errors import Busy, UsageError
from dlq.core.settings import Ledger as LedgerSettings
from dlq.core.units import seconds
from dlq.replay.ledger import location
from dlq.replay.ledger.location import FILE, file_of, is_server, own_file
from dlq.replay.letters import Letter
from dlq.replay.states import State

COLUMNS = (
    "key", "plan", "number", "record_id", "target", "lap", "state", "owner", "lease_until", "sent_at",
    "updated_at", "detail",
)  # fmt: skip
"""All that a ledger holds of a replay, in the order of `everything` and `adopt`."""

REPLAYS = pa.schema(
    [
        ("record_id", pa.string()),
        ("plan", pa.string()),
        ("target", pa.string()),
        ("lap", pa.int32()),
        ("state", pa.string()),
        ("key", pa.string()),
        ("updated_at", pa.timestamp("us", tz="UTC")),
        ("detail", pa.string()),
    ]
)
"""The `replays` view (`dlq.archive.views`), and why."""

_REDIS = ("redis://", "rediss://")
"""Such `[ledger] url`s mean Redis; the second is TLS. All others are SQL."""


class Settlement(NamedTuple):
    """What became of one claimed replay."""

    key: str
    state: State
    detail: str | None = None


class Entry(NamedTuple):
    """One replay as the ledger knows it. Times are microseconds since the epoch."""

    key: str
    plan: str
    number: int
    record_id: str
    target: str
    state: State
    owner: str
    sent_at: int
    detail: str | None


class Ledger(Protocol):
    """The store behind replays. Raises ArchiveError when it can't be read or written."""

    def claim(self, plan: str, letters: Sequence[Letter], settled: Sequence[Settlement] = ()) -> set[str]:
        """Write `settled`, then mark as `sending` what nobody has sent; both or neither.

        Returns the keys that are ours to send. They are durable when this returns, and ours for
        `lease` seconds.
        """
        ...

    def renew(self, keys: Sequence[str]) -> set[str]:
        """Start the lease of our claims anew; returns those that are still ours."""
        ...

    def settle(self, settled: Sequence[Settlement]) -> None:
        """What became of our claims; `planned` gives one back unsent."""
        ...

    def expire(self) -> int:
        """Claims whose owner is dead or whose lease has ended become `in_doubt`; returns how many."""
        ...

    def states(self, keys: Sequence[str]) -> Mapping[str, State]:
        """The state of each of these keys that the ledger knows."""
        ...

    def counts(self, plan: str) -> Mapping[State, int]:
        """How many replays of `plan` are in each state; those that another plan sent are not among them."""
        ...

    def entries(self, plan: str, state: State) -> list[Entry]:
        """A plan's replays in one state, in the order of the plan."""
        ...

    def resolve(self, keys: Sequence[str], state: State, detail: str) -> int:
        """Reconcile: move replays on by evidence or an operator's word; returns how many moved."""
        ...

    def rows(self) -> Iterator[tuple[Sequence[object], ...]]:
        """Everything, in chunks of columns in the order of REPLAYS."""
        ...

    def everything(self) -> Iterator[Sequence[tuple[Any, ...]]]:
        """All replays with all they hold, in chunks that `adopt` of another ledger takes."""
        ...

    def adopt(self, rows: Sequence[tuple[Any, ...]]) -> int:
        """Take in replays of another ledger; what is known here stays. Returns how many are new."""
        ...

    def forget(self, keys: Sequence[str]) -> int:
        """Take dismissals back, as if they had never been; returns how many there were."""
        ...

    def warnings(self) -> Sequence[str]:
        """What the store, as it is set up, may forget of what it has confirmed."""
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...


def open_ledger(settings: LedgerSettings, store: Store) -> Ledger:
    """The ledger that `[ledger]` names. Raises UsageError, ArchiveError.

    Another ledger is refused while the archive has one of its own: what that one knows would be sent twice.
    """
    location.check(settings, store)
    ledger = _connected(settings, store)
    try:
        location.note(settings, store)
    except BaseException:
        ledger.close()
        raise
    return ledger


def _connected(settings: LedgerSettings, store: Store) -> Ledger:
    if settings.url.startswith(_REDIS):
        try:
            from dlq.replay.ledger.redis import RedisLedger
        except ImportError as error:
            raise UsageError("a ledger in Redis needs its client: pip install 'dlq[redis]'") from error
        return RedisLedger(settings)
    if is_server(settings):
        from dlq.replay.ledger.sql_engine import server_url

        return _sql(server_url(settings), settings)
    path = file_of(settings, store)
    make_private(path)
    return _sql(f"sqlite:///{path}", settings)


def _sql(url: Any, settings: LedgerSettings) -> Ledger:
    from dlq.replay.ledger.sql import SqlLedger

    return SqlLedger(url, seconds(settings.lease))


def exists(settings: LedgerSettings, store: Store) -> bool:
    """Whether anything was ever replayed from this archive. Raises UsageError when its ledger moved away."""
    if is_server(settings):
        return True
    try:
        path = file_of(settings, store)
    except UsageError:
        return False
    location.check_stays(path)
    return path.exists()


def move(settings: LedgerSettings, store: Store) -> tuple[int, int]:
    """The archive's SQLite ledger into the one that `[ledger]` names; returns (replays, new there).

    Afterwards the file is kept under another name: two ledgers of one archive would send twice. Raises
    UsageError when there is nothing to move, Busy while letters are being sent.
    """
    if settings.url == "sqlite":
        raise UsageError("[ledger] url is sqlite; set it to the server first, e.g. postgresql://user@host/db")
    path = own_file(store)
    if path is None or not path.exists():
        raise UsageError(f"there is no {FILE} in the archive {store.location}")
    if not is_server(settings) and file_of(settings, store) == path:
        raise UsageError(f"the ledger is {path} already")
    total = new = 0
    with closing(_sql(f"sqlite:///{path}", settings)) as old, closing(_connected(settings, store)) as server:
        old.expire()
        for rows in old.everything():
            if any("sending" in row for row in rows):
                raise Busy("letters are being sent by this ledger; stop that first: dlq replay stop PLAN")
            total += len(rows)
            new += server.adopt(rows)
    location.retire(store, path)
    location.note(settings, store)
    return total, new


@contextmanager
def opened(settings: LedgerSettings, store: Store) -> Iterator[Ledger]:
    """The ledger, closed at the end."""
    ledger = open_ledger(settings, store)
    try:
        yield ledger
    finally:
        ledger.close()


def warnings(settings: LedgerSettings, store: Store) -> Sequence[str]:
    """What a server, as it is set up, may forget of what it has confirmed. Raises as `open_ledger`, and as
    `opened_if_any`; makes no file."""
    if not exists(settings, store):
        location.check_none(store)
        return ()
    location.check(settings, store)
    with closing(_connected(settings, store)) as ledger:
        return ledger.warnings()


@contextmanager
def opened_if_any(settings: LedgerSettings, store: Store) -> Iterator[Ledger | None]:
    """The ledger, or None when nothing was ever replayed: looking must not make one.

    Raises UsageError when the archive has a ledger and `[ledger]` leads to none: what was replayed would
    count as waiting.
    """
    if not exists(settings, store):
        location.check_none(store)
        yield None
        return
    with opened(settings, store) as ledger:
        yield ledger


def as_arrow(settings: LedgerSettings, store: Store) -> pa.Table | None:
    """The ledger as a table with the schema REPLAYS; None when nothing was ever replayed. Raises as
    `opened_if_any`."""
    with opened_if_any(settings, store) as ledger:
        if ledger is None:
            return None
        return pa.Table.from_batches([_batch(chunk) for chunk in ledger.rows()], schema=REPLAYS)


def _batch(columns: tuple[Sequence[object], ...]) -> pa.RecordBatch:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, REPLAYS, strict=True)]
    return pa.record_batch(arrays, schema=REPLAYS)
