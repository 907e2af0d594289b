"""Programs of the configuration's own: started without a shell, given JSON, ended in time."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

from dlq.connectors.local import ownership
from dlq.core.errors import UsageError
from dlq.core.runtime import bounded_json
from dlq.core.values import units

_LOOK = 0.1
"""Seconds between two looks at how much a program has printed."""


def tell_program(command: Sequence[str], given: object, seconds: float) -> None:
    """Run `command` with `given` as JSON on its standard input; its output goes to standard error.

    Raises UsageError where it does not start, fails, or takes longer; then it is killed with all that it has
    started.
    """
    _run(command, given, seconds, sys.stderr.fileno())


def ask_program(command: Sequence[str], given: object, seconds: float) -> object:
    """Ask a program as `tell_program` does, and return the JSON that it prints. Raises UsageError also for
    what is none."""
    with tempfile.TemporaryFile() as printed:
        _run(command, given, seconds, printed.fileno(), bounded_json.LARGEST)
        printed.seek(0)
        try:
            return bounded_json.loads(printed.read(bounded_json.LARGEST + 1))
        except ValueError as error:
            raise UsageError(f"{command[0]} printed no JSON ({error}); let it print a list of ids") from error


def _run(command: Sequence[str], given: object, seconds: float, output: int, most: int | None = None) -> None:
    ownership.check_program(command[0])
    with tempfile.TemporaryFile() as told:  # a pipe would be filled no more after the first look
        try:
            told.write(json.dumps(given, default=str).encode())
            told.seek(0)
            process = subprocess.Popen(  # noqa: S603 (the configuration's own command, as a list: no shell reads it)
                list(command), stdin=told, stdout=output, start_new_session=True
            )
        except OSError as error:
            raise UsageError(f"{command[0]} does not start: {error.strerror}; check the file") from error
    end = monotonic() + seconds
    try:
        while (left := end - monotonic()) > 0 and (most is None or os.fstat(output).st_size <= most):
            with suppress(subprocess.TimeoutExpired):
                process.wait(min(left, _LOOK))
                break
        else:
            bound = units.human_seconds(seconds) if left <= 0 else f"{most:,} bytes"
            raise UsageError(
                f"{command[0]} did not end within {bound} and was stopped; give it more time, or less to do"
            )
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode:
        raise UsageError(f"{command[0]} ended with code {process.returncode}; run it by hand to see why")
