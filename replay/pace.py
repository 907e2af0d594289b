"""How fast a plan is sent, and when it is stopped."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from dlq.archive.store import Store
from dlq.core.clock import iso, now
from dlq.core.errors import UsageError

_LOOK_SECONDS = 0.5
_NAP_SECONDS = 0.2
_BURST_SECONDS = 0.1


def _stop_name(plan: str) -> str:
    """The file whose presence asks a running apply to stop."""
    return f"plans/{plan}.stop"


def request_stop(store: Store, plan: str) -> None:
    """Ask whoever applies `plan`, on any host that shares the archive, to stop."""
    store.put(_stop_name(plan), iso(now()).encode())


class Stop:
    """Whether to stop: asked by a signal of this process, or by `dlq replay stop`."""

    def __init__(self, store: Store, plan: str) -> None:
        self._store, self._plan = store, plan
        self.signalled = False
        self._asked = False
        self._next_look = 0.0

    def forget_old_requests(self) -> None:
        """A request that was made before this run is void."""
        self._store.delete(_stop_name(self._plan))

    def __call__(self) -> bool:
        """Looks into the archive twice a second at most."""
        if not self._asked and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            self._asked = self._is_asked()
        return self._asked or self.signalled

    def _is_asked(self) -> bool:
        try:
            self._store.open(_stop_name(self._plan)).close()
        except UsageError:
            return False
        return True


@contextmanager
def stopping_on_signals(stop: Stop) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM lets what is in flight be answered; the second interrupts. Only the main
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
    """A token bucket: `rate` messages a second, bursts of at most a tenth of a second."""

    def __init__(self, rate: float | None, stop: Callable[[], bool]) -> None:
        self._rate, self._stop = rate, stop
        self._due = time.monotonic()

    def wait(self) -> bool:
        """Until the next message may go; False when the run is stopped instead."""
        if self._rate is None:
            return not self._stop()
        self._due = max(self._due, time.monotonic() - _BURST_SECONDS) + 1 / self._rate
        while (left := self._due - 1 / self._rate - time.monotonic()) > 0:
            if self._stop():
                return False
            time.sleep(min(left, _NAP_SECONDS))
        return not self._stop()
