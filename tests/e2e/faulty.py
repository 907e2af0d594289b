"""The command `dlq` with one fault built in: `python faulty.py KIND:NUMBER WORDS...`."""

import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, tzinfo
from itertools import count
from typing import Any
from unittest.mock import patch

from dlq.archive import manifests
from dlq.cli import app
from dlq.connectors.memory import MemoryConnector, open_brokers
from dlq.core.errors import Unreachable


def at_flush(number: int, what: Callable[[], None]) -> None:
    """Let `what` happen instead of the `number`-th flush to the disk."""
    flush, calls = os.fsync, count(1)

    def faulty(descriptor: Any) -> None:
        if next(calls) == number:
            what()
        flush(descriptor)

    os.fsync = faulty


def disk_full(number: int) -> None:
    """From one flush on."""
    flush, calls = os.fsync, count(1)

    def full(descriptor: Any) -> None:
        if next(calls) >= number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(descriptor)

    os.fsync = full


def kill_9(number: int) -> None:
    """Before one flush, of a file or of its folder."""
    at_flush(number, lambda: os.kill(os.getpid(), signal.SIGKILL))


def broker_away(_number: int) -> None:
    """Nobody answers."""

    def refuse(_self: Any, _request: Any) -> Any:
        raise Unreachable("no answer from the shop")

    patch.object(MemoryConnector, "read", refuse).start()


def connection_cut(number: int) -> None:
    """Once, after so many letters of the first reading."""
    read, left = MemoryConnector.read, [number]

    def cutting(self: MemoryConnector, request: Any) -> Any:
        for broker in open_brokers.values() if left else ():
            broker.faults.cut_reading_after = left.pop()
        return read(self, request)

    patch.object(MemoryConnector, "read", cutting).start()


def clock_jump(days: int) -> None:
    """The wall clock is that many days off."""
    real = time.time_ns
    time.time_ns = lambda: real() + days * 86_400 * 10**9

    class Jumped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Jumped":
            return super().now(tz) + timedelta(days=days)

    patch.object(manifests, "datetime", Jumped).start()


FAULTS: Mapping[str, Callable[[int], None]] = {
    "disk-full": disk_full,
    "kill-9": kill_9,
    "broker-away": broker_away,
    "connection-cut": connection_cut,
    "clock-jump": clock_jump,
    "none": lambda _number: None,
}

if __name__ == "__main__":
    kind, _, number = sys.argv[1].partition(":")
    FAULTS[kind](int(number or 0))
    app.main(sys.argv[2:])
