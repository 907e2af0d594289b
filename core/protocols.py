"""What a peer speaks that should speak something else, by the first bytes that it sent."""

from dlq.core.text import for_terminal

_BEGINNINGS = (
    (b"HTTP", "HTTP"),
    (b"<htm", "HTTP"),
    (b"<!DO", "HTTP"),
    (b"AMQP", "AMQP"),
    (b"ERROR\n", "STOMP"),
    (b"CONNECTED\n", "STOMP"),
    (b"SSH-", "SSH"),
    (b"-ERR", "Redis"),
    (b"-DEN", "Redis"),
    (b"220 ", "SMTP or FTP"),
    (b"RFB ", "VNC"),
    (b"\x15\x03", "TLS"),
    (b"\x16\x03", "TLS"),
)
_OPENWIRE, _SHOWN = b"ActiveMQ", 24


def name_protocol(first: bytes) -> str | None:
    """Return the protocol's name; None where it is not known."""
    if first[5:13] == _OPENWIRE:
        return "OpenWire"
    return next((name for begin, name in _BEGINNINGS if first.startswith(begin)), None)


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
