"""Whose a file is that nobody has named, or that is named from where a command happens to run.

What decides which programs run must be the caller's or root's, and so must each folder and link on the way
to it, as sshd wants it of keys (OpenSSH, misc.c: safe_path). A folder like /tmp is good on the way, where
nobody renames what is another's; it is not good for the file, because anybody puts one there.
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress

from dlq.core.errors import ConfigError

_ACCESS_LIST = "system.posix_acl_access"


def why_foreign(path: str) -> str | None:
    """Return why somebody else may have made or changed the file at `path`; None where only root and the
    caller can. Raises OSError where that cannot be seen."""
    os.stat(path)  # so that links lead somewhere
    holders = {os.path.dirname(os.path.abspath(path)), os.path.dirname(os.path.realpath(path))}
    return next(filter(None, (_fault(at, at in holders) for at in _way(path))), None)


def check_program(program: str, place: str = "") -> None:
    """Check a program that a configuration names relatively, at `place`: it is another one in each folder.
    Raises ConfigError where it could be anybody's."""
    if "/" not in program or os.path.isabs(program):
        return
    with suppress(OSError):  # who starts it says so
        if why := why_foreign(program):
            raise ConfigError(f"{place}{program} is not run: {why}; write its absolute path")


def _way(path: str) -> Iterator[str]:
    """Yield all that leads to a file: its folders, links, what these lead to, and itself."""
    at, left = "/", os.path.abspath(path).split("/")[::-1]
    yield at
    while left:
        name = left.pop()
        if name in ("", ".", ".."):
            at = os.path.dirname(at) if name == ".." else at
            continue
        folder, at = at, os.path.join(at, name)
        yield at
        if os.path.islink(at):
            target = os.readlink(at)
            left += target.split("/")[::-1]
            at = "/" if os.path.isabs(target) else folder


def _fault(at: str, holds_it: bool) -> str | None:
    found = os.lstat(at)
    if found.st_uid not in (0, os.geteuid()):
        return f"{at} belongs to {_name(found.st_uid)}"
    if stat.S_ISLNK(found.st_mode):
        return None
    keeps_names = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX and not holds_it
    for_others = stat.S_IWOTH if _is_private(at, found) else stat.S_IWOTH | stat.S_IWGRP
    return f"others can write to {at}" if found.st_mode & for_others and not keeps_names else None


def _is_private(at: str, found: os.stat_result) -> bool:
    """Return whether the group is the caller's alone, as where the usual umask is 002."""
    with suppress(KeyError, OSError):  # OSError: no lists of access there, or none that can be seen
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(found.st_gid)
        is_own = user.pw_uid != 0 and (user.pw_gid, user.pw_name) == (group.gr_gid, group.gr_name)
        return is_own and set(group.gr_mem) <= {user.pw_name} and _ACCESS_LIST not in os.listxattr(at)
    return False


def _name(uid: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"user {uid}"
