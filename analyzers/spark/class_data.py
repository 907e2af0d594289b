"""Spark's classes as Java keeps them (JEP 350), written once, so that later analyses start with less work.

The first JVM writes them when it ends; Java checks that a file fits its own version and Spark's jars, and
goes on without one otherwise. It writes the head of the file last, so half a file does not count. What is
in it runs as code of the user's, so nobody else may have written it.
"""

import os
import shlex
import stat
import time
from hashlib import sha256
from pathlib import Path

_STALE = 3600
"""Seconds after which a file that is of no use is written anew: who began it is gone, or did not write it."""
_UNUSED = 30 * 86_400
_OF_THE_USER = ("-Xshare", "-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit")


def option(java: Path, jars: Path, chosen: str = "") -> str:
    """The JVM's option to map the class data of this Java and these jars, or to write them at its end.

    Empty where `chosen`, the options so far, has one already, where another JVM is writing them, where there
    is no folder to write to, and where others could have written.
    """
    if any(word in chosen for word in _OF_THE_USER):
        return ""
    name = sha256(f"{java}\n{jars}".encode()).hexdigest()[:16]
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        file = Path(caches, "dlq", f"spark-{name}.jsa")
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not all(_of_the_user_alone(path) for path in (file.parent, file)):
            return ""
        if _usable(file, java, jars):
            return f"-XX:SharedArchiveFile={shlex.quote(str(file))}"
        if _claimed(file):
            return f"-XX:ArchiveClassesAtExit={shlex.quote(str(file))}"
    except (OSError, RuntimeError):  # the second: this user has no home
        pass
    return ""


def _of_the_user_alone(path: Path) -> bool:
    """No link, and nobody else can have written it; or it is not there."""
    try:
        known = path.lstat()
    except FileNotFoundError:
        return True
    writable_by_others = known.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return not stat.S_ISLNK(known.st_mode) and known.st_uid == os.getuid() and not writable_by_others


def _usable(file: Path, java: Path, jars: Path) -> bool:
    """It has a head, and neither Java nor Spark was installed after it was written."""
    installed = max(path.stat().st_ctime for path in (java, jars))
    if not file.exists() or file.stat().st_mtime < installed:
        return False
    with file.open("rb") as written:
        return any(written.read(4))


def _claimed(file: Path) -> bool:
    """Whether this process is the one that may write the file: an empty one tells the others. Files of
    other Sparks that nobody has used for long go."""
    now = time.time()
    if file.exists() and now - file.stat().st_mtime > _STALE:
        file.unlink()
    for other in file.parent.glob("spark-*.jsa"):
        if now - other.stat().st_atime > _UNUSED:
            other.unlink()
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True
