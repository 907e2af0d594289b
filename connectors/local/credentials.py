"""Secrets of brokers and stores: read when a connection is made, kept in no settings, log or error text.

Each connection asks anew, as a token may have run out or been changed since the last one. What a command
printed serves the connections of the same moment, and no longer once it was refused.
"""

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dlq.connectors.local import ownership, user_files
from dlq.core.brokers import Holder
from dlq.core.errors import AccessDenied, ConfigError
from dlq.core.runtime import patience
from dlq.core.settings import Broker

_SETTINGS = ("password_file", "password_command", "password_env")

_T = TypeVar("_T")
_printed: dict[tuple[str, ...], tuple[float, str]] = {}
"""Command -> when it ended, by the monotonic clock, and what it printed."""
_asking = threading.Lock()


def password(broker: Broker) -> str | None:
    """Return the password of `broker` from its file, command or variable; None when none is configured.

    Raises ConfigError, which names the place and never the content.
    """
    return password_of(f"brokers.{broker.name}", broker)


def password_of(place: str, holder: Holder) -> str | None:
    """Return the same for any table of the configuration, at `place`."""
    if holder.password_file is not None:
        return from_file(f"{place}.password_file", holder.password_file)
    if holder.password_command is not None:
        with _asking:
            return _just_printed(f"{place}.password_command", holder.password_command)
    if holder.password_env is not None:
        return from_environment(f"{place}.password_env", holder.password_env)
    return None


def log_in(holder: Holder, connect: Callable[[], _T]) -> _T:
    """Call `connect`, which asks for the password; once more where it raises AccessDenied for what an earlier
    connection had asked for."""
    was_there = _is_of_this_moment(holder.password_command)
    try:
        return connect()
    except AccessDenied:
        forget(holder)
        if not was_there:
            raise
    return connect()


def forget(holder: Holder) -> None:
    """Forget a secret that its command printed and a broker refused."""
    with _asking:
        _printed.pop(holder.password_command or (), None)


def _is_of_this_moment(command: tuple[str, ...] | None) -> bool:
    found = _printed.get(command or ())
    return found is not None and time.monotonic() - found[0] < patience.FRESH


def _just_printed(place: str, command: tuple[str, ...]) -> str:
    if not command:
        raise ConfigError(f'{place} is empty; write it like ["pass", "show", "rabbit"]')
    ownership.check_program(command[0], f"{place}: ")
    if _is_of_this_moment(command):
        return _printed[command][1]
    printed = _from_command(place, command)
    _printed[command] = time.monotonic(), printed
    return printed


def blanks(broker: Broker) -> str:
    """Return where a broker refused a login: what may be wrong with the password, as the end of a sentence,
    or nothing."""
    found = next((name for name in _SETTINGS if getattr(broker, name) is not None), None)
    secret = password(broker)
    if found is None or secret is None or secret == secret.strip():
        return ""
    return f"; what brokers.{broker.name}.{found} gives begins or ends with a blank, which counts"


def _without_line_break(text: str) -> str:
    """Remove what editors and `echo` leave; blanks may be meant, and stay."""
    return text.removesuffix("\n").removesuffix("\r")


def from_file(place: str, path: str) -> str:
    """Return the content of a file without its last line break; `place` is the setting that names the
    file."""
    try:
        return _without_line_break(user_files.text(Path(path).expanduser()))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{place}: {path} is not UTF-8 text; write it anew") from error
    except OSError as error:
        raise ConfigError(
            f"{place}: cannot read {path}: {error.strerror}; check its path and rights"
        ) from error


def from_environment(place: str, variable: str) -> str:
    """Return the value of an environment variable without its last line break; an empty one is missing."""
    value = _without_line_break(os.environ.get(variable, ""))
    if not value:
        raise ConfigError(f"{place}: the environment variable {variable} is not set; export it")
    return value


def _from_command(place: str, command: tuple[str, ...]) -> str:
    """Return what a command prints, without its last line break. No shell; its stderr goes to ours."""
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own command, from the operator's own file
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=patience.ENDED, check=True
        )
        return _without_line_break(done.stdout.decode("utf-8"))
    except subprocess.CalledProcessError as error:
        raise ConfigError(
            f"{place}: {command[0]} ended with exit code {error.returncode}; run it by hand"
        ) from None
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"{place}: {command[0]} gave no answer in {patience.ENDED:g} s; run it by hand"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{place}: {command[0]} printed something that is not UTF-8; correct it") from None
    except OSError as error:
        raise ConfigError(
            f"{place}: cannot run {command[0]}: {error.strerror}; check its path and rights"
        ) from error
