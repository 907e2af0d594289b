"""Newer messages of a letter's key: what lies behind its own message in the partition that it came from.

The letter's own message is read, too. Where it lies at its offset, with its key, the log is the one that the
letter came from, and neither retention nor compaction has taken what lay behind it. A tombstone is a message.
"""

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from dlq.connectors.kafka.look.cluster import Cluster, Log, Place, Topic
from dlq.connectors.kafka.prove.search import ends, said_headers
from dlq.connectors.kafka.records.header_texts import text_of, texts_of
from dlq.connectors.kafka.republish import raw_of_record
from dlq.connectors.newer import Newer, NewerProof, NewerSearch
from dlq.core.errors import BrokerError
from dlq.core.headers.provenance import REPLAY_OF
from dlq.core.keys import KeyReader
from dlq.core.record import Record

_FETCH = 2000
_COORDINATES = re.compile(r"(.+)-([0-9]{1,9})@([0-9]{1,18})", re.DOTALL)
"""As `records` writes a message id."""


class _Letter(NamedTuple):
    number: int
    offset: int
    record_key: bytes
    key: str | None
    reads: KeyReader
    group: str | None


def find_newer(cluster: Cluster, search: NewerSearch) -> NewerProof:
    """Look through the partitions of these letters. Raises BrokerError."""
    proof = NewerProof()
    wanted = _sort(search, proof)
    topics = cluster.topics(place.topic for place in wanted)
    logs, untold = cluster.logs_and_untold([one for one in topics.values() if one.is_readable])
    scans = {log.place: _Scan(log, wanted[log.place], search, proof) for log in logs if log.place in wanted}
    for place in wanted.keys() - scans.keys():
        why = untold.get(place, f"{place} is not there, or the user lacks the right to read it (READ)")
        proof.unlooked |= {one.number: str(why) for one in wanted[place]}
    search.begin(min(search.bound.messages, sum(scan.size for scan in scans.values())))
    _look(cluster, {place: scan for place, scan in scans.items() if scan.size}, search)
    for scan in scans.values():
        scan.conclude()
    _ask_consumed(cluster, topics, scans, proof)
    return proof


def _sort(search: NewerSearch, proof: NewerProof) -> dict[Place, list[_Letter]]:
    """Return the letters by the partitions that they came from."""
    found: dict[Place, list[_Letter]] = {}
    for number, (record, reads, is_asked) in enumerate(search.letters):
        told, key = _COORDINATES.fullmatch(record.message_id or ""), _key_of(record)
        if told is not None:
            place, offset = Place(told[1], int(told[2])), int(told[3])
            proof.places[number] = str(place), offset
            if key is not None and is_asked:
                letter = _Letter(number, offset, key, record.key, reads, record.origin_group)
                found.setdefault(place, []).append(letter)
                continue
        if is_asked:
            missing = "nothing says at which offset its message was" if key else "it has no Kafka key"
            proof.unlooked[number] = missing
    return found


def _key_of(record: Record) -> bytes | None:
    """Return the message's; of a share group's pointer that of what it points to."""
    with suppress(ValueError):
        raw = raw_of_record(record)
        return (raw.original or raw).key
    return None


class _Scan:
    """What is looked for in one partition, from the first of its letters to its end now."""

    def __init__(self, log: Log, letters: Iterable[_Letter], search: NewerSearch, proof: NewerProof) -> None:
        self.log, self._died, self._proof = log, search.died, proof
        self._own: dict[int, list[_Letter]] = {}
        self.waiting: dict[bytes, list[_Letter]] = {}
        """By the record's key: those of which nothing newer was met yet."""
        for one in letters:
            self._own.setdefault(one.offset, []).append(one)
            self.waiting.setdefault(one.record_key, []).append(one)
        self.start = max(log.start, min(self._own))
        self.size = max(0, log.stable - self.start)
        self.found: list[_Letter] = []
        self.stopped = str(search.bound) if self.size else ""
        """Why what remains is not looked at; empty once the end was met."""
        self._met: set[int] = set()

    def take(self, message: Any) -> None:
        """Take the next message."""
        offset, key = message.offset(), message.key()
        for one in self._own.get(offset, ()):
            if one.record_key == key:
                self._met.add(one.number)
            else:
                why = f"another message than its own lies at offset {offset} of {self.log.place}"
                self._proof.unlooked[one.number] = why
                self._leave(one.record_key, [one])
        if older := [one for one in self.waiting.get(key, ()) if one.offset < offset]:
            replaced = self._replaced_by(message, older)
            sent = message.timestamp()[1]
            newer = Newer(str(self.log.place), offset, sent * 1000 if sent > 0 else None, None, None)
            self._proof.newer |= {one.number: newer._replace(group=one.group) for one in replaced}
            self._leave(key, replaced)
            self.found += replaced

    def _replaced_by(self, message: Any, older: Iterable[_Letter]) -> list[_Letter]:
        """Return those of a message's key; a replay of an old one replaces nothing."""
        headers, value = said_headers(message), message.value()
        if any(name == REPLAY_OF for name, _ in headers):
            return []
        texts, properties = texts_of(headers), {"key": text_of(message.key())}
        name = f"{self.log.place}@{message.offset()}"
        return [
            one
            for one in older
            if (one.group, name) not in self._died
            and (value is None or one.reads(None, texts, properties, value) == one.key)
        ]

    def _leave(self, key: bytes, letters: Iterable[_Letter]) -> None:
        gone = {one.number for one in letters}
        self.waiting[key] = [one for one in self.waiting[key] if one.number not in gone]
        if not self.waiting[key]:
            del self.waiting[key]

    def conclude(self) -> None:
        """Say of which letters it is not known that there is nothing newer."""
        log, why = self.log, self.stopped
        if not why and log.end > log.stable:
            why = f"{log.place}: an open transaction hides what lies behind offset {log.stable}"
        gone = f"{log.place} lacks its own message (retention, compaction, or a topic that was made again)"
        for letters in self.waiting.values():
            for one in letters:
                if why or one.number not in self._met:
                    self._proof.unlooked[one.number] = why or gone


def _look(cluster: Cluster, left: dict[Place, _Scan], search: NewerSearch) -> None:
    """Read until everything is found, every end is met, or the bound is reached."""
    consumer = cluster.consumer({})
    try:
        consumer.assign([TopicPartition(*place, scan.start) for place, scan in left.items()])
        heard = time.monotonic()
        while left and not search.bound.is_reached():
            messages = cluster.fetch(consumer, _FETCH)
            if messages:
                heard = time.monotonic()
            elif cluster.is_silent(heard):
                raise cluster.silence()
            for message in messages:
                place = Place(message.topic() or "", message.partition() or 0)
                if place in left:
                    _take(consumer, left, place, message)
            search.bound.take(len(messages), sum(map(len, messages)))
    except BrokerError as error:
        for scan in left.values():
            scan.stopped = str(error)
    finally:
        consumer.close()


def _take(consumer: Consumer, left: dict[Place, _Scan], place: Place, message: Any) -> None:
    """Take a message, or an event, of a partition; one that is done leaves."""
    scan, why = left[place], ""
    if message.error() is None:
        scan.take(message)
        is_done = message.offset() + 1 >= scan.log.stable or not scan.waiting
    else:
        try:
            is_done = ends(message, place, scan.log.stable)
        except BrokerError as failed:
            is_done, why = True, str(failed)
    if is_done:
        scan.stopped = why
        consumer.pause([TopicPartition(*place)])
        del left[place]


def _ask_consumed(
    cluster: Cluster, topics: Mapping[str, Topic], scans: Mapping[Place, _Scan], proof: NewerProof
) -> None:
    """Ask whether the groups that failed are past what is newer; where nobody tells, it stays unknown."""

    @cache
    def offsets_of(group: str | None, topic: str) -> Mapping[int, int]:
        with suppress(BrokerError):
            return cluster.committed_offsets([group], topics[topic]).get(group, {}) if group else {}
        return {}

    for place, scan in scans.items():
        for one in scan.found:
            at, newer = offsets_of(one.group, place.topic).get(place.partition), proof.newer[one.number]
            if at is not None:
                proof.newer[one.number] = newer._replace(is_consumed=at > newer.offset)
