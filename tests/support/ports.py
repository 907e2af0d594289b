"""Ports for servers of tests."""

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path

_SINGLE = range(10_000, 20_000)
BLOCKS = range(20_000, 32_000, 10)
"""Each the first of ten. All lie below what the system gives to outgoing connections: a server finds its own
again when it is started again, and nobody who asks for it meanwhile is connected to itself."""
_claimed = set[int]()


def free_ports(count: int, among: Sequence[int] = _SINGLE) -> list[int]:
    """Nobody listens there, and no other test on this host is given them while this process lives: who gets a
    port now may listen much later, and all workers of a run start their brokers at once."""
    found = list(islice(filter(_claim, random.sample(among, len(among))), count))
    if len(found) < count:
        raise RuntimeError("no free ports")
    return found


def _claim(port: int) -> bool:
    with suppress(OSError), socket.socket() as listener:
        if port not in _claimed:
            fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            _claimed.add(port)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            return True
    return False


@cache
def _claims() -> int:
    """A file of which each claimed port is a locked byte. It stays open; the locks go with the process."""
    return os.open(Path(tempfile.gettempdir(), f"dlq-ports-{os.getuid()}"), os.O_RDWR | os.O_CREAT, 0o600)
