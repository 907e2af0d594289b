"""Writing a file of the user's whole or not at all, also in a folder where others may write.

Every file that `dlq` writes outside of an archive goes through here, those inside through `folder`. The bytes
go under a random name that nobody can have taken before, with its rights from the first moment; renaming
replaces a link and never follows it.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dlq.archive.folder import PRIVATE, Folder

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
    with Folder(Path(path).parent).replacing(Path(path).name, mode) as file:
        yield file


def _is_stream(path: str | Path) -> bool:
    """Another's pipe is none: it is replaced like any other name. A device, as root could replace one, is."""
    if str(path).startswith(_STREAMS):
        return True
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISCHR(found.st_mode) or (stat.S_ISFIFO(found.st_mode) and found.st_uid == os.geteuid())
