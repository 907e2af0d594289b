"""What Artemis' STOMP hides of its letters, learned by a browse over OpenWire before they are taken.

Neither protocol shows a letter of Artemis whole (seen on 2.56.0). STOMP shows every header, the `_AMQ_ORIG_…`
that say where it died among them, but each as a text, and Map, Stream and Object messages without content.
OpenWire shows classes, content and types, and nothing whose name begins with `_AMQ` or `__HDR_`
(OpenWireMessageConverter#setAMQMsgObjectProperties). So a letter is taken by STOMP, and has its identity from
there; what is hidden is put in from the browse, which changes nothing. The two meet by the message's id.
"""

import re
import time
from collections.abc import Callable
from typing import NamedTuple

from dlq.connectors.activemq.look.jolokia import PROPERTY
from dlq.connectors.activemq.openwire.codec.messages import CLASSES, Dispatch, UnreadableError, body_of
from dlq.connectors.activemq.openwire.link import OpenWireConnection
from dlq.connectors.activemq.read.lossy import BYTES_SHOWN, why_bytes_hidden
from dlq.connectors.activemq.records.openwire import MARSHALLED, hidden_properties, message_id, properties_of
from dlq.connectors.activemq.records.shadows import is_of_a_client
from dlq.connectors.activemq.stomp.codec import Frame, unescape
from dlq.core.errors import name_rights
from dlq.core.record import NOTHING

MOST_KEPT = 2**28
"""Bytes of content that are held for letters not taken yet."""
_MOST_LETTERS, _LONGEST = 1_000_000, 600.0
"""What is behind so many, or is shown later than after so many seconds, is left to STOMP alone."""
_PAUSE = 6.0
"""Seconds of silence that end a browse which does not say that it ended."""
_IDS = 2**31 - 1
"""The broker makes an id of two numbers of its own one, by this divisor."""
_CORE_ID = re.compile(rb"^message-id:[^\n]*,(\d{1,19})$", re.MULTILINE)
_OPENWIRE_ID = re.compile(rb"^__HDR_MESSAGE_ID:([^\n]*)$", re.MULTILINE)
_SENT_AT = re.compile(rb"^timestamp:(\d{1,19})$", re.MULTILINE)
_BEYOND = (
    "a message of class {}: more content of such letters lies before it than is held at once; pull again"
)


class _Hidden(NamedTuple):
    """`body` is None where STOMP shows it, or too much of others is held."""

    kind: str
    properties: tuple[tuple[str, str], ...]
    body: bytes | None
    shadowing: tuple[tuple[str, str], ...] = ()
    """Properties with names of STOMP's headers, of which it does not show each."""
    texts: tuple[str, ...] = ()
    """Names of those that hold a text like the one that STOMP shows for bytes."""


class Browsed:
    """What was learned of the letters of a queue."""

    def __init__(self, node: str) -> None:
        """`node`: the id that the broker gives itself, which is part of its messages' ids."""
        self._node = node
        self._found: dict[tuple[str, int], _Hidden | None] = {}
        """By id and time of sending; None where letters that differ have one id."""
        self._same: dict[_Hidden, _Hidden] = {}
        self._held = 0

    def keep(self, letter: Dispatch) -> None:
        """Keep a letter as OpenWire shows it. One that it does not show in full is left to STOMP alone."""
        message = letter.message
        if message is None:
            return
        try:
            told = properties_of(message)
            details = hidden_properties(letter.kind, message, told)
            body = body_of(letter.kind, message) if CLASSES[letter.kind] in MARSHALLED else None
        except UnreadableError:
            return
        if body is not None:
            self._held += len(body)
            body = body if self._held <= MOST_KEPT else None
        shadowing = tuple((f"{PROPERTY}{name}", told.shown[name]) for name in told.shadowing)
        texts = told.shown.items() if BYTES_SHOWN in (message.properties or b"") else ()
        like_bytes = tuple(name for name, text in texts if text.encode().startswith(BYTES_SHOWN))
        found = _Hidden(CLASSES[letter.kind], tuple(details.items()), body, shadowing, like_bytes)
        if body is None:  # most letters have the same
            found = self._same.setdefault(found, found)
        key = message_id(letter.message_id), message.timestamp
        self._found[key] = found if self._found.get(key, found) == found else None

    def why_lossy(self, frame: Frame, unknown: Callable[[Frame], str | None]) -> str | None:
        """Return why this letter must stay, or None; `unknown` is asked of one that was not seen."""
        found = self._hidden_of(frame)
        if hidden := why_bytes_hidden(frame, found.texts if found else ()):
            return hidden
        if found is None:
            return unknown(frame)
        is_there = found.body is not None or found.kind not in MARSHALLED
        return None if is_there else _BEYOND.format(found.kind)

    def complete(self, frame: Frame) -> Frame:
        """Return the letter with what STOMP hides of it."""
        found = self._hidden_of(frame)
        if found is None:
            return frame._replace(properties=NOTHING)
        body = frame.body if found.body is None else found.body
        own = found.shadowing if is_of_a_client(frame.head) else ()
        return frame._replace(properties=dict((*found.properties, *own)), body=body)

    def _hidden_of(self, frame: Frame) -> _Hidden | None:
        sent_at = _SENT_AT.search(frame.head)
        return self._found.get((self._name_of(frame.head), int(sent_at[1]) if sent_at else 0))

    def _name_of(self, head: bytes) -> str:
        """Return the id that OpenWire's clients see: that of their own, or one made of the broker's."""
        if told := _OPENWIRE_ID.search(head):
            return unescape(told[1].decode("utf-8", "replace"))
        found = _CORE_ID.search(head)
        high, low = divmod(int(found[1]) if found else 0, _IDS)
        return f"ID:{self._node}:-1:-1:{high}:{low}"


def browse_queue(
    connection: OpenWireConnection, queue: str, limit: int | None, selector: str | None = None
) -> Browsed:
    """Look at the first `limit` letters of a queue (None: at all) that the selector selects. Raises
    BrokerError."""
    found = Browsed(connection.broker_id)
    with name_rights("with openwire_url it needs the permission browse there"):
        most = _MOST_LETTERS if limit is None else min(limit, _MOST_LETTERS)
        until = time.monotonic() + _LONGEST
        for letter in connection.browse(queue, most, _PAUSE, selector):
            found.keep(letter)
            if time.monotonic() > until:
                break
    return found
