"""Did a replay arrive? What came to its target's queues since the plan was begun is looked through. An index
may show that a letter is there, and never that it is not."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Literal

from dlq.connectors.base import Outgoing, Proof, Search
from dlq.connectors.proving import decide, decide_by_place
from dlq.connectors.rocketmq.link.cluster import Cluster
from dlq.connectors.rocketmq.link.message import StoredMessage, parse_properties
from dlq.connectors.rocketmq.link.remoting import ProtocolError
from dlq.connectors.rocketmq.prove.start_offsets import Range, Since
from dlq.connectors.rocketmq.read.outcomes import Key, by_unique_key
from dlq.connectors.rocketmq.read.queue import MessageQueue
from dlq.connectors.rocketmq.read.snapshot import all_messages
from dlq.connectors.rocketmq.records.bodies import plain_body
from dlq.connectors.rocketmq.republish import RESUME, UNIQUE_KEY, message_of, topic_of, unique_key_of
from dlq.core.errors import BrokerError
from dlq.core.headers.provenance import REPLAY_ID
from dlq.core.runtime import patience

_MOST = 5_000_000
"""Messages that are looked through: a minute or so."""
_Match = Literal["whole", "cut"]
_NAMELESS = "a half message that was resumed has no UNIQ_KEY, by which its new copy would be known"


def find(cluster: Cluster, search: Search) -> Proof:
    """Return whether a broker holds each letter. `not_sent` needs the queues of every broker that could have
    taken it (`search.before`: see `bounds`), whole since then.

    A broker that was killed while it wrote a message keeps the start of it: body whole, properties cut. Which
    letter that is, nothing proves.
    """
    since = Since(cluster, search.before, search.since)
    known = _Known(cluster, since)
    known.ask_indexes(search.letters)
    if known.list_missing(search.letters):
        time.sleep(patience.SETTLED)
    proof = decide_by_place(search.letters, lambda letter: topic_of(letter.target), known.look_through)
    return replace(proof, is_another=since.is_another)


class _Known:
    """What is known by now of the letters that are looked for, by their numbers."""

    def __init__(self, cluster: Cluster, since: Since) -> None:
        self._cluster, self._since = cluster, since
        self._seen = set[int]()
        self._cut: dict[int, str] = {}
        """Those that a cut message may be, and where it lies."""

    def list_missing(self, letters: Iterable[Outgoing]) -> list[Outgoing]:
        """Return those that were not seen yet."""
        return [letter for letter in letters if letter.number not in self._seen]

    def ask_indexes(self, letters: Sequence[Outgoing]) -> None:
        """Ask the indexes. A broker that does not answer is looked through, or is a doubt then."""
        for node in self._cluster.masters():
            with suppress(BrokerError), closing(self._cluster.new_link(node)) as link:
                for letter, message in by_unique_key(link, node, self.list_missing(letters), _key_of):
                    self._take(message, node, [letter])

    def look_through(self, topic: str, letters: Sequence[Outgoing]) -> Proof:
        """Look through every queue that could have taken what is missing."""
        doubts: list[str] = []
        if missing := self.list_missing(letters):
            ranges, doubts = self._since.look(topic)
            doubts += [*self._read(ranges, missing), *self._since.why_changed()]
        own = {number: why for number, why in self._cut.items() if number not in self._seen}
        own |= {letter.number: _NAMELESS for letter in letters if _is_nameless(letter)}
        return decide(letters, self._seen, doubts, own)

    def _read(self, ranges: Sequence[Range], letters: Sequence[Outgoing]) -> list[str]:
        """Return why these ranges do not hold all that came."""
        if sum(max(0, one.offsets.highest - one.first) for one in ranges) > _MOST:
            return [f"more than {_MOST:,} messages were stored since the plan was begun"]
        wanted, doubts = _Wanted(letters), list[str]()
        for one in ranges:
            place = one.offsets.place
            try:
                for message in all_messages(self._cluster, one.offsets, one.first, one.offsets.highest):
                    self._take(message, place.node, wanted.candidates_for(message))
            except (BrokerError, ProtocolError) as error:
                doubts.append(f"{place}: {error}")
        return doubts

    def _take(self, message: StoredMessage, node: str, letters: Iterable[Outgoing]) -> None:
        place = MessageQueue(message.topic, node, message.queue_id)
        for letter in letters:
            match = _match(message, letter, self._since.end_of(place))
            if match == "whole":
                self._seen.add(letter.number)
            elif match == "cut":
                self._cut[letter.number] = (
                    f"{place}: the message at offset {message.queue_offset} is cut, as a kill leaves one "
                    "that is being written; it has the body of a letter in doubt"
                )


class _Wanted:
    """Letters by what a stored message may have of them."""

    def __init__(self, letters: Iterable[Outgoing]) -> None:
        self._by_mark: dict[str, list[Outgoing]] = defaultdict(list)
        self._by_body: dict[bytes, list[Outgoing]] = defaultdict(list)
        for letter in letters:
            self._by_mark[_mark_of(letter)].append(letter)
            for body in _bodies(letter):
                self._by_body[body].append(letter)

    def candidates_for(self, message: StoredMessage) -> Sequence[Outgoing]:
        """Return those that `message` may be."""
        if b"\0" in message.properties:
            return self._by_body.get(message.body, ())
        properties = parse_properties(message.properties)
        marks = {properties.get(REPLAY_ID), properties.get(UNIQUE_KEY)}
        return [letter for mark in marks if mark for letter in self._by_mark.get(mark, ())]


def _key_of(letter: Outgoing) -> Key:
    return topic_of(letter.target), unique_key_of(letter)


def _mark_of(letter: Outgoing) -> str:
    return unique_key_of(letter) if letter.target.kind == RESUME else letter.provenance[REPLAY_ID]


def _is_nameless(letter: Outgoing) -> bool:
    """Return whether nothing tells the new copy of a half message, which has its properties, from others."""
    return letter.target.kind == RESUME and unique_key_of(letter) == letter.provenance[REPLAY_ID].upper()


def _bodies(letter: Outgoing) -> set[bytes]:
    """Return the body as it was sent; and plain, as some brokers store a half message again."""
    record = letter.record
    if letter.target.kind != RESUME:
        return {record.body}
    with suppress(ProtocolError):
        return {record.body, plain_body(record.body, record.flags or 0)}
    return {record.body}


def _match(message: StoredMessage, letter: Outgoing, ended: int | None) -> _Match | None:
    """`ended`: where the message's queue ended before the plan was begun, where that is known."""
    has, is_cut = parse_properties(message.properties), b"\0" in message.properties
    if letter.target.kind == RESUME:
        is_new = ended is not None and message.queue_offset >= ended
        is_ours = is_new and _is_fresh_copy(has, letter)
    else:
        is_new = ended is None or message.queue_offset >= ended
        is_ours = has.get(REPLAY_ID) == letter.provenance[REPLAY_ID]
        is_cut = is_cut and not _has_all(has, letter)
    if not is_cut:
        return "whole" if is_ours else None
    return "cut" if is_ours or (is_new and message.body in _bodies(letter)) else None


def _is_fresh_copy(has: Mapping[str, str], letter: Outgoing) -> bool:
    """Return whether a message is a fresh copy of a half message whose check was resumed."""
    return has.get(UNIQUE_KEY) == unique_key_of(letter) and has.get("TRANSACTION_CHECK_TIMES") == "0"


def _has_all(has: Mapping[str, str], letter: Outgoing) -> bool:
    """Return whether nothing is missing of what was sent; brokers drop empty values."""
    sent = message_of(letter).properties
    return all(has.get(name) == value for name, value in sent.items() if value)
