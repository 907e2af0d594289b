"""How far each letter of an apply has come, kept in a file that outlives the process.

A claim says that a letter may have been sent, and what became of it is written with the next claim. Of a
process that was killed, the mark tells more: what it had claimed, or given to a publisher, and never written
to where the broker could have got it; and what the broker had confirmed. Only the rest is in doubt.

The file has a line that says whose it is, and then one byte per letter of the plan. It is written through a
shared mapping: two system calls a letter took a tenth of a fast replay. What a process has written there is
in the kernel's page cache whatever becomes of it, but may be lost when the host goes down: so a mark counts
on the host where it was written, as long as that runs, and nowhere else.
"""

import json
import mmap
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from dlq.archive.storage.folder import Folder
from dlq.archive.storage.processes import boot_id
from dlq.archive.storage.store import LocalStore, Store
from dlq.core.runtime import bounded_json
from dlq.replay.ledger.contract import Ledger, is_dead
from dlq.replay.states import State

_LOCKS = "locks"
OWNER_BYTES = 512
_WRITTEN, _CONFIRMED = 1, 2
NEVER_WRITTEN = "its sender died before the letter could reach the broker"
_SHOWN: Mapping[bytes, tuple[State, str]] = {
    b"\0": ("planned", NEVER_WRITTEN),
    bytes([_CONFIRMED]): ("confirmed", "the broker had confirmed it when its sender died"),
}
"""Byte of a letter -> what it means for the ledger; behind the end of a cut file nothing is known."""


class Mark:
    """The mark of one apply, a context manager. Where it cannot be written there is none, and the claims are
    all that is known."""

    def __init__(self, store: Store, plan: str, owner: str, letters: int) -> None:
        """`owner`: who claims, as the ledger calls it; `letters`: how many the plan has."""
        self._folder = _folder(store)
        self._name = f"{_LOCKS}/{plan}.{owner.rpartition('/')[2]}.mark"
        self._owner, self._letters = owner, letters
        self._reached: mmap.mmap | None = None

    def __enter__(self) -> "Mark":
        """Make the file, with all the room that it takes: a page that finds none would end the process."""
        if boot := boot_id():
            head = json.dumps({"owner": self._owner, "boot": boot}).encode().ljust(OWNER_BYTES)
            with suppress(OSError):
                self._reached = self._create_file(head + bytes(self._letters))
        return self

    def _create_file(self, content: bytes) -> mmap.mmap:
        with open(self._folder.create(self._name), "w+b") as file:
            try:
                file.write(content)
                file.flush()
                return mmap.mmap(file.fileno(), len(content))
            except OSError:
                self._folder.delete(self._name)
                raise

    def note_writing(self, numbers: Sequence[int]) -> None:
        """Note that the letters of these numbers may reach the broker from now on."""
        if self._reached is not None:
            for number in numbers:
                self._reached[OWNER_BYTES + number] = _WRITTEN

    def confirm(self, number: int) -> None:
        """Note that the broker has confirmed this letter."""
        if self._reached is not None:
            self._reached[OWNER_BYTES + number] = _CONFIRMED

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Remove the marks: the ledger knows what became of every letter, unless it failed."""
        if self._reached is not None:
            self._reached.close()
            self._reached = None
            if kind is None:
                self._folder.delete(self._name)


def expire(store: Store, ledger: Ledger, plan: str) -> Counter[State]:
    """Do `Ledger.expire`, and then write what the marks of the dead tell of `plan`; return how many letters
    went to each state. The caller holds the plan's lock, so that nobody sends them meanwhile."""
    ledger.expire()
    moved: Counter[State] = Counter()
    folder = _folder(store)
    for name, owner, reached in _dead_marks(folder, plan):
        shown: dict[tuple[State, str], list[str]] = {}
        for entry in ledger.entries(plan, "in_doubt"):
            told = _SHOWN.get(reached[entry.number : entry.number + 1])
            if told and entry.owner == owner:
                shown.setdefault(told, []).append(entry.key)
        for (state, why), keys in shown.items():
            moved[state] += ledger.resolve(keys, state, why)
        folder.delete(name)
    return moved


def _dead_marks(folder: Folder, plan: str) -> Iterator[tuple[str, str, bytes]]:
    """Yield file, owner and a byte per letter of each mark that counts here, and whose process is no more."""
    for name in sorted(folder.names(_LOCKS)):
        if not (name.startswith(f"{_LOCKS}/{plan}.") and name.endswith(".mark")):
            continue
        try:
            with folder.open(name) as file:
                head = bounded_json.loads(file.read(OWNER_BYTES))
                reached = file.read(bounded_json.LARGEST)
            owner = str(head["owner"])
            counts = head["boot"] == boot_id() and is_dead(owner)
        except (OSError, ValueError, LookupError, TypeError):
            continue
        if counts:
            yield name, owner, reached


def _folder(store: Store) -> Folder:
    """Return an archive that is a folder, else the user's own on this host."""
    if isinstance(store, LocalStore):
        return store.folder
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Folder(Path(state) / "dlq" / sha256(store.location.encode()).hexdigest()[:16])
