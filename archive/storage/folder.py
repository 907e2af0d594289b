"""All that `dlq` does with files below a folder, by descriptors from that folder on.

Whoever may write into an archive can put a link, a pipe or a device where a file was, at any moment. So a
name is walked part by part, each opened below the descriptor of the one before, and no link is followed:
between looking and opening nothing can be exchanged. The folder itself, and those above it, are the user's
own choice.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO, BinaryIO

TEMPORARY = ".tmp-"
PRIVATE = 0o600
"""For what holds letters."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_WAIT = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""For opening what may have become a pipe since it was looked at."""
_DEEPEST = 32
_TWO_NAMES = (
    "it has another name as well (a hard link), and what is written here would be written there: "
    "put a copy in its place"
)


class NotOrdinaryError(OSError):
    """What lies there is neither a file nor a folder: a link, a pipe, a device."""


class Folder:
    """A folder, and what lies below it. Names are relative, with `/`, and lead downwards (`names.inside`).

    All methods raise OSError, with a text of its own (`strerror`) where what lies there is not ordinary.
    """

    def __init__(self, root: str | Path) -> None:
        """Take the folder, which need not be there yet."""
        self.root = str(root)

    def open(self, name: str, alone: bool = False) -> IO[bytes]:
        """Return the file `name` for reading; `alone`: not one that has another name too."""
        return open(self._descriptor(name, os.O_RDONLY, alone), "rb")

    def open_in_place(self, name: str) -> int:
        """Return a descriptor to read and write the file `name` as it lies there, which is made where there
        is none; not of a file that has another name too, which may be one outside."""
        with self._above(name, make=True) as (folder, last):
            with suppress(FileExistsError):
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_WAIT
                return os.open(last, flags, PRIVATE, dir_fd=folder)
            return _check_ordinary(_open_ordinary(last, folder, os.O_RDWR), alone=True)

    def create(self, name: str) -> int:
        """Return a descriptor of the new file `name`, to read and write. Raises FileExistsError."""
        with self._above(name, make=True) as (folder, last):
            return os.open(last, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_WAIT, PRIVATE, dir_fd=folder)

    @contextmanager
    def replacing(self, name: str, mode: int = PRIVATE, make: bool = False) -> Iterator[BinaryIO]:
        """Open a stream whose bytes stand at `name`, durably, when the block ends; after an error nothing has
        changed. A link there is replaced. `make`: the folders above it, too."""
        with self._above(name, make) as (folder, last):
            temporary = f"{TEMPORARY}{token_hex(12)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, mode, dir_fd=folder)
            try:
                with open(descriptor, "wb") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
            os.fsync(folder)

    def add(self, name: str, data: bytes) -> None:
        """Write the file `name` durably, and whole from its first moment, unless there is one."""
        with self._above(name, make=True) as (folder, last):
            if not _added_unnamed(folder, last, data):
                self._add_by_link(name, folder, last, data)
            os.fsync(folder)

    def _add_by_link(self, name: str, folder: int, last: str, data: bytes) -> None:
        temporary = f"{TEMPORARY}{token_hex(12)}"
        with self.replacing(f"{name.rpartition('/')[0]}/{temporary}".lstrip("/")) as file:
            file.write(data)
        try:
            os.link(temporary, last, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            with open(self.create(name), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        finally:
            os.unlink(temporary, dir_fd=folder)

    def delete(self, name: str) -> None:
        """Remove `name`, or the link that lies there; nothing happens when it is gone already."""
        with suppress(FileNotFoundError), self._above(name) as (folder, last):
            os.unlink(last, dir_fd=folder)

    def rename(self, name: str, new: str) -> None:
        """Give `name` a new name in the same folder, durably."""
        with self._above(name) as (folder, last):
            os.rename(last, new, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    def has(self, name: str) -> bool:
        """Return whether anything lies at `name`."""
        return self.status(name) is not None

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of what lies at `name`, be it a link; None where there is nothing."""
        try:
            with self._above(name) as (folder, last):
                return os.stat(last, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def names(self, above: str = "") -> Iterator[str]:
        """Yield the names of all that lies below the folder `above`, in no order, but folders: also links and
        other things, which then cannot be opened."""
        with suppress(FileNotFoundError), self._folder(above) as descriptor:
            yield from _names(descriptor, f"{above}/" if above else "", 0)

    def sweep(self, before: float) -> None:
        """Remove all that has a temporary name and was last changed before this time (seconds since the
        epoch); what cannot be removed stays."""
        with suppress(FileNotFoundError), self._folder("") as descriptor:
            _sweep(descriptor, before, 0)

    def sync(self, name: str) -> None:
        """Make the bytes of a file that another process has written durable."""
        with self.open(name) as file:
            os.fsync(file.fileno())

    def make(self, name: str) -> None:
        """Make the folder `name`, its owner's alone, where there is none."""
        with self._folder(name, make=True):
            pass

    def _descriptor(self, name: str, flags: int, alone: bool) -> int:
        with self._above(name) as (folder, last):
            return _check_ordinary(_open_ordinary(last, folder, flags), alone)

    @contextmanager
    def _above(self, name: str, make: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder of `name`, and give it with the last part of the name."""
        above, _, last = name.rpartition("/")
        with self._folder(above, make) as folder:
            yield folder, last

    @contextmanager
    def _folder(self, name: str, make: bool = False) -> Iterator[int]:
        if make:
            _make_folder(Path(self.root))
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in filter(None, name.split("/")):
                below = _open_folder(descriptor, part, make)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)


def _make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are not there, each its owner's alone; those that are there keep
    their rights. Raises OSError."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _fsync_folder(folder.parent)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _added_unnamed(folder: int, last: str, data: bytes) -> bool:
    """Return a file that has no name until it is whole: who is killed meanwhile leaves none, and never two of
    one file. False where the file system makes none (NFS)."""
    try:
        descriptor = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, PRIVATE, dir_fd=folder)
    except OSError:
        return False
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
        try:
            os.link(f"/proc/self/fd/{descriptor}", last, dst_dir_fd=folder)
        except FileExistsError:
            pass
        except OSError:  # /proc is not there
            return False
        os.fsync(descriptor)  # again: btrfs before Linux 6.16 logs nothing of a file without a name
    return True


def _open_folder(folder: int, part: str, make: bool) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    except OSError as error:
        raise _not_ordinary(part, folder, error) from error
    with suppress(FileExistsError):
        os.mkdir(part, 0o700, dir_fd=folder)
    os.fsync(folder)
    return _open_folder(folder, part, make=False)


def _open_ordinary(name: str, folder: int, flags: int) -> int:
    """Open no device or pipe at all; what it was exchanged for meanwhile is looked at afterwards."""
    if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise _not_ordinary(name, folder)
    try:
        return os.open(name, flags | _NO_WAIT, dir_fd=folder)
    except OSError as error:
        raise _not_ordinary(name, folder, error) from error


def _check_ordinary(descriptor: int, alone: bool = False) -> int:
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and (not alone or found.st_nlink < 2):
        return descriptor
    os.close(descriptor)
    raise NotOrdinaryError(0, _TWO_NAMES if stat.S_ISREG(found.st_mode) else "it is no ordinary file")


def _not_ordinary(name: str, folder: int, error: OSError | None = None) -> OSError:
    """Return what to say of what cannot be opened: that it is a link, if so."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return error or NotOrdinaryError(0, "it is no ordinary file")
    if stat.S_ISLNK(found.st_mode):
        return NotOrdinaryError(0, "it is a link, or lies behind one, and links are not followed")
    return error or NotOrdinaryError(0, "it is no ordinary file")


def _sweep(folder: int, before: float, depth: int) -> None:
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        is_folder = entry.is_dir(follow_symlinks=False)
        with suppress(OSError):
            if not entry.name.startswith(TEMPORARY):
                if is_folder and depth < _DEEPEST:
                    with _opened_below(entry.name, folder) as below:
                        _sweep(below, before, depth + 1)
            elif entry.stat(follow_symlinks=False).st_mtime < before:
                if is_folder:
                    shutil.rmtree(entry.name, dir_fd=folder)
                else:
                    os.unlink(entry.name, dir_fd=folder)


@contextmanager
def _opened_below(name: str, folder: int) -> Iterator[int]:
    below = os.open(name, _FOLDER, dir_fd=folder)
    try:
        yield below
    finally:
        os.close(below)


def _names(folder: int, above: str, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        raise NotOrdinaryError(0, f"it has more than {_DEEPEST} folders in each other")
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            yield f"{above}{entry.name}"
            continue
        with suppress(FileNotFoundError), _opened_below(entry.name, folder) as below:  # else gone meanwhile
            yield from _names(below, f"{above}{entry.name}/", depth + 1)
