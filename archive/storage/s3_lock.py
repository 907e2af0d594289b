"""Locks on an object store: an object that only one can make, kept alive by its holder.

A PUT with If-None-Match makes it. Whether a lease has ended is told by the store's own clock, so that
hosts need not agree on the time. A holder whose lease has ended, because it slept or the store was
away, writes no more.
"""

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from dlq.archive.storage.processes import boot_id, is_running
from dlq.archive.storage.s3_session import FAULTS
from dlq.core import documents
from dlq.core.errors import ArchiveError, Busy
from dlq.core.runtime import bounded_json

_LEASE = 60.0
"""Seconds. A dead holder's lock ends after so long; it is renewed three times as often."""
_LONGEST_LEASE = 3600.0
"""What an object says of itself is believed up to here."""
_LARGEST = 4096
"""Bytes of a lock that are read."""
_CLOCK_STEP = 2.0
"""A store tells the time of an object in whole seconds."""
_ATTEMPTS = 3
_NEVER_HOLD = {"If-None-Match": "*", "If-Match": f'"{0:032}"'}
"""Conditions that no lock fulfils that is there."""
_REFUSED = {"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "412", "409", "404"}


class _Holder(NamedTuple):
    """Who wrote a lock; nobody of whom it says anything, where it says it in no known shape."""

    token: str = ""
    lease: float = _LEASE
    number: int = 0
    pid: int = 0
    host: str = ""
    processes: str = ""


class _StoredLock(NamedTuple):
    """Somebody's lock. `age` in seconds, by the store's clock."""

    holder: "_Holder"
    etag: str
    age: float


class Lock:
    """One lock of this process; `take` it, `check` it before each write, `release` it."""

    def __init__(self, files: Any, path: str, name: str, lease: float = _LEASE) -> None:
        """`files` is an s3fs filesystem, `path` bucket and key."""
        self._files, self._name, self._lease = files, name, lease
        self._bucket, _, self._key = path.partition("/")
        self._path = path
        self._token = secrets.token_hex(8)
        self._etag = ""
        self._writes = 0
        self._fresh_until = (0.0, 0.0)
        self._released = threading.Event()

    def take(self) -> None:
        """Take the lock. Raises Busy naming the holder's pid and host, OSError for what the store refuses,
        and ArchiveError where it keeps no conditions."""
        for _ in range(_ATTEMPTS):
            if self._put(IfNoneMatch="*"):
                self._require_conditions()
                return
            found = self._look()
            if found is None:
                continue
            if not self._is_ours(found) and not _has_ended(found):
                break
            # Only one can replace just this version of the object.
            if self._put(IfMatch=found.etag):
                return
        raise Busy(f"{self._name} is locked by {_describe(found.holder if found else _Holder())}")

    def holder(self) -> str | None:
        """Return who has it, by pid and host; None: nobody. Raises OSError."""
        found = self._look()
        return None if found is None or _has_ended(found) else _describe(found.holder)

    def renew(self) -> bool:
        """Start the lease anew; False when another has taken the lock."""
        if self._put(IfMatch=self._etag):
            return True
        found = self._look()
        # Ours, and only the answer to an earlier renewal was lost.
        return found is not None and self._is_ours(found) and self._put(IfMatch=found.etag)

    def check(self) -> None:
        """Check the lease by both clocks, one stands still in sleep. Raises ArchiveError when it ended."""
        if time.monotonic() > self._fresh_until[0] or time.time() > self._fresh_until[1]:
            raise ArchiveError(f"the lock {self._name} was lost: its lease ended; run the command again")

    def keep(self) -> None:
        """Renew it until it is released, or lost."""
        while not self._released.wait(self._lease / 3):
            with suppress(*FAULTS):  # the store is away, or answers oddly: until the lease ends
                if not self.renew():
                    self._fresh_until = (0.0, 0.0)
                    return

    def release(self) -> None:
        """Let go of it, unless another may hold it by now."""
        self._released.set()
        with suppress(ArchiveError, *FAULTS):  # then its lease ends it
            self.check()
            if not self._delete(self._etag) and (found := self._look()) and self._is_ours(found):
                self._delete(found.etag)  # a renewal was on its way

    def _delete(self, etag: str) -> bool:
        """Delete this version of the lock; False where another is there. A store that knows no condition of a
        deletion is believed as long as the lease lasts."""
        try:
            self._files.call_s3("delete_object", Bucket=self._bucket, Key=self._key, IfMatch=etag)
        except FAULTS as error:
            if isinstance(error, OSError) and _code(error) in _REFUSED:
                return False
            self.check()
            self._files.rm_file(self._path)
        return True

    def _is_ours(self, found: _StoredLock) -> bool:
        return found.holder.token == self._token

    def _put(self, **condition: str) -> bool:
        """Write the lock under this condition; False when the condition does not hold."""
        started = (time.monotonic(), time.time())
        self._writes += 1
        # The number makes each version of the object another one, with an ETag of its own.
        body = {"token": self._token, "lease": self._lease, "number": self._writes, **_own_process()}
        try:
            answer = self._files.call_s3(
                "put_object", Bucket=self._bucket, Key=self._key, Body=json.dumps(body).encode(), **condition
            )
        except OSError as error:
            if _code(error) in _REFUSED:
                return False
            raise
        self._etag = answer["ETag"]
        self._fresh_until = (started[0] + self._lease, started[1] + self._lease)
        return True

    def _require_conditions(self) -> None:
        """Require conditions: a store that ignores one would give a lock to everybody, or take none away."""
        for name, never in _NEVER_HOLD.items():
            if self._put(**{name.replace("-", ""): never}):
                raise ArchiveError(f"this object store ignores {name}, so it keeps no locks; use another")

    def _look(self) -> _StoredLock | None:
        try:
            head = self._files.call_s3("head_object", Bucket=self._bucket, Key=self._key)
            said = self._files.cat_file(self._path, start=0, end=_LARGEST)
        except FileNotFoundError:
            return None
        try:
            holder = documents.build(_Holder, bounded_json.loads(said))
        except ValueError:
            holder = _Holder()
        moment = _of_some_zone(parsedate_to_datetime(head["ResponseMetadata"]["HTTPHeaders"]["date"]))
        age = moment - _of_some_zone(head["LastModified"])
        return _StoredLock(holder, head["ETag"], age.total_seconds())


@contextmanager
def locked(lock: Lock) -> Iterator[None]:
    """Keep a lock that is taken alive, and release it at the end."""
    threading.Thread(target=lock.keep, name="lock-keeper", daemon=True).start()
    try:
        yield
    finally:
        lock.release()


def _of_some_zone(moment: datetime) -> datetime:
    """Return the time with its zone: universal where it names none (`-0000`)."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _describe(holder: _Holder) -> str:
    return f"pid {holder.pid} on {holder.host}" if holder.host else "another run"


def _has_ended(found: _StoredLock) -> bool:
    holder = found.holder
    if found.age > min(max(holder.lease, 0), _LONGEST_LEASE) + _CLOCK_STEP:
        return True
    return holder.processes == _own_process()["processes"] and not is_running(holder.pid)


def _own_process() -> dict[str, Any]:
    """Return who we are. `processes` is where our pid means something: this boot, this container."""
    try:
        processes = f"{boot_id() or secrets.token_hex(8)}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        processes = secrets.token_hex(8)  # of no other process
    return {"pid": os.getpid(), "host": socket.gethostname(), "processes": processes}


def _code(error: OSError) -> str:
    cause = error.__cause__
    return str(cause.response["Error"].get("Code")) if isinstance(cause, ClientError) else ""
