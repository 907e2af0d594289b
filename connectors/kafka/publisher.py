"""Publishing to Kafka: one idempotent producer, several batches in flight, an answer for each letter.

Only an answer without an error is a confirm. A time-out is none: what a frozen broker has in its buffers it
may store yet. Then everything that is open is in doubt, and nothing more is sent.
"""

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from dlq.connectors import outbound
from dlq.connectors.base import UNSENT_SECONDS, Outcome, Outgoing, Sent, Writing, unmarked
from dlq.connectors.kafka.cluster import Cluster
from dlq.connectors.kafka.republishing import Message, message_of
from dlq.core.errors import BrokerError, ConnectionLost, NotFound

_REFUSED = frozenset({
    KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP,
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.POLICY_VIOLATION, KafkaError.TOPIC_EXCEPTION, KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC, KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
})  # fmt: skip
"""Nothing of it was stored."""
_OF_THE_BATCH = frozenset({
    KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP,
})  # fmt: skip
"""A broker says it of a whole batch, and means perhaps one record of it: each goes once more, alone."""
_FILL_SECONDS = 0.005
_POLL_SECONDS = 0.1
_LARGEST = 1_000_000_000
_FOREVER = -1


class _Target(NamedTuple):
    """What is known of a topic that is sent to."""

    partitions: int
    keeps: float
    """Milliseconds that it keeps what is old by its time; 0: that is not known."""
    closed: str | None = None
    """Why nothing can be sent there."""


class KafkaPublisher:
    """Sends for one plan, on connections of its own.

    When the library writes a letter that it was given cannot be known: it may have, from then on. It gives
    its sockets to nobody, and makes new ones when it likes, so they are guarded again and again.
    """

    def __init__(self, cluster: Cluster, window: int, unsent_seconds: float = UNSENT_SECONDS) -> None:
        self._cluster, self._window, self._unsent_seconds = cluster, window, unsent_seconds
        self._ports, self._guarded = cluster.ports, 0.0
        self._producer = cluster.producer({
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # that of Java's clients
            "message.timeout.ms": max(1000, int(min(cluster.timeout, unsent_seconds) * 1000)),
            "linger.ms": 5,
            "message.max.bytes": _LARGEST,  # the broker's and the topic's limits count
            "queue.buffering.max.messages": window + 1000,
        })  # fmt: skip
        self._targets: dict[str, _Target] = {}
        self._open: dict[int, Outgoing] = {}
        self._done: list[Sent] = []
        self._again: list[Outgoing] = []
        self._alone = False
        self._has_confirmed = False
        self._lost: BrokerError | None = None
        self._closed = False
        self._over = False
        self._writing: Writing = unmarked

    def publish(self, outgoing: Iterator[Outgoing], writing: Writing = unmarked) -> Iterator[Sent]:
        """See `Publisher`."""
        self._writing = writing
        while not self._over or self._open or self._again:
            self._fill(outgoing)
            self._poll(0 if self._done else _POLL_SECONDS)
            if not self._open and self._again:
                self._each_alone()
            if self._lost is not None:
                self._give_up()
            done, self._done = self._done, []
            yield from done
            if self._lost is not None:
                raise self._lost

    def close(self) -> None:
        """Nothing that is open is sent any more."""
        if self._closed:
            return
        self._closed = True
        self._guard()
        self._producer.purge()
        self._poll(0)
        self._producer.close()

    def _poll(self, wait: float) -> None:
        """Take the answers that are there. Without the right to write the library never begins to send."""
        if time.monotonic() - self._guarded > _POLL_SECONDS:
            self._guard()
        try:
            self._producer.poll(wait)
        except KafkaException as error:
            failed: KafkaError = error.args[0]
            is_refused = failed.code() in _REFUSED and not self._has_confirmed
            self._lost = self._cluster.trouble(failed)
            said = str(self._lost)
            outcome: Outcome = "refused" if is_refused else "in_doubt"
            self._done += [Sent(number, outcome, said) for number in self._open]
            self._open.clear()

    def _guard(self) -> None:
        outbound.guard_those_to(self._ports, self._unsent_seconds)
        self._guarded = time.monotonic()

    def _fill(self, outgoing: Iterator[Outgoing]) -> None:
        """Take letters while there is room, but not for long: what was taken is to be sent."""
        until = time.monotonic() + _FILL_SECONDS
        while self._has_room() and time.monotonic() < until:
            letter = next(outgoing, None)
            if letter is None:
                self._over = True
            else:
                self._send(letter)

    def _has_room(self) -> bool:
        held = len(self._open) + len(self._again)
        return not self._over and self._lost is None and held < self._window

    def _send(self, letter: Outgoing) -> None:
        """Hand it to the library, or account for it at once."""
        try:
            target = self._target(letter.target.name)
            if target.closed is not None:
                self._done.append(Sent(letter.number, "returned", target.closed))
                return
            message = message_of(letter)
            self._writing([letter.number])
        except ValueError as error:
            self._done.append(Sent(letter.number, "refused", str(error)))
            return
        except BrokerError as error:
            self._done.append(Sent(letter.number, "in_doubt", str(error)))
            self._lost = error
            return
        self._open[letter.number] = letter
        try:
            self._produce(letter.number, message, target)
        except (KafkaException, BufferError) as error:
            failed = error.args[0]
            code = failed.code() if isinstance(failed, KafkaError) else None
            if code == KafkaError._FATAL:
                return  # the next poll says of what, and by that all that is open ends
            refused = code in _REFUSED
            self._open.pop(letter.number)
            self._done.append(Sent(letter.number, "refused" if refused else "in_doubt", str(failed)))
            self._lost = None if refused else ConnectionLost(f"{self._cluster.name}: {failed}")

    def _produce(self, number: int, message: Message, target: _Target) -> None:
        where = message.partition
        more: dict[str, Any] = {} if where is None or where >= target.partitions else {"partition": where}
        self._producer.produce(
            message.topic,
            message.value,
            message.key,
            headers=message.headers,
            timestamp=_time(message, target),
            on_delivery=partial(self._answered, number),
            **more,
        )

    def _answered(self, number: int, error: KafkaError | None, _message: object) -> None:
        letter = self._open.pop(number, None)
        if letter is None:
            return
        if error is None:
            self._has_confirmed = True
            self._done.append(Sent(number, "confirmed"))
        elif error.code() in _OF_THE_BATCH and not self._alone:
            self._again.append(letter)
        else:
            said = f"{error.name()}: {' '.join(str(error.str()).split())[:200]}"
            is_refused = error.code() in _REFUSED
            self._done.append(Sent(number, "refused" if is_refused else "in_doubt", said))
            if not is_refused:
                self._lost = self._lost or ConnectionLost(f"{self._cluster.name} did not answer: {said}")

    def _each_alone(self) -> None:
        """In their order, one at a time."""
        again, self._again = self._again, []
        self._alone = True
        for letter in again:
            if self._lost is not None:
                self._done.append(Sent(letter.number, "in_doubt", str(self._lost)))
                continue
            self._send(letter)
            while letter.number in self._open:
                self._poll(_POLL_SECONDS)
        self._alone = False

    def _give_up(self) -> None:
        """Nothing more leaves this process, and nobody knows what had."""
        self._guard()
        self._producer.purge()
        self._poll(0)
        why = str(self._lost)
        held = [*self._open, *(letter.number for letter in self._again)]
        self._done += [Sent(number, "in_doubt", why) for number in held]
        self._open.clear()
        self._again.clear()

    def _target(self, name: str) -> _Target:
        if name not in self._targets:
            self._targets[name] = self._looked_up(name)
        return self._targets[name]

    def _looked_up(self, name: str) -> _Target:
        """Raises BrokerError. The producer makes no topic, and neither does the question."""
        try:
            topic = self._cluster.topic(name)
        except NotFound:
            return _Target(0, 0, f"there is no topic {name}")
        settings = self._cluster.configuration(name) or {}
        return _Target(topic.partitions, keeps_for(settings))


def keeps_for(settings: Mapping[str, str]) -> float:
    """Milliseconds for which a topic surely keeps, and takes, records by their own time; 0: not known."""
    if "retention.ms" not in settings:
        return 0
    retention = int(settings["retention.ms"])
    oldest = int(settings.get("message.timestamp.before.max.ms") or 0)
    return min(float("inf") if retention == _FOREVER else retention / 2, oldest)


def _time(message: Message, target: _Target) -> int:
    """Its own time where the topic keeps what is so old for as long again; else 0, which is now."""
    if message.timestamp is None or time.time() * 1000 - message.timestamp >= target.keeps:
        return 0
    return message.timestamp
