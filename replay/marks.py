"""How far each letter of an apply has come, kept in a file that outlives the process.

A claim says that a letter may have been sent, and what became of it is written with the next claim. Of a
process that was killed, the mark tells more: what it had claimed, or given to a publisher, and never written
to where the broker could have got it; and what the broker had confirmed. Only the rest is in doubt.

The file has a line that says whose it is, and then one byte per letter of the plan. What a process has
written is in the kernel's page cache whatever becomes of it, but may be lost when the host goes down: so a
mark counts on the host where it was written, as long as that runs, and nowhere else.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from glob import escape
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from dlq.archive import files
from dlq.archive.store import LocalStore, Store
from dlq.replay.ledger.contract import Ledger, is_dead
from dlq.replay.states import State

_OWNER_BYTES = 512
_WRITTEN, _CONFIRMED = b"\x01", b"\x02"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NEVER_WRITTEN = "its sender died before the letter could reach the broker"
_SHOWN: Mapping[bytes, tuple[State, str]] = {
    b"": ("planned", _NEVER_WRITTEN),
    b"\x00": ("planned", _NEVER_WRITTEN),
    _CONFIRMED: ("confirmed", "the broker had confirmed it when its sender died"),
}
"""Byte of a letter (the file ends behind the last one that was written) -> what it means for the ledger."""


class Mark:
    """The mark of one apply, a context manager. Where it cannot be written there is none, and the claims are
    all that is known."""

    def __init__(self, store: Store, plan: str, owner: str) -> None:
        """`owner`: who claims, as the ledger calls it."""
        self._path = _folder(store) / f"{plan}.{owner.rpartition('/')[2]}.mark"
        self._owner = owner
        self._file: int | None = None

    def __enter__(self) -> "Mark":
        """Make the file."""
        if boot := _boot_id():
            head = json.dumps({"owner": self._owner, "boot": boot}).encode().ljust(_OWNER_BYTES)
            with suppress(OSError):
                files.make_folder(self._path.parent)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                self._file = os.open(self._path, flags, files.PRIVATE)
                self._write(head, 0)
        return self

    def writing(self, numbers: Sequence[int]) -> None:
        """The letters of these numbers may reach the broker from now on. Neighbours, as they mostly are, take
        one system call."""
        first, last = min(numbers, default=0), max(numbers, default=-1)
        if last - first + 1 == len(numbers):
            self._write(_WRITTEN * len(numbers), _OWNER_BYTES + first)
        else:
            for number in numbers:
                self._write(_WRITTEN, _OWNER_BYTES + number)

    def confirm(self, number: int) -> None:
        """The broker has it."""
        self._write(_CONFIRMED, _OWNER_BYTES + number)

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """The ledger knows what became of every letter, unless it failed."""
        self._end(is_needed=kind is not None)

    def _write(self, data: bytes, at: int) -> None:
        """A mark that misses a letter would lie: it goes."""
        if self._file is not None:
            try:
                os.pwrite(self._file, data, at)
            except OSError:
                self._end(is_needed=False)

    def _end(self, is_needed: bool) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
            if not is_needed:
                self._path.unlink(missing_ok=True)


def expire(store: Store, ledger: Ledger, plan: str) -> Counter[State]:
    """`Ledger.expire`, and then write what the marks of the dead tell of `plan`; returns how many letters
    went to each state. The caller holds the plan's lock, so that nobody sends them meanwhile."""
    ledger.expire()
    moved: Counter[State] = Counter()
    for path, owner, reached in _of_the_dead(store, plan):
        shown: dict[tuple[State, str], list[str]] = {}
        for entry in ledger.entries(plan, "in_doubt"):
            told = _SHOWN.get(reached[entry.number : entry.number + 1])
            if told and entry.owner == owner:
                shown.setdefault(told, []).append(entry.key)
        for (state, why), keys in shown.items():
            moved[state] += ledger.resolve(keys, state, why)
        path.unlink(missing_ok=True)
    return moved


def _of_the_dead(store: Store, plan: str) -> Iterator[tuple[Path, str, bytes]]:
    """(its file, owner, a byte per letter) of each mark that counts here, and whose process is no more."""
    for path in _folder(store).glob(f"{escape(plan)}.*.mark"):
        try:
            content = path.read_bytes()
            head = json.loads(content[:_OWNER_BYTES])
            owner = str(head["owner"])
            counts = head["boot"] == _boot_id() and is_dead(owner)
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if counts:
            yield path, owner, content[_OWNER_BYTES:]


def _folder(store: Store) -> Path:
    """In an archive that is a folder, else the user's own on this host."""
    if isinstance(store, LocalStore):
        return Path(store.location) / "locks"
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "dlq" / sha256(store.location.encode()).hexdigest()[:16]


def _boot_id() -> str | None:
    """Another one after each start of the host; None where the system has none to tell."""
    with suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return None
