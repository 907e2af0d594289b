"""The ledger as a file, which may have come from somebody else with its archive.

SQLite does what the files beside a database tell it: it rolls back by a journal, and deletes what that names.
A ledger of `dlq` is in WAL mode from its first moment, so that it never has a journal, and none is accepted.
Whoever looks gets a copy: nothing that lies in the archive is opened for writing, nor changed.
"""

import errno
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from dlq.archive.storage import scratch
from dlq.archive.storage.folder import Folder, NotOrdinaryError
from dlq.core.errors import ArchiveError, Busy
from dlq.core.runtime import patience

_WAL = "-wal"
_NEVER_THERE = "-journal"
_MAGIC = b"SQLite format 3\0"
_MODES = slice(18, 20)
"""Of the header: how the file is written and read; 2: by a write-ahead log (sqlite.org/fileformat2.html)."""
_HEADER = 100
_WAL_HEADER = 32
"""It has the salts, which change before the log's first frame is written over."""
_LARGEST = 64 * 2**30
_PIECE = 2**30
_opening = threading.Lock()
_written: Counter[str] = Counter()
"""Ledgers that this process has open for writing. When a process closes a file, it loses all its locks on it,
those of SQLite too (fcntl(2)): such a one is never copied."""


class _State(NamedTuple):
    """What stays as it is while a database and its log, copied one after the other, belong together."""

    file: tuple[int, ...]
    log: tuple[int, bytes]


def make(path: Path, fill: Callable[[Path], None]) -> None:
    """Make the ledger at `path`, whole from its first moment, where there is none; `fill` makes an empty one.

    Raises ArchiveError.
    """
    folder = Folder(path.parent)
    with _told(path):
        if folder.has(path.name):
            return
        with _place() as place:
            fill(place / path.name)
            folder.add(path.name, (place / path.name).read_bytes())


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Hold the ledger at `path` while SQLite may write it. Raises ArchiveError for what is none of ours."""
    with _opening:
        if not _written[str(path)]:
            with _told(path):
                _check_alone(Folder(path.parent), path)
        _written[str(path)] += 1
    try:
        yield
    finally:
        with _opening:
            _written[str(path)] -= 1


@contextmanager
def looked_at(path: Path) -> Iterator[tuple[Path, bytes]]:
    """Give a place where the ledger at `path` can be looked at, as it is at this moment: a copy, which goes
    at the end, with a mark that another copy has only where the same lies in it; empty where there is none.

    Another process may be writing it meanwhile. Raises ArchiveError, and Busy where it never stands still.
    """
    with ExitStack() as held:
        with _opening, _told(path):
            is_ours = _written[str(path)]
            place = None if is_ours else held.enter_context(_place())
            shown = (path, b"") if place is None else _copy_with_log(Folder(path.parent), path, place)
        yield shown


@contextmanager
def _place() -> Iterator[Path]:
    """Give a place for a copy, which goes at the end, or when it cannot be made."""
    place = scratch.folder("ledger")
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _copy_with_log(folder: Folder, path: Path, place: Path) -> tuple[Path, bytes]:
    """Copy both: the log is the database's while its salts stay, and still holds what was checkpointed."""
    for _ in patience.tries(patience.AWAY, 0.001, longest=1.0):
        _check(folder, path)
        before, mark = _state(folder, path.name), _mark(folder, path.name)
        for name in (path.name, f"{path.name}{_WAL}"):
            (place / name).unlink(missing_ok=True)
            with suppress(FileNotFoundError), folder.open(name) as file:
                _copy(file, place / name)
        if before == _state(folder, path.name):
            return place / path.name, mark if mark == _mark(folder, path.name) else b""
    raise Busy(f"the ledger {path} is written to constantly, so it cannot be read: try again")


def _state(folder: Folder, name: str) -> _State:
    try:
        with folder.open(f"{name}{_WAL}") as log:
            log_is = (os.fstat(log.fileno()).st_ino, log.read(_WAL_HEADER))
    except FileNotFoundError:
        log_is = (0, b"")
    with folder.open(name) as file:
        found = os.fstat(file.fileno())
    # While there is a log, checkpoints may write to the database: what they write is in the log.
    unchanged = () if log_is[1] else (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return _State((found.st_ino, *unchanged), log_is)


def _mark(folder: Folder, name: str) -> bytes:
    """Return what changes with each write: nobody sets the time of an inode's last change."""
    found = []
    for each in (name, f"{name}{_WAL}"):
        with suppress(FileNotFoundError), folder.open(each) as file:
            stat = os.fstat(file.fileno())
            found.append((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    return repr(found).encode()


def _copy(file: IO[bytes], to: Path) -> None:
    size = os.fstat(file.fileno()).st_size
    if size > min(_LARGEST, shutil.disk_usage(to.parent).free):
        raise OSError(0, f"it has {size:,} bytes, for which there is no room in {to.parent}")
    with to.open("xb") as copy:
        copy.truncate(size)
        for at, end in _data(file.fileno()):
            copy.seek(at)
            while sent := os.sendfile(copy.fileno(), file.fileno(), at, min(_PIECE, end - at)):
                at += sent


def _data(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yield from where to where bytes lie. A hole costs who makes one nothing, however large it is."""
    end = 0
    while True:
        try:
            at = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, at, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return  # nothing lies behind
        yield at, end


def check_opened(opened: Path, path: Path) -> None:
    """Check what SQLite has `opened` for `path`, all links resolved, before it reads anything of it.

    Raises ArchiveError where somebody has put a link there since `_check`, or a journal beside it."""
    if opened != Path(os.path.realpath(path.parent), path.name):
        raise ArchiveError(f"the ledger {path} was exchanged for a link, and links are not followed")
    _check_journal(Folder(path.parent), path)


def _check_journal(folder: Folder, path: Path) -> None:
    if folder.has(f"{path.name}{_NEVER_THERE}"):
        raise ArchiveError(
            f"next to the ledger {path} is a journal, {path.name}{_NEVER_THERE}, which a ledger of dlq "
            "never has: someone put it there. Ask where this archive comes from; without it, it can be read"
        )


def _check_alone(folder: Folder, path: Path) -> None:
    """Check as `_check` does, and that no file that SQLite will write has another name, which may be one
    outside; one that another process makes has two for a moment."""
    for _ in patience.tries(patience.RECHECK, patience.BLINK):
        with suppress(NotOrdinaryError):
            return _check(folder, path, alone=True)
    return _check(folder, path, alone=True)


def _check(folder: Folder, path: Path, alone: bool = False) -> None:
    """Raise ArchiveError where this is no ledger of ours, or a file lies beside it that ours never has."""
    _check_journal(folder, path)
    with folder.open(path.name, alone) as file:
        header = file.read(_HEADER)
    if not header.startswith(_MAGIC) or header[_MODES] != b"\2\2":
        raise ArchiveError(f"{path} is damaged, or no ledger of dlq: it is not an SQLite database with a WAL")
    for end in (_WAL, "-shm"):
        with suppress(FileNotFoundError):
            folder.open(f"{path.name}{end}", alone).close()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        name = error.filename or path
        raise ArchiveError(f"cannot read the ledger {path}: {error.strerror or error} ({name})") from error
