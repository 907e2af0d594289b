"""What connections whose frames we read ourselves have in common."""

import struct

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""For SO_LINGER: closing drops what the kernel has not sent yet."""


class LinkLostError(Exception):
    """The connection ended without the broker's saying why."""
