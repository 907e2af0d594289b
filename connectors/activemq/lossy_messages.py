"""Letters whose content STOMP does not carry: they must not be acknowledged, or their payload is gone.

Classic sends Map, Stream, Object and plain messages with an empty body, like a text that really is empty.
Artemis (2.56.0) reads their bytes as if they were a text: an Object comes empty, a Map empty or beginning
with a NUL, a Stream as garbage that can look like any text. There the class decides, which management knows.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from dlq.connectors.activemq.jolokia import body_class
from dlq.connectors.activemq.stomp import Frame

LookUp = Callable[[Frame], Mapping[str, Any] | None]
"""Asks the broker for a message's class (Classic, Jolokia)."""

Classes = Callable[[Frame], str | None]
"""Tells a letter's class on Artemis; None when the user may not ask."""

_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_UNTOLD = (
    "empty body without a length: a Map, Stream or Object message, or an empty text; "
    "set jolokia_url to tell them apart, or use --include-empty"
)
_UNTOLD_ON_ARTEMIS = (
    "empty body: a Map, Stream or Object message, or an empty text; the right to manage tells them apart"
)
_RUBBISH = "no BytesMessage, but control characters in its body: probably a Map or Stream message"
INNER_NUL = "a text with NUL: its end is a conclusion, so it is archived and stays in the queue"


def _is_empty_of_unknown_class(frame: Frame) -> bool:
    return not frame.body and b"content-length:" not in frame.head


def _is_bytes_of_artemis(frame: Frame) -> bool:
    """Artemis puts the length of a BytesMessage before the message-id, any other one after it."""
    return 0 <= frame.head.find(b"\ncontent-length:") < frame.head.find(b"\nmessage-id:")


def lossy_on_classic(frame: Frame, include_empty: bool, look_up: LookUp | None) -> str | None:
    """Why this letter must stay where it is, or None."""
    if not _is_empty_of_unknown_class(frame):
        return None
    shown = look_up(frame) if look_up else None
    if shown is None:
        return None if include_empty else _UNTOLD
    found = body_class(shown)
    return None if found == "text" else f"a message of class {found}: STOMP cannot carry its content"


def lossy_on_artemis(frame: Frame, class_of: Classes) -> str | None:
    """Why this letter must stay where it is, or None."""
    if _is_bytes_of_artemis(frame):
        return None
    found = class_of(frame)
    if found is not None:
        carried = found in ("text", "bytes")
        return None if carried else f"a message of class {found}: STOMP cannot carry its content"
    if not frame.body:
        return _UNTOLD_ON_ARTEMIS
    return _RUBBISH if _CONTROL.search(frame.body) else None
