"""What a letter looks like on its way back: target, properties, flags. Needs no connection.

A letter sent with its properties as they are would come to grief: TRAN_MSG makes it a half message again,
DELAY and the timer's own hold it back, REAL_TOPIC and the like are the broker's. What identifies the message
for consumers (UNIQ_KEY, KEYS, TAGS, the sharding key, user properties) is kept.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from dlq.connectors.base import Outgoing, SendPreview, Target
from dlq.connectors.rocketmq.link.message import BATCH, COMPRESSION, encode_properties, parse_properties
from dlq.connectors.rocketmq.look.limits import NONE, Attributes, warnings, why_refused, why_unnamed
from dlq.connectors.rocketmq.records.bodies import COMPRESSED
from dlq.core.errors import UsageError
from dlq.core.headers.failure_headers import Keep, strip_failure
from dlq.core.headers.provenance import REPLAY_ID, REPLAY_PREFIX
from dlq.core.headers.rocketmq_topics import DEAD_LETTERS, DISCARDED, HALF, OP_TOPIC, RETRY
from dlq.core.record import Record

UNIQUE_KEY = "UNIQ_KEY"
SHARDING_KEY = "__SHARDINGKEY"
RESUME = "resume"
"""Kind of target: the half message's check begins again (323); its producer decides."""
_BROKERS_OWN = frozenset({
    "TRAN_MSG", "DELAY", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME",
    "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "MIN_OFFSET", "MAX_OFFSET", "POP_CK", "1ST_POP_TIME",
    "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "__transactionId__", "PGROUP", "WAIT", "CLUSTER", "MSG_REGION", "TRACE_ON", "INNER_NUM",
    "INNER_BASE", "__CRC32#", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "DUP_INFO",
    "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "ORIGIN_GROUP", "TIMER_DELAY_SEC", "TIMER_DELAY_MS",
    "TIMER_DELAY_LEVEL", "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_OUT_MS",
    "TIMER_ROLL_TIMES", "TIMER_ROLL_LABEL", "TIMER_DEL_UNIQKEY", "E_T", "POP_CK_OFFSET", "TRANS_OFFSET",
    "BORN_TIMESTAMP", "PROPERTY_FORWARD_QUEUE_ID", "__STARTDELIVERTIME",
})  # fmt: skip
_BROKERS_OWN_PREFIXES = ("__BORN", REPLAY_PREFIX)
_MOST_PROPERTIES = 32_767
_PROPERTIES_ROOM = 32_600
"""Brokers add up to 110 bytes of their own."""
_PROVENANCE_ROOM = 2_000
"""More than what a replay leaves on a letter takes."""
_BODY_ROOM = 16 * 2**20 - 2**18
"""A larger frame closes the connection without an answer. Properties take up to six times as much in it."""
_MILLISECONDS = re.compile(r"[1-9][0-9]{,17}")
_FLAG = re.compile(r"-?[0-9]{1,10}")
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
"""Its four levels. Java's default reads "x^", and its content is no text."""
_MAGIC = {0: _ZLIB, 1: (b"\x04\x22\x4d\x18",), 2: (b"\x28\xb5\x2f\xfd",), 3: _ZLIB}
_SYSTEM = (HALF, OP_TOPIC, DISCARDED)


class Message(NamedTuple):
    """A letter ready to be sent."""

    topic: str
    body: bytes
    properties: Mapping[str, str]
    sys_flag: int
    flag: int
    reconsume_limit: int | None
    born: str | None = None
    """Milliseconds, where it is not now: what goes back to its group is a retry, which keeps that time."""


def topic_of(target: Target) -> str:
    """Return where a target's letters are stored: a group's lie in its retry topic, a resumed check begins
    with a new half message."""
    topics = {"group": f"{RETRY}{target.name}", RESUME: HALF}
    return topics.get(target.kind, target.name)


def target_of(record: Record, to: str) -> Target | None:
    """Return where a letter goes for `--to`; None when nothing says where. Raises UsageError."""
    kind, _, name = to.partition(":")
    if kind == "topic" and name:
        return Target("topic", _check_topic(name))
    if to not in _TARGETS:
        raise UsageError(f"--to {to}: RocketMQ takes origin, group, resume or topic:NAME; choose one")
    found, wanted = _TARGETS[to]
    value = getattr(record, wanted)
    fits = to not in _FITS or _FITS[to](record.dead_letter_queue)
    return Target(found, value) if value and record.origin and fits else None


_TARGETS = {"origin": ("topic", "origin"), "group": ("group", "origin_group"), RESUME: (RESUME, "origin")}
"""--to -> (kind of target, the record's field that names it)."""


_FITS: Mapping[str, Callable[[str], bool]] = {
    "group": lambda topic: topic.startswith(DEAD_LETTERS),
    RESUME: lambda topic: topic in (DISCARDED, HALF),
}


def _check_topic(topic: str) -> str:
    if topic in _SYSTEM or topic.startswith("RMQ_SYS_"):
        raise UsageError(f"--to topic:{topic}: brokers take no messages for their own topics; choose another")
    return topic


def _properties_of(record: Record) -> dict[str, str]:
    """Return all properties as they lie, or as an edit has left them."""
    return (
        parse_properties(record.raw_properties)
        if record.raw_properties is not None
        else dict(record.properties)
    )


@lru_cache(maxsize=4096)
def _split(names: tuple[str, ...]) -> tuple[Sequence[str], tuple[str, ...]]:
    """Return properties that describe an earlier trip, and must not go along on the next one, and the others;
    letters of one kind all have the same names."""
    owned = [name for name in names if name in _BROKERS_OWN or name.startswith(_BROKERS_OWN_PREFIXES)]
    return owned, tuple(name for name in names if name not in owned)


def _own(properties: Mapping[str, str], keep_headers: Keep) -> tuple[dict[str, str], list[str]]:
    """Return a letter's properties as they are sent again, and what is taken away of them."""
    owned, own = _split(tuple(properties))
    kept, taken = strip_failure(properties, keep_headers, own, owned)
    return kept, sorted([*owned, *taken])


def message_of(outgoing: Outgoing) -> Message:
    """Return the letter as it is sent. The body goes as stored, with its compression bits and no other flag.
    Raises ValueError for a flag that is no number."""
    record, target = outgoing.record, outgoing.target
    kept = _own(_properties_of(record), outgoing.keep_headers)[0]
    kept.setdefault(UNIQUE_KEY, outgoing.provenance[REPLAY_ID].upper())
    is_group = target.kind == "group"
    if is_group:
        kept["RETRY_TOPIC"] = record.origin or ""
    kept.update(outgoing.provenance)
    return Message(
        f"{RETRY}{target.name}" if is_group else target.name,
        record.body,
        kept,
        _compression(record),
        int(record.headers.get("flag", 0)),
        16 if is_group else None,
        _born(record) if is_group else None,
    )


def _born(record: Record) -> str | None:
    born = str(record.headers.get("bornTimestamp", ""))
    return born if _MILLISECONDS.fullmatch(born) else None


@lru_cache(maxsize=256)
def _is_flag(flag: str) -> bool:
    """Return whether a flag is a number of 32 bits: what was imported, or edited, may say anything."""
    return _FLAG.fullmatch(flag) is not None and -(2**31) <= int(flag) < 2**31


def _compression(record: Record) -> int:
    """Return the compression bits, unless an edit has put a plain body in the place of the compressed one."""
    flags = (record.flags or 0) & COMPRESSION
    if not flags & COMPRESSED:
        return 0
    magic = _MAGIC.get(flags >> 8 & 7, ())
    is_as_stored = record.body.startswith(magic) and not (magic is _ZLIB and _is_text(record.body))
    return flags if is_as_stored else 0


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def unique_key_of(outgoing: Outgoing) -> str:
    """Return the UNIQ_KEY that `message_of` gives it."""
    return _properties_of(outgoing.record).get(UNIQUE_KEY) or outgoing.provenance[REPLAY_ID].upper()


def preview(letter: Outgoing, attributes: Attributes = NONE) -> SendPreview:
    """Return what sending it would strip, warn of, or fail on; `attributes` are those of its topic."""
    _, record, target, _, keep_headers = letter
    if target.kind == RESUME:
        return SendPreview(problem=_why_no_resume(record))
    properties = _properties_of(record)
    kept, stripped = _own(properties, keep_headers)
    place = topic_of(target)
    problem = next(_problems(letter, properties, kept), None) or why_refused(place, attributes, kept)
    said = [*_warnings(record, target, properties), *warnings(place, attributes, kept)]
    return SendPreview(stripped, problem, said, why_unnamed(place, attributes, kept))


def _problems(letter: Outgoing, properties: Mapping[str, str], kept: Mapping[str, str]) -> Iterator[str]:
    """Yield why brokers would not take a letter as it is. `kept`: what of its properties is sent again."""
    _, record, target, provenance, _ = letter
    is_group, block = target.kind == "group", record.raw_properties
    # What was read from a block is separated, and at most four times as long.
    unread = provenance if block is not None else {**kept, **provenance}
    if not _are_separable({**unread, "RETRY_TOPIC": (record.origin or "") if is_group else ""}):
        yield _ODD_PROPERTIES
    if not _is_flag(str(record.headers.get("flag", 0))):
        yield "its flag is no number of 32 bits; change it by --edit"
    if block is None or 4 * len(block) + _PROVENANCE_ROOM > _PROPERTIES_ROOM:
        size = len(encode_properties({**kept, **provenance}))
        if size > _PROPERTIES_ROOM:
            yield f"its properties need {size} bytes, brokers take {_PROPERTIES_ROOM}"
    if record.body_size > _BODY_ROOM:
        yield f"its body of {record.body_size} bytes is more than a frame holds"
    if (record.flags or 0) & BATCH == BATCH:
        yield "it is a batch that cannot be taken apart"
    if is_group and (why := _why_no_group(properties)):
        yield why


def preview_offline(letter: Outgoing) -> SendPreview:
    """Return the same where nobody knows the topic's attributes."""
    found = preview(letter)
    unknown = f"whether {topic_of(letter.target)} is compacted is not known"
    return found._replace(warnings=[*found.warnings, unknown])


_ODD_PROPERTIES = "a property holds what separates properties (U+0001 in a name, U+0002); change it by --edit"


def _are_separable(properties: Mapping[str, str]) -> bool:
    """Return whether a broker reads these properties and no others: texts that came without a block may hold
    anything, such as a property that would hold the letter back."""
    names = "".join(properties)
    return "\x01" not in names and "\x02" not in names and "\x02" not in "".join(properties.values())


def _warnings(record: Record, target: Target, properties: Mapping[str, str]) -> list[str]:
    is_discarded = record.dead_letter_queue in _SYSTEM
    found = {
        "every group that subscribes to the topic gets it again; --to group reaches the failed group alone": (
            target.kind == "topic" and record.origin_group is not None
        ),
        "publishing a half message forces its commit: the business must have decided so": is_discarded,
        "5.x brokers refuse an empty body": record.body_size == 0,
        "its sender waited for a reply, and no longer does": "REPLY_TO_CLIENT" in properties,
        "ordered by its sharding key: queues are chosen by Java's hash, one message of a queue in flight": (
            SHARDING_KEY in properties
        ),
    }
    return [text for text, holds in found.items() if holds]


def _why_no_group(properties: Mapping[str, str]) -> str | None:
    """Retry topics reach clustering push consumers only (see PopMessageProcessor, RebalanceLockManager)."""
    if "1ST_POP_TIME" in properties or properties.get("RETRY_TOPIC", "").startswith(RETRY):
        return "its group consumes by POP or gRPC and does not read the group's retry topic; use --to origin"
    if "RECONSUME_TIME" in properties and "CONSUME_START_TIME" not in properties:
        return "its group consumes in order: brokers send its retries straight back here; use --to origin"
    return None


def _why_no_resume(record: Record) -> str | None:
    if "msgId" not in record.headers or "storeHost" not in record.headers:
        return "nothing says where it lies in its broker (imported without its fixed fields)"
    if record.dead_letter_queue not in (HALF, DISCARDED):
        return "only a half message has a check to resume"
    return None


def why_too_many(properties: Mapping[str, str]) -> str | None:
    """Return why no broker takes so many properties; None where one may."""
    size = len(encode_properties(properties))
    if size <= _MOST_PROPERTIES:
        return None
    return f"its properties need {size} bytes, and brokers take {_MOST_PROPERTIES}; take some away by --edit"


def queue_by_hash(sharding_key: str, queues: int) -> int:
    """Return the queue that Java's SelectMessageQueueByHash takes: String.hashCode modulo, made positive."""
    value = 0
    for unit in sharding_key.encode("utf-16-be", "surrogatepass").hex(" ", 2).split():
        value = (31 * value + int(unit, 16)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    return abs(signed) % queues


def transaction_of(record: Record) -> str | None:
    """Return the transaction that a half message belongs to; all its copies have the same."""
    if record.dead_letter_queue not in (HALF, DISCARDED):
        return None
    return record.properties.get(UNIQUE_KEY) or record.message_id
