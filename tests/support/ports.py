"""Ports for servers of tests."""

import contextlib
import random
import socket


def free_ports(count: int) -> list[int]:
    """Of those below what the system gives to outgoing connections: a server finds its own again when it is
    started again, and nobody who asks for it meanwhile is connected to itself."""
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for port in random.sample(range(10_000, 32_000), 4000):
            listener = held.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise RuntimeError("no free ports")
