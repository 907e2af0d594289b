"""Writing a file of the user's whole or not at all, also in a folder where others may write.

Every file that `dlq` writes outside of an archive goes through here, those inside through `folder`. The bytes
go under a random name that nobody can have taken before, with its rights from the first moment; renaming
replaces a link and never follows it.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dlq.archive.storage.folder import PRIVATE, Folder
from dlq.core.runtime import patience

SHARED = 0o666
"""Less the umask: for what everybody may read."""
_STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/null", "/dev/fd/", "/proc/self/fd/")


@contextmanager
def replacing(path: str | Path, mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """Open a stream whose bytes stand at `path`, durably, when the block ends; after an error nothing has
    changed.

    A pipe of the user's own, as `>(gzip)` makes one, is written as it is. Raises OSError.
    """
    if is_stream(path):
        with _open_pipe(path) as pipe:
            yield pipe
        return
    if not Path(path).name:  # `.` and `/`
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    with Folder(Path(path).parent).replacing(Path(path).name, mode) as file:
        yield file


def keep_rights(file: BinaryIO, path: str | Path) -> None:
    """Give a file the owner and the rights of the one at `path`, which it is to replace. Raises OSError."""
    found = os.stat(path)
    os.fchown(file.fileno(), found.st_uid, found.st_gid)
    os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode))


def is_stream(path: str | Path) -> bool:
    """Another's pipe is none: it is replaced like any other name. A device, as root could replace one, is."""
    try:
        return str(path).startswith(_STREAMS) or _is_pipe_or_device(os.lstat(path))
    except OSError:
        return False


def _is_pipe_or_device(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) or (stat.S_ISFIFO(found.st_mode) and found.st_uid == os.geteuid())


def _open_pipe(path: str | Path) -> BinaryIO:
    """Return a pipe or a device as it is, where nobody has exchanged it since it was looked at."""
    is_given = str(path).startswith(_STREAMS)
    descriptor = open_at_once(path, os.O_TRUNC if is_given else os.O_NOFOLLOW)
    if not is_given and not _is_pipe_or_device(os.fstat(descriptor)):
        os.close(descriptor)
        raise OSError(0, "someone exchanged it meanwhile")
    os.set_blocking(descriptor, True)
    return open(descriptor, "wb")


def open_at_once(path: str | Path, flags: int) -> int:
    """Open a file for writing; of a pipe, that would wait for a reader without end."""
    for _ in patience.tries(patience.SHORTLY):
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | flags)
        except OSError as error:
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(os.stat(path).st_mode):
                raise  # also of a terminal that a process without one asks for
    raise OSError(0, f"it is a pipe that nobody reads, for {patience.SHORTLY:g} s")
