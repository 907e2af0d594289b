"""How fast a plan is sent, and when it is stopped."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from dlq.archive.storage.store import Store
from dlq.core.clock import iso, now
from dlq.core.errors import UsageError
from dlq.core.runtime import patience

LEAST_RATE = 0.1
"""Letters a second that may be asked for while a plan is sent: a connection may end where nothing goes for
longer."""
_BURST_SECONDS = 0.1


def _stop_name(plan: str) -> str:
    """Return the file whose presence asks a running apply to stop."""
    return f"plans/{plan}.stop"


def request_stop(store: Store, plan: str) -> None:
    """Ask whoever applies `plan`, on any host that shares the archive, to stop."""
    store.put(_stop_name(plan), iso(now()).encode())


def _rate_name(plan: str) -> str:
    """Return the file that tells a running apply how fast it is to send from now on."""
    return f"plans/{plan}.rate"


def request_rate(store: Store, plan: str, rate: float) -> None:
    """Ask whoever applies `plan`, on any host that shares the archive, to send so many letters a second."""
    store.put(_rate_name(plan), f"{rate:g}".encode())


class Stop:
    """Whether to stop: asked by a signal of this process, or by `dlq replay stop`; and how fast to go on."""

    def __init__(self, store: Store, plan: str) -> None:
        self._store, self._plan = store, plan
        self.signalled = False
        self.rate: float | None = None
        """What `dlq replay rate` has asked for; None: the plan's."""
        self._asked = False
        self._next_look = 0.0

    def forget_old_requests(self) -> None:
        """Forget what was asked of an earlier run."""
        for name in (_stop_name(self._plan), _rate_name(self._plan)):
            self._store.delete(name)

    def __call__(self) -> bool:
        """Look into the archive twice a second at most."""
        if not self._asked and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + patience.RECHECK
            self._asked = self._read(_stop_name(self._plan)) is not None
            self.rate = _rate_of(self._read(_rate_name(self._plan)))
        return self._asked or self.signalled

    def _read(self, name: str) -> bytes | None:
        try:
            with self._store.open(name) as file:
                return bytes(file.read())
        except UsageError:
            return None


def _rate_of(asked: bytes | None) -> float | None:
    """Return the rate that somebody asked for; None for nothing, and for what is none: a replay goes on."""
    try:
        rate = float(asked or b"")
    except ValueError:
        return None
    return rate if LEAST_RATE <= rate < math.inf else None


@contextmanager
def stopping_on_signals(stop: Stop) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM have what is in flight answered; the second interrupts. Only the main
    thread hears signals: in another one the block just runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(_signal: int, _frame: FrameType | None) -> None:
        if stop.signalled:
            raise KeyboardInterrupt
        stop.signalled = True

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Pace:
    """A token bucket: `rate` messages a second, or fewer where that is asked for; bursts of at most a tenth
    of a second."""

    def __init__(self, rate: float | None, stop: Stop) -> None:
        self._rate, self._stop = rate, stop
        self._due = time.monotonic()

    def wait(self, keep: Callable[[], object]) -> bool:
        """Wait until the next message may go; False when the run is stopped instead. `keep` is called again
        and again meanwhile, for what ends when nobody renews it."""
        if self._rate is None and self._stop.rate is None:  # nearly always, and each letter asks
            return not self._stop()
        rate = min(filter(None, (self._stop.rate, self._rate)))
        self._due = max(self._due, time.monotonic() - _BURST_SECONDS) + 1 / rate
        while (left := self._due - 1 / rate - time.monotonic()) > 0:
            if self._stop():
                return False
            keep()
            time.sleep(min(left, patience.FETCH))
        return not self._stop()
