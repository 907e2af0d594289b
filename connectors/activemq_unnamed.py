"""Letters that no STOMP acknowledgement can name: those of AMQP producers on Classic.

Classic (5.18.6, 6.3.1) reads the id of an ACK as one that it has made itself, session, producer and number
at its end. An AMQP producer's id is another, and an ACK of it ends the connection. A cumulative ACK of a
later letter covers them; where none comes, they are archived first and then taken by a consumer that
acknowledges by itself and selects them by id and time, so that no other letter comes to it.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence

from dlq.connectors.activemq_link import Link
from dlq.connectors.stomp_frames import headers_of
from dlq.core.errors import ConnectionLost

_NAMED = re.compile(rb"^message-id:[^\n]*\\c-?\d+\\c-?\d+\\c\d+$", re.MULTILINE)
_SELECTOR_BYTES = 4000
"""Classic closes the connection at a header line of more than 10 KiB, after escaping."""
_WAIT = 3.0
_POLL = 0.05


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
            raise ConnectionLost(
                f"{link.place}: {letters} archived letter(s) of AMQP producers did not come back"
            )


def _selectors(letters: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, int]]:
    """Selectors of a length that the broker takes, and how many letters each selects. The time keeps out
    a letter that was sent meanwhile under an id that its producer uses again."""
    ids: list[str] = []
    times: list[int] = []
    for at, letter in enumerate(letters, 1):
        ids.append("'{}'".format(letter["message-id"].replace("'", "''")))
        times.append(int(letter["timestamp"]))
        if at == len(letters) or sum(map(len, ids)) > _SELECTOR_BYTES:
            yield (
                f"JMSMessageID IN ({','.join(ids)}) AND JMSTimestamp BETWEEN {min(times)} AND {max(times)}",
                len(ids),
            )
            ids, times = [], []
