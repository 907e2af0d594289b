"""What a broker that means harm must not do to us, as tests: one suite for each protocol, and each moment.

A test class inherits `HostileContract` and gives a `meeting` fixture: a broker that behaves as it should
until a moment, and what of us leads there.
"""

import errno
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest
from support.brokers.hostile import Harm, flood, hang_up, listen
from support.rows import each_row
from support.servers.hostile import Behaviour, Server
from support.waiting import SOON, UNHURRIED

from dlq.connectors.net.links import LinkLostError
from dlq.core.errors import BrokerError

MEMORY = 2**27
"""Bytes that nothing of it may make us take."""
HASTE = "400ms"
"""The time-out where nothing else ends it."""


class Meeting(NamedTuple):
    """A moment with a broker of one protocol. A harm without bytes of its own is not done there."""

    broker: Callable[[Harm], Behaviour]
    """Behaves as it should, and then does harm."""
    meet: Callable[[str, str], object]
    """Leads to that moment, with host:port and a time-out."""
    waits: bool = True
    """Whether a time-out ends it."""
    nothing: bytes = b""
    """What says nothing, as a sign of life."""
    endless: bytes = b""
    """The beginning of what is longer than anything, and goes on with its last byte."""
    begun: bytes = b""
    """The beginning of what may well come, and never comes to its end."""
    unasked: bytes = b""
    """What was not asked for."""


def _drip(beginning: bytes, piece: bytes = b"\1", seconds: float = 0.05) -> Harm:
    def harm(peer: socket.socket) -> None:
        peer.sendall(beginning)
        while True:
            peer.sendall(piece)
            time.sleep(seconds)

    return harm


HARMS: Mapping[str, Callable[[Meeting], Harm | None]] = {
    "silence": lambda it: listen if it.waits else None,
    "a flood of nothing": lambda it: _drip(b"", it.nothing * 99, 0.005) if it.nothing else None,
    "no end": lambda it: flood(it.endless, it.endless[-1:] * 2**18) if it.endless else None,
    "a drip": lambda it: _drip(it.begun) if it.begun else None,
    "more than asked": lambda it: flood(b"", it.unasked * 99) if it.unasked else None,
    "a hang-up": lambda _it: hang_up,
}
PATIENT = ("no end", "more than asked", "a hang-up")
"""What is left for what it is, and not for its time."""


class HostileContract:
    """What every driver guarantees."""

    def test_a_connection_that_the_kernel_gave_up_has_timed_out(
        self, meeting: Meeting, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its peer has acknowledged nothing for too long: that is no connection that was closed."""
        is_given_up, receive = threading.Event(), socket.socket.recv

        def give_up(peer: socket.socket) -> None:
            is_given_up.set()
            peer.sendall(b"\n")  # no frame of any protocol, and no end of one
            listen(peer)

        def hear(ours: socket.socket, *how: int) -> bytes:
            if is_given_up.is_set() and threading.current_thread() is threading.main_thread():
                raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")
            return receive(ours, *how)

        monkeypatch.setattr(socket.socket, "recv", hear)
        with (
            Server(meeting.broker(give_up)) as server,
            pytest.raises((BrokerError, LinkLostError), match="timed out"),
        ):
            meeting.meet(server.address, UNHURRIED)

    def test_who_means_harm_is_left_soon_in_a_line(self, meeting: Meeting) -> None:
        @each_row("harm", [name for name, harm in HARMS.items() if harm(meeting)])
        def is_left(harm: str) -> None:
            check_left(meeting, HARMS[harm](meeting) or hang_up, UNHURRIED if harm in PATIENT else HASTE)

        is_left()


def check_left(meeting: Meeting, harm: Harm, timeout: str) -> None:
    """Whoever does this is left for a reason of one line, soon, and for little memory."""
    with Server(meeting.broker(harm)) as server:
        tracemalloc.start()
        began = time.monotonic()
        try:
            with pytest.raises((BrokerError, LinkLostError)) as said:
                meeting.meet(server.address, timeout)
            assert tracemalloc.get_traced_memory()[1] < MEMORY
        finally:
            tracemalloc.stop()
    assert time.monotonic() - began < SOON
    assert "\n" not in str(said.value)
    assert len(str(said.value)) < 400
    assert "s3cret" not in str(said.value)
