"""Newer messages of a letter's key, by the indexes of its topic's brokers, which find messages by their KEYS.

The letter's own message is looked up, too: where the index shows it, the log still holds what lies behind it.
One broker keeps one log, whose positions tell what is newer; between two brokers their clocks do.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Literal, NamedTuple

from dlq.connectors.newer import Newer, NewerProof, NewerSearch
from dlq.connectors.rocketmq.link.cluster import Cluster
from dlq.connectors.rocketmq.link.connection import Link
from dlq.connectors.rocketmq.link.message import StoredMessage, parse_properties
from dlq.connectors.rocketmq.link.remoting import RequestCode
from dlq.connectors.rocketmq.look.consumers import committed_offset
from dlq.connectors.rocketmq.read.outcomes import messages_in, query_fields
from dlq.connectors.rocketmq.read.queue import MessageQueue
from dlq.connectors.rocketmq.read.snapshot import message_at, offsets_of_topic
from dlq.connectors.rocketmq.records.messages import readable_body
from dlq.core.errors import BrokerError
from dlq.core.headers.provenance import REPLAY_OF
from dlq.core.keys import KeyReader
from dlq.core.runtime import patience

_IN_FLIGHT, _PER_KEY = 64, 64
_UNIQUE = "UNIQ_KEY"
_CLOCKS_MS = 60_000
"""How far the clocks of two brokers may be apart."""


class _Letter(NamedTuple):
    number: int
    unique: str | None
    key: str
    reads: KeyReader
    group: str | None
    dead_at: int | None
    is_asked: bool


class Indexed(NamedTuple):
    """A message that an index shows."""

    node: str
    stored: StoredMessage
    """Without its body."""
    properties: Mapping[str, str]
    keys: Mapping[KeyReader, str | None]
    """Its business key, as each source reads it."""


def find_newer(cluster: Cluster, search: NewerSearch) -> NewerProof:
    """Ask the indexes for these letters. Raises BrokerError."""
    proof = NewerProof()
    by_topic = _sort(search, proof)
    masters = cluster.masters(refresh=True)
    nodes = {topic: [*cluster.route(topic)] for topic in by_topic}
    queries = sum(len(words) * len(nodes[topic]) for topic, words in by_topic.items())
    search.begin(min(search.bound.messages, queries * _PER_KEY))
    for topic, words in by_topic.items():
        up = [node for node in nodes[topic] if node in masters]
        why = str(search.bound)
        with ExitStack() as links:
            try:
                behind = "" if up == nodes[topic] else f"not every broker of {topic} is there"
                asked = _Topic(cluster, topic, search, proof, behind or _why_behind(cluster, topic))
                asked.ask({node: links.enter_context(closing(cluster.new_link(node))) for node in up}, words)
            except BrokerError as error:
                why = str(error)
        left = [one for letters in words.values() for one in letters]
        proof.unlooked |= {one.number: why for one in left if one.is_asked}
    return proof


def _sort(search: NewerSearch, proof: NewerProof) -> dict[str, dict[str, list[_Letter]]]:
    """Return the letters by topic, and by the word of KEYS under which an index has their messages: the
    business key where that is one."""
    found: dict[str, dict[str, list[_Letter]]] = {}
    for number, (record, reads, is_asked) in enumerate(search.letters):
        key = record.key or ""
        word = key if key in record.keys else next(iter(record.keys), None)
        if word and record.origin:
            group, dead_at = record.origin_group, record.dead_at
            letter = _Letter(number, record.message_id, key, reads, group, dead_at, is_asked)
            found.setdefault(record.origin, {}).setdefault(word, []).append(letter)
        elif is_asked:
            proof.unlooked[number] = "it has no KEYS, by which an index finds messages"
    return found


def _why_behind(cluster: Cluster, topic: str) -> str:
    """Return which broker's index lacks the newest message that it has of a topic; empty: none does."""
    newest: dict[str, StoredMessage] = {}
    for offsets in offsets_of_topic(cluster, topic):
        last = message_at(cluster, offsets, offsets.highest - 1) if offsets.highest > offsets.lowest else None
        node = offsets.place.node
        if last and (node not in newest or last.commit_log_offset > newest[node].commit_log_offset):
            newest[node] = last
    for node, last in newest.items():
        fields = query_fields(topic, parse_properties(last.properties).get(_UNIQUE, ""))
        for _ in patience.tries(patience.COUNTED):
            found = messages_in(node, cluster.call(node, RequestCode.QUERY_MESSAGE, fields), topic)
            if last.commit_log_offset in {one.commit_log_offset for one in found}:
                break
        else:
            return f"the index of {node} lacks the newest message of {topic}"
    return ""


class _Topic:
    """What the indexes show of one topic."""

    def __init__(
        self, cluster: Cluster, topic: str, search: NewerSearch, proof: NewerProof, why_not_all: str
    ) -> None:
        """`why_not_all`: an index that does not know all of it; empty where all do."""
        self._cluster, self._topic, self._search, self._proof = cluster, topic, search, proof
        self._why_not_all = why_not_all
        self._committed: dict[tuple[MessageQueue, str], int] = {}

    def ask(self, links: Mapping[str, Link], left: dict[str, list[_Letter]]) -> None:
        """Ask some words at a time; what is left was not looked at. Raises BrokerError."""
        while left and not self._search.bound.is_reached():
            some = [*left][:_IN_FLIGHT]
            found: dict[str, list[Indexed]] = {word: [] for word in some}
            for node, link in links.items():
                for word, stored in self._query(node, link, some):
                    found[word].append(_read_keys(node, stored, {one.reads for one in left[word]}))
            for word in some:
                for letter in left.pop(word):
                    self._judge(letter, found[word])

    def _query(self, node: str, link: Link, words: Sequence[str]) -> Iterator[tuple[str, StoredMessage]]:
        asked = {link.ask(RequestCode.QUERY_MESSAGE, query_fields(self._topic, word)): word for word in words}
        for word, answer in link.answers(asked):
            messages = messages_in(node, answer, self._topic)
            self._search.bound.take(len(messages), len(answer.body))
            yield from ((word, stored) for stored in messages)

    def _judge(self, letter: _Letter, found: Sequence[Indexed]) -> None:
        originals = [one for one in found if REPLAY_OF not in one.properties]
        own = next((one for one in originals if one.properties.get(_UNIQUE) == letter.unique), None)
        if own is not None:
            self._proof.places[letter.number] = own.node, own.stored.commit_log_offset
        if not letter.is_asked:
            return
        ages = [(one, age(one, own, letter.dead_at)) for one in originals if self._may_replace(one, letter)]
        newer = [one for one, age in ages if age == "newer"]
        if newer:
            first = min(newer, key=lambda one: one.stored.stored_at)
            self._proof.newer[letter.number] = self._newer(first, letter.group)
        elif own is None:
            self._proof.unlooked[letter.number] = "no index shows its own message (retention, or no index)"
        elif self._why_not_all or any(age is None for _, age in ages):
            why = f"{self._topic}: another broker has one of its key, stored at the same time or so"
            self._proof.unlooked[letter.number] = self._why_not_all or why

    def _may_replace(self, one: Indexed, letter: _Letter) -> bool:
        unique = one.properties.get(_UNIQUE, "")
        is_alive = unique != letter.unique and (letter.group, unique) not in self._search.died
        return is_alive and one.keys[letter.reads] == letter.key

    def _newer(self, one: Indexed, group: str | None) -> Newer:
        stored, place = one.stored, MessageQueue(self._topic, one.node, one.stored.queue_id)
        if group and (place, group) not in self._committed:
            with suppress(BrokerError):
                self._committed[place, group] = committed_offset(self._cluster, place, group)
        reached = self._committed.get((place, group or ""))
        consumed = None if reached is None else reached > stored.queue_offset
        return Newer(str(place), stored.queue_offset, stored.born_at * 1000, group, consumed)


def _read_keys(node: str, stored: StoredMessage, readers: Collection[KeyReader]) -> Indexed:
    has, body = parse_properties(stored.properties), readable_body(stored.body, stored.sys_flag)
    keys = {reads: reads(has.get(_UNIQUE), {}, has, body) for reads in readers}
    return Indexed(node, stored._replace(body=b""), has, keys)


def age(one: Indexed, own: Indexed | None, dead_at: int | None) -> Literal["newer", "older"] | None:
    """Return None: nothing proves whether it is newer than a letter, of which `own` is the message."""
    if own is not None and own.node == one.node:
        is_behind = one.stored.commit_log_offset > own.stored.commit_log_offset
        return "newer" if is_behind else "older"
    known = own.stored.stored_at if own else None if dead_at is None else dead_at // 1000
    if known is not None and one.stored.stored_at > known + _CLOCKS_MS:
        return "newer"
    return "older" if own and one.stored.stored_at < own.stored.stored_at - _CLOCKS_MS else None
