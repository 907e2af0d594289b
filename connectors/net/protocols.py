"""What a peer speaks that should speak something else, by the first bytes that it sent."""

from collections.abc import Mapping

from dlq.core.text import for_terminal

_BEGINNINGS: Mapping[str, tuple[bytes, ...]] = {
    "HTTP": (b"HTTP", b"<htm", b"<!DO"),
    "AMQP": (b"AMQP",),
    "STOMP": (b"ERROR\n", b"CONNECTED\n"),
    "SSH": (b"SSH-",),
    "Redis": (b"-ERR", b"-DEN"),
    "SMTP or FTP": (b"220 ",),
    "VNC": (b"RFB ",),
    "TLS": (b"\x15\x03", b"\x16\x03"),
}
_OPENWIRE, _SHOWN = b"ActiveMQ", 24


def name_protocol(first: bytes) -> str | None:
    """Return the protocol's name; None where it is not known."""
    if first[5:13] == _OPENWIRE:
        return "OpenWire"
    return next((name for name, begins in _BEGINNINGS.items() if first.startswith(begins)), None)


def foreign(address: str, first: bytes, wanted: str, named_by: str) -> str | None:
    """Return what is said of an address that answers in another protocol than `wanted`: which it is, who
    named it, and what came. None where the protocol is not known, or is the one that is wanted."""
    name = name_protocol(first)
    if name is None or name == wanted:
        return None
    line = first.split(b"\n")[0][:_SHOWN].decode("latin-1").strip("\r")
    shown = f" ({for_terminal(line)!r})" if line.isprintable() else ""
    return f"{address}, named by {named_by}, speaks {name}{shown} and not {wanted}; look at the port"


def of_length(length: int) -> bytes:
    """Return the four bytes that were taken for the length of a frame."""
    return length.to_bytes(4, "big") if 0 <= length < 2**32 else b""
