"""Replays by OpenWire, which Artemis speaks, too: every class of message, with the types of properties.

Where there is an address for STOMP, too, a marker goes out by OpenWire before anything else and is looked for
by STOMP: a plan that was begun by one way may go on by the other, and where the addresses are those of two
brokers, what was sent would not be found. Artemis is asked for markers by STOMP alone.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import lru_cache

from dlq.connectors.activemq.link.refusals import CommitFailed, RolledBack
from dlq.connectors.activemq.link.sockets import is_openwire
from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.activemq.openwire.codec import commands
from dlq.connectors.activemq.openwire.codec.messages import BLOB, BYTES, MAP, PACKED, TEXT
from dlq.connectors.activemq.openwire.link import OpenWireConnection
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.prove import openwire_markers
from dlq.connectors.activemq.prove.markers import Trail, check_anchor, remove_by_stomp, trail_by_stomp
from dlq.connectors.activemq.records.openwire import (
    BLOB_DELETED,
    BLOB_TYPE,
    BLOB_URL,
    CLASS,
    KINDS,
    NO_CONTENT,
)  # fmt: skip
from dlq.connectors.activemq.republish import content, raw_values, types_of, user_properties
from dlq.connectors.activemq.stomp.codec import text_of
from dlq.connectors.base import Inspection, Outgoing
from dlq.core.errors import BrokerError, ConnectionLost, DlqError
from dlq.core.record import Record

_REPLY_TO = {
    "/queue/": "queue", "/topic/": "topic", "/remote-temp-queue/": "temp-queue",
    "/remote-temp-topic/": "temp-topic", "queue://": "queue", "topic://": "topic",
    "temp-queue://": "temp-queue", "temp-topic://": "temp-topic",
}  # fmt: skip
"""As Classic's STOMP and Artemis' show destinations."""


class OpenWireSender(OpenWireConnection):
    """One connection; see `Sender`."""

    _committing = "0"
    """The receipt of the last commit; 0 before the first."""

    def wait_for(self, receipt: str) -> None:
        """See `Sender`. Artemis says of a refused letter only at the commit, which then does nothing (2.56.0,
        TransactionImpl#commit)."""
        try:
            super().wait_for(receipt)
        except (ConnectionLost, CommitFailed):
            raise
        except BrokerError as error:
            if self.artemis and self.was_refused(self._committing):
                raise RolledBack(str(error)) from error
            raise

    def begin_run(self, plan: str, anchor: str) -> None:
        """Check that the broker's address for STOMP, where it has one, is of the same broker: the anchor is
        left by OpenWire, and looked for by STOMP."""
        openwire_markers.leave_anchor(self, plan, anchor)
        if not is_openwire(self.broker):
            check_anchor(self.broker, plan, anchor, self.node, "openwire_url", self._is_mirror)

    def _is_mirror(self) -> bool:
        """Return whether Artemis says by STOMP that it is another node than here."""
        if not self.artemis:
            return False
        with closing(Management(self.broker)) as management:
            return management.attribute("broker", "nodeID") not in (None, self.broker_id)

    def trail(self, plan: str) -> Trail:
        """Open the trail over this connection; of Artemis over one by STOMP."""
        return trail_by_stomp(self.broker, plan) if self.artemis else openwire_markers.trail(self, plan)

    def forget(self, plan: str) -> None:
        """Acknowledge the markers."""
        if self.artemis:
            remove_by_stomp(self.broker, plan)
        else:
            openwire_markers.remove(self, plan)

    def begin(self, transaction: str) -> bytes:
        """TransactionInfo that begins it."""
        return self.writer.transaction("begin", int(transaction))

    def commit(self, transaction: str, receipt: str) -> bytes:
        """TransactionInfo that commits in one phase; the broker answers it."""
        self._committing = receipt
        return self.writer.transaction("commit", int(transaction), int(receipt))

    def letter(self, letter: Outgoing, transaction: str) -> bytes:
        """Return the message with its types; the broker does not answer it, only the commit."""
        command = self.writer.message(_message_of(letter, self.artemis), int(transaction))
        size, most = len(command), self.max_frame_of_broker
        if most is not None and size > most:
            limit = f"{self.place} takes none above {most} (wireFormat.maxFrameSize)"
            raise ValueError(f"a message of {size} bytes, and {limit}")
        return command

    def marker(self, plan: str, bodies: Sequence[bytes], transaction: str, receipt: str) -> bytes:
        """Persistent messages into the plan's queue; the broker answers the last."""
        *others, last = [openwire_markers.marker_of(plan, body) for body in bodies]
        first = [self.writer.message(one, int(transaction)) for one in others]
        return b"".join([*first, self.writer.message(last, int(transaction), int(receipt))])


def with_openwire(found: Inspection, broker: ActiveMQBroker) -> Inspection:
    """Return what `dlq doctor` says, and whether letters could come and go by OpenWire."""
    try:
        sender = OpenWireSender(broker)
    except DlqError as error:
        return replace(found, warnings=[*found.warnings, f"Nothing would be pulled or sent: {error}."])
    sender.close()
    label = "replays, and what STOMP hides" if sender.artemis else "pulls and replays"
    return replace(found, facts={**found.facts, label: f"by OpenWire, to {sender.node}"})


def _now() -> int:
    return time.time_ns() // 1_000_000


def _message_of(letter: Outgoing, to_artemis: bool) -> commands.Letter:
    """Return a letter as a message: what STOMP calls headers goes into its fields, the rest are
    properties."""
    _, record, target, provenance, keep_headers = letter
    headers, body, measured = content(record, target, provenance, keep_headers, to_artemis)
    field = {name: headers.pop(name) for name in _FIELDS if name in headers}
    is_text = not measured or field.get("amq-msg-type") == "text"
    known = record.properties
    kind = KINDS.get(known.get(CLASS, ""), TEXT if is_text else BYTES)
    values = {**headers, **user_properties(record)}
    return commands.Letter(
        commands.destination(letter.target.kind, letter.target.name),
        kind,
        _body(record, kind, body, to_artemis),
        commands.properties(values, types_of(record), raw_values(record, values), to_artemis),
        _number(field.get("timestamp"), 0, 2**63 - 1) or _now(),
        _number(field.get("priority"), 4, 9),
        field.get("correlation-id"),
        _reply_to(field.get("reply-to", "")),
        field.get("type"),
        field.get("JMSXGroupID"),
        _group_sequence(known.get("JMSXGroupSeq") or record.headers.get("_AMQ_GROUP_SEQUENCE", "0")),
        _blob(known) if kind == BLOB else None,
        PACKED in known,
    )


def _body(record: Record, kind: int, body: bytes, to_artemis: bool) -> bytes | None:
    if PACKED in record.properties:
        return body
    if to_artemis and kind == MAP:
        return commands.map_for_artemis(body)
    if not body and (kind not in (TEXT, BYTES) or NO_CONTENT in record.properties):
        return None
    text = text_of(body) if kind == TEXT else None
    return body if text is None else commands.modified_utf8(text)


def _group_sequence(text: str) -> int:
    """Read the sequence in a group; one below zero closes the group."""
    number = _number(text.removeprefix("-"), 0, 2**31 - 1)
    return -number if text.startswith("-") else number


def _blob(known: Mapping[str, str]) -> tuple[str | None, str | None, bool]:
    return known.get(BLOB_URL), known.get(BLOB_TYPE), known.get(BLOB_DELETED) == "true"


_FIELDS = (
    "destination", "destination-type", "persistent", "amq-msg-type", "timestamp", "priority",
    "correlation-id", "reply-to", "type", "JMSXGroupID",
)  # fmt: skip


def _number(text: str | None, otherwise: int, most: int) -> int:
    return min(int(text), most) if text is not None and text.isascii() and text.isdigit() else otherwise


@lru_cache(1024)
def _reply_to(text: str) -> bytes:
    """Return a destination. STOMP clients of Artemis name an address as it is, which is taken for a queue."""
    for prefix, kind in _REPLY_TO.items():
        if text.startswith(prefix):
            return commands.destination(kind, text.removeprefix(prefix))
    return commands.destination("queue", text) if text else commands.NONE
