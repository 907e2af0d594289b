"""A network of its own for one thread, with ways out to some servers, and which can be cut.

What is cut loses every packet, as a broken network does: nobody is told, and kernels go on trying.
"""

import contextlib
import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from support.servers.cutter import pass_on

T = TypeVar("T")
_NEW_NETWORK = 0x40000000
_LOSE_ALL = "tc qdisc replace dev lo root tbf rate 8bit burst 10 limit 10"
_LOSE_NOTHING = "tc qdisc del dev lo root"


def why_missing() -> str | None:
    """Why there can be none on this machine; None when there can."""
    return None if os.geteuid() == 0 else "a network of its own takes root"


class Outage:
    """A context manager. The servers have their own addresses inside, too."""

    def __init__(self, servers: Sequence[str]) -> None:
        """`servers`: host:port of each."""
        found = (server.rpartition(":") for server in servers)
        self._servers = [(host, int(port)) for host, _, port in found]
        self._inside = ThreadPoolExecutor(1, "inside")
        self._listeners: list[socket.socket] = []

    def __enter__(self) -> "Outage":
        self.inside(_own_network)
        for host in {host for host, _ in self._servers if not host.startswith("127.")}:
            self.inside(lambda host=host: _run(f"ip address add {host}/32 dev lo"))
        for server in self._servers:
            listener = self.inside(lambda server=server: socket.create_server(server))
            self._listeners.append(listener)
            threading.Thread(target=_pass_on_all, args=(listener, server), daemon=True).start()
        return self

    def inside(self, work: Callable[[], T]) -> T:
        """Do it in the thread whose network it is, and so is that of all threads and sockets made there."""
        return self._inside.submit(work).result()

    def begin(self) -> None:
        """Lose every packet from now on. Only from inside."""
        _run(_LOSE_ALL)

    def end(self) -> None:
        """Lose none any more."""
        self.inside(lambda: _run(_LOSE_NOTHING))

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self._inside.shutdown()


def _own_network() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "no network of its own")
    _run("ip link set lo up")


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)


def _pass_on_all(listener: socket.socket, server: tuple[str, int]) -> None:
    with contextlib.suppress(OSError):
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(server)
            for way in ((near, far), (far, near)):
                threading.Thread(target=pass_on, args=way, daemon=True).start()
