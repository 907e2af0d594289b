"""Files that the user names, for reading: ordinary ones, so that no command waits for ever.

A pipe waits for a writer, a device may be one that never answers, and some files of /proc wait for news.
A pipe that was open when this process started, as standard input is and `<(zcat x)` makes one, is read.
"""

import os
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qsl

from dlq.core.errors import ConfigError
from dlq.core.runtime.regular_files import why_not

_OPEN_ALREADY = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
_MOST = 16 * 2**20
"""Bytes of a password or a configuration."""
_NAME_FILES = {
    "ssl_ca", "ssl_cert", "ssl_key",  # MySQL
    "sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile",  # PostgreSQL
    "ssl_ca_certs", "ssl_certfile", "ssl_keyfile",  # Redis
}  # fmt: skip
"""Parameters of URLs that drivers of databases take for names of files."""


class NotOrdinaryError(OSError):
    """What the user has named is no ordinary file; `strerror` says what it is."""


def open_given(path: str | Path) -> BinaryIO:
    """Return the file at `path`. Raises OSError; its `strerror` says why, with what it is if it is no
    file."""
    if str(path).startswith(_OPEN_ALREADY):
        return open(path, "rb")
    _check(os.stat(path).st_mode)
    with ExitStack() as held:
        file = held.enter_context(open(path, "rb", opener=_without_waiting))
        found = os.fstat(file.fileno())
        _check(found.st_mode)
        if found.st_size == 0 and file.read(1) != b"":  # None where it would wait
            raise NotOrdinaryError(0, "it holds more than it says, as files of /proc do: copy it first")
        held.pop_all()
    return file


def text(path: str | Path) -> str:
    """Return all of a small file. Raises OSError, UnicodeDecodeError."""
    with open_given(path) as file:
        content = file.read(_MOST + 1)
    if len(content) > _MOST:
        raise NotOrdinaryError(0, f"it has more than {_MOST >> 20} MiB")
    return content.decode("utf-8")


def check_files_of(place: str, settings: Any) -> None:
    """Check the files that a table of the configuration names. Raises ConfigError where a setting, or a
    parameter of its `url`, leads to something else than a file: libraries open it later, and would wait."""
    for name, path in _files_of(settings):
        try:
            open_given(Path(path).expanduser()).close()
        except NotOrdinaryError as error:
            raise ConfigError(
                f"{place}.{name}: cannot read {path}: {error.strerror}; check its path and rights"
            ) from error
        except (OSError, ValueError):
            pass  # who needs it says so


def _files_of(settings: Any) -> list[tuple[str, str]]:
    named = [each.name for each in fields(settings) if each.name.endswith("_file")]
    found = [(name, path) for name in named if (path := getattr(settings, name))]
    parameters = parse_qsl(settings.url.partition("?")[2])
    return found + [(f"url: {name}", path) for name, path in parameters if name in _NAME_FILES]


def _check(mode: int) -> None:
    if why := why_not(mode):
        raise NotOrdinaryError(0, why)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
