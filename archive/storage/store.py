"""Where the archive's files lie: one small protocol; a local folder behind it, or an object store (`s3`).

Names are relative, with `/`. A name appears whole or not at all, and only after its bytes are
durable: a reader never sees half a file, and a crash leaves nothing but a temporary name.
"""

import errno
import fcntl
import os
import re
import resource
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from secrets import token_hex
from typing import IO, Any, Protocol, TypeVar

from dlq.archive.schema import FORMAT_VERSION
from dlq.archive.storage import parquet
from dlq.archive.storage.folder import TEMPORARY, Folder
from dlq.core.documents import value
from dlq.core.errors import ArchiveError, Busy, FormatTooNew, UsageError
from dlq.core.runtime import bounded_json

_TELLS_NOTHING = (errno.EOPNOTSUPP, errno.ENOSYS)
"""What a file system says that cannot set room aside, where the C library does not write it instead."""
_ATTEMPTS = 5
HELD = "/proc/self/fd/"
"""Behind it: the descriptor of a file that this process holds open, whatever its name becomes."""
_A_LOOK = 0.02
"""Seconds in which whoever only looks at a lock has let go of it."""
_BY_SPARK = "analyses"
"""Spark writes here, with the umask's rights; so this folder is made before, its owner's alone."""
_PART = re.compile(r"[^/\x00-\x1f\x7f]+")
"""Of a name: whoever may write a manifest must not say what happens outside of the archive."""
_T = TypeVar("_T")


def check_inside(name: str) -> str:
    """Return `name` when it leads to something below the archive. Raises ValueError for a part of it that is
    `.`, `..`, or empty."""
    parts = name.split("/") if isinstance(name, str) else [""]
    if any(part in (".", "..") or not _PART.fullmatch(part) for part in parts):
        raise ValueError(f"{name!r} is no name inside the archive")
    return name


class Store(Protocol):
    """The archive's storage."""

    location: str
    filesystem: Any
    """The fsspec filesystem by which DuckDB reads `url`s; None where it needs none."""

    def put(self, name: str, data: bytes | memoryview) -> None:
        """Write `name` durably and atomically, replacing what was there. Raises ArchiveError."""
        ...

    def get(self, name: str) -> bytes:
        """Return the bytes of the document `name`, of one that is too large perhaps only as many as show it;
        raises UsageError when there is none."""
        ...

    def get_many(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the bytes of each of these names that is there; a store far away is asked for them all at
        once."""
        ...

    def open(self, name: str) -> IO[bytes]:
        """Open `name` as a stream: it may be larger than memory. Raises UsageError when there is none."""
        ...

    def list(self, prefix: str) -> list[str]:
        """Return names that start with `prefix`, sorted."""
        ...

    def delete(self, name: str) -> None:
        """Remove `name`; nothing happens when it is gone already."""
        ...

    def url(self, name: str) -> str:
        """Return how Spark and DuckDB open `name`."""
        ...

    def lend(self, name: str, until: ExitStack) -> str:
        """Return how DuckDB, in this process, opens just the file that `name` is now, until that ends. Raises
        ArchiveError."""
        ...

    def parquet(self, name: str) -> Any:
        """Return what pyarrow reads `name` from (`dlq.archive.storage.parquet`); raises OSError for none."""
        ...

    def prove_room(self, size: int) -> None:
        """Prove that a file of so many bytes can be written now, as far as that can be told beforehand;
        nothing of it stays. Raises ArchiveError."""
        ...

    def lock(self, name: str) -> Any:
        """Return a context manager that holds the lock `name`, or raises Busy naming the holder's pid and
        host."""
        ...

    def holder(self, name: str) -> str | None:
        """Return who holds the lock `name`, by pid and host; None: nobody. For who looks nobody is Busy."""
        ...


def checked_format(name: str, data: bytes) -> dict[str, Any]:
    """Return a JSON document of the archive without its `format`; raises FormatTooNew or ArchiveError."""
    try:
        document: dict[str, Any] = value(dict[str, Any], bounded_json.loads(data), "it")
        version = value(int, document.pop("format"), "format")
    except (ValueError, KeyError) as error:
        raise _damage_error(name, error) from error
    if version > FORMAT_VERSION:
        raise FormatTooNew(f"{name} has format {version}; this dlq knows up to {FORMAT_VERSION}: upgrade dlq")
    return document


def build(name: str, data: bytes, make: Callable[[dict[str, Any]], _T]) -> _T:
    """Return what `make` builds of a JSON document of the archive (`dlq.core.documents`); raises
    FormatTooNew, or ArchiveError where that raises ValueError or KeyError: it lacks a field, or has a strange
    one."""
    document = checked_format(name, data)
    try:
        return make(document)
    except (ValueError, KeyError) as error:
        raise _damage_error(name, error) from error


def checked_name(name: str, location: str) -> str:
    """Return `name`, when it is one inside the archive; every store asks before it makes a path or key of
    it. Raises ArchiveError."""
    try:
        return check_inside(name)
    except ValueError as error:
        raise ArchiveError(f"in the archive {location}, {error}; dlq verify names damaged files") from error


def _damage_error(name: str, error: Exception) -> ArchiveError:
    reason = f"it lacks {error}" if isinstance(error, KeyError) else error
    return ArchiveError(f"{name} in the archive is damaged: {reason}")


def open_store(location: str) -> Store:
    """Return the store at `location`: a folder, or s3://bucket/path. Raises UsageError."""
    if location.startswith("s3://"):
        if not location.removeprefix("s3://").strip("/"):
            raise UsageError(f"archive = {location!r} names no bucket; write it like s3://bucket/path")
        try:
            from dlq.archive.storage.s3 import S3Store
        except ImportError as error:
            raise UsageError("an archive on S3 needs its client: pip install 'dlq[s3]'") from error
        return S3Store(location)
    if "://" in location:
        raise UsageError(
            f"archive = {location!r}: only folders and s3://bucket/path are supported; use one of them"
        )
    if os.path.lexists(location) and not os.path.isdir(location):
        raise UsageError(f"archive = {location!r} is not a folder; name another place")
    return LocalStore(location)


class LocalStore:
    """A folder of the file system. What it makes is its owner's alone; a folder that was there keeps its
    rights."""

    filesystem: Any = None

    def __init__(self, location: str) -> None:
        self.location = os.path.abspath(location)
        self.folder = Folder(self.location)

    def put(self, name: str, data: bytes | memoryview) -> None:
        with self._told("write", name), self.folder.replacing(self._checked_name(name), make=True) as file:
            file.write(data)

    def get(self, name: str) -> bytes:
        with self._told("read", name), self.open(name) as file:
            return file.read(bounded_json.LARGEST + 1)

    def get_many(self, names: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for name in names:
            with suppress(UsageError):
                found[name] = self.get(name)
        return found

    def open(self, name: str) -> IO[bytes]:
        with self._told("read", name):
            return self.folder.open(self._checked_name(name))

    def list(self, prefix: str) -> list[str]:
        above = prefix.rpartition("/")[0]
        with self._told("list", prefix):
            names = list(self.folder.names(self._checked_name(above) if above else ""))
        return sorted(n for n in names if n.startswith(prefix) and TEMPORARY not in n)

    def delete(self, name: str) -> None:
        with self._told("delete", name):
            self.folder.delete(self._checked_name(name))

    def url(self, name: str) -> str:
        with self._told("read", name), suppress(FileNotFoundError):
            self.folder.open(self._checked_name(name)).close()
        return os.path.join(self.location, name)

    def lend(self, name: str, until: ExitStack) -> str:
        with parquet.readable(name):
            try:
                file = self.folder.open(self._checked_name(name))
            except OSError as error:
                if error.errno != errno.EMFILE or not _allow_more_files():
                    raise
                file = self.folder.open(self._checked_name(name))
        return f"{HELD}{until.enter_context(file).fileno()}"

    def prove_room(self, size: int) -> None:
        name = f"segments/{TEMPORARY}{token_hex(12)}"
        with self._told("write", "a segment"), open(self.folder.create(name), "wb") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                if error.errno not in _TELLS_NOTHING:
                    raise
            finally:
                self.folder.delete(name)

    def parquet(self, name: str) -> Any:
        with self.folder.open(self._checked_name(name)) as file:
            return parquet.native(file)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """flock: the kernel lets go when the holder dies, however it dies."""
        name_of_file = self._checked_name(f"locks/{name}")
        with self._told("write", f"{_BY_SPARK}/"):
            self.folder.make(_BY_SPARK)
        with self._told("write", name_of_file):
            descriptor = self.folder.open_in_place(name_of_file)
        with open(descriptor, "rb+", buffering=0) as file:
            if not any(_lock_at_once(file, fcntl.LOCK_EX) for _ in range(_ATTEMPTS)):
                raise Busy(f"{name} is locked by {_holder(file)}")
            with self._told("write", name_of_file):
                file.truncate(0)
                file.write(f"pid {os.getpid()} on {socket.gethostname()}".encode())
            try:
                yield
            finally:
                file.truncate(0)

    def holder(self, name: str) -> str | None:
        with self._told("read", name):
            try:
                opened = self.folder.open(self._checked_name(f"locks/{name}"), alone=True)
            except FileNotFoundError:
                return None
        with opened as file:
            return None if _lock_at_once(file, fcntl.LOCK_SH) else _holder(file)

    def _checked_name(self, name: str) -> str:
        return checked_name(name, self.location)

    @contextmanager
    def _told(self, doing: str, name: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError) as error:
            if doing != "read":
                raise self._failure(doing, name, error) from error
            raise UsageError(f"there is no {name} in the archive {self.location}; check its name") from error
        except OSError as error:
            raise self._failure(doing, name, error) from error

    def _failure(self, doing: str, name: str, error: OSError) -> ArchiveError:
        return ArchiveError(
            f"cannot {doing} {name} in the archive {self.location}: {error.strerror}; "
            "check its path, its rights and the room there"
        )


_LONGEST_HOLDER = 512


def _allow_more_files() -> bool:
    """Let this process open as many files as it may at most; False when it may already."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft != hard


def _lock_at_once(file: IO[bytes], how: int) -> bool:
    """Take the lock, or return False, after the time of a look, when another has it."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(_A_LOOK)
        return False
    return True


def _holder(lock: IO[bytes]) -> str:
    """Return who a lock says holds it; waits a moment for one that has not written its name yet."""
    for _ in range(20):
        if said := os.pread(lock.fileno(), _LONGEST_HOLDER, 0).decode(errors="replace").strip():
            return said
        time.sleep(0.05)
    return "another run"
