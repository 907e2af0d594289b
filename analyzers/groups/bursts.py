"""Bursts of suppressed duplicates: what one failover of one client connection left in the DLQs.

After a reconnect the broker sends again what was not acknowledged; the client's connection audit takes
it for duplicates and poison-acks it. The text is the same for a message that was processed and for one
that never reached the listener, so that no letter proves either: each is told what it shows, and sent
to be looked at. Seen on 5.17, 5.18, 5.19 and 6.3.

The audit's arithmetic (ActiveMQMessageAuditNoSync, BitArrayBin; 2048 ids rounded up to 33 arrays of 64
bits, 64 producers): setting the newest id of a producer forgets all below the arrays that remain. A
letter so far behind cannot have been recognised, so something else is wrong with it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from dlq.analyzers.groups import contract
from dlq.analyzers.groups.classified import Classified, Key, Sharing
from dlq.analyzers.groups.contract import Context, OwnRows, Reduced, Relation, Said
from dlq.analyzers.groups.values import highest, in_order, join_known, lowest, millisecond

_AUDIT_ARRAYS = 33
_AUDIT_BITS = 64
_AUDIT_PRODUCERS = 64
DEFAULT_PREFETCH = 1000
"""ActiveMQPrefetchPolicy, queues: no more can be on their way to one consumer at a cut."""

_CUT_SECONDS = 300
"""Suppressions of a connection that lie further apart, by the client's log, are of different reconnects: a
failover connection keeps its id over all of them."""

FIRST = (
    "the first of its consumer's range, which the listener had in hand at the cut: such letters were often "
    "processed"
)
BEHIND = (
    "behind the first of its range: such letters were often never processed, but unsent acknowledgements "
    "(optimizeAcknowledge, INDIVIDUAL_ACK) leave processed ones here too"
)
_IMPOSSIBLE = (
    "no audit could have known it: it is further behind its producer's newest id than an audit remembers; "
    "look for another fault"
)
_IF_ONE = "if all of its burst died at one reconnect, "
"""Without the client's log nothing tells the reconnects of a connection apart."""
_CROWDED = "its burst has more producers than an audit remembers (64): some of them it cannot have known"
_LARGE = ", more than the default prefetch, so of several reconnects or a larger prefetch"
_LOOK = "The text proves neither: look its business data up before it is sent"


class Standing(NamedTuple):
    """Where a suppressed letter stands in its burst."""

    connection_id: str
    burst_size: int
    consumers: int
    producers: int
    """Of the letters of its queue in the burst."""
    producer_seq: int | None
    newest: int | None
    """Of its producer and queue in the burst; `oldest`: and of its consumer."""
    oldest: int | None
    first_seq: int | None
    """The range of its producer's letters without a gap that it is of."""
    last_seq: int | None
    log_time: int | None = None
    """By the client's log, if that has a line of it."""
    burst_from: int | None = None
    """The first of those times in the burst."""
    failed: str | None = None
    reconnected: str | None = None


def burst_id(broker: str | None, connection_id: str, cut: int | None) -> str:
    """`cut`: which reconnect of its connection, from 1; None for the first, and where no log tells."""
    text = join_known((broker, connection_id, None if cut is None else str(cut)), "|")
    return f"amq-{sha256(text.encode()).hexdigest()[:12]}"


def oldest_known(newest: int) -> int:
    """Return the lowest sequence id of a producer that an audit can still know after it has seen `newest`."""
    return max(0, (newest // _AUDIT_BITS - (_AUDIT_ARRAYS - 1)) * _AUDIT_BITS)


def _is_beyond_prefetch(letters: int, consumers: int) -> bool:
    """Return whether these are more letters than so many consumers can have held by default."""
    return letters > consumers * DEFAULT_PREFETCH


def reason(of: Standing) -> str:
    """Return what a letter of a burst shows, and that it proves nothing."""
    return f"{_burst(of)}{_by_log(of)}{_range(of)}; {_shows(of)}. {_LOOK}"


def _burst(of: Standing) -> str:
    consumers = f" ({of.consumers} consumers)" if of.consumers > 1 else ""
    large = _LARGE if _is_beyond_prefetch(of.burst_size, of.consumers) else ""
    return f"one of {of.burst_size} letters suppressed on connection {of.connection_id}{consumers}{large}"


def _by_log(of: Standing) -> str:
    if of.burst_from is None:
        return ""
    failed = "" if of.failed is None else f", after {of.failed} had failed"
    reconnected = "" if of.reconnected is None else f" and it had reconnected to {of.reconnected}"
    return f"; by the client's log from {millisecond(of.burst_from)}{failed}{reconnected}"


def _range(of: Standing) -> str:
    if of.first_seq is None or of.last_seq is None or of.last_seq <= of.first_seq:
        return ""
    return f"; its producer's {of.first_seq} to {of.last_seq} came without a gap"


def _shows(of: Standing) -> str:
    if of.producer_seq is not None and of.newest is not None and of.producer_seq < oldest_known(of.newest):
        return _IMPOSSIBLE if of.log_time is not None else f"{_IF_ONE}{_IMPOSSIBLE}"
    if of.producers > _AUDIT_PRODUCERS:
        return _CROWDED
    return FIRST if of.producer_seq is not None and of.producer_seq == of.oldest else BEHIND


class LogLine(NamedTuple):
    """What the consumers' logs say of a letter."""

    time: int | None
    failed: str | None
    reconnected: str | None


class _Member(NamedTuple):
    """A letter of a burst, and where it stands there."""

    letter: Classified
    burst_id: str
    standing: Standing


_NO_LINE = LogLine(None, None, None)


def keys(letter: Sharing) -> Iterator[Key]:
    """Yield the connection on which a letter was suppressed."""
    if letter.connection_id is not None:
        yield "connection", letter.broker, letter.connection_id


def _members(letters: Iterable[Classified], _context: Context, said: Said) -> Iterator[contract.Member]:
    for one in letters:
        if one.is_of_burst:
            line = said.get(key_of_line(one), {}).get(one.record_id, _NO_LINE)
            yield contract.Member(_key_of(one), (), (one, line))


def key_of_line(letter: Classified) -> Key:
    """Return the key by which lines of clients' logs belong to a letter."""
    return "line", letter.message_id or ""


def _key_of(letter: Classified) -> Key:
    return "connection", letter.broker, letter.connection_id or ""


def _reduce(key: Key, told: Iterator[tuple[Classified, LogLine]], _context: Context) -> Iterator[Reduced]:
    """Yield the bursts of a connection, whose letters are all in memory at once."""
    lines = list(told)
    members = find(str(key[1]), str(key[2]), lines)
    rows = [(table, row) for row in map(incident_of, bursts(members)) for table in ("bursts", "incidents")]
    yield Reduced({one.letter.identity: (one.burst_id, one.standing) for one in members}, rows)


def find(broker: str, connection: str, told: Sequence[tuple[Classified, LogLine]]) -> list[_Member]:
    """Return the suppressed duplicates of a connection, each with its line, and with its burst."""
    log = {one.record_id: line for one, line in told}
    return [
        member
        for cut, burst in _by_cut([one for one, _ in told], log)
        for member in _standings(burst_id(broker, connection, cut), connection, burst, log)
    ]


def conclude(letter: Classified, said: Said, _context: Context) -> Classified:
    """Return a letter's burst, and what it says of it by where it stands there."""
    found = said.get(_key_of(letter), {}).get(letter.identity) if letter.is_of_burst else None
    if found is None:
        return letter
    name, standing = found
    return letter._replace(incident_id=name, burst_reason=reason(standing))


def _by_cut(
    members: Iterable[Classified], log: Mapping[str, LogLine]
) -> Iterator[tuple[int | None, list[Classified]]]:
    """Return the letters of each reconnect of a connection, which is counted from 1; None for the first, and
    where no log tells."""
    cuts: dict[int, list[Classified]] = defaultdict(list)
    cut, last = 0, None
    for one in sorted(members, key=lambda one: in_order(log.get(one.record_id, _NO_LINE).time)):
        at = log.get(one.record_id, _NO_LINE).time
        if at is not None:
            cut += last is not None and at // 1_000_000 - last > _CUT_SECONDS
            last = at // 1_000_000
        cuts[cut].append(one)
    return ((cut or None, burst) for cut, burst in cuts.items())


def _standings(
    name: str, connection: str, burst: Sequence[Classified], log: Mapping[str, LogLine]
) -> Iterator[_Member]:
    lines = {one.record_id: log.get(one.record_id, _NO_LINE) for one in burst}
    of_queue: dict[str | None, set[str | None]] = defaultdict(set)
    numbers: dict[tuple[str | None, str | None], set[int]] = defaultdict(set)
    of_consumer: dict[tuple[str | None, str | None, str | None], int] = {}
    for one in burst:
        of_queue[one.origin].add(one.producer_id)
        if one.producer_seq is not None:
            numbers[one.origin, one.producer_id].add(one.producer_seq)
            place = (one.origin, one.producer_id, one.consumer_id)
            of_consumer[place] = min(one.producer_seq, of_consumer.get(place, one.producer_seq))
    ranges = {place: _ranges(found) for place, found in numbers.items()}
    newest = {place: max(found) for place, found in numbers.items()}
    producers = {origin: len(found - {None}) for origin, found in of_queue.items()}
    consumers = len({one.consumer_id for one in burst} - {None})
    first_time = min((line.time for line in lines.values() if line.time is not None), default=None)
    failed = min((line.failed for line in lines.values() if line.failed is not None), default=None)
    back = min((line.reconnected for line in lines.values() if line.reconnected is not None), default=None)
    for one in burst:
        line, producer = lines[one.record_id], (one.origin, one.producer_id)
        first, last = ranges.get(producer, {}).get(one.producer_seq, (None, None))
        standing = Standing(
            connection,
            len(burst),
            consumers,
            producers[one.origin],
            one.producer_seq,
            newest.get(producer),
            of_consumer.get((*producer, one.consumer_id)),
            first,
            last,
            line.time,
            first_time,
            line.failed if line.failed is not None else failed,
            line.reconnected if line.reconnected is not None else back,
        )
        yield _Member(one, name, standing)


def _ranges(numbers: Iterable[int]) -> dict[int | None, tuple[int | None, int | None]]:
    """Number -> the first and the last of those that follow each other without a gap around it."""
    found: dict[int | None, tuple[int | None, int | None]] = {}
    run: list[int] = []
    for number in [*sorted(numbers), None]:
        if run and (number is None or number != run[-1] + 1):
            found.update(dict.fromkeys(run, (run[0], run[-1])))
            run = []
        if number is not None:
            run.append(number)
    return found


class Burst(NamedTuple):
    """A burst as rows of two tables of the archive. A letter of Classic does not say when it died: the
    client's log does, else only the times of publishing are known, or none."""

    incident_id: str
    start: int | None
    end: int | None
    size: int
    sources: list[str]
    causes: list[str]
    fingerprint: str
    first_record_id: str | None
    broker: str
    connection_id: str
    origins: list[str]
    consumers: list[str]
    producers: list[str]
    ranges: list[str]
    beyond_prefetch: bool


def bursts(members: Iterable[_Member]) -> list[Burst]:
    """Return the bursts that letters are of."""
    grouped: dict[str, list[_Member]] = defaultdict(list)
    for member in members:
        grouped[member.burst_id].append(member)
    return [_come_to(name, of_one) for name, of_one in grouped.items()]


def incident_of(burst: Burst) -> dict[str, Any]:
    """Return a burst as a row of the incidents, and what it is beside."""
    return {**burst._asdict(), "peak": burst.start, "ongoing": False, "new": True}


def _come_to(name: str, members: Sequence[_Member]) -> Burst:
    letters = [member.letter for member in members]
    start = end = born_first = born_last = None
    for letter, _, standing in members:
        died = letter.dead_at if letter.dead_at is not None else standing.log_time
        start, end = lowest(start, died), highest(end, died)
        born_first = lowest(born_first, letter.published_at)
        born_last = highest(born_last, letter.published_at)
    numbered = [(one.producer_seq, one.record_id) for one in letters if one.producer_seq is not None]
    consumers = _names(one.consumer_id for one in letters)
    return Burst(
        name,
        born_first if start is None else start,
        born_last if end is None else end,
        len(letters),
        _names(one.source for one in letters),
        _names(one.cause for one in letters),
        min(one.fingerprint for one in letters),
        min(numbered)[1] if numbered else None,
        min(one.broker for one in letters),
        members[0].standing.connection_id,
        _names(one.origin for one in letters),
        consumers,
        _names(one.producer_id for one in letters),
        [text for _, _, text in sorted(set(_texts(members)))],
        _is_beyond_prefetch(len(letters), len(consumers)),
    )


def _texts(members: Iterable[_Member]) -> Iterator[tuple[str, int, str]]:
    """Yield each range as `PRODUCER:40-42`, to be sorted by producer and number."""
    for letter, _, (_, _, _, _, _, _, _, first, last, *_) in members:
        if first is not None and letter.producer_id is not None:
            to = f"-{last}" if last is not None and last > first else ""
            yield letter.producer_id, first, f"{letter.producer_id}:{first}{to}"


def _names(values: Iterable[str | None]) -> list[str]:
    return sorted({value for value in values if value is not None})


BURSTS = Relation(
    ("connection",),
    _members,
    _reduce,
    conclude,
    column="connection_id",
    rows=OwnRows("bursts", ("broker", "connection_id")),
    keys=keys,
)
