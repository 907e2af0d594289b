"""OpenWire, the protocol of ActiveMQ Classic's own clients: commands and answers, bytes in and bytes out.

Version 11 (ActiveMQ 5.12 and newer), loose encoding, nothing cached. The order of fields is that of
`looseMarshal` in activemq-client, org/apache/activemq/openwire/v11/*Marshaller.java; property maps are
those of org/apache/activemq/util/MarshallingSupport.java. A frame is its length, its command's type, a
number that the answer repeats (here: the receipt), whether an answer is wanted, and the command's fields.
"""

import contextlib
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from dlq.connectors.activemq.openwire.codec.messages import (
    BROKER_ID,
    DISPATCH,
    TEXT,
    Cursor,
    Dispatch,
    Seen,
    UnreadableError,
    Value,
    dispatch,
    map_of,
)  # fmt: skip
from dlq.connectors.net.links import FrameError

VERSION = 11
NONE = b"\0"
"""An absent field."""

MAGIC = b"ActiveMQ"
_WIREFORMAT_INFO = 1
_CONNECTION_INFO, _SESSION_INFO, _PRODUCER_INFO, _TRANSACTION_INFO, _SHUTDOWN_INFO = 3, 4, 6, 7, 11
_BROKER_INFO, _CONSUMER_INFO, _REMOVE_INFO, _MESSAGE_ACK = 2, 5, 12, 22
_MESSAGE_ID, _LOCAL_TRANSACTION_ID, _CONNECTION_ID, _SESSION_ID, _CONSUMER_ID, _PRODUCER_ID = (
    110, 111, 120, 121, 122, 123,
)  # fmt: skip
_DELIVERED_ACK, _POISON_ACK, _STANDARD_ACK, _UNSET = 0, 1, 2, -1
"""MessageAck's DELIVERED_ACK_TYPE, POSION_ACK_TYPE and STANDARD_ACK_TYPE; RemoveInfo.LAST_DELIVERED_UNSET: no
delivery is counted."""
_DESTINATIONS = {"queue": 100, "topic": 101, "temp-queue": 102, "temp-topic": 103}
_STEPS = {"begin": 0, "commit": 2, "rollback": 4}
"""TransactionInfo.BEGIN, COMMIT_ONE_PHASE and ROLLBACK."""
_STRING, _BIG_STRING, _COUNT = struct.Struct(">BH"), struct.Struct(">Bi"), struct.Struct(">i")
_LONGEST_SHORT = 0xFFFF

_Step = Literal["begin", "commit", "rollback"]


def modified_utf8(text: str) -> bytes:
    """Java's: NUL takes two bytes, and what is beyond U+FFFF two surrogates of three (java.io.DataInput)."""
    if text.isascii() and "\0" not in text:
        return text.encode()
    units = text.encode("utf-16-be", "surrogatepass")
    pairs = "".join(map(chr, struct.unpack(f">{len(units) // 2}H", units)))
    return pairs.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def utf(text: str) -> bytes:
    """Return a name, or a field of text, as Java's writeUTF. Raises ValueError for one that is too long."""
    data = modified_utf8(text)
    if len(data) > _LONGEST_SHORT:
        raise ValueError(f"{text[:60]!r}... is longer than OpenWire can say: {_LONGEST_SHORT} bytes")
    return struct.pack(">H", len(data)) + data


_name = lru_cache(4096)(utf)
"""Names are few, and the same from message to message."""


def _string(text: str | None) -> bytes:
    return NONE if text is None else b"\1" + utf(text)


def _sequence(data: bytes) -> bytes:
    return struct.pack(">?i", True, len(data)) + data


def _structure(kind: int, *fields: bytes) -> bytes:
    return bytes((1, kind)) + b"".join(fields)


def _long(number: int) -> bytes:
    return struct.pack(">q", number)


_TYPED: Mapping[str, tuple[str, int, Callable[[str], Any]]] = {
    "char": (">BH", 3, ord),
    "boolean": (">B?", 1, lambda text: {"true": True, "false": False}[text.lower()]),
    "byte": (">Bb", 2, int),
    "short": (">Bh", 4, int),
    "int": (">Bi", 5, int),
    "long": (">Bq", 6, int),
    "double": (">Bd", 7, float),
    "float": (">Bf", 8, float),
}


def holds(kind: str, text: str) -> bool:
    """Return whether a property of this type can be what the text says; of an unknown type any can."""
    return _pack(text, kind) is not None if kind in _TYPED else kind not in ("bytes", "map", "list")


def _pack(text: str, kind: str) -> bytes | None:
    layout, number, read = _TYPED[kind]
    try:
        return struct.pack(layout, number, read(text))
    except (ValueError, TypeError, KeyError, OverflowError, struct.error):
        return None


def _typed_value(text: str, kind: str) -> bytes:
    """Return a property's value; as text where its type is not known or does not hold it."""
    return (_pack(text, kind) if kind in _TYPED else None) or _text_value(text)


def _text_value(text: str, for_artemis: bool = False) -> bytes:
    """Artemis reads a value as plain UTF-8, and so damages what Java clients send it beyond U+FFFF (2.56.0,
    OpenWireMessageConverter by way of UTF8Buffer#toString)."""
    data = text.encode("utf-8", "replace") if for_artemis else modified_utf8(text)
    size = len(data)
    return (_STRING.pack(9, size) if size <= _LONGEST_SHORT else _BIG_STRING.pack(13, size)) + data


def properties(
    values: Mapping[str, str],
    types: Mapping[str, str],
    raw: Mapping[str, bytes] = MappingProxyType({}),
    for_artemis: bool = False,
) -> bytes:
    """Return a message's properties; `types` names those that are not text (boolean, byte, int, ...), `raw`
    has the values that are encoded already."""
    parts = [_COUNT.pack(len(values))]
    for name, text in values.items():
        typed = _typed_value(text, types[name]) if name in types else _text_value(text, for_artemis)
        parts += _name(name), raw.get(name, typed)
    return b"".join(parts)


def map_for_artemis(content: bytes) -> bytes:
    """Return a MapMessage's content with the texts in it as Artemis reads them. Raises UnreadableError."""
    entries = map_of(content)
    parts = [_COUNT.pack(len(entries))]
    for name, value in entries.items():
        parts += _name(name), _text_value(value.value, True) if value.kind == "string" else value.raw
    return b"".join(parts)


@lru_cache(4096)
def destination(kind: str, name: str) -> bytes:
    """Return a `queue`, `topic`, `temp-queue` or `temp-topic`."""
    return _structure(_DESTINATIONS[kind], _string(name))


class Letter(NamedTuple):
    """A message to send. `body` of a text is in modified UTF-8, None is no content; `properties` and
    destinations are encoded."""

    destination: bytes
    message_type: int
    """BYTES, TEXT and so on of `messages`."""
    body: bytes | None
    properties: bytes
    timestamp: int
    """Milliseconds since 1970."""
    priority: int = 4
    correlation_id: str | None = None
    reply_to: bytes = NONE
    kind: str | None = None
    """JMSType."""
    group: str | None = None
    group_sequence: int = 0
    blob: tuple[str | None, str | None, bool] | None = None
    """A BlobMessage's URL, MIME type, and whether the broker deletes what is there."""
    packed: bool = False
    """The body is compressed content, which goes as it is."""


def _command(kind: int, receipt: int, *fields: bytes) -> bytes:
    """Return a command; with a receipt of 0 no answer is wanted."""
    rest = b"".join(fields)
    return struct.pack(">iBi?", 6 + len(rest), kind, receipt, receipt > 0) + rest


def greeting() -> bytes:
    """WireFormatInfo. Without inactivity both sides may be silent for as long as they like."""
    names = ("CacheEnabled", "TightEncodingEnabled", "SizePrefixDisabled", "StackTraceEnabled")
    wanted = {**dict.fromkeys(names, "false"), "TcpNoDelayEnabled": "true"}
    silent = dict.fromkeys(("MaxInactivityDuration", "MaxInactivityDurationInitalDelay"), "0")
    types = {**dict.fromkeys(wanted, "boolean"), **dict.fromkeys(silent, "long")}
    options = _sequence(properties({**wanted, **silent}, types))
    rest = MAGIC + struct.pack(">i", VERSION) + options
    return struct.pack(">iB", 1 + len(rest), _WIREFORMAT_INFO) + rest


def goodbye() -> bytes:
    """ShutdownInfo."""
    return _command(_SHUTDOWN_INFO, 0)


class Writer:
    """The commands of one connection, its one session, and its one producer without a destination."""

    def __init__(self, connection: str) -> None:
        """`connection` must never have been used before: brokers drop what they take for a repetition."""
        self._name = _string(connection)
        self._connection = _structure(_CONNECTION_ID, self._name)
        self._producer = _structure(_PRODUCER_ID, self._name, _long(1), _long(1))
        self._sequence = 0
        self._number, self._encoded = -1, b""
        self.has_consumers = False
        """Whether messages were asked for."""

    def connect(self, user: str | None, password: str | None, receipt: int) -> bytes:
        """ConnectionInfo (manageable, its client chooses the broker), SessionInfo and ProducerInfo."""
        who = (self._name, _string(password), _string(user))
        return b"".join(
            (
                _command(_CONNECTION_INFO, receipt, self._connection, *who, NONE, b"\0\1\1\0\0", NONE),
                _command(_SESSION_INFO, 0, _structure(_SESSION_ID, self._name, _long(1))),
                _command(_PRODUCER_INFO, 0, self._producer, NONE, NONE, b"\0", struct.pack(">i", 0)),
            )
        )

    def _transaction(self, number: int) -> bytes:
        """Return the id of a transaction, encoded once: it is the same for a hundred messages."""
        if number != self._number:
            self._number = number
            self._encoded = _structure(_LOCAL_TRANSACTION_ID, _long(number), self._connection)
        return self._encoded

    def transaction(self, step: _Step, number: int, receipt: int = 0) -> bytes:
        """TransactionInfo."""
        fields = (self._connection, self._transaction(number), bytes((_STEPS[step],)))
        return _command(_TRANSACTION_INFO, receipt, *fields)

    def message(self, letter: Letter, transaction: int | None, receipt: int = 0) -> bytes:
        """Return a persistent message that never expires, in a transaction, if any."""
        self._sequence += 1
        return _command(
            letter.message_type,
            receipt,
            self._producer,
            letter.destination,
            NONE if transaction is None else self._transaction(transaction),
            NONE,  # original destination
            _structure(_MESSAGE_ID, NONE, self._producer, struct.pack(">qq", self._sequence, 0)),
            NONE,  # original transaction
            _string(letter.group),
            struct.pack(">i", letter.group_sequence),
            _string(letter.correlation_id),
            struct.pack(">?qB", True, 0, letter.priority),  # persistent, expiration
            letter.reply_to,
            _long(letter.timestamp),
            _string(letter.kind),
            _content(letter),
            _sequence(letter.properties),
            _rest(letter.packed) if letter.blob is None else _rest(letter.packed) + _blob(*letter.blob),
        )

    def _consumer(self, number: int) -> bytes:
        return _structure(_CONSUMER_ID, self._name, _long(1), _long(number))

    def consume(
        self,
        number: int,
        queue: str,
        prefetch: int,
        browse: bool,
        selector: str | None,
        receipt: int,
        exclusive: bool = False,
    ) -> bytes:
        """ConsumerInfo: so many unacknowledged messages at a time; `browse` takes none; to an `exclusive` one
        the broker gives all."""
        self.has_consumers = True
        return _command(
            _CONSUMER_INFO,
            receipt,
            self._consumer(number),
            struct.pack(">?", browse),
            destination("queue", queue),
            struct.pack(">ii?", prefetch, 0, False),  # no limit of pending messages, dispatched in turn
            _string(selector),
            NONE + NONE,  # client id, subscription name
            struct.pack(">???b", False, exclusive, False, 0),  # local too, not retroactive; priority
            NONE + NONE,  # broker path, additional predicate
            struct.pack(">???", False, False, False),  # of no network, acknowledges each, in ranges
            NONE,  # network consumer path
        )

    def stop(self, number: int, receipt: int = 0) -> bytes:
        """RemoveInfo: what the consumer has not acknowledged goes back, and counts no delivery."""
        return _command(_REMOVE_INFO, receipt, self._consumer(number), _long(_UNSET))

    def acknowledge(self, number: int, queue: str, names: Sequence[bytes], receipt: int = 0) -> bytes:
        """MessageAck of messages that were dispatched in a row; `names` are their ids as they came."""
        return self._ack(_STANDARD_ACK, number, queue, names, receipt)

    def delivery_ack(self, number: int, queue: str, name: bytes) -> bytes:
        """MessageAck that says that a message has come, and acknowledges nothing."""
        return self._ack(_DELIVERED_ACK, number, queue, [name], 0)

    def refuse(self, number: int, queue: str, name: bytes, receipt: int) -> bytes:
        """MessageAck that gives a message up."""
        return self._ack(_POISON_ACK, number, queue, [name], receipt)

    def _ack(self, kind: int, number: int, queue: str, names: Sequence[bytes], receipt: int) -> bytes:
        return _command(
            _MESSAGE_ACK,
            receipt,
            destination("queue", queue),
            NONE,  # transaction
            self._consumer(number),
            struct.pack(">b", kind),
            names[0],
            names[-1],
            struct.pack(">i", len(names)),
            NONE,  # poison cause
        )


def _content(letter: Letter) -> bytes:
    """Return the content of a letter; that of a text has its length before it
    (ActiveMQTextMessage.storeContent)."""
    if letter.body is None:
        return NONE
    is_text = letter.message_type == TEXT and not letter.packed
    return _sequence(struct.pack(">i", len(letter.body)) + letter.body if is_text else letter.body)


def _blob(url: str | None, mime_type: str | None, deleted: bool) -> bytes:
    return _string(url) + _string(mime_type) + struct.pack(">?", deleted)


@lru_cache
def _rest(packed: bool) -> bytes:
    fields = (
        NONE,  # data structure
        NONE,  # target consumer
        struct.pack(">?i", packed, 0),  # compressed, redelivery counter
        NONE,  # broker path
        _long(0),  # arrival
        NONE,  # user id
        b"\0\0",  # received by a bridge, droppable
        NONE,  # cluster
        struct.pack(">qq?", 0, 0, False),  # times in brokers, first of its group
    )
    return b"".join(fields)


MAX_FRAME = 64 * 2**20
"""Nothing that a broker answers a sender is longer."""
_NAME_WITHIN = 2**15
"""Bytes within which a message tells its name: only destinations and ids stand before it."""
_CONNECTION_ERROR, _EXCEPTION_RESPONSE = 16, 31
_RESPONSES = (30, _EXCEPTION_RESPONSE, 32, 33, 34)
_NO_OPENWIRE = "the broker sent something that is no OpenWire; is this its port?"


class Answer(NamedTuple):
    """What a broker said. `receipt` is 0 for what answers no command of ours; `error` is a Java exception,
    class and message, and `thrown` its class."""

    receipt: int
    error: str | None
    thrown: str | None = None


class Reader:
    """Cuts what a broker sends into answers and, for a consumer, messages; all else is left out."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._buffer = bytearray()
        self._max_frame = max_frame
        self._passes_over = self._passed = 0
        """Bytes of a message that is set aside: that are still to come, that have come since."""
        self._seen: Seen = {}
        self.dispatched: deque[Dispatch] = deque()
        """Messages that nobody has taken from here yet."""
        self.version = 0
        """The broker's, once it has greeted."""
        self.provider = self.broker = ""
        """Its version, such as 5.18.6, and the broker's id."""
        self.max_frame: int | None = None
        """Bytes of the longest command that the broker takes, where it says so."""

    @property
    def unfinished_bytes(self) -> int:
        """Bytes that have come of a command or of what is passed over, and not all of it."""
        return len(self._buffer) + (self._passed if self._passes_over else 0)

    def feed(self, data: bytes) -> list[Answer]:
        """Take bytes; return the answers that are whole. Raises FrameError where it is no OpenWire."""
        buffer = self._buffer
        passed = min(self._passes_over, len(data))
        self._passes_over, self._passed = self._passes_over - passed, self._passed + passed
        buffer += data[passed:]
        found: list[Answer] = []
        begin = 0
        while len(buffer) - begin >= _COUNT.size:
            (size,) = _COUNT.unpack_from(buffer, begin)
            end = begin + _COUNT.size + size
            if not 0 < size <= self._max_frame:
                if not self._sets_aside(begin + _COUNT.size, size):
                    break
                begin = min(end, len(buffer))
                continue
            if len(buffer) < end:
                break
            found += self._answers(bytes(buffer[begin + _COUNT.size : end]))
            begin = end
        del buffer[:begin]
        return found

    def _sets_aside(self, begin: int, size: int) -> bool:
        """Set a message aside that is longer than what is read at once: whoever asks gets its name and the
        reason, its bytes are passed over. False until its name has come. Raises FrameError where it is no
        message."""
        buffer, named = self._buffer, min(size, _NAME_WITHIN)
        if not self.version or size < 0 or (len(buffer) > begin and buffer[begin] != DISPATCH):
            raise FrameError(_NO_OPENWIRE)
        if len(buffer) < begin + named:
            return False
        try:
            letter = dispatch(bytes(buffer[begin : begin + named]), self._seen)
        except UnreadableError as error:
            raise FrameError(f"the broker sent a message of {size} bytes without a name") from error
        why = f"a message of {size} bytes, more than the {self._max_frame} that are read at once"
        self.dispatched.append(letter._replace(message=None, unreadable=why))
        self._passes_over, self._passed = max(0, begin + size - len(buffer)), 0
        return True

    def _answers(self, frame: bytes) -> list[Answer]:
        kind = frame[0]
        try:
            if not self.version:
                self.version = _version(frame)
                options = _options(frame)
                self.provider = str(options["ProviderVersion"].value) if "ProviderVersion" in options else ""
                most = options.get("MaxFrameSize")
                self.max_frame = (
                    most.value if most and isinstance(most.value, int) and most.value > 0 else None
                )
            elif kind in _RESPONSES:
                (receipt,) = struct.unpack_from(">i", frame, 6)
                return [Answer(receipt, *(_exception(frame, 10) if kind == _EXCEPTION_RESPONSE else (None,)))]
            elif kind == _CONNECTION_ERROR:
                return [Answer(0, *_exception(frame, 6))]
            elif kind == _BROKER_INFO:
                self.broker = _broker(frame)
            elif kind == DISPATCH:
                self.dispatched.append(dispatch(frame, self._seen))
        except (struct.error, IndexError) as error:
            raise FrameError("the broker sent an OpenWire command that is cut off") from error
        except UnreadableError as error:
            raise FrameError(f"the broker sent a message that is not understood: {error}") from error
        return []


def _version(frame: bytes) -> int:
    if frame[0] != _WIREFORMAT_INFO or frame[1:9] != MAGIC:
        raise FrameError(_NO_OPENWIRE)
    version: int = struct.unpack_from(">i", frame, 9)[0]
    return version


def _options(frame: bytes) -> Mapping[str, Value]:
    """Return those that follow OpenWire's version."""
    with contextlib.suppress(UnreadableError):
        return map_of(Cursor(frame, 13).sequence())
    return {}


def _broker(frame: bytes) -> str:
    with contextlib.suppress(UnreadableError):
        found = Cursor(frame, 6).structure()
        return str(found.fields[0]) if found and found.kind == BROKER_ID else ""
    return ""


def _exception(frame: bytes, at: int) -> tuple[str, str | None]:
    """Return the class and the message of a Throwable as one text, and its class."""
    if frame[at : at + 1] != b"\1":
        return "no reason given", None
    parts: list[str] = []
    at += 1
    for _ in range(2):
        (is_there,) = struct.unpack_from(">?", frame, at)
        at += 1
        if is_there:
            (size,) = struct.unpack_from(">H", frame, at)
            at += 2
            parts.append(frame[at : at + size].decode("utf-8", "replace"))
            at += size
    return ": ".join(parts), parts[0] if parts else None
