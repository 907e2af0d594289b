"""The JMS classes of the letters that Artemis is giving us, which its STOMP does not show.

Management lists what is unacknowledged, so one question covers all letters of the window, and the next is
asked when the first letter comes that it did not cover. An AMQP message says by itself what it is.
"""

import re
from typing import Any

from dlq.connectors.activemq.artemis import Management
from dlq.connectors.activemq.stomp import Frame

_NAMES = {0: "plain", 2: "object", 3: "text", 4: "bytes", 5: "map", 6: "stream"}
_UNKNOWN = "unknown"
_ID = re.compile(rb"^message-id:[^\n]*,(\d+)$", re.MULTILINE)
_AMQP = re.compile(rb"^JMS_AMQP_ORIGINAL_ENCODING:(\d+)$", re.MULTILINE)
_AMQP_TYPE = re.compile(rb"^JMS_AMQP_MA_x-opt-jms-msg-type:(\d+)$", re.MULTILINE)
_AMQP_DATA, _AMQP_STRING = b"2", b"5"
_AMQP_NAMES = {b"0": "plain", b"1": "object", b"2": "map", b"3": "bytes", b"4": "stream", b"5": "text"}


class ArtemisClasses:
    """Asks management of one queue; after one refusal it is not asked again."""

    def __init__(self, management: Management, queue: str) -> None:
        self._management, self._queue = management, queue.rpartition("::")[2]
        self._told: dict[int, Any] | None = {}

    def __call__(self, frame: Frame) -> str | None:
        """The class of a letter that is not acknowledged yet; None when the user may not ask."""
        amqp = _AMQP.search(frame.head)
        if amqp:
            return _class_of_amqp(frame, amqp[1])
        found = _ID.search(frame.head)
        message_id = int(found[1]) if found else 0
        if self._told is not None and message_id not in self._told:
            self._told = self._management.delivered_classes(self._queue)
        if self._told is None:
            return None
        return _NAMES.get(self._told.pop(message_id, None), _UNKNOWN)


def _class_of_amqp(frame: Frame, encoding: bytes) -> str:
    """By what a JMS producer declared, else by how the body is encoded; data that is shown is a text."""
    declared = _AMQP_TYPE.search(frame.head)
    if declared:
        return _AMQP_NAMES.get(declared[1], _UNKNOWN)
    return "text" if encoding == _AMQP_STRING or (encoding == _AMQP_DATA and frame.body) else _UNKNOWN
