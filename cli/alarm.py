"""The hook of a profile: a command of the user's own that is told what passed a threshold."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from dlq.core import units
from dlq.core.errors import UsageError

_SHORTEST = 5.0
"""Seconds that a hook has even when the run's time is over: an alarm must get out."""


def send(command: Sequence[str], document: Mapping[str, Any], limit: str, left: float | None) -> None:
    """Run `command`, never by a shell, with `document` as JSON on its standard input.

    Its output goes to standard error. Raises UsageError when it does not start, fails, or takes too long;
    then it is killed with all that it has started.
    """
    seconds = units.seconds(limit)
    seconds = seconds if left is None else min(seconds, max(_SHORTEST, left))
    try:
        process = subprocess.Popen(  # noqa: S603 (the profile's own command, as a list: no shell reads it)
            list(command), stdin=subprocess.PIPE, stdout=sys.stderr.fileno(), start_new_session=True
        )
    except OSError as error:
        raise UsageError(f"{command[0]} does not start: {error.strerror}") from error
    try:
        process.communicate(json.dumps(document, default=str).encode(), timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{command[0]} did not end within {units.human_seconds(seconds)}") from error
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode:
        raise UsageError(f"{command[0]} ended with code {process.returncode}")
