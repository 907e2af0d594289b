"""What a path leads to, told by its mode: a command that reads a file of the user's waits for nobody."""

import stat
import zlib
from collections.abc import Callable, Mapping

_KINDS: Mapping[Callable[[int], bool], str] = {
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISDIR: "a folder",
}

UNREADABLE = (OSError, EOFError, zlib.error)
"""What reading a file raises that may be packed by gzip: it ends too soon, or its bytes are others."""


def why_not(mode: int) -> str | None:
    """Return why what has this mode is not read (`st_mode` of stat(2)); None for an ordinary file."""
    kind = next((kind for is_it, kind in _KINDS.items() if is_it(mode)), None)
    return None if kind is None else f"it is {kind}, and only ordinary files are read"
