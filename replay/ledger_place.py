"""Where the ledger of an archive lies: in the archive's folder, in a file that the configuration names, or
on a server.

An archive has one ledger: with two of them its letters would be sent twice. A folder shows its `ledger.db`;
an archive on an object store notes in `ledger.json` which file of which host remembers its replays.
"""

import json
import socket
from operator import itemgetter
from pathlib import Path

from dlq.archive.store import Store, built
from dlq.core.errors import ConfigError, UsageError
from dlq.core.settings import Ledger

FILE = "ledger.db"
_NOTE = "ledger.json"
_MOVED = ".moved"
_NOTE_FORMAT = 1
_IN_ARCHIVE = "sqlite"
_ELSEWHERE = "sqlite:///"


def is_server(settings: Ledger) -> bool:
    """Whether `[ledger] url` names a server."""
    return settings.url != _IN_ARCHIVE and not settings.url.startswith(_ELSEWHERE)


def file_of(settings: Ledger, store: Store) -> Path:
    """The SQLite file that `[ledger] url` means. Raises UsageError, ConfigError where there can be none."""
    if settings.url.startswith(_ELSEWHERE):
        path = Path(settings.url.removeprefix(_ELSEWHERE))
        if not path.is_absolute():
            raise ConfigError("ledger.url: write the whole path, e.g. sqlite:////var/lib/dlq/ledger.db")
        return path
    if store.filesystem is not None:
        raise UsageError(
            f"the archive {store.location} needs a ledger on a server: set [ledger] url; or, where only this "
            'host replays from it, to a file of this host: url = "sqlite:////var/lib/dlq/ledger.db"'
        )
    return Path(store.url(FILE))


def own_file(store: Store) -> Path | None:
    """The file that remembers this archive's replays; None when there is none.

    Raises UsageError when it lies on another host.
    """
    if store.filesystem is None:
        path = Path(store.url(FILE))
        return path if path.exists() else None
    found = store.get_many([_NOTE])
    if not found:
        return None
    host, path = built(_NOTE, found[_NOTE], itemgetter("host", "path"))
    if host != socket.gethostname():
        raise UsageError(
            f"the ledger of the archive {store.location} is {path} on {host}: "
            "replay from there, or move it to a server with `dlq ledger move` there"
        )
    return Path(path)


def check(settings: Ledger, store: Store) -> None:
    """Raises UsageError when `[ledger] url` is not the ledger that this archive has.

    What the other one knows would be sent twice.
    """
    own = own_file(store)
    configured = None if is_server(settings) else file_of(settings, store)
    if own is not None and own != configured:
        raise UsageError(
            f"the archive {store.location} has its own {own.name}, unknown to the one in [ledger] url; "
            "move it there once with `dlq ledger move`"
        )
    if configured is not None:
        check_stays(configured)


def check_stays(path: Path) -> None:
    """Raises UsageError when the ledger has moved away from here: a new one would send all again."""
    moved = Path(f"{path}{_MOVED}")
    if moved.exists():
        raise UsageError(
            f"the ledger {path} was moved: set [ledger] url to where it is now "
            f"(or, to go back to what it knew then, rename {moved.name} to {path.name})"
        )


def note(settings: Ledger, store: Store) -> None:
    """Write down that a file of this host is the ledger of an archive on an object store."""
    if store.filesystem is None or is_server(settings) or own_file(store) is not None:
        return
    path = str(file_of(settings, store))
    with store.lock("ledger"):
        check(settings, store)
        document = {"format": _NOTE_FORMAT, "host": socket.gethostname(), "path": path}
        store.put(_NOTE, json.dumps(document).encode())


def retire(store: Store, path: Path) -> None:
    """The file is no longer the ledger: it is kept under another name."""
    for end in ("", "-wal", "-shm"):
        part = Path(f"{path}{end}")
        if part.exists():
            part.rename(f"{part}{_MOVED}")
    if store.filesystem is not None:
        store.delete(_NOTE)
