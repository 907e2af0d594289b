"""Sockets over which letters are sent: nothing that the kernel still holds goes out when nobody wants it.

A socket that is closed goes on sending what it holds, for two minutes and more while nobody answers: after
an outage the broker would take letters that are said to be unsent. So what is unsent when a socket is closed,
or when its process dies, is dropped; and what the broker's host does not acknowledge in time, too.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import ssl
import stat
import struct
import termios
import threading
import time
from collections.abc import Collection
from typing import Any

from dlq.connectors.base import UNSENT_SECONDS, Writing, keep_no_mark

_DROP = struct.pack("ii", 1, 0)
_IN_ORDER = struct.pack("ii", 0, 0)
_PIECE = 16 * 1024
SLOWEST = 16 * 1024
"""Bytes a second that a line takes at least."""
_OPEN_FILES = "/dev/fd"
_INTERNET = (socket.AF_INET, socket.AF_INET6)


def guard(sending: socket.socket, unsent_seconds: float = UNSENT_SECONDS) -> None:
    """Make the kernel drop what is unsent when this socket is closed, or its process dies, and end the
    connection when something stays unacknowledged for so long."""
    sending.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sending.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, int(unsent_seconds * 1000)))


def close(sending: socket.socket) -> None:
    """Close in order when the other side has all that was sent, else drop what it has not. Never raises."""
    with contextlib.suppress(OSError, ValueError):  # the latter for one that is closed
        if _unacknowledged_bytes(sending) == 0:
            sending.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _IN_ORDER)
    with contextlib.suppress(OSError):
        sending.close()


def _unacknowledged_bytes(sending: socket.socket) -> int:
    """Return bytes that the kernel has to send, or to send again."""
    answer = fcntl.ioctl(sending.fileno(), termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(answer, "little")


def latest(seconds: float, size: int) -> float:
    """Return until when so many bytes are to be sent: who takes a few now and then would hold us for ever."""
    return time.monotonic() + seconds + size / SLOWEST


def send_all(
    sending: socket.socket,
    data: bytes | bytearray | memoryview,
    seconds: float,
    writing: Writing = keep_no_mark,
    until: float | None = None,
) -> None:
    """Send all of it, waiting at most `seconds` between two parts, and until the moment `until`, which is
    `latest` of what is given here where it is not of more. Before each part `writing` is asked: what it
    raises ends the sending, however long this process was stopped meanwhile. Raises OSError."""
    if sending.fileno() < 0:
        raise OSError(errno.EBADF, "the connection is closed")
    until = latest(seconds, len(data)) if until is None else until
    room, rest = select.poll(), memoryview(data)
    room.register(sending, select.POLLOUT)
    while rest:
        if not room.poll(max(0.0, min(seconds, until - time.monotonic())) * 1000):
            raise TimeoutError("timed out")
        writing(())
        rest = rest[take(sending, rest[:_PIECE], seconds) :]


def take(sending: socket.socket, part: memoryview, seconds: float) -> int:
    """Return how many bytes the socket takes without waiting; TLS may wait so long for what comes before."""
    if not isinstance(sending, ssl.SSLSocket):
        with contextlib.suppress(BlockingIOError):
            return sending.send(part, socket.MSG_DONTWAIT)
        return 0
    sending.settimeout(0)
    try:
        return sending.send(part)
    except ssl.SSLWantReadError:
        answer = select.poll()
        answer.register(sending, select.POLLIN)
        answer.poll(seconds * 1000)
    except ssl.SSLWantWriteError:
        pass
    finally:
        sending.settimeout(seconds)
    return 0


def guard_those_to(ports: Collection[int], unsent_seconds: float) -> None:
    """Guard all sockets of this process that are connected to one of these ports: those of a library that
    gives them to nobody."""
    for name in os.listdir(_OPEN_FILES):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.stat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as found:
                    if found.family in _INTERNET and found.getpeername()[1] in ports:
                        guard(found, unsent_seconds)


class Watchdog:
    """While it is armed the kernel kills this process, as `kill -9` would, once it has not run for so many
    seconds: it was stopped, or its host slept.

    Who asks before each write needs none. A library that writes by itself goes on with what it has in hand
    when it wakes, before anybody can look at a clock, and what it writes then comes after its lease. Linux
    has such timers (timer_create(2)); elsewhere it does nothing.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._disarmed = seconds, threading.Event()
        self._timer = _create_killing_timer()
        self._beat()
        self._beats = threading.Thread(target=self._beat_on, name="dead man's switch", daemon=True)
        self._beats.start()

    def disarm(self) -> None:
        """Let this process be stopped for as long as anybody likes from now on. May be called again."""
        self._disarmed.set()
        self._beats.join()
        if self._timer is not None:
            _libc().timer_delete(self._timer)
            self._timer = None

    def _beat_on(self) -> None:
        while not self._disarmed.wait(self._seconds / _BEATS):
            self._beat()

    def _beat(self) -> None:
        """Set the next beat so many seconds from now."""
        if self._timer is not None:
            whole = int(self._seconds)
            times = _Times(0, 0, whole, int((self._seconds - whole) * 1e9))
            _libc().timer_settime(self._timer, 0, ctypes.byref(times), None)


_BEATS = 4
"""A process that runs says so this often in the time after which it is killed."""
_BOOTTIME = 7
"""Linux' clock that counts sleep (clock_getres(2))."""


class _Times(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = [(name, ctypes.c_long) for name in ("every", "every_nanos", "after", "after_nanos")]


class _Event(ctypes.Structure):
    """`struct sigevent`, of 64 bytes."""

    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    ]


def _libc() -> Any:
    return ctypes.CDLL(None)


def _create_killing_timer() -> ctypes.c_void_p | None:
    """Create it; None where there are no such timers."""
    timer, event = ctypes.c_void_p(), _Event(signal=signal.SIGKILL)
    create = getattr(_libc(), "timer_create", None)
    made = create is not None and create(_BOOTTIME, ctypes.byref(event), ctypes.byref(timer)) == 0
    return timer if made else None
