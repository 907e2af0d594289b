"""Who holds a claim: host, process, and a word of its own for each ledger that is opened."""

import os
import secrets
import socket


def new_owner() -> str:
    """`host/pid/random`."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


def is_dead(owner: str) -> bool:
    """Whether the owner was a process of this host and is no more; what other hosts do is not known here."""
    host, pid, _ = owner.rsplit("/", 2)
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
