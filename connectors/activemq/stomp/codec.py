"""STOMP 1.2 frames, bytes in and bytes out: no sockets here.

A body without content-length ends at a NUL, but ActiveMQ (5.18.6, 6.x) sends JMS text that itself holds
a NUL raw and without content-length. A reader that stops at the first NUL cuts such a text, and
`a\\0MESSAGE\\n...` in it forges a whole frame. So a NUL ends a message only where the next frame
begins, and only frames that carry this reader's *token* are frames: the token is random, made after the
messages were stored, and the broker repeats it in `subscription` and `receipt-id`.

Hence the last message of a burst is *pending* until something follows it. Ask the broker for a receipt
(`FrameReader.receipt()`) to bring it out.
"""

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from dlq.connectors.net.links import FrameError
from dlq.core.errors import PoisonMessage

MESSAGE = b"MESSAGE"
_COMMANDS = (b"MESSAGE\n", b"RECEIPT\n", b"ERROR\n", b"CONNECTED\n")
_EMPTY_BODIED = (b"RECEIPT", b"CONNECTED", b"ERROR")
_LENGTH = re.compile(rb"^content-length:[ ]*(\d{1,18})[ ]*$", re.MULTILINE)
_NAME = re.compile(rb"^message-id:([^\n]{1,1000})$", re.MULTILINE)
_UNESCAPES = {"\\\\": "\\", "\\r": "\r", "\\n": "\n", "\\c": ":"}
_ESCAPED = re.compile(r"\\[\\rnc]")
MAX_HEAD = 16 * 2**20
"""Bytes of header lines. Classic's own limit for what comes in is a 10 KiB line; a property may be longer."""
MAX_FRAME = 2**30
"""Bytes of a message that STOMP brings; what is larger needs another way out of its queue."""


OF_STOMP = frozenset(
    {
        *("destination", "message-id", "correlation-id", "expires", "redelivered", "priority", "reply-to"),
        *("timestamp", "type", "JMSXUserID", "original-destination", "persistent", "content-length"),
        *("subscription", "ack", "browser", "receipt", "transaction", "selector", "transformation"),
        *("amq-msg-type", "destination-type"),
    }
)
"""Names that mean something to STOMP or its brokers. A user's property may have one of them, too."""


class Frame(NamedTuple):
    """One frame as it came. `head` is the header lines, not yet unescaped, without the last newline."""

    command: bytes
    head: bytes
    body: bytes
    inner_nul: bool = False
    """The body came without content-length and holds a NUL, so its end is a conclusion."""
    raw: bytes | None = None
    """What is archived as it came, where that is not `head`."""
    properties: Mapping[str, str] | None = None
    """What is known beside the headers."""
    died_at: str | None = None
    """When it became a dead letter, in milliseconds since 1970, where that is known."""


def escape(text: str) -> str:
    """Return a header value as STOMP 1.2 wants it."""
    return text.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n").replace(":", "\\c")


def _all_escaped(values: Collection[str]) -> Sequence[str]:
    """Return all at once, which costs a fraction of one by one."""
    found = escape("\0".join(values)).split("\0")
    return found if len(found) == len(values) else [*map(escape, values)]


def _lines(names: tuple[str, ...], to_classic: bool) -> str:
    """Return the header lines of a message, with a place for each value. Raises ValueError."""
    if to_classic and (odd := unsayable_name(names)):
        raise ValueError(odd)
    escaped = names if to_classic else map(escape, names)
    return "".join([f"{name.replace('%', '%%')}:%s\n" for name in escaped])


def unsayable_name(names: Collection[str]) -> str | None:
    """Return why one of these names cannot be said to Classic, which unescapes none."""
    if not _ODD.search(" ".join(names)):
        return None
    odd = next(name for name in names if _ODD.search(name))
    return f"the name of its property {odd[:60]!r} has a colon or a line break, which STOMP cannot say"


_ODD = re.compile(r"[:\r\n]")


_MOST_NAMES = 100
_known_lines = lru_cache(256)(_lines)
"""Names are few, and the same from message to message."""


def unescape(text: str) -> str:
    """Return the value behind a STOMP 1.2 header; unknown escapes stay as they are."""
    if "\\\\" in text:
        return _ESCAPED.sub(lambda m: _UNESCAPES[m[0]], text)
    plain = text.replace("\\c", ":")
    return plain.replace("\\n", "\n").replace("\\r", "\r") if "\\" in plain else plain


def encode(
    command: str, headers: Mapping[str, str], body: bytes | None = None, to_classic: bool = False
) -> bytes:
    """Return a frame to send; `body` gets a content-length. `to_classic`: names go as they are. Raises
    ValueError for one that cannot."""
    values = tuple(_all_escaped(headers.values()))
    lines = (_known_lines if len(headers) <= _MOST_NAMES else _lines)(tuple(headers), to_classic) % values
    if body is not None:
        lines += f"content-length:{len(body)}\n"
    return b"%b\n%b\n%b\0" % (command.encode(), lines.encode("utf-8", "replace"), body or b"")


def headers_of(head: bytes, of_message: bool = False) -> dict[str, str]:
    """Return the header lines as a map, values unescaped, the first of several; bad UTF-8 is replaced (`head`
    keeps it). Of a message's values, each colon is escaped. A line without one is the beginning of a name
    with a line break, and no header."""
    lines = [line for line in head.decode("utf-8", "replace").split("\n") if ":" in line]
    parts = [line.rpartition(":") if of_message else line.partition(":") for line in lines]
    found = {name: unescape(value) if "\\" in value else value for name, _, value in parts}
    return found if len(found) == len(lines) else _first_of_each(parts)


def _first_of_each(parts: list[tuple[str, str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, _, value in parts:
        found.setdefault(name, unescape(value))
    return found


def text_of(body: bytes) -> str | None:
    """Return the text of a body, also in Java's modified UTF-8 (brokers before 5.18.6 and 6.1.4); None: no
    text."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        pass
    try:
        surrogates = body.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return surrogates.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return None


class FrameReader:
    """Cuts a byte stream into frames. `feed` returns those whose end is certain."""

    def __init__(self, token: str = "") -> None:
        self.token = token or secrets.token_hex(8)
        self._proof = b":" + self.token.encode()
        self._buffer = bytearray()
        self._scanned = 0
        """Up to where it was looked for the end of a text."""
        self._searched = 0
        """Up to where it was looked for a frame within a body that has a length."""
        self._ahead: tuple[bytes, int] | None = None
        """The next frame's command and head, and where its body begins, if `_frame_follows` was there."""
        self._receipts = 0

    def receipt(self) -> str:
        """Return a new receipt id that this reader recognises in the answer."""
        self._receipts += 1
        return f"{self.token}-{self._receipts}"

    @property
    def receipts(self) -> int:
        """How many receipts were asked for by now."""
        return self._receipts

    @property
    def unfinished_bytes(self) -> int:
        """Bytes that are here and whose end is not certain yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes; return the frames that are whole. Raises FrameError where it is no STOMP."""
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        start = 0
        while (found := self._next(start)) is not None:
            frame, start = found
            frames.append(frame)
            self._scanned = self._searched = 0
        start = _skip_newlines(buffer, start)
        self._scanned = max(0, self._scanned - start)
        self._searched = max(0, self._searched - start)
        self._ahead = None
        del buffer[:start]
        if len(buffer) > MAX_FRAME:
            raise _too_large(buffer, f"a message of more than {MAX_FRAME} bytes, or one without end")
        return frames

    def last_error(self) -> str | None:
        """Return what an ERROR frame says among the bytes that are pending at the end of the stream."""
        at = self._buffer.rfind(b"ERROR\n")
        head = bytes(self._buffer[at + 6 :]).partition(b"\n\n")[0] if at >= 0 else b""
        return headers_of(head).get("message")

    def _next(self, start: int) -> tuple[Frame, int] | None:
        found, self._ahead = self._ahead or self._head(start), None
        if found is None:
            return None
        lines, begin = found
        command, _, head = lines.partition(b"\n")
        if command == MESSAGE:
            return self._message(head, begin)
        if command not in _EMPTY_BODIED:
            raise FrameError("the broker sent something that is no STOMP frame")
        nul = self._buffer.find(0, begin)
        if nul < 0 and len(self._buffer) - begin > MAX_HEAD:
            raise FrameError(f"the broker sent an answer of more than {MAX_HEAD} bytes")
        return None if nul < 0 else (Frame(command, head, bytes(self._buffer[begin:nul])), nul + 1)

    def _head(self, start: int) -> tuple[bytes, int] | None:
        start = _skip_newlines(self._buffer, start)
        end = self._buffer.find(b"\n\n", start)
        if end < 0:
            self._check_begin(start)
            return None
        return bytes(self._buffer[start:end]), end + 2

    def _message(self, head: bytes, begin: int) -> tuple[Frame, int] | None:
        at = head.find(b"content-length:")
        length = _LENGTH.search(head, at) if at >= 0 else None
        if length is not None:
            end = begin + int(length[1])
            is_false = self._holds_frame(begin, end)
            if len(self._buffer) <= end and not is_false:
                return None
            follows = not is_false and self._buffer[end] == 0 and self._frame_follows(end + 1)
            if follows is None:
                return None
            if follows:
                return Frame(MESSAGE, head, bytes(self._buffer[begin:end])), end + 1
        return self._text(head, begin)

    def _holds_frame(self, begin: int, end: int) -> bool:
        """Return whether another frame came before a body had its length: that of a text is a property."""
        if self._buffer.find(self._proof, max(begin, self._searched - len(self._proof)), end) >= 0:
            return True
        self._searched = min(len(self._buffer), end)
        return False

    def _text(self, head: bytes, begin: int) -> tuple[Frame, int] | None:
        """Return a message with no length, or a false one: a JMS property can be named content-length."""
        nul = self._buffer.find(0, max(begin, self._scanned))
        while nul >= 0:
            self._scanned = nul
            follows = self._frame_follows(nul + 1)
            if follows:
                body = bytes(self._buffer[begin:nul])
                return Frame(MESSAGE, head, body, b"\0" in body), nul + 1
            if follows is None:
                return None
            nul = self._buffer.find(0, nul + 1)
        self._scanned = len(self._buffer)
        return None

    def _frame_follows(self, at: int) -> bool | None:
        """Return whether a frame with our token begins here; None: more bytes will tell."""
        buffer = self._buffer
        at = _skip_newlines(buffer, at)
        if not buffer.startswith(_COMMANDS, at):
            peek = bytes(buffer[at : at + 10])
            return None if any(command.startswith(peek) for command in _COMMANDS) else False
        # A NUL ends the candidate: what stands behind it is another frame's token. Neither is looked for
        # farther than a head can be long: a body of such candidates would take the square of its length.
        stop = min(len(buffer), at + MAX_HEAD)
        nul = buffer.find(0, at, stop)
        end = buffer.find(b"\n\n", at, stop if nul < 0 else nul)
        if end < 0 and nul < 0 and stop < len(buffer):  # a conclusion that it is body would be a guess
            raise _too_large(buffer[at:stop], f"more than {MAX_HEAD} bytes of headers")
        if end < 0:
            return None if nul < 0 else False
        lines = bytes(buffer[at:end])
        if self._proof not in lines:
            return False
        self._ahead = lines, end + 2
        return True

    def _check_begin(self, start: int) -> None:
        peek = bytes(self._buffer[start : start + 10])
        if not peek.startswith(_COMMANDS) and not any(command.startswith(peek) for command in _COMMANDS):
            raise FrameError("the broker sent something that is no STOMP frame")
        if len(self._buffer) - start > MAX_HEAD:
            raise _too_large(self._buffer[start:], f"more than {MAX_HEAD} bytes of headers")


def _too_large(frame: bytearray, what: str) -> FrameError | PoisonMessage:
    """Return the error for a frame that is too large. A letter is named, and those before it can be taken."""
    if not frame.startswith(b"MESSAGE\n"):
        return FrameError(f"the broker sent {what}")
    found = _NAME.search(frame)
    name = f"letter {unescape(found[1].decode('utf-8', 'replace'))[:200]}" if found else "one letter"
    return PoisonMessage(f"{name} has {what}, which STOMP does not bring out; set openwire_url")


def _skip_newlines(buffer: bytearray, at: int) -> int:
    while at < len(buffer) and buffer[at] == 10:
        at += 1
    return at
