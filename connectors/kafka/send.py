"""Publishing to Kafka: one idempotent producer, several batches in flight, an answer for each letter.

Only an answer without an error is a confirm. A time-out is none: what a frozen broker has in its buffers it
may store yet. Then everything that is open is in doubt, and nothing more is sent.
"""

import contextlib
import math
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from dlq.connectors.base import UNSENT_SECONDS, Outgoing, Sent
from dlq.connectors.kafka.look.cluster import Cluster
from dlq.connectors.kafka.look.limits import Taken, taken_by, time_of, why_too_large
from dlq.connectors.kafka.republish import Message, message_of
from dlq.connectors.net import outbound
from dlq.connectors.sending import RefusedTogether, WindowedPublisher
from dlq.core.errors import AccessDenied, ConnectionLost

_REFUSED = frozenset({
    KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP,
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.POLICY_VIOLATION, KafkaError.TOPIC_EXCEPTION, KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC, KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
})  # fmt: skip
"""Nothing of it was stored."""
_OF_THE_BATCH = frozenset({
    KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP,
    KafkaError._INVALID_DIFFERENT_RECORD,
})  # fmt: skip
"""A broker says it of a whole batch, and means perhaps one record of it: each goes once more, alone."""
_PAUSE = 2.0
"""Seconds, or a fifth less, that the library waits before it sends a letter again. It does so by itself, and
tells nobody that an earlier try may have been stored: surely not was what is refused sooner."""
_EARLIER = "an earlier try may have been stored, and its answer lost"
_GUARD_SECONDS = 0.1
_SLOWLY = 0.1
"""Part of what is answered by which more goes at once, after a broker has made us wait."""
_IN_A_REQUEST = 4096
"""Bytes of a request beside its batch, at most."""
_LARGEST = 1_000_000_000
_BATCH = 1_000_000
_BESIDE_THE_BODY = 200
"""Bytes of a letter, about."""
_FIRST_ROOM = 64 * 1024
"""Bytes in flight at first, and more with every answer: only then a broker says that it makes us wait (a
quota), and what it has let in before may wait for longer than the library does."""


_REMEDIES: Mapping[int, str] = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic",
    KafkaError.INVALID_TIMESTAMP: "message.timestamp.after.max.ms and message.timestamp.before.max.ms of the "
    "topic say which times it takes, by the broker's clock; is the clock of this host right?",
}


def _remedy(error: KafkaError) -> str:
    remedy = _REMEDIES.get(error.code())
    return f"; {remedy}" if remedy else ""


class KafkaPublisher(WindowedPublisher):
    """Sends for one plan, on connections of its own.

    When the library writes a letter that it was given cannot be known: it may have, from then on. It gives
    its sockets to nobody, and makes new ones when it likes, so they are guarded again and again. A batch that
    is made and not written when this process is stopped it writes when that goes on, however much later: so a
    process that was stopped for too long does not go on.
    """

    heavy_bytes = 256 * 1024

    def __init__(self, cluster: Cluster, window: int, unsent_seconds: float = UNSENT_SECONDS) -> None:
        super().__init__(window, cluster.name)
        self._cluster, self._unsent_seconds = cluster, unsent_seconds
        self._ports, self._guarded = cluster.ports, 0.0
        limit = cluster.longest_request
        self._room, self._growth, self._bytes, self._quiet_until = float(_FIRST_ROOM), 1.0, 0, 0.0
        patience = max(1.0, min(cluster.timeout, unsent_seconds))
        pause = min(_PAUSE, patience / 4)
        self._first_try = 0.8 * pause
        """Seconds: what is answered sooner was tried once."""
        self._producer = cluster.producer({
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # that of Java's clients
            "message.timeout.ms": int(patience * 1000),
            "retry.backoff.ms": int(pause * 1000),
            "retry.backoff.max.ms": int(pause * 1000),
            "topic.metadata.refresh.fast.interval.ms": 100,  # as it is with the library's own pause
            "linger.ms": 5,
            "batch.size": _BATCH if limit is None else max(1, min(_BATCH, limit - _IN_A_REQUEST)),
            "throttle_cb": self._wait,
            "message.max.bytes": _LARGEST,  # the broker's and the topic's limits count
            "queue.buffering.max.messages": window + 1000,
        })  # fmt: skip
        self._switch = outbound.Watchdog(unsent_seconds)
        self._targets: dict[str, Taken] = {}
        self._unseen: dict[str, str] = {}
        """Topics that the user may not even see -> what the broker says."""
        self._has_confirmed = False
        self._lost: ConnectionLost | None = None

    def put(self, letter: Outgoing) -> None:
        """Hand it to the library, or account for it at once."""
        if (name := letter.target.name) in self._unseen:
            self.answers.append(Sent(letter.number, "unsent", self._unseen[name]))
            return
        target = self._target(name)
        if target.closed is not None:
            self.answers.append(Sent(letter.number, "returned", target.closed))
            return
        message = message_of(letter)
        if refused := why_too_large(message, target):
            raise ValueError(refused)
        self.announce([letter.number])
        try:
            self._produce(letter, message, target)
        except (KafkaException, BufferError) as error:
            if _code(error) in _REFUSED:
                raise ValueError(str(error.args[0])) from error
            if _code(error) != KafkaError._FATAL:  # else the next poll says of what
                raise ConnectionLost(f"{self._cluster.name}: {error.args[0]}") from error

    def poll(self, wait: float) -> None:
        """Poll the library. Without the right to write it never begins to send."""
        if time.monotonic() - self._guarded > _GUARD_SECONDS:
            self._guard()
        try:
            self._producer.poll(wait)
        except KafkaException as error:
            failed: KafkaError = error.args[0]
            lost = self._cluster.trouble(failed)
            if failed.code() in _REFUSED and not self._has_confirmed:
                self.answers += [Sent(number, "refused", str(lost)) for number in self.in_flight]
            raise lost from error
        if self._lost is not None:
            raise self._lost

    def has_room(self) -> bool:
        """Return whether another letter may be put; while the broker makes us wait, none may."""
        return self._bytes < self._room and time.monotonic() >= self._quiet_until

    def cut(self) -> None:
        """Cut the connection: nothing more leaves this process."""
        self._guard()
        self._producer.purge()
        with contextlib.suppress(KafkaException):
            self._producer.poll(0)

    def end(self) -> None:
        """Let go of the connections."""
        self.cut()
        self._producer.close()
        self._switch.disarm()

    def _guard(self) -> None:
        outbound.guard_those_to(self._ports, self._unsent_seconds)
        self._guarded = time.monotonic()

    def _wait(self, event: Any) -> None:
        """Wait as the broker asks: the library gets nothing meanwhile, and less at once from now on."""
        self._cluster.note_throttling(event)
        if event.throttle_time > 0:
            self._quiet_until = time.monotonic() + event.throttle_time
            self._room = max(1.0, min(self._room, self._bytes) / 2)
            self._growth = _SLOWLY

    def _produce(self, letter: Outgoing, message: Message, target: Taken) -> None:
        where, size = message.partition, letter.record.body_size + _BESIDE_THE_BODY
        more: dict[str, Any] = {} if where is None or where >= target.partitions else {"partition": where}
        self._producer.produce(
            message.topic,
            message.value,
            message.key,
            headers=message.headers,
            timestamp=time_of(message, target, time.time() * 1000),
            on_delivery=partial(self._note_answer, letter.number, size),
            **more,
        )
        self._bytes += size

    def _note_answer(self, number: int, size: int, error: KafkaError | None, message: Any) -> None:
        self._bytes -= size
        if error is None:
            self._has_confirmed = True
            self._room += self._growth * size
            self.answers.append(Sent(number, "confirmed"))
            return
        code, tried_once = error.code(), (message.latency() or math.inf) < self._first_try
        said = f"{error.name()}: {' '.join(str(error.str()).split())[:200]}{_remedy(error)}"
        if code in _OF_THE_BATCH and tried_once:
            self.answers.append(RefusedTogether(number, said))
        elif code in _REFUSED | _OF_THE_BATCH:
            # What the library itself says is not there any more it may have sent before, without an answer.
            is_firm = code > 0 and tried_once
            self.answers.append(
                Sent(number, "refused", said) if is_firm else Sent(number, "in_doubt", f"{said}; {_EARLIER}")
            )
        else:
            self.answers.append(Sent(number, "in_doubt", said))
            made_wait = self._cluster.made_to_wait("send with --rate, or raise producer_byte_rate")
            self._lost = self._lost or ConnectionLost(
                f"{self._cluster.name} did not answer: {said}{made_wait}"
            )

    def _target(self, name: str) -> Taken:
        """Return what a target takes. Raises BrokerError, and ValueError for the first letter to a topic that
        the user may not see."""
        if name not in self._targets:
            try:
                self._targets[name] = taken_by(self._cluster, name)
            except AccessDenied as error:
                if _code(error.__cause__) != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise
                self._unseen[name] = str(error)
                raise ValueError(f"never sent: {error}") from error
        return self._targets[name]


def _code(error: BaseException | None) -> int | None:
    failed = error.args[0] if isinstance(error, KafkaException | BufferError) else None
    return failed.code() if isinstance(failed, KafkaError) else None
