"""RocketMQ: the ways into `%DLQ%<group>`, and the topics of transactions.

A dead letter says how it came: a consumer's send-back leaves ORIGIN_MESSAGE_ID and RETRY_TOPIC, a client
that fell back to sending leaves its retry counters, POP has a retry topic of its own. REAL_TOPIC says
nothing: after a delayed retry it is the retry topic. What a half message means shows only beside its op
records and copies, so `groups.transactions` has the last word on those. Sources:
AbstractSendMessageProcessor, SendMessageProcessor, DefaultMQPushConsumerImpl, PopReviveService and
DefaultTransactionalMessageCheckListener of 4.9 and 5.x.
"""

from collections.abc import Mapping
from typing import NamedTuple

from dlq.analyzers.rules.letter import (
    Facts,
    Finding,
    Letter,
    Rule,
    body_text,
    first,
    join_all,
    once_per_letter,
    whole,
)
from dlq.core.clock import iso
from dlq.core.headers.provenance import REPLAY_ID
from dlq.core.headers.rocketmq_topics import DEAD_LETTERS, DISCARDED, HALF, OP_TOPIC, RETRY, origin_of

DEFAULT_RESERVED_HOURS = 72
_DEFAULT_RETRIES = 16
"""Of a group and of a push consumer. A dead letter counts one more."""
_HOUR = 3_600_000_000
_COMMITTED = 8
"""TRANSACTION_COMMIT_TYPE in the bits for transactions (12) of a sysFlag (MessageSysFlag)."""


class Stored(NamedTuple):
    """What comparisons between RocketMQ records need to know of one."""

    offset: int | None
    """In its queue."""
    position: int | None
    """In the commit log."""
    prepared: int | None
    """Of a real message: the commit log position of its half message."""
    born_host: str | None
    flags: int | None
    checks: int | None
    immunity: int | None
    """Seconds after its birth in which the producer is not asked."""
    producer_group: str | None
    origin_id: str | None
    sent_back_by_client: bool
    replayed: bool
    keys: str | None
    tag: str | None
    ended_offsets: str | None
    """Of an op record: the offsets of the half messages that have ended."""


def read_stored(letter: Letter) -> Stored | None:
    """Return where the broker stored it; None for letters of other brokers."""
    if letter.broker_kind != "rocketmq":
        return None
    headers, properties = letter.headers, letter.properties
    offset = whole(headers.get("queueOffset"), 64)
    return Stored(
        offset if offset is not None else letter.offset,
        whole(headers.get("commitLogOffset"), 64),
        whole(headers.get("preparedTransactionOffset"), 64),
        headers.get("bornHost"),
        letter.flags if letter.flags is not None else whole(headers.get("sysFlag")),
        whole(properties.get("TRANSACTION_CHECK_TIMES")),
        whole(properties.get("CHECK_IMMUNITY_TIME_IN_SECONDS"), 64),
        properties.get("PGROUP"),
        properties.get("ORIGIN_MESSAGE_ID"),
        properties.get("RECONSUME_TIME") is not None,
        properties.get(REPLAY_ID) is not None,
        properties.get("KEYS"),
        properties.get("TAGS"),
        body_text(letter) if letter.dead_letter_queue == OP_TOPIC else None,
    )


def _is_dead(letter: Letter) -> bool:
    return letter.dead_letter_queue.startswith(DEAD_LETTERS) and len(letter.dead_letter_queue) > len(
        DEAD_LETTERS
    )


def _retry_topic(letter: Letter) -> str | None:
    return first(letter.properties, "DLQ_ORIGIN_TOPIC", "RETRY_TOPIC")


def _delivery_count(letter: Letter, is_pop: bool = False) -> int | None:
    """Return how often a consumer had it, where that was counted: the broker adds one to what it had counted
    before it dead-letters (AbstractSendMessageProcessor). The proxy does so instead of a last delivery
    (PopMessageResultFilterImpl). Clients that consume in order count by themselves, Go's and those of gRPC
    tell nobody, and the letter says 1."""
    count, properties = _reconsume_times(letter), letter.properties
    if count is None or "RECONSUME_TIME" in properties:
        return None if is_pop else count
    is_first = count == 1 and first(properties, "ORIGIN_MESSAGE_ID", "RETRY_TOPIC") is not None
    return None if is_first else count - is_pop


def _reconsume_times(letter: Letter) -> int | None:
    return whole(letter.headers.get("reconsumeTimes"))


@once_per_letter
def _origin_topic(letter: Letter) -> str | None:
    """Return the topic that the consumers' group had subscribed to."""
    if not _is_dead(letter):
        return letter.properties.get("REAL_TOPIC")
    return origin_of(_retry_topic(letter), letter.dead_letter_queue.removeprefix(DEAD_LETTERS))


def _report(letter: Letter, evidence: str | None) -> Finding:
    topic = _origin_topic(letter)
    return Finding(evidence, origin=topic, origin_kind="topic" if topic is not None else None)


def _report_death(letter: Letter, evidence: str | None, is_pop: bool = False) -> Finding:
    return _report(letter, evidence)._replace(attempts=_delivery_count(letter, is_pop))


def _pop(letter: Letter, _: Facts) -> Finding | None:
    """dead-lettered for a POP or gRPC consumer: its retry topic carries group and topic"""
    topic = _retry_topic(letter)
    is_pop = letter.properties.get("1ST_POP_TIME") is not None or (topic or "").startswith(RETRY)
    if not _is_dead(letter) or not is_pop:
        return None
    told = join_all("RETRY_TOPIC ", topic, ", reconsumeTimes ", _reconsume_times(letter))
    return _report_death(letter, told, is_pop=True)


def _client_fallback(letter: Letter, _: Facts) -> Finding | None:
    """the client sent it to the retry topic itself: an orderly consumer, or one whose send-back failed"""
    properties = letter.properties
    origin, unique = properties.get("ORIGIN_MESSAGE_ID"), properties.get("UNIQ_KEY")
    is_own = origin is not None and origin == unique
    if not _is_dead(letter) or (properties.get("RECONSUME_TIME") is None and not is_own):
        return None
    names = ("RECONSUME_TIME", "MAX_RECONSUME_TIMES")
    told = [f"{name} {properties[name]}" for name in names if properties.get(name) is not None]
    return _report_death(letter, ", ".join((*told, "sent by the consumer")))


def _send_back(letter: Letter, _: Facts) -> Finding | None:
    """the consumer sent it back and its attempts were used up, or it asked for no more; after the 16 retries
    of the default only the first"""
    traced = first(letter.properties, "ORIGIN_MESSAGE_ID", "RETRY_TOPIC")
    count = _reconsume_times(letter)
    if not _is_dead(letter) or (traced is None and (count or 0) <= 0):
        return None
    found = _report_death(letter, join_all("reconsumeTimes ", count))
    return found._replace(also_possible=() if count == _DEFAULT_RETRIES + 1 else None)


def _check_skipped(letter: Letter, _: Facts) -> Finding | None:
    """a half message older than the broker's retention, which is not checked any more"""
    if letter.dead_letter_queue != DISCARDED or letter.dead_at is None or letter.published_at is None:
        return None
    hours = (letter.dead_at - letter.published_at) / _HOUR
    if hours <= DEFAULT_RESERVED_HOURS:
        return None
    return _report(letter, f"discarded {hours:.0f} h after it was sent")


def _check_max(letter: Letter, _: Facts) -> Finding | None:
    """a half message that was checked to the limit without an outcome"""
    if letter.dead_letter_queue != DISCARDED:
        return None
    checks = whole(letter.properties.get("TRANSACTION_CHECK_TIMES"))
    return _report(letter, join_all("TRANSACTION_CHECK_TIMES ", checks))


def _half(letter: Letter, _: Facts) -> Finding | None:
    """a half message; its transaction's other records decide"""
    if letter.dead_letter_queue != HALF:
        return None
    found = _report(letter, "a half message without an outcome")
    return found._replace(transaction_state="pending")


def _checked_back(letter: Letter, _: Facts) -> Finding | None:
    """TRAN_MSG in a topic of the business, and not committed: what its producer is asked about in a check"""
    flags = letter.flags if letter.flags is not None else whole(letter.headers.get("sysFlag"))
    is_half = letter.properties.get("TRAN_MSG") == "true" and (flags or 0) & 12 != _COMMITTED
    if not is_half or letter.dead_letter_queue.startswith(("%", "RMQ_SYS_")):
        return None
    found = _report(letter, "TRAN_MSG true, and sysFlag says no commit")
    return found._replace(transaction_state="pending")


def _finished(letter: Letter, _: Facts) -> Finding | None:
    """the broker's note that half messages have ended"""
    if letter.dead_letter_queue != OP_TOPIC:
        return None
    return Finding(f"ends the half messages at {body_text(letter)}")


RULES: tuple[Rule, ...] = (
    Rule(_pop, "redelivery_exhausted", "pop"),
    Rule(_client_fallback, "redelivery_exhausted", "client_fallback"),
    Rule(_send_back, "redelivery_exhausted", "send_back", ("poison_ack",)),
    Rule(_check_skipped, "check_skipped", "check_age"),
    Rule(_check_max, "check_max_exceeded", "check"),
    Rule(_half, "transaction_pending", "none"),
    Rule(_checked_back, "transaction_pending", "none"),
    Rule(_finished, "unknown", "none"),
)


_ROLES: Mapping[str, str] = {HALF: "half", DISCARDED: "discarded", OP_TOPIC: "finished"}


def role(letter: Letter, facts: Stored) -> str | None:
    """Return its part in a transaction: half, discarded, finished (an op record), real; None: it is of
    none."""
    topic = letter.dead_letter_queue
    if topic in _ROLES:
        return _ROLES[topic]
    is_committed = facts.flags is not None and facts.flags & 12 == _COMMITTED
    return "real" if is_committed and not topic.startswith("%") else None


def unique_key(letter: Letter, facts: Stored) -> str:
    """Return what names its transaction. A half message without a unique key (very old clients) is known by
    what all its copies share."""
    if letter.message_id is not None:
        return letter.message_id
    born_at = None if letter.published_at is None else iso(letter.published_at)
    shared = (facts.born_host, born_at, letter.origin, letter.body_sha256)
    return "|".join(text for text in shared if text is not None)
