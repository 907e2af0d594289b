"""Connections that go nowhere: who takes little, and who was stopped for too long."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from support.brokers.hostile import openwire, openwire_command, stomp
from support.brokers.hostile_amqp10 import amqp10, session
from support.servers.hostile import Server
from support.waiting import PATIENCE, SOON

from dlq.connectors.activemq.openwire.link import OpenWireConnection
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.stomp.link import Link as StompLink
from dlq.connectors.amqp10.codec import frames
from dlq.connectors.net import outbound
from dlq.connectors.net.links import LinkLostError
from dlq.connectors.rocketmq.link.connection import Access
from dlq.connectors.rocketmq.link.connection import Link as RocketLink
from dlq.connectors.wire import Peer, Wire
from dlq.core.errors import BrokerError

LETTER = bytes(40 * 2**20)
"""More than any socket keeps."""
TIMEOUT = 0.4
SENDS = 24
"""A command of OpenWire that no connection begins with."""
Send = Callable[[str], object]


def drip(peer: socket.socket) -> None:
    """Take a little, just before each time-out."""
    while peer.recv(2**14):
        time.sleep(TIMEOUT / 4)


def rocketmq(address: str) -> object:
    return RocketLink(address, Access(timeout=TIMEOUT)).ask(310, {}, LETTER)


def by_stomp(address: str) -> object:
    link = StompLink(ActiveMQBroker("b", "activemq", f"stomp://{address}", timeout=f"{TIMEOUT}s"))
    return link.send(b"BEGIN\ntransaction:1\n\n\0" + LETTER)


def by_openwire(address: str) -> object:
    broker = ActiveMQBroker("b", "activemq", f"tcp://{address}", timeout=f"{TIMEOUT}s")
    return OpenWireConnection(broker).send(openwire_command(SENDS, b"") + LETTER)


def by_amqp10(address: str) -> object:
    opened = session(address, 5.0, TIMEOUT / 6)
    return opened.send(opened.attach(frames.SENDER, "q"), LETTER)


WAYS: Mapping[str, tuple[Send, Any]] = {
    "rocketmq": (rocketmq, drip),
    "stomp": (by_stomp, stomp(drip, "BEGIN")),
    "openwire": (by_openwire, openwire(drip, SENDS)),
    "amqp 1.0": (by_amqp10, amqp10(drip, frames.TRANSFER)),
}


@pytest.mark.parametrize("way", WAYS)
def test_who_takes_a_little_now_and_then_is_left(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "SLOWEST", 2**30)
    send, behave = WAYS[way]
    with Server(behave) as server:
        began = time.monotonic()
        with pytest.raises((BrokerError, LinkLostError), match=r"timed out|no answer within"):
            send(server.address)
        assert time.monotonic() - began < SOON


def test_a_slow_line_has_a_second_for_each_16_kib() -> None:
    """Half as fast again as what would be left."""
    size, slow = 6 * 2**14, 0.5

    def behave(peer: socket.socket) -> None:
        while peer.recv(2**14, socket.MSG_WAITALL):
            time.sleep(slow)

    with Server(behave) as server, socket.create_connection(server.place) as sending:
        sending.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**12)
        began = time.monotonic()
        outbound.send_all(sending, bytes(size), 1.0)
        assert time.monotonic() - began < SOON


SECONDS = 4.0
ARMED = f"""
import sys
from dlq.connectors.net.outbound import Watchdog
switch = Watchdog({SECONDS})
"""
TELLS = """
print("here", flush=True)
sys.stdin.readline()
print("here", flush=True)
"""


@contextmanager
def telling(program: str) -> Iterator[subprocess.Popen[str]]:
    """A process that says that it is here, and again for each line."""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "here\n"
            yield running
        finally:
            running.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels have no such timers")
def test_a_process_that_is_stopped_never_goes_on() -> None:
    with telling(ARMED + TELLS) as running:
        running.send_signal(signal.SIGSTOP)
        assert running.wait(PATIENCE) == -signal.SIGKILL, "while it was stopped, not when it went on"


def test_a_process_that_runs_lives_and_one_that_is_disarmed_may_be_stopped() -> None:
    """For as long as anybody likes."""
    with telling(ARMED + TELLS) as running, telling(ARMED + "switch.disarm()" + TELLS) as stopped:
        stopped.send_signal(signal.SIGSTOP)
        time.sleep(2 * SECONDS)
        assert running.communicate("\n")[0] == "here\n"
        assert stopped.poll() is None
        stopped.send_signal(signal.SIGCONT)
        assert stopped.communicate("\n")[0] == "here\n"


def test_what_is_offered_to_a_peer_that_takes_nothing_is_no_end() -> None:
    """A read before it leaves the socket a time to wait."""
    near, far = socket.socketpair()
    with near, far:
        wire = Wire(near, Peer("near", "a protocol", "a test", 20, 20, 20))
        assert not wire.read(0.3)
        with memoryview(LETTER) as data:
            while wire.offer(data):
                pass
        assert not wire.dead
