"""Who does something: the user of the operating system and the host, or who a person says to be."""

import getpass
import os
import socket

LONGEST = 255


def actor(given: str | None = None) -> str:
    """`user@host`, or what `--as` gave; of a user without a name its number."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user has no entry in /etc/passwd
        user = str(os.getuid())
    return ((given or "").strip() or f"{user}@{socket.gethostname()}")[:LONGEST]
