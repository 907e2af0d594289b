"""A folder for what is needed only while this process runs: its user's alone, and gone at its end.

Letters may be in what libraries spill there, whatever the umask. What a killed process has left is removed by
the next one: a process holds a lock on its folder for as long as it lives.
"""

import atexit
import fcntl
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = "dlq-scratch-"
kept: dict[int, tuple[Path, int]] = {}
"""Process id -> its folder, and the descriptor by which it is locked: a forked process has another one."""


def folder(name: str = "") -> Path:
    """Return the folder of this process, made when it is first asked for; or a new one below it, whose name
    begins with `name`. Raises OSError."""
    if os.getpid() not in kept:
        _sweep()
        kept[os.getpid()] = _make_folder()
        atexit.register(_remove, os.getpid())
    above = kept[os.getpid()][0]
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=above)) if name else above


def choose_name(prefix: str) -> Path:
    """Choose a name for a folder below that of this process, which a library makes once it needs it, and
    removes. Raises OSError."""
    return folder() / f"{prefix}-{secrets.token_hex(8)}"


def _make_folder() -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        descriptor = _lock_folder(path)
        if descriptor is not None:
            return path, descriptor


def remove() -> None:
    """Remove it now, for a process that ends without its last steps."""
    _remove(os.getpid())


def _remove(pid: int) -> None:
    """Remove the folder at the end of the process that made it, not of one that was forked from it."""
    if pid == os.getpid() and pid in kept:
        path, descriptor = kept.pop(pid)
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def _sweep() -> None:
    """Remove the folders of this user's processes that are no more, where the user may see what is there."""
    try:
        entries = list(os.scandir(tempfile.gettempdir()))
    except PermissionError:
        return
    for entry in entries:
        if not entry.name.startswith(_PREFIX):
            continue
        with suppress(OSError):
            of_the_user = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            descriptor = _lock_folder(Path(entry.path)) if of_the_user else None
            if descriptor is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(descriptor)


def _lock_folder(path: Path) -> int | None:
    """Return a descriptor that holds the lock of a folder; None where another holds it, or has removed it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
