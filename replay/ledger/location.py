"""Where the ledger of an archive lies: in the archive's folder, in a file that the configuration names, or
on a server.

An archive has one ledger: with two of them its letters would be sent twice. `ledger.json` notes which: the
archive's own file, a file of one host, or a server.
"""

import json
import shlex
import socket
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from dlq.archive.storage.folder import Folder
from dlq.archive.storage.store import Store, build
from dlq.core import documents
from dlq.core.errors import ConfigError, UsageError
from dlq.core.settings import Ledger

FILE = "ledger.db"
_NOTE = "ledger.json"
_MOVED = ".moved"
_NOTE_FORMAT = 1
_IN_ARCHIVE = "sqlite"
_ELSEWHERE = "sqlite:///"


class _Note(NamedTuple):
    """What `ledger.json` says; nothing of it: the archive's own file is the ledger."""

    server: str = ""
    """The kind of server."""
    host: str = ""
    path: str = ""


def is_server(settings: Ledger) -> bool:
    """Return whether `[ledger] url` names a server."""
    return settings.url != _IN_ARCHIVE and not settings.url.startswith(_ELSEWHERE)


def file_of(settings: Ledger, store: Store) -> Path:
    """Return the SQLite file that `[ledger] url` means. Raises UsageError, ConfigError where none can be."""
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
    return Path(store.location, FILE)


def own_file(store: Store) -> Path | None:
    """Return the file that remembers this archive's replays; None when there is none.

    Raises UsageError when it lies on another host. A container has another name each time; next to an archive
    in a folder, what lies at the noted path is the ledger on every host.
    """
    return _own_file(store, _read_note(store))


def _own_file(store: Store, noted: _Note | None) -> Path | None:
    own = _in_folder(store)
    if own is not None and is_there(own):
        return own
    if noted is None or noted.server:
        return None
    if not noted.path:
        return own
    is_shared = own is not None and is_there(Path(noted.path))
    if noted.host != socket.gethostname() and not is_shared:
        raise UsageError(
            f"the ledger of the archive {store.location} is {noted.path} on {noted.host}: "
            "replay from there, or move it to a server with `dlq ledger move` there"
        )
    return Path(noted.path)


def _in_folder(store: Store) -> Path | None:
    """Return where an archive in a folder has its own ledger, if it has one."""
    return Path(store.location, FILE) if store.filesystem is None else None


def _read_note(store: Store) -> _Note | None:
    found = store.get_many([_NOTE])
    return build(_NOTE, found[_NOTE], _note_of) if found else None


def _note_of(document: Mapping[str, Any]) -> _Note:
    noted = documents.build(_Note, document)
    if noted.path and (not Path(noted.path).is_absolute() or "\0" in noted.path):
        raise ValueError("path must be a whole path")
    return noted


def check(settings: Ledger, store: Store) -> bool:
    """Raise UsageError when `[ledger] url` is not the ledger that this archive has, or that is gone: what the
    other one knows would be sent twice. Return whether the archive has had its ledger on a server.
    """
    noted = _read_note(store)
    own = _own_file(store, noted)
    configured = None if is_server(settings) else file_of(settings, store)
    if configured is not None:
        check_stays(configured)
    is_gone = own is not None and not is_there(own)
    if noted is not None and (is_gone or (noted.server and configured is not None)):
        raise _out_of_reach(store, noted)
    if own is not None and own != configured:
        raise UsageError(
            f"the archive {store.location} has its own {own.name}, unknown to the one in [ledger] url; "
            "move it there once with `dlq ledger move`"
        )
    return noted is not None and bool(noted.server)


def check_named(store: Store, path: Path, outside: str | None) -> None:
    """Raise UsageError for a ledger outside of the archive that the user has not named."""
    if path != _in_folder(store) and (outside is None or Path(outside) != path):
        raise UsageError(
            f"{_NOTE} in the archive {store.location} says that its ledger is {path}, outside of it: "
            f"if that is so, run `dlq ledger move --from {shlex.quote(str(path))}`"
        )


def is_there(path: Path) -> bool:
    """Return whether anything lies there, be it a link, which is not followed."""
    try:
        return Folder(path.parent).has(path.name)
    except (OSError, ValueError):
        return False


def check_none(store: Store) -> None:
    """Raise UsageError when the archive has a ledger at all."""
    noted = _read_note(store)
    if noted is not None:
        raise _out_of_reach(store, noted)


def _out_of_reach(store: Store, noted: _Note) -> UsageError:
    file = f"{noted.path} on {noted.host}" if noted.path else FILE
    ledger = f"on a server ({noted.server})" if noted.server else file
    return UsageError(
        f"the ledger of the archive {store.location} is {ledger}, which is gone or not what [ledger] url "
        "names: everything it records would be sent again. Restore it, or name it in [ledger] url; only if "
        f"it is lost, remove {_NOTE} from the archive, and every letter counts as never sent"
    )


def check_stays(path: Path) -> None:
    """Raise UsageError when the ledger has moved away from here: a new one would send all again."""
    moved = Path(f"{path}{_MOVED}")
    if is_there(moved):
        raise UsageError(
            f"the ledger {path} was moved: set [ledger] url to where it is now "
            f"(or, to go back to what it knew then, rename {moved.name} to {path.name})"
        )


def note(settings: Ledger, store: Store) -> None:
    """Write down which ledger this archive has, the first time that it is opened."""
    now = _note_for(settings, store)
    if _read_note(store) == now:
        return
    hosts_may_differ = bool(now.path) and store.filesystem is not None
    with store.lock("ledger") if hosts_may_differ else nullcontext():
        check(settings, store)
        _write(store, now)


def _note_for(settings: Ledger, store: Store) -> _Note:
    if is_server(settings):
        return _Note(server=settings.url.partition(":")[0])
    path = file_of(settings, store)
    return _Note() if path == _in_folder(store) else _Note(host=socket.gethostname(), path=str(path))


def _write(store: Store, now: _Note) -> None:
    said = {name: value for name, value in now._asdict().items() if value}
    store.put(_NOTE, json.dumps({"format": _NOTE_FORMAT, **said}).encode())


def retire(settings: Ledger, store: Store, path: Path) -> None:
    """Write down which ledger this archive has now, and keep the file, which is no longer it, under another
    name. Whoever is killed in between finds it where it was, and moves it again."""
    _write(store, _note_for(settings, store))
    folder = Folder(path.parent)
    for end in ("", "-wal", "-shm"):
        if folder.has(f"{path.name}{end}"):
            folder.rename(f"{path.name}{end}", f"{path.name}{end}{_MOVED}")
