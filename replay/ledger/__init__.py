"""Opening the ledger that `[ledger]` names; `contract` says what it must do, `sql` does it (`database`)."""

# The archive brings pyarrow without numpy, so it comes first.
import dlq.archive  # noqa: F401 # isort: skip
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from dlq.archive.schema import REPLAYS
from dlq.archive.storage.store import Store
from dlq.connectors.local import user_files
from dlq.core.errors import Busy, UsageError
from dlq.core.failures import Event
from dlq.core.runtime.interpreter import rare_garbage_collection
from dlq.core.settings import Ledger as LedgerSettings
from dlq.core.values.units import seconds
from dlq.replay.ledger import file, location
from dlq.replay.ledger.contract import Ledger
from dlq.replay.ledger.database import File
from dlq.replay.ledger.location import FILE, file_of, is_server, own_file
from dlq.replay.ledger.snapshot import TABLES, Snapshot
from dlq.replay.ledger.sql import SqlLedger

_T = TypeVar("_T", bound="Snapshot | Ledger")
_known: dict[Path, tuple[bytes, set[str]]] = {}
"""Ledger's file -> its mark when this process looked last, and the tables that it has looked through: once is
enough while it stays, as it takes more than a second for a million."""


def open_ledger(settings: LedgerSettings, store: Store) -> Ledger:
    """Return the ledger that `[ledger]` names, to be written. Raises UsageError, ArchiveError.

    Another ledger is refused while the archive has one of its own: what that one knows would be sent twice.
    """
    ledger = _connect(settings, store, is_known=location.check(settings, store))
    try:
        location.note(settings, store)
    except BaseException:
        ledger.close()
        raise
    return ledger


def _connect(settings: LedgerSettings, store: Store, is_known: bool) -> Ledger:
    """`is_known`: see `make_tables`."""
    if not is_server(settings):
        path = file_of(settings, store)
        file.make(path, lambda template: _in_file(template, settings, set()).close())
        return _open_file(path, settings)
    user_files.check_files_of("ledger", settings)
    from dlq.replay.ledger.server import Server, server_url

    lease = seconds(settings.lease)
    return SqlLedger(Server(server_url(settings), lease, settings), lease, is_known=is_known)


def _open_file(path: Path, settings: LedgerSettings, alone: bool = False) -> Ledger:
    """Return the ledger in a file, to be written."""
    with ExitStack() as held:
        held.enter_context(file.written(path))
        return _in_file(path, settings, set(), held.pop_all().close, alone)


def _in_file(
    path: Path,
    settings: LedgerSettings,
    known: set[str],
    at_close: Callable[[], None] | None = None,
    alone: bool = False,
) -> Ledger:
    found = SqlLedger(File(path, alone), seconds(settings.lease), at_close=at_close, is_known=known >= TABLES)
    known.update(TABLES)
    return found


def _exists(settings: LedgerSettings, store: Store) -> bool:
    """Return whether anything was ever replayed from this archive. Raises UsageError: its ledger moved."""
    if is_server(settings):
        return True
    try:
        path = file_of(settings, store)
    except UsageError:
        return False
    location.check_stays(path)
    return location.is_there(path)


def move(settings: LedgerSettings, store: Store, outside: str | None = None) -> tuple[int, int]:
    """Move the archive's SQLite ledger into the one that `[ledger]` names; returns (replays, new there).

    `outside`: the ledger's file, where it does not lie in the archive; what that says of itself is not enough
    to write there. Afterwards the file is kept under another name: two ledgers of one archive would send
    twice. Raises UsageError when there is nothing to move, Busy while somebody has it open, who may send.
    """
    if settings.url == "sqlite":
        raise UsageError("[ledger] url is sqlite; set it to the server first, e.g. postgresql://user@host/db")
    path = own_file(store)
    if path is None or not location.is_there(path):
        raise UsageError(f"the archive {store.location} has no {FILE}; name the archive that has one")
    location.check_named(store, path, outside)
    if not is_server(settings) and file_of(settings, store) == path:
        raise UsageError(f"the ledger is {path} already; set [ledger] url to another place")
    total = new = 0
    with (
        closing(_open_file(path, settings, alone=True)) as old,
        closing(_connect(settings, store, is_known=False)) as server,
    ):
        old.expire()
        for rows in old.all_rows():
            if any("sending" in row for row in rows):
                raise Busy("a run is sending letters with this ledger; stop it first: dlq replay stop PLAN")
            total += len(rows)
            new += server.adopt(rows)
        server.append(old.events())
    location.retire(settings, store, path)
    return total, new


@contextmanager
def opened(settings: LedgerSettings, store: Store) -> Iterator[Ledger]:
    """Open the ledger of this archive, closed at the end. Raises as `open_ledger`."""
    ledger = open_ledger(settings, store)
    try:
        yield ledger
    finally:
        ledger.close()


@contextmanager
def opened_if_any(settings: LedgerSettings, store: Store) -> Iterator[Ledger | None]:
    """Open the ledger, or give None when nothing was ever replayed: looking must not make one.

    Raises UsageError when the archive has a ledger and `[ledger]` leads to none: what was replayed would
    count as waiting.
    """
    with _shown(settings, store, lambda path, known: _in_file(path, settings, known)) as ledger:
        yield ledger


@contextmanager
def _shown(
    settings: LedgerSettings, store: Store, in_file: Callable[[Path, set[str]], _T]
) -> Iterator[_T | Ledger | None]:
    """Open as `opened_if_any` does, and add the tables that were looked through to those that are known."""
    if not _exists(settings, store):
        location.check_none(store)
        yield None
        return
    is_known = location.check(settings, store)
    if is_server(settings):
        with closing(_connect(settings, store, is_known)) as ledger:
            yield ledger
        return
    path = file_of(settings, store)
    with file.looked_at(path) as (shown, mark):
        before, known = _known.get(path, (b"", set[str]()))
        if mark != before or not mark:
            _known[path] = mark, (known := set())
        with closing(in_file(shown, known)) as found:
            yield found


def events(settings: LedgerSettings, store: Store) -> list[Event]:
    """Return what people said of failures; nothing when there is no ledger. Raises as `opened_if_any`."""
    with _shown(settings, store, Snapshot) as ledger:
        return [] if ledger is None else ledger.events()


def look(settings: LedgerSettings, store: Store) -> tuple[tuple[int, ...], list[Event]]:
    """Return `Ledger.version` and `events`, of one moment. Raises as `opened_if_any`."""
    with _shown(settings, store, Snapshot) as ledger:
        return ((), []) if ledger is None else (ledger.version(), ledger.events())


def as_arrow(
    settings: LedgerSettings, store: Store, record_ids: Collection[str] | None = None
) -> pa.Table | None:
    """Return the ledger as a table with the schema REPLAYS; None when nothing was ever replayed. Of a file no
    more than what it has of these letters is looked at. Raises as `opened_if_any`."""
    with _shown(settings, store, partial(Snapshot, record_ids=record_ids)) as ledger:
        if ledger is None:
            return None
        with rare_garbage_collection():
            return pa.Table.from_batches([_batch(chunk) for chunk in ledger.rows()], schema=REPLAYS)


def _batch(columns: tuple[Sequence[object], ...]) -> pa.RecordBatch:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, REPLAYS, strict=True)]
    return pa.record_batch(arrays, schema=REPLAYS)
