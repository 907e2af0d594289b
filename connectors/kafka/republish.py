"""What a letter looks like on its way back: topic, partition, key, value, headers. Needs no connection.

What the failure has left in the headers is stripped: consumers and retry topics count on it. Everything else
goes back to the byte, order and duplicates of headers among it.
"""

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from typing import Literal, NamedTuple

from dlq.connectors.base import Outgoing, SendPreview, Target
from dlq.connectors.kafka.look.times import Times, times_of, why_gone, why_not_kept
from dlq.connectors.kafka.records.header_texts import SHORT, bytes_of, shown_name, text_in, texts_of
from dlq.connectors.kafka.records.messages import UNRESOLVED
from dlq.connectors.kafka.records.raw import (
    VALUE_WAS_NULL,
    Headers,
    RawRecord,
    Sent,
    decode,
    sent_in,
    sent_of,
)
from dlq.core.errors import UsageError
from dlq.core.headers.failure_headers import (
    Answers,
    HeaderScrub,
    Keep,
    answers_of,
    fix_text,
    marked_names,
    restart,
    restart_told,
    taken_away,
    tells,
)
from dlq.core.headers.frameworks import Inside
from dlq.core.headers.kafka_headers import (
    OF_SHARE_GROUP,
    SHARE_GROUP,
    SPRING_RETRY,
    TELL_THE_PARTITION,
    died_at,
)
from dlq.core.headers.provenance import REPLAY_PREFIX
from dlq.core.record import Record

LOOKS_DEAD = re.compile(
    r"(?i)(?:^|[._-])(dlq|dlt|dead[._-]?letters?|dead[._-]?letter[._-]?queue|dlqueue)(?:$|[._-])|^error\."
)
"""Names of topics of dead letters."""
_OF_MIRRORS = re.compile(r"(?:mm2-offset-syncs\.)?([^.]+)\.(?:heartbeats|checkpoints\.internal|internal)")
_MOST_NAMES = 100
"""What follows from the names of so many headers is remembered."""
_RETRY_TOPIC = re.compile(r"(.+)-retry(?:-(\d+))?")
"""As Spring names them unless told otherwise: by their number, or by their delay in milliseconds."""


class Message(NamedTuple):
    """A letter ready to be sent."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    """As the client library takes them; values are bytes or null."""
    partition: int | None
    """Where it lay when it died; None: as its key says."""
    timestamp: int | None
    """When it was published, in milliseconds; None is not known."""


def target_of(record: Record, to: str) -> Target | None:
    """Return where a letter goes for `--to`; None when nothing says where. Raises UsageError."""
    kind, _, name = to.partition(":")
    if kind == "topic" and name:
        if name.startswith("__"):
            raise UsageError(f"--to {to}: that is one of Kafka's own topics; choose another")
        return Target("topic", name)
    if to != "origin":
        raise UsageError(f"--to {to}: Kafka takes origin or topic:NAME; choose one")
    return Target("topic", record.origin) if record.origin else None


def raw_of_record(record: Record) -> RawRecord:
    """Return the record beside its value, as it lies or was edited."""
    if record.raw_properties is not None:
        return decode(record.raw_properties)
    headers = [(name, bytes_of(text)) for name, text in record.headers.items()]
    key = record.properties.get("key")
    return RawRecord(None if key is None else bytes_of(key), headers)


def _read_sent(record: Record) -> Sent:
    block = record.raw_properties
    return sent_of(raw_of_record(record)) if block is None else sent_in(block)


_NEVER_SENT = (REPLAY_PREFIX, SHARE_GROUP)
"""Begin what a broker, or we, have written."""


class _Taken(NamedTuple):
    """What is taken away of a letter's headers."""

    own: Mapping[str, str]
    """What of them is neither a broker's nor ours, as texts."""
    fixed: Mapping[str, Inside]
    gone: Collection[str]
    """The names of those that are not sent again."""
    stripped: Sequence[str]
    """The same, and what is fixed, in words."""
    unsayable: str | None
    """Why the rest cannot be sent."""


def _removed_headers(sent: Sent, keep_headers: Keep) -> _Taken:
    """Return what is taken away of a letter, asked once of those with the same names and answers."""
    _, names, values, _ = sent
    keep = keep_headers if isinstance(keep_headers, bool) else tuple(keep_headers)
    places = _places_told(names) if len(names) <= _MOST_NAMES else None
    if places is not None:
        marked = () if keep is True else places
        told = [_tells(names[place], values[place]) for place in marked]
        answers = answers_of(told, lambda: text_in(names[marked[0]], values[marked[0]]))
        if (known := _taken_by_names(names, answers, keep)) is not None:
            return known
    shown = texts_of([*zip(names, values, strict=True)])
    texts = {name: text for name, text in shown.items() if not name.startswith(_NEVER_SENT)}
    return _all_taken(names, texts, restart(texts, keep_headers))


@lru_cache(maxsize=256)
def _places_told(names: tuple[str, ...]) -> Sequence[int] | None:
    """Return where those lie whose values count; None where a name comes twice, or is shown as another."""
    if len(set(names)) < len(names) or any(shown_name(name) != name for name in names):
        return None
    return [names.index(name) for name in marked_names(_own_names(names))]


def _own_names(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if not name.startswith(_NEVER_SENT))


def _tells(name: str, value: bytes | None) -> bool:
    return (_tells_cached if value is None or len(value) < SHORT else _tells_uncached)(name, value)


def _tells_uncached(name: str, value: bytes | None) -> bool:
    return tells(name, text_in(name, value))


_tells_cached = lru_cache(maxsize=4096)(_tells_uncached)


@lru_cache(maxsize=256)
def _taken_by_names(names: tuple[str, ...], answers: Answers, keep: Keep) -> _Taken | None:
    """Return None where what is fixed counts, too."""
    own = _own_names(names)
    taken = restart_told(own, answers, keep)
    return None if taken.fixed else _all_taken(names, dict.fromkeys(own, ""), taken)


def _all_taken(names: Sequence[str], own: Mapping[str, str], taken: HeaderScrub) -> _Taken:
    never = {name for name in names if name.startswith(_NEVER_SENT)}
    stripped = sorted({*never, *taken_away(own, taken)})
    gone = never | taken.gone
    return _Taken(own, taken.fixed, gone, stripped, _why_unsayable(names, gone))


def _kept_headers(sent: Sent, taken: _Taken) -> list[tuple[str, str | bytes | None]]:
    """Return the headers as they are sent again, in their order."""
    own, gone, headers = taken.own, taken.gone, zip(sent.names, sent.values, strict=True)
    if not taken.fixed:
        return [(name, value) for name, value in headers if name not in gone]
    fixed = {name: fix_text(own[name], inside) for name, inside in taken.fixed.items()}
    changed = {name: bytes_of(text) for name, text in fixed.items() if text != own[name]}
    return [(name, changed.get(name, value)) for name, value in headers if name not in gone]


def message_of(outgoing: Outgoing) -> Message:
    """Return the letter as it is sent. Raises ValueError where its block is damaged, or cannot be said."""
    record, target = outgoing.record, outgoing.target
    sent = _read_sent(record)
    taken = _removed_headers(sent, outgoing.keep_headers)
    if taken.unsayable:
        raise ValueError(taken.unsayable)
    kept = _kept_headers(sent, taken)
    kept += [(name, value.encode()) for name, value in outgoing.provenance.items()]
    return Message(
        target.name,
        sent.key,
        None if _is_null(record) else record.body,
        kept,
        _partition(record, sent) if record.origin == target.name else None,
        _published_ms(record),
    )


def _published_ms(record: Record) -> int | None:
    """Return when a letter was published, in milliseconds; None where it is not known."""
    at = record.published_at
    return None if at is None or at <= 0 else at // 1000


def _why_unsayable(names: Iterable[str], gone: Collection[str]) -> str | None:
    """Return why the client library, which takes names of headers as C strings in UTF-8, cannot send one."""
    for name in names:
        if name not in gone and ((shown := shown_name(name)) != name or "\0" in name):
            return f"its header {shown!r} has a name that the Kafka client cannot send; change it by --edit"
    return None


def _is_null(record: Record) -> bool:
    """Return whether it has no value: what is empty and was null. An edit may have given it one."""
    return bool((record.flags or 0) & VALUE_WAS_NULL) and record.body_size == 0


def _lacks_its_original(record: Record, sent: Sent) -> bool:
    """Return whether it is a pointer of a share group to what was not had, or was not looked for."""
    is_bare = _is_null(record) and sent.key is None and OF_SHARE_GROUP.offset in sent.names
    return is_bare or bool((record.flags or 0) & UNRESOLVED)


def _partition(record: Record, sent: Sent) -> int | None:
    """Return the partition of its origin in which it died."""
    headers = chain(zip(sent.names, sent.values, strict=True), sent.around)
    told = tuple([header for header in headers if header[0] in TELL_THE_PARTITION])
    return _told_partition(told, record.dead_letter_queue)


@lru_cache(maxsize=256)
def _told_partition(headers: Headers, dead_letter_topic: str) -> int | None:
    died = died_at(texts_of(headers), dead_letter_topic)
    text = died.partition if died is not None and died.partition else ""
    return int(text) if text.isdecimal() and len(text) < 7 else None


def retry_topics(names: Iterable[str]) -> dict[str, list[str]]:
    """Topic -> those of these names that are its retry topics (`@RetryableTopic`), the first retry first."""
    found: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        if match := _RETRY_TOPIC.fullmatch(name):
            found.setdefault(match[1], []).append((int(match[2] or 0), name))
    return {topic: [name for _, name in sorted(numbered)] for topic, numbered in found.items()}


def mirrored_clusters(names: Iterable[str]) -> set[str]:
    """Return the clusters of which MirrorMaker mirrors topics into this one, by its own topics (MirrorMaker's
    DefaultReplicationPolicy)."""
    return {match[1] for name in names if (match := _OF_MIRRORS.fullmatch(name))}


def _why_not_there(record: Record, target: Target, mirrored: Collection[str]) -> str | None:
    """Return why the topic in which a letter died is no place for it."""
    if target.name != record.origin:
        return None
    if LOOKS_DEAD.search(target.name):
        return f"{target.name}, in which it died, is itself named as a topic of dead letters"
    cluster = record.dead_letter_queue.partition(".")[0]
    if cluster not in mirrored or target.name.startswith(f"{cluster}."):
        return None
    return (
        f"{record.dead_letter_queue} is mirrored from the cluster {cluster}, where it died: {target.name} of "
        "this cluster is another topic"
    )


@dataclass(frozen=True)
class Told:
    """What a cluster tells of a topic that is to be sent to."""

    settings: Mapping[str, str] | None = None
    """None: nobody tells them."""
    retries: Sequence[str] = ()
    """Its retry topics."""
    mirrored: Collection[str] = ()
    """See `mirrored_clusters`."""

    @cached_property
    def is_compacted(self) -> bool:
        """Whether a newer value replaces an older one of its key."""
        return "compact" in (self.settings or {}).get("cleanup.policy", "")

    @cached_property
    def times(self) -> Times:
        """What it does with records by their own time."""
        return times_of(self.settings)


def preview(letter: Outgoing, told: Told) -> SendPreview:
    """Return what sending it would strip, warn of, or fail on."""
    record, target, keep_headers = letter.record, letter.target, letter.keep_headers
    try:
        sent = _read_sent(record)
    except ValueError as error:
        return SendPreview(problem=str(error))
    taken = _removed_headers(sent, keep_headers)
    stripped = taken.stripped
    if taken.unsayable:
        return SendPreview(stripped, taken.unsayable)
    if _lacks_its_original(record, sent):
        pointer = record.properties.get("pointer", "its original was not had")
        return SendPreview(stripped, f"it points to a record that is not in it: {pointer}")
    if told.is_compacted and sent.key is None:
        return SendPreview(stripped, f"{target.name} is compacted and takes no record without a key")
    unless_named: dict[Literal["letter", "target"], str] = {}
    if _is_null(record) and sent.key is not None:
        unless_named["letter"] = "it is a tombstone, which deletes its key for who keeps the newest value"
    if why := _why_not_there(record, target, told.mirrored) or _harm(target.name, told):
        unless_named["target"] = why
    return SendPreview(stripped, None, [*_warnings(record, target, told)], unless_named)


def _harm(topic: str, told: Told) -> str | None:
    """Return what a topic does with what is sent there that is no place for it."""
    if told.settings is None:
        return (
            f"it is not known whether {topic} is compacted, where an old value would replace a newer one "
            "(DESCRIBE_CONFIGS on the topic)"
        )
    if told.is_compacted:
        return f"{topic} is compacted: an old value would replace a newer one of its key"
    return why_gone(topic, told.times)


_ALWAYS = str(2**63 - 1)
_UNASKED = Told({
    "retention.ms": "-1",
    "message.timestamp.before.max.ms": _ALWAYS,
    "message.timestamp.after.max.ms": _ALWAYS,
})  # fmt: skip
"""A topic that does nothing to a letter."""


def preview_offline(letter: Outgoing) -> SendPreview:
    """Return the same where nobody knows what kind of topic the target is."""
    found = preview(letter, _UNASKED)
    unknown = f"whether {letter.target.name} is compacted, and keeps the times of letters, is not known"
    return found._replace(warnings=[*found.warnings, unknown])


def _warnings(record: Record, target: Target, told: Told) -> Iterator[str]:
    pointer = record.properties.get("pointer", "resolved")
    if pointer != "resolved":
        yield f"sent without its headers and time: {pointer}"
    now = time.time() * 1000
    if why := why_not_kept(target.name, told.times, _published_ms(record), now):
        yield f"sent with the time of the replay: {why}"
    if told.retries and _has_retried(record, target):
        narrow = " or ".join(f"topic:{name}" for name in told.retries)
        yield f"every group of {target.name} gets it again; --to {narrow} reaches the failed one alone"


def _has_retried(record: Record, target: Target) -> bool:
    """Return whether it died in the target, of a group with retry topics; those of others are not its."""
    died = died_at(record.headers, record.dead_letter_queue)
    return died is not None and died.told_by is SPRING_RETRY and died.topic == target.name
