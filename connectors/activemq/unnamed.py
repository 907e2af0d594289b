"""Letters that no STOMP acknowledgement can name: those of AMQP producers on Classic.

Classic (5.18.6, 6.3.1) reads the id of an ACK as one that it has made itself, session, producer and number
at its end. An AMQP producer's id is another, and an ACK of it ends the connection. A cumulative ACK of a
later letter covers them; where none comes, they are archived first and then taken by a consumer that
acknowledges by itself and selects them by id and time, so that no other letter comes to it.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence

from dlq.connectors.activemq.stomp import escape, headers_of
from dlq.connectors.activemq.stomp_connection import Link
from dlq.core.errors import ConnectionLost

_NAMED = re.compile(rb"^message-id:[^\n]*\\c-?\d+\\c-?\d+\\c\d+$", re.MULTILINE)
_SELECTOR_BYTES = 9000
"""Classic closes the connection at a header line of more than 10 KiB."""
_WAIT = 3.0
_POLL = 0.01


def is_unnamed(head: bytes, artemis: bool) -> bool:
    """Whether the broker cannot be sent this letter's acknowledgement. Artemis has ids for that alone."""
    return not (artemis or _NAMED.search(head))


def take(link: Link, destination: str, heads: Sequence[bytes]) -> None:
    """Remove letters that are archived, and that no consumer holds. Raises ConnectionLost when the broker
    does not give them: another consumer may have them now, and the next reading will tell."""
    for number, (selector, letters) in enumerate(_selectors([headers_of(head) for head in heads])):
        consumer = f"{link.token}-unnamed-{number}"
        select = {"destination": destination, "id": consumer, "ack": "auto", "selector": selector}
        link.request("SUBSCRIBE", select)
        heard = time.monotonic()
        while letters > 0 and time.monotonic() - heard < _WAIT:
            if frames := link.receive(_POLL):
                letters -= len(frames)
                heard = time.monotonic()
        link.request("UNSUBSCRIBE", {"id": consumer})
        if letters > 0:
            why = "the broker did not give them back to be acknowledged, so they stay in the queue"
            raise ConnectionLost(
                f"{link.place}: {letters} letter(s) of AMQP producers are archived, but {why}"
            )


def _selectors(letters: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, int]]:
    """Selectors of a length that the broker takes, and how many letters each selects."""
    clauses: list[str] = []
    size = 0
    for letter in letters:
        clause = _clause(letter)
        own = len(escape(f"{clause} OR ").encode())
        if size + own > _SELECTOR_BYTES and clauses:
            yield " OR ".join(clauses), len(clauses)
            clauses, size = [], 0
        clauses.append(clause)
        size += own
    if clauses:
        yield " OR ".join(clauses), len(clauses)


def _clause(letter: Mapping[str, str]) -> str:
    """Id and time: a letter that was sent meanwhile under an id that its producer uses again must not be
    taken. A user's property may stand in the place of the time; then the id must do."""
    quoted = letter["message-id"].replace("'", "''")
    sent = letter["timestamp"]
    at_that_time = f" AND JMSTimestamp = {sent}" if sent.isascii() and sent.isdecimal() else ""
    return f"(JMSMessageID = '{quoted}'{at_that_time})"
