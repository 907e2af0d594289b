"""The archive on an S3-compatible object store, by s3fs.

One PUT per object, which appears whole and durable or not at all: nothing to rename, nothing to flush.
Credentials, endpoint and region come from where every AWS tool looks: `AWS_*` variables, `~/.aws`, roles.
"""

import asyncio
import io
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from secrets import token_hex
from typing import IO, Any

import fsspec.asyn
import s3fs

from dlq.archive.storage.s3_lock import Lock, locked
from dlq.archive.storage.s3_session import FAULTS, BoundedSession
from dlq.archive.storage.store import checked_name
from dlq.core.errors import ArchiveError, UsageError
from dlq.core.runtime import bounded_json, patience

_ONE_PUT = 1 << 30
"""Larger objects go up in parts, and appear when the last part is there."""
CONFIG = {"connect_timeout": 10, "read_timeout": 60, "retries": {"mode": "standard", "max_attempts": 4}}
_AT_ONCE = 64
"""Documents that are asked for."""
MOST_NAMES = 1_000_000
"""Of a listing: a larger one has no end, or nobody could work with it."""
_MOST_BARREN = 100
"""Pages of a listing that bring no name."""
_LONGEST_KEY = 1024
"""By S3's own rule; longer ones would only take memory."""


class S3Store:
    """`dlq.archive.storage.store.Store` below `s3://bucket/path`."""

    def __init__(self, location: str) -> None:
        """Take the location; nothing is connected yet. Raises UsageError for a location without a bucket."""
        self.location = location.rstrip("/")
        self._root = self.location.removeprefix("s3://")
        if not self._root:
            raise UsageError(f"archive = {location!r}: write it like s3://bucket/path")
        self.filesystem: Any = s3fs.S3FileSystem(
            use_listings_cache=False,
            skip_instance_cache=True,
            config_kwargs={**CONFIG, "http_session_cls": BoundedSession},
        )
        self.filesystem.retries = 1  # botocore tries again by itself; both together try for minutes
        self._locks: list[Lock] = []

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._check_locks()
        with self._told("write", name):
            self.filesystem.pipe_file(self._path(name), bytes(data), chunksize=_ONE_PUT)
        self._check_locks()  # the store may have answered late: who took the lock over has not seen it

    def get(self, name: str) -> bytes:
        found = self.get_many([name])
        if name not in found:
            raise self._missing_error(name)
        return found[name]

    def get_many(self, names: Sequence[str]) -> dict[str, bytes]:
        paths = [self._path(name) for name in names]
        with self._told("read", names[0] if len(names) == 1 else "objects"):
            found = fsspec.asyn.sync(self.filesystem.loop, self._documents, paths)
        return {name: data for name, data in zip(names, found, strict=True) if data is not None}

    async def _documents(self, paths: Sequence[str]) -> "list[bytes | None]":
        """Return the bytes of each, of one too large no more than show it; None where there is none."""
        room = asyncio.Semaphore(_AT_ONCE)

        async def document(path: str) -> bytes | None:
            bucket, _, key = path.partition("/")
            async with room:
                try:
                    answer = await self.filesystem._call_s3("get_object", Bucket=bucket, Key=key)
                except FileNotFoundError:
                    return None
                return await _start_of(answer["Body"], bounded_json.LARGEST + 1)

        return await asyncio.gather(*map(document, paths))

    def open(self, name: str) -> IO[bytes]:
        try:
            with self._told("read", name):
                return io.BufferedReader(self._open_object(name))  # s3fs cannot bound a line
        except ArchiveError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise self._missing_error(name) from error
            raise

    def lend(self, name: str, until: ExitStack) -> str:  # noqa: ARG002 (nothing is held there)
        return self.url(name)

    def parquet(self, name: str) -> IO[bytes]:
        return io.BufferedReader(self._open_object(name))

    def list(self, prefix: str) -> list[str]:
        if folder := prefix.rpartition("/")[0]:
            checked_name(folder, self.location)
        bucket, _, above = f"{self._root}/".partition("/")
        names: set[str] = set()
        barren, asked = 0, {"Bucket": bucket, "Prefix": above + prefix}
        until = time.monotonic() + patience.LOOK
        with self._told("list", prefix):
            while barren <= _MOST_BARREN and len(names) <= MOST_NAMES and time.monotonic() < until:
                page, known = self.filesystem.call_s3("list_objects_v2", **asked), len(names)
                keys = [str(found["Key"]) for found in page.get("Contents", ())]
                if any(len(key) > _LONGEST_KEY for key in keys):
                    raise OSError(f"the store lists a name of more than {_LONGEST_KEY:,} characters")
                names.update(key.removeprefix(above) for key in keys if key.startswith(above + prefix))
                if not page.get("IsTruncated"):
                    return sorted(name for name in names if not name.endswith("/"))
                barren = barren + 1 if len(names) == known else 0
                asked["ContinuationToken"] = page["NextContinuationToken"]
            raise OSError("the store's listing has no end")

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
        """Hold an object that only one can make, with a lease: a dead holder's lock ends by itself."""
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
        """Check the locks: nothing is written by one whose lock another may hold by now."""
        for lock in self._locks:
            lock.check()

    def _path(self, name: str) -> str:
        return f"{self._root}/{checked_name(name, self.location)}"

    def _open_object(self, name: str) -> "_Object":
        path = self._path(name)
        try:
            return _Object(self.filesystem.open(path, "rb"))
        except FileNotFoundError:
            raise
        except FAULTS as error:
            raise OSError(_reason(error)) from error

    def _missing_error(self, name: str) -> UsageError:
        return UsageError(f"there is no {name} in the archive {self.location}; check its name")

    @contextmanager
    def _told(self, doing: str, name: str) -> Iterator[None]:
        try:
            yield
        except FAULTS as error:
            raise ArchiveError(
                f"cannot {doing} {name} in the archive {self.location}: {_reason(error)}; "
                "check the endpoint, the bucket and the credentials"
            ) from error


class _Object(io.RawIOBase):
    """An object that is read piece by piece; whatever goes wrong then is an OSError."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, into: Any) -> int:
        try:
            data = self._file.read(len(into))
        except FAULTS as error:
            raise OSError(_reason(error)) from error
        into[: len(data)] = data
        return len(data)


async def _start_of(body: Any, most: int) -> bytes:
    """Read so many bytes of an object, or all of it."""
    data = bytearray()
    try:
        while len(data) < most and (piece := await body.read(most - len(data))):
            data += piece
    finally:
        body.close()
    return bytes(data)


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"its answer lacks {error}"
    return " ".join(str(error).split())[:500] or type(error).__name__
