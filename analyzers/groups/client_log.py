"""The consumer's own log beside the letters: which suppression left which letter, and which left none.

A line that poison-acks names message and consumer before any text of users, all in its first line, so
logs are read line by line in parallel, however long a record is. Layouts put stamp and logger before or
behind the message, with or without a date, so that no stamp is read: the join leans on the message id
and the consumer id, the time on `brokerOutTime`, which every dispatch carries. Which reconnect a suppression
follows is told by the order of the lines in their file.

Java (seen from 5.18.6 to 6.3.1) and .NET (Apache.NMS.ActiveMQ, by its source: `MessageConsumer.cs`,
`MessageDispatch.cs`, `Message.cs`, `FailoverTransport.cs`) write the same words, but .NET writes the fields
of a message with nothing between them. The C++ client logs no suppression.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dlq.analyzers.groups.bursts import LogLine, key_of_line
from dlq.analyzers.groups.classified import Classified, Key
from dlq.analyzers.groups.contract import Context, Member, Reduced, Relation, Said
from dlq.analyzers.groups.values import highest, in_order

CUT_SHORT = "it can't be read to its end; wait until it is written and packed"
STATES = ("explained", "letters_without_line", "lines_without_letter")

ACKED = (
    r"suppressing duplicate delivery on connection, poison acking: "
    r"|Duplicate non transacted dispatch to consumer: \S+, poison acking: "
    r"|acking duplicate delivery as poison, redelivery must be pending to another consumer"
)
_DISPATCH = rf"(?:{ACKED}).*?MessageDispatch(?: \{{|\[)(.*)$"
"""The first one behind these words: the message's own text comes later and may say the same."""
_MESSAGE_ID = r"(?:(?<![A-Za-z])messageId = |MessageId=)([^,}]+?)(?=[,}]|OriginalTransactionId=|$)"
_CONSUMER_ID = r"(?<![A-Za-z])[cC]onsumerId = ([^,} ]+)"
_DESTINATION = r"(?<![A-Za-z])[dD]estination = ([^,}]+?)(?=[,}]| Message = |$)"
_OUT_TIMES = (r"(?<![A-Za-z])brokerOutTime = (\d{1,15})", r"BrokerInTime=\d{1,15}BrokerOutTime=(\d{1,15})\]")
"""Java's stands before what users write, .NET's behind."""
FAILED = r"Transport (?:\(|failed to )([^), ]{1,200})(?:\) failed| ?, attempting)"
RECONNECTED = r"Successfully reconnected to:? (?:backup )?(\S{1,200})"
"""The failover transport, in the same log, before its connection's consumers suppress anything."""
_BEFORE_USER_TEXT = r"^(.*?)(?:, correlationId = |, properties = |GroupID=|$)"
"""What follows is written by users and may look like any field."""


class Line(NamedTuple):
    """A poison ack in a log. `at_ms`: when the broker dispatched the message last, in milliseconds; the
    addresses are those of the failed transport and of the reconnect before it in its file."""

    message_id: str
    consumer_id: str
    destination: str
    at_ms: int | None
    failed: str | None
    reconnected: str | None


class Joined(NamedTuple):
    """A row of the archive's table: a letter and a line, or one without the other."""

    state: str
    record_id: str | None
    message_id: str | None
    consumer_id: str | None
    destination: str | None
    time: int | None
    failed_transport: str | None
    reconnected_to: str | None


_IS_ACKED, _IS_DISPATCH, _IS_FAILED, _IS_RECONNECTED = map(
    re.compile, (ACKED, _DISPATCH, FAILED, RECONNECTED)
)
_KNOWN = re.compile(_BEFORE_USER_TEXT)
_FIELDS = tuple(map(re.compile, (_MESSAGE_ID, _CONSUMER_ID, _DESTINATION)))
_TIMES = tuple(map(re.compile, _OUT_TIMES))


def read(log: Iterable[str]) -> Iterator[Line]:
    """Yield the poison acks among the lines of one log, in their order."""
    failed = reconnected = None
    for text in log:
        if "MessageDispatch" in text and _IS_ACKED.search(text):
            if line := _line(text, failed, reconnected):
                yield line
        else:
            failed = _search(_IS_FAILED, text) or failed
            reconnected = _search(_IS_RECONNECTED, text) or reconnected


def _line(text: str, failed: str | None, reconnected: str | None) -> Line | None:
    dispatch = _search(_IS_DISPATCH, text) or ""
    before = _search(_KNOWN, dispatch) or ""
    message_id, consumer_id, destination = (_search(field, before) or "" for field in _FIELDS)
    times = (_search(at, where) for at, where in zip(_TIMES, (before, dispatch), strict=True))
    at = next((int(time) for time in times if time), None)
    return Line(message_id, consumer_id, destination, at, failed, reconnected) if message_id else None


def _search(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[1] if match else None


def join(letters: Iterable[Classified], lines: Iterable[Line]) -> list[Joined]:
    """Put suppressed duplicates and lines side by side. Of several lines of one message and consumer the last
    dispatch counts."""
    newest: dict[tuple[str, str], Line] = {}
    for line in lines:
        key = (line.message_id, line.consumer_id)
        before = newest.get(key, line)
        last = max(line, before, key=lambda one: in_order(one.at_ms))
        newest[key] = last._replace(destination=before.destination)
    of_message: dict[str, list[Line]] = defaultdict(list)
    for line in newest.values():
        of_message[line.message_id].append(line)
    joined: list[Joined] = []
    met: set[tuple[str, str]] = set()
    for letter in letters:
        if letter.cause == "suppressed_duplicate":
            mine = [
                line
                for line in of_message.get(letter.message_id or "", ())
                if letter.consumer_id in (None, line.consumer_id)
            ]
            met.update((line.message_id, line.consumer_id) for line in mine)
            joined.extend(_join(letter, line) for line in mine or (None,))
    joined.extend(_join(None, line) for key, line in newest.items() if key not in met)
    return joined


def _join(letter: Classified | None, line: Line | None) -> Joined:
    explained, without_line, without_letter = STATES
    return Joined(
        without_letter if letter is None else without_line if line is None else explained,
        letter and letter.record_id,
        (letter and letter.message_id) or (line and line.message_id),
        (letter and letter.consumer_id) or (line and line.consumer_id),
        line and line.destination,
        None if line is None or line.at_ms is None else line.at_ms * 1000,
        line and line.failed,
        line and line.reconnected,
    )


def members(lines: Iterable[Line]) -> Iterator[Member]:
    """Return what logs say under the keys of their messages."""
    return (Member(("line", line.message_id), (), line) for line in lines)


def _members(letters: Iterable[Classified], context: Context, _said: Said) -> Iterator[Member]:
    if context.has_logs:
        for one in letters:
            if one.cause == "suppressed_duplicate":
                yield Member(key_of_line(one), (), one)


def _reduce(_key: Key, told: Iterator[Classified | Line], _context: Context) -> Iterator[Reduced]:
    letters: list[Classified] = []
    lines: list[Line] = []
    for one in told:
        if isinstance(one, Line):
            lines.append(one)
        else:
            letters.append(one)
    joined = join(letters, lines)
    yield Reduced(of_letters(joined), [("client_log", one._asdict()) for one in joined])


def of_letters(joined: Iterable[Joined]) -> dict[str, LogLine]:
    """Record id -> what the logs say of that letter."""
    found: dict[str, LogLine] = {}
    for one in joined:
        if one.record_id is not None:
            before = found.get(one.record_id, LogLine(None, None, None))
            found[one.record_id] = LogLine(
                highest(before.time, one.time),
                highest(before.failed, one.failed_transport),
                highest(before.reconnected, one.reconnected_to),
            )
    return found


def counts(states: Mapping[str | None, int]) -> dict[str, int]:
    """Return how many letters and lines have each state."""
    return {state: states.get(state, 0) for state in STATES}


LINES = Relation(("line",), _members, _reduce, may_be_any=lambda context: context.has_logs)
