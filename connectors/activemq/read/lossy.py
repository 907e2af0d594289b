"""Letters whose content STOMP does not carry: they must not be acknowledged, or their payload is gone.

Classic sends Map, Stream, Object and plain messages with an empty body, like one that really is empty.
Artemis (2.56.0) reads their bytes as if they were a text: an Object comes empty, a Map empty or beginning
with a NUL, a Stream as garbage that can look like any text. There the class decides, which management knows.
Of bytes in a property it shows where they lie in its memory.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.activemq.look.jolokia import body_class
from dlq.connectors.activemq.stomp.codec import Frame, unescape

_LookUp = Callable[[Frame], Mapping[str, Any] | None]
"""Asks the broker for a message's class (Classic, Jolokia)."""

_Classes = Callable[[Frame], str | None]
"""Tells a letter's class on Artemis; None when the user may not ask."""

_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_UNTOLD = (
    "empty body without a length: a Map, Stream or Object message, or an empty text; "
    "set a jolokia_url that may execute getMessage to tell them apart, or use --include-empty"
)
_UNTOLD_ON_ARTEMIS = (
    "empty body: a Map, Stream or Object message, or an empty text; the right to manage distinguishes them"
)
_RUBBISH = "no BytesMessage, but control characters in its body: probably a Map or Stream message"
INNER_NUL = "a text with NUL: its end is a conclusion, so it is archived and stays in the queue"


_EMPTY_BYTES = re.compile(rb"^content-length:0$", re.MULTILINE)
"""Of a BytesMessage, or a property of that name of another."""


def _is_bytes_of_artemis(frame: Frame) -> bool:
    """Artemis puts the length of a BytesMessage before the message-id, any other one after it."""
    return 0 <= frame.head.find(b"\ncontent-length:") < frame.head.find(b"\nmessage-id:")


def lossy_on_classic(frame: Frame, include_empty: bool, look_up: _LookUp) -> str | None:
    """Return why this letter must stay where it is, or None. Its length is believed where nothing tells the
    class of an empty body."""
    if frame.body:
        return None
    shown = look_up(frame)
    if shown is None:
        return None if include_empty or _EMPTY_BYTES.search(frame.head) else _UNTOLD
    return _unless_carried(body_class(shown))


def _unless_carried(found: str) -> str | None:
    carried = found in ("text", "bytes")
    return None if carried else f"a message of class {found}: STOMP cannot carry its content"


BYTES_SHOWN = b"[B@"
_ADDRESS = re.compile(rb"^(?!_AMQ_|__HDR_)([^:\n]+):\[B@[0-9a-f]{1,8}$", re.MULTILINE)
"""What Java makes of a byte[] that it is to write as a text; what the broker adds goes back nowhere."""
_HIDES_BYTES = (
    "its {!r} holds bytes, which Artemis' STOMP and OpenWire do not show, or a text that looks so: it stays; "
    "{}"
)
_AS_IT_CAME = "set amqp_url"
_BY_ANOTHER = "take it by a client of Core or AMQP 1.0; dlq takes by AMQP 1.0 only what came by it"


def why_bytes_hidden(frame: Frame, texts: Collection[str] = ()) -> str | None:
    """Return why a letter of Artemis must stay that has bytes in a property or as its correlation id; these
    are known to be `texts`."""
    shown = _ADDRESS.findall(frame.head) if BYTES_SHOWN in frame.head else ()
    names = [name for each in shown if (name := unescape(each.decode("utf-8", "replace"))) not in texts]
    if not names:
        return None
    advice = _AS_IT_CAME if _AMQP.search(frame.head) else _BY_ANOTHER
    return _HIDES_BYTES.format(names[0][:60], advice)


def lossy_on_artemis(frame: Frame, class_of: _Classes) -> str | None:
    """Return why this letter must stay where it is, or None."""
    if hidden := why_bytes_hidden(frame):
        return hidden
    if _is_bytes_of_artemis(frame):
        return None
    found = class_of(frame)
    if found is not None:
        return _unless_carried(found)
    if not frame.body:
        return _UNTOLD_ON_ARTEMIS
    return _RUBBISH if _CONTROL.search(frame.body) else None


_NAMES = {0: "plain", 2: "object", 3: "text", 4: "bytes", 5: "map", 6: "stream"}
_UNKNOWN = "unknown"
_ID = re.compile(rb"^message-id:[^\n]*,(\d+)$", re.MULTILINE)
_AMQP = re.compile(rb"^JMS_AMQP_ORIGINAL_ENCODING:(\d+)$", re.MULTILINE)
_AMQP_TYPE = re.compile(rb"^JMS_AMQP_MA_x-opt-jms-msg-type:(\d+)$", re.MULTILINE)
_AMQP_DATA, _AMQP_STRING = b"2", b"5"
_AMQP_NAMES = {b"0": "plain", b"1": "object", b"2": "map", b"3": "bytes", b"4": "stream", b"5": "text"}


class ArtemisClasses:
    """The JMS classes of the letters that Artemis is giving us, which its STOMP does not show.

    Management lists what is unacknowledged, so one question covers all letters of the window, and the next is
    asked when the first letter comes that it did not cover; after one refusal it is not asked again. An AMQP
    message says by itself what it is; what was copied from one onto another letter says nothing.
    """

    def __init__(self, management: Management, queue: str, of_amqp: bool = True) -> None:
        """`of_amqp`: whether there may be any of AMQP."""
        self._of_amqp = of_amqp
        self._management, self._queue = management, queue
        self._told: dict[int, Any] | None = {}

    def __call__(self, frame: Frame) -> str | None:
        """Return the class of a letter that is not acknowledged yet; None when the user may not ask."""
        amqp = _AMQP.search(frame.head)
        if amqp and self._of_amqp:
            return _class_of_amqp(frame, amqp[1])
        found = _ID.search(frame.head)
        message_id = int(found[1]) if found else 0
        if self._told is not None and message_id not in self._told:
            self._told = self._management.delivered_classes(self._queue)
        if self._told is None:
            return None
        return class_name(self._told.pop(message_id, None))


def class_name(number: Any) -> str:
    """Return what we call a class that management numbers."""
    return _NAMES.get(number, _UNKNOWN)


def _class_of_amqp(frame: Frame, encoding: bytes) -> str:
    """Return the class by what a JMS producer declared, else by how the body is encoded; data that is shown
    is a text."""
    declared = _AMQP_TYPE.search(frame.head)
    if declared:
        return _AMQP_NAMES.get(declared[1], _UNKNOWN)
    return "text" if encoding == _AMQP_STRING or (encoding == _AMQP_DATA and frame.body) else _UNKNOWN
