"""Dead letters of share groups (KIP-1191): by default a pointer to the record that died, without its body.

It is looked up while it is read, before retention takes the original. A pointer has no topic id, and offsets
mean other records in a topic that was made again or mirrored; so an original counts only where it lies
exactly at the offset, is not younger than the pointer, and its topic is not known to have been made after it.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from dlq.connectors.base import Checkpoint
from dlq.connectors.jsonl.values import count_of
from dlq.connectors.kafka.link.fetch import Unreadable
from dlq.connectors.kafka.look.cluster import Cluster, Place, Topic
from dlq.connectors.kafka.read.odd_headers import OddHeaders
from dlq.connectors.kafka.records.columns import Letters, Original, raw_of
from dlq.connectors.kafka.records.header_texts import texts_of
from dlq.core.errors import AccessDenied, BrokerError
from dlq.core.headers.kafka_headers import SHARE_GROUP
from dlq.core.runtime import patience

_GONE = "gone: the original was deleted (retention)"
_COMPACTED = "gone: the original was compacted away"
_NO_TOPIC = "gone: its topic does not exist here"
_NO_PARTITION = "gone: its topic has no such partition"
_FORBIDDEN = "not read: the user may not see its topic (DESCRIBE)"
_UNCLEAR = "not proven: what it says of its original cannot be read"
_YOUNGER = "not proven: what lies there now is younger than the dead letter"
_REMADE = "not proven: its topic was deleted and made again"
_OTHER = "not proven: what lies there has another key or value than the dead letter"
_UNREADABLE = "not read: its headers are no UTF-8, and could not be read otherwise"
_SEEN = "#seen "
"""Before topic@cluster/id in a checkpoint: when a topic was first seen, in milliseconds."""


class Pointers:
    """What the pointers of one reading lead to."""

    def __init__(self, cluster: Cluster, resume: Checkpoint, moment: int) -> None:
        """`resume`: what earlier pulls saw; `moment`: now, in milliseconds."""
        self._cluster, self._resume, self._moment = cluster, resume, moment
        self._topics: dict[str, Topic | str] = {}
        """In words why there is none."""
        self._news: dict[str, int] = {}
        self._ahead: list[Any] = []
        self._has_waited = False
        self._headers = OddHeaders(cluster)

    def originals_of(self, letters: Letters) -> dict[int, Original]:
        """Number among `letters` -> its original, of those that are dead letters of share groups."""
        self._has_waited = False
        found: dict[int, Original] = {}
        wanted: dict[Place, dict[int, list[int]]] = {}
        for number in letters.pointers():
            place, offset = _place(texts_of(letters.headers[number]))
            if why_not := self._why_none(place):
                found[number] = Original(why_not=why_not)
            else:
                wanted.setdefault(place, {}).setdefault(offset, []).append(number)
        for place, numbers in wanted.items():
            for offset, message in self._fetch(place, sorted(numbers)).items():
                for number in numbers[offset]:
                    found[number] = self._check_original(letters, number, message)
        return found

    def first_seen(self) -> Checkpoint:
        """Return what the checkpoint is to remember: when topics were first seen under their ids."""
        news, self._news = self._news, {}
        return news

    def close(self) -> None:
        """Drop the connections."""
        self._headers.close()
        if "_consumer" in self.__dict__:
            self._consumer.close()
            del self._consumer

    @cached_property
    def _consumer(self) -> Consumer:
        return self._cluster.consumer({"queued.max.messages.kbytes": 4096}, committed=False)

    def _why_none(self, place: Place) -> str:
        """Return why no record can lie there; empty where one may."""
        if not place.topic:
            return _UNCLEAR
        topic = self._topic(place.topic)
        if not isinstance(topic, Topic):
            return topic
        return "" if place.partition < topic.partitions else _NO_PARTITION

    def _topic(self, name: str) -> Topic | str:
        if name not in self._topics:
            topic = self._topics[name] = self._find(name)
            if isinstance(topic, Topic) and (key := self._key(topic)) not in self._resume:
                self._news[key] = self._moment
        return self._topics[name]

    def _find(self, name: str) -> Topic | str:
        """Describe a topic, or say why not. One that is not there is waited for once a batch: whoever writes
        letters may name as many as he likes."""
        cluster = self._cluster
        try:
            found = cluster.topics([name]).get(name) if self._has_waited else cluster.find_topic(name)
        except AccessDenied:
            return _FORBIDDEN
        self._has_waited = self._has_waited or found is None
        return found or _NO_TOPIC

    def _key(self, topic: Topic) -> str:
        return f"{_SEEN}{topic.name}@{self._cluster.id}/{topic.id}"

    def _is_remade(self, name: str, moment: int) -> bool:
        """Return whether another topic of that name was there before, and this one was first seen after
        `moment`."""
        topic = self._topic(name)
        mine = self._key(topic) if isinstance(topic, Topic) else ""
        others = {key for key in self._resume if key.startswith(f"{_SEEN}{name}@{self._cluster.id}/")}
        return bool(others - {mine}) and moment < self._resume.get(mine, self._moment)

    def _check_original(self, letters: Letters, number: int, message: Any) -> Original:
        """Return the message, where it is proven to be the one that the letter speaks of."""
        if isinstance(message, str):
            return Original(why_not=message)
        try:
            raw, died = raw_of(message, self._headers.headers_of(message)), letters.timestamps[number]
        except (BrokerError, Unreadable) as error:
            return Original(why_not=f"{_UNREADABLE}: {error}")
        content = letters.keys[number], letters.values[number]
        if raw.timestamp > died:
            return Original(why_not=_YOUNGER)
        if self._is_remade(message.topic(), died):
            return Original(why_not=_REMADE)
        if content != (None, None) and content != (message.key(), message.value()):
            return Original(why_not=_OTHER)
        return Original(raw, message.value())

    def _fetch(self, place: Place, offsets: Sequence[int]) -> Mapping[int, Any]:
        """Offset -> the message there, or in words why there is none. One read goes on while the next offset
        is near; each must be met exactly, for what was compacted away gives its neighbour."""
        found: dict[int, Any] = {}
        at = -1
        for offset in offsets:
            if at < 0 or offset - at > _NEAR:
                self._consumer.assign([TopicPartition(*place, offset)])
                self._ahead.clear()
            found[offset] = self._fetch_one(place, offset)
            at = -1 if isinstance(found[offset], str) else offset
        return found

    def _fetch_one(self, place: Place, offset: int) -> Any:
        waited = 0.0
        while waited < self._cluster.timeout:
            if not self._ahead:
                self._ahead = self._cluster.fetch(self._consumer, 1)
                waited += 0 if self._ahead else patience.FETCH
                continue
            message = self._ahead[0]
            error = message.error()
            if error is None and message.offset() < offset:
                self._ahead.pop(0)
                continue
            if error is None:
                return self._ahead.pop(0) if message.offset() == offset else _COMPACTED
            if error.code() in _ENDS:
                return _GONE if error.code() != KafkaError._PARTITION_EOF else _COMPACTED
            self._ahead.pop(0)
            waited += patience.FETCH
            if not error.retriable() and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                return f"not proven: {place} may not be read ({error.name()})"
        raise self._cluster.silence()


_NEAR = 500
_ENDS = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._PARTITION_EOF)


def _place(headers: Mapping[str, str]) -> tuple[Place, int]:
    """Return where the original lay; in no topic where that cannot be read."""
    topic, *told = (headers.get(f"{SHARE_GROUP}{name}") for name in ("topic", "partition", "offset"))
    partition, offset = count_of(told[0]), count_of(told[1], 64)
    if partition is None or offset is None:
        return Place("", 0), 0
    return Place(topic or "", partition), offset
