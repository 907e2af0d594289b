"""The archive on an S3-compatible object store, by s3fs.

One PUT per object, which appears whole and durable or not at all: nothing to rename, nothing to flush.
Credentials, endpoint and region come from where every AWS tool looks: `AWS_*` variables, `~/.aws`, roles.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from secrets import token_hex
from typing import IO, Any

import s3fs
from botocore.exceptions import BotoCoreError, ClientError

from dlq.archive.s3_lock import Lock, locked
from dlq.archive.store import checked_name
from dlq.core.errors import ArchiveError, UsageError

_FAULTS = (OSError, BotoCoreError, ClientError)
"""What s3fs raises for whatever the store, the network or the credentials refuse."""

_ONE_PUT = 1 << 30
"""Larger objects go up in parts, and appear when the last part is there."""
_CONFIG = {"connect_timeout": 10, "read_timeout": 60, "retries": {"mode": "standard", "max_attempts": 4}}


class S3Store:
    """`dlq.archive.store.Store` below `s3://bucket/path`."""

    def __init__(self, location: str) -> None:
        """Nothing is connected yet. Raises UsageError for a location without a bucket."""
        self.location = location.rstrip("/")
        self._root = self.location.removeprefix("s3://")
        if not self._root:
            raise UsageError(f"archive = {location!r}: write it like s3://bucket/path")
        self.filesystem: Any = s3fs.S3FileSystem(
            use_listings_cache=False, skip_instance_cache=True, config_kwargs=_CONFIG
        )
        self.filesystem.retries = 1  # botocore tries again by itself; both together try for minutes
        self._locks: list[Lock] = []

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._check_locks()
        with self._told("write", name):
            self.filesystem.pipe_file(self._path(name), bytes(data), chunksize=_ONE_PUT)

    def get(self, name: str) -> bytes:
        found = self.get_many([name])
        if name not in found:
            raise self._missing(name)
        return found[name]

    def get_many(self, names: Sequence[str]) -> dict[str, bytes]:
        paths = [self._path(name) for name in names]
        with self._told("read", "objects"):
            found = self.filesystem.cat_ranges(paths, None, None, on_error="return")
            for fault in (one for one in found if isinstance(one, Exception)):
                if not isinstance(fault, FileNotFoundError):
                    raise fault
        return {name: data for name, data in zip(names, found, strict=True) if isinstance(data, bytes)}

    def open(self, name: str) -> IO[bytes]:
        try:
            with self._told("read", name):
                return io.BufferedReader(self._opened(name))  # s3fs cannot bound a line
        except ArchiveError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise self._missing(name) from error
            raise

    def lend(self, name: str, until: ExitStack) -> str:  # noqa: ARG002 (nothing is held there)
        return self.url(name)

    def parquet(self, name: str) -> IO[bytes]:
        file: IO[bytes] = self._opened(name)
        return file

    def list(self, prefix: str) -> list[str]:
        folder, _, start = prefix.rpartition("/")
        above = self._path(folder) if folder else self._root
        with self._told("list", prefix):
            found = self.filesystem.find(above, prefix=start, withdirs=False)
        names = (path.removeprefix(f"{self._root}/") for path in found)
        return sorted(name for name in names if name.startswith(prefix) and not name.endswith("/"))

    def delete(self, name: str) -> None:
        self._check_locks()
        with self._told("delete", name):
            self.filesystem.rm_file(self._path(name))

    def url(self, name: str) -> str:
        return f"{self.location}/{checked_name(name, self.location)}"

    def prove_room(self, size: int) -> None:  # noqa: ARG002 (a bucket has no end, but rights and quotas)
        name = f"segments/.tmp-{token_hex(12)}"
        self.put(name, b"room")
        self.delete(name)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """An object that only one can make, with a lease: a dead holder's lock ends by itself."""
        with self._told("lock", name):
            lock = Lock(self.filesystem, self._path(f"locks/{name}"), name)
            lock.take()
        with locked(lock):
            self._locks.append(lock)
            try:
                yield
            finally:
                self._locks.remove(lock)

    def holder(self, name: str) -> str | None:
        with self._told("read", name):
            return Lock(self.filesystem, self._path(f"locks/{name}"), name).holder()

    def _check_locks(self) -> None:
        """Nothing is written by one whose lock another may hold by now."""
        for lock in self._locks:
            lock.check()

    def _path(self, name: str) -> str:
        return f"{self._root}/{checked_name(name, self.location)}"

    def _opened(self, name: str) -> Any:
        return self.filesystem.open(self._path(name), "rb")

    def _missing(self, name: str) -> UsageError:
        return UsageError(f"there is no {name} in the archive {self.location}")

    @contextmanager
    def _told(self, doing: str, name: str) -> Iterator[None]:
        try:
            yield
        except _FAULTS as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise ArchiveError(f"cannot {doing} {name} in the archive {self.location}: {reason}") from error
