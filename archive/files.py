"""Writing a file whole or not at all, also in a folder where others may write.

Every file that `dlq` writes goes through here. The bytes go under a random name that nobody can have
taken before, with its rights from the first moment; renaming replaces a link and never follows it.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

TEMPORARY = ".tmp-"
PRIVATE = 0o600
"""For what holds letters."""
SHARED = 0o666
"""Less the umask: for what everybody may read."""
_STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/null", "/dev/fd/", "/proc/self/fd/")


@contextmanager
def replacing(path: str | Path, mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """A stream whose bytes stand at `path`, durably, when the block ends; after an error nothing has changed.

    A pipe of the user's own, as `>(gzip)` makes one, is written as it is. Raises OSError.
    """
    if _is_stream(path):
        with open(path, "wb") as pipe:
            yield pipe
        return
    target = Path(path)
    temporary = target.with_name(f"{TEMPORARY}{token_hex(12)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    fsync_folder(target.parent)


def make_private(path: Path) -> None:
    """An empty file where there is none, its owner's alone, before a library makes it with the umask's.
    Where that cannot be done, the library says why."""
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, PRIVATE))


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are not there, each its owner's alone; those that are there keep
    their rights. Raises OSError."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    fsync_folder(folder.parent)


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_stream(path: str | Path) -> bool:
    """Another's pipe is none: it is replaced like any other name. A device, as root could replace one, is."""
    if str(path).startswith(_STREAMS):
        return True
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISCHR(found.st_mode) or (stat.S_ISFIFO(found.st_mode) and found.st_uid == os.geteuid())
