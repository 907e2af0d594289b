"""What of a RabbitMQ letter goes back, and where to. No I/O.

Sent again as it lies in the DLQ, a letter would carry broker-made headers that servers up to 3.12
and 3.13.3+ believe (a kept x-death can make the broker drop the message), an `expiration` that ends
it at once, a `user_id` that closes the channel, CC keys that send it to more queues than the one
that failed, and the traces of the framework that parked it.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from dlq.connectors.amqp10.codec import message
from dlq.connectors.amqp10.codec.values import NOTHING, as_text, sequence_of_all, string
from dlq.connectors.base import Outgoing, SendPreview, Target
from dlq.connectors.rabbitmq.amqp091.codec import edits, table, typed
from dlq.connectors.rabbitmq.amqp091.codec.blocks import BIT, KIND, SHORT
from dlq.connectors.rabbitmq.records.amqp10 import ENCODED_BODY, headers_of, properties_of
from dlq.connectors.rabbitmq.records.envelope import Way, decoded, first_delivered, what_changes
from dlq.core.errors import UsageError
from dlq.core.headers.failure_headers import (
    Answers,
    HeaderScrub,
    Keep,
    ask_values,
    restart,
    restart_told,
    taken_away,
)
from dlq.core.headers.message_ids import logged_id
from dlq.core.record import Record

MAX_FRAME = 131_072
"""Octets of a frame where nothing else is configured; a header frame cannot be split."""
CAUTIOUS_BODY = 16 * 2**20
"""The largest body that every server takes: max_message_size of RabbitMQ 4 (3.x: 128 MiB)."""
_LARGEST_BODY = 512 * 2**20
"""No server can be configured to take more (release notes 3.8.0)."""

_FRAME_OVERHEAD = 8 + 12
_SMALL = MAX_FRAME // 2
"""A block of so many bytes fits a frame with all that a replay adds."""
_DIRECT_REPLY = "amq.rabbitmq.reply-to"
_DIRECT_REPLY_BYTES = _DIRECT_REPLY.encode()
_DROPPED_PROPERTIES = ("expiration", "user_id")
_BROKER_OWNED = re.compile(
    r"x-death|x-(first|last)-death-.*|x-(delivery|acquired)-count|x-opt-.*|x-stream-offset|CC|BCC", re.DOTALL
)
_BROKER_OWNED_10 = re.compile(
    r"x-death|x-(first|last)-death-.*|x-(delivery|acquired)-count|x-exchange|x-routing-key|x-stream-offset"
    r"|x-cc|x-opt-deaths|x-opt-rabbitmq-.*",
    re.DOTALL,
)
"""By AMQP 1.0: other annotations with x-opt- are the sender's."""
_MOST_NAMES = 100
"""What follows from the names of so many headers is remembered."""
_TARGETS = ("queue", "exchange")


@lru_cache(maxsize=4096)
def _is_broker_owned(name: str) -> bool:
    """Return whether a broker makes this header or acts on it; a replay never sends it."""
    return _BROKER_OWNED.fullmatch(name) is not None


@lru_cache(maxsize=4096)
def _is_broker_owned_10(name: str) -> bool:
    return _BROKER_OWNED_10.fullmatch(name) is not None


@lru_cache(maxsize=256)
def _dropper(is_broker_owned: Callable[[str], bool], gone: frozenset[str]) -> Callable[[str], bool]:
    """Return whether a header is not sent again: one for all letters of a kind, whose answers are kept."""
    return lambda name: name in gone or is_broker_owned(name)


def target_of(record: Record, to: str) -> Target | None:
    """Return where `record` goes for `--to`; None when nothing says where it came from.

    `origin` is the queue where it died, by the default exchange, so that no other queue gets it; an
    unroutable letter has none and goes to its exchange again. `exchange:NAME` without a key takes
    the key that the letter was first published with. Raises UsageError.
    """
    kind, _, name = to.partition(":")
    if to == "origin":
        return _origin(record)
    if kind not in _TARGETS or (kind == "queue" and not name):
        raise UsageError(
            f"--to {to!r}: RabbitMQ has queues and exchanges; use origin, queue:NAME or exchange:NAME/KEY"
        )
    if kind == "queue":
        return Target("queue", name)
    exchange, slash, key = name.partition("/")
    wanted = key if slash else _first_key(record)
    return None if wanted is None else Target("exchange", exchange, wanted)


def _origin(record: Record) -> Target | None:
    if record.origin_kind == "exchange":
        exchange = record.origin if record.origin_exchange is None else record.origin_exchange
        return None if exchange is None else Target("exchange", exchange, _first_key(record) or "")
    if record.origin_kind in ("queue", None) and record.origin:
        return Target("queue", record.origin)
    return None


def _first_key(record: Record) -> str | None:
    """Return the first key of a letter: an alternate exchange keeps it, and for others x-death has it."""
    return record.routing_key if record.origin_routing_key is None else record.origin_routing_key


def address_of(target: Target) -> tuple[str, str]:
    """Return (exchange, routing key): a queue is reached by its name through the default exchange."""
    return (target.name, target.routing_key) if target.kind == "exchange" else ("", target.name)


def block_to_send(
    record: Record, provenance: Mapping[str, str], keep_headers: Keep, copies: Sequence[str] = ()
) -> bytes:
    """Return the property block of a replay: what is not stripped stays byte for byte as it was stored.
    `copies` are the keys of its header CC.

    Raises ValueError when it cannot be encoded.
    """
    block = record.raw_properties
    taken = _removal(record, keep_headers).restart
    copied = {"CC": typed.encode_field([*copies], None)} if copies else {}
    return edits.edit(
        _new_block(record) if block is None else block,
        _dropper(_is_broker_owned, taken.gone),
        {**provenance, **copied},
        (*_DROPPED_PROPERTIES, "reply_to") if _replies_directly(record) else _DROPPED_PROPERTIES,
        _PERSISTENT,
        taken.fixed,
    )


def message_to_send(
    record: Record, provenance: Mapping[str, str], keep_headers: Keep, copies: Sequence[str] = ()
) -> bytes:
    """Return the whole message of a replay by AMQP 1.0, of a record that has its block. Raises ValueError."""
    return message.join_message(_block_10(record, provenance, keep_headers, copies), record.body)


def _block_10(
    record: Record, provenance: Mapping[str, str], keep_headers: Keep, copies: Sequence[str] = ()
) -> bytes:
    """Return the block of a replay, whose application properties are numbers and texts, never containers."""
    block = record.raw_properties or b""
    taken = restart(headers_of(message.parts(block)), keep_headers)
    copied = {"x-cc": sequence_of_all([*map(string, copies)])} if copies else {}
    block = message.set_back(block, taken.fixed)
    return message.to_send(block, _dropper(_is_broker_owned_10, taken.gone), provenance, copied)


def edit_headers(block: bytes, drop: Callable[[str], bool], changed: Mapping[str, object]) -> bytes:
    """Return the block with other headers, in the types that they had
    (`dlq.core.brokers.Plugin.edit_headers`). Raises UsageError that names the header, ValueError for a
    damaged block."""
    if message.is_block(block):
        return message.edit_typed(block, drop, changed)
    before = dict(reversed(list(typed.named_fields(edits.header_table(block)))))
    return edits.edit(block, drop, {name: _encode(name, value, before) for name, value in changed.items()})


def _encode(name: str, value: object, before: Mapping[str, bytes]) -> bytes:
    try:
        return typed.encode_field(value, before.get(name))
    except ValueError as error:
        raise UsageError(f"header {name!r}: {error}") from error


def edit_properties(block: bytes, properties: Mapping[str, str]) -> bytes:
    """Return the block with these properties and no others, its headers as they are. Raises UsageError."""
    if message.is_block(block):
        shown = properties_of(message.parts(block), is_encoded=properties.get("type") == ENCODED_BODY)
        return message.edit_properties(block, shown, properties)
    known = table.decode(block).properties
    unknown = sorted(properties.keys() - BIT.keys())
    if unknown:
        raise UsageError(f"AMQP has no property {unknown[0]!r}; leave it out")
    changed = {name: value for name, value in properties.items() if known.get(name) != value}
    return edits.edit(
        block, drop_properties=known.keys() - properties.keys(), set_properties=_numbers(changed)
    )


def _numbers(properties: Mapping[str, str]) -> dict[str, str | int]:
    try:
        return {name: value if KIND[name] is SHORT else int(value) for name, value in properties.items()}
    except ValueError as error:
        raise UsageError(f"a property is no whole number: {error}") from error


_PERSISTENT: Mapping[str, str | int] = {"delivery_mode": 2}


def _replies_directly(record: Record) -> bool:
    """Return whether it answers to a pseudo-queue, which is gone with the asker's connection."""
    block = record.raw_properties
    if block is None:
        return record.properties.get("reply_to", "").startswith(_DIRECT_REPLY)
    if _DIRECT_REPLY_BYTES not in block:
        return False
    return decoded(block).properties.get("reply_to", "").startswith(_DIRECT_REPLY)


def _new_block(record: Record) -> bytes:
    """Return a block for a letter that came without one (imported, or edited): all headers as text."""
    fields = {name: getattr(record, name) for name in ("correlation_id", "content_type")}
    if record.message_id != logged_id(None, record.headers, record.body):  # a framework's is no property
        fields["message_id"] = record.message_id
    fields |= {"content_encoding": record.content_encoding, "priority": record.priority}
    properties = {name: value for name, value in fields.items() if value is not None} | dict(
        record.properties
    )
    headers = {name: value for name, value in record.headers.items() if not _is_broker_owned(name)}
    return edits.block_of(headers, properties)


def preview(letter: Outgoing) -> SendPreview:
    """See `Connector.preview`. Knows `record.body_size`; needs no body."""
    _, record, target, provenance, keep_headers = letter
    if message.is_block(record.raw_properties):
        return _preview_10(letter)
    try:
        taken, names, also = _removal(record, keep_headers)
        properties = _short_texts(record)
        size = _size_to_send(record, provenance, keep_headers, taken)
    except ValueError as error:
        return SendPreview(problem=f"its properties cannot be sent: {error}")
    stripped = [*also, *(name for name in _DROPPED_PROPERTIES if name in properties)]
    if _replies_directly(record):
        stripped.append("reply_to")
    warnings = [text for applies, text in _WARNINGS if applies(record, properties, names, target)]
    return SendPreview(stripped, _problem(record, target, size), warnings)


class _Taken(NamedTuple):
    """What is taken away of a letter's headers."""

    restart: HeaderScrub
    names: Collection[str]
    """All its headers."""
    stripped: Sequence[str]
    """Those that are not sent again, in words."""


def _removal(record: Record, keep_headers: Keep) -> _Taken:
    """Return what is taken away of a letter, asked once of those with the same names and answers. Raises
    ValueError."""
    block = record.raw_properties
    names = None if block is None else edits.header_names(block)
    if names is not None and len(names) <= _MOST_NAMES:
        keep = keep_headers if isinstance(keep_headers, bool) else tuple(keep_headers)
        answers = ask_values(names, lambda name: _decode(record)[1][name], keep)
        if (known := _removal_by_names(names, answers, keep)) is not None:
            return known
    headers = _decode(record)[1]
    taken = restart(headers, keep_headers)
    return _Taken(taken, headers, [*filter(_is_broker_owned, headers), *taken_away(headers, taken)])


@lru_cache(maxsize=256)
def _removal_by_names(names: tuple[str, ...], answers: Answers, keep_headers: Keep) -> _Taken | None:
    """Return None where a name comes twice, or what is fixed counts, too."""
    taken, each = restart_told(names, answers, keep_headers), dict.fromkeys(names, "")
    if taken.fixed or len(each) < len(names):
        return None
    return _Taken(taken, each.keys(), [*filter(_is_broker_owned, each), *taken_away(each, taken)])


def _short_texts(record: Record) -> Mapping[str, str]:
    return record.properties if record.raw_properties is None else edits.short_texts(record.raw_properties)


def _size_to_send(
    record: Record, provenance: Mapping[str, str], keep_headers: Keep, taken: HeaderScrub
) -> int:
    """Return the bytes of the block of a replay, or of one that is small anyway. Raises ValueError."""
    block = record.raw_properties
    if block is not None and len(block) <= _SMALL and not taken.fixed:
        return len(block)  # it could be read, and nothing of it is encoded anew
    return len(block_to_send(record, provenance, keep_headers))


def preview_offline(letter: Outgoing) -> SendPreview:
    """Return the same, of a plan that has no way of its own, as nobody was asked for one."""
    found, target = preview(letter), letter.target
    if found.problem is not None or target.kind != "queue":
        return found
    came = first_delivered(letter.record, target.name)
    changes = what_changes(target.name, came, Way("", target.name), _UNASKED)
    return found._replace(warnings=[*found.warnings, changes]) if changes else found


_UNASKED = "the broker was not asked how to keep them, nor where letters go that die again"


def _preview_10(letter: Outgoing) -> SendPreview:
    _, record, target, provenance, keep_headers = letter
    try:
        parts = message.parts(record.raw_properties or b"")
        _block_10(record, provenance, keep_headers)
    except ValueError as error:
        return SendPreview(problem=f"its sections cannot be sent: {error}")
    headers = headers_of(parts)
    names = [as_text(key) for key, _ in (*parts.annotations, *parts.application)]
    stripped = [name for name in names if _is_broker_owned_10(name)]
    stripped += taken_away(headers, restart(headers, keep_headers))
    stripped += [name for name in message.NOT_SENT if parts.properties.get(name, NOTHING) != NOTHING]
    return SendPreview(stripped, _problem(record, target), [_ONLY_1_0, *_large(record)])


_ONLY_1_0 = (
    "only AMQP 1.0 carries it: a consumer of its target that speaks AMQP 0-9-1 loses its connection over it "
    "(541)"
)


def _large(record: Record) -> list[str]:
    return [_TOO_LARGE_FOR_4] if record.body_size > CAUTIOUS_BODY else []


def _decode(record: Record) -> tuple[Mapping[str, str], Mapping[str, str]]:
    if record.raw_properties is None:
        return record.properties, record.headers
    return decoded(record.raw_properties)


def _problem(record: Record, target: Target, size: int = 0) -> str | None:
    if _has_long_name(target):
        return "the name of its target is longer than the 255 bytes that AMQP allows"
    if why := why_no_frame(size):
        return why
    if record.body_size > _LARGEST_BODY:
        return f"its body of {record.body_size} bytes is larger than any RabbitMQ takes"
    return None


def why_no_frame(size: int, frame_max: int = MAX_FRAME) -> str | None:
    """Return why a block of so many bytes cannot be sent, if it cannot."""
    if size + _FRAME_OVERHEAD <= frame_max:
        return None
    taken = f"its headers take {size} bytes with ours"
    return f"{taken}, more than fits a frame of {frame_max}; shorten them with --edit"


@lru_cache(maxsize=256)
def _has_long_name(target: Target) -> bool:
    return any(len(name.encode("utf-8", "surrogatepass")) > 255 for name in address_of(target))


_TOO_LARGE_FOR_4 = (
    "a body larger than 16 MiB is refused by RabbitMQ 4 unless max_message_size was raised; "
    "such letters are sent one at a time"
)
_Applies = Callable[[Record, Mapping[str, str], Collection[str], Target], bool]
_WARNINGS: tuple[tuple[_Applies, str], ...] = (
    (
        lambda record, _properties, _headers, _target: record.dead_letter_queue.endswith(".XQ"),
        "Dramatiq counts its retries in the body, which stays as it is: where they are used up, the first "
        "failure kills it again",
    ),
    (lambda record, _properties, _headers, _target: record.body_size > CAUTIOUS_BODY, _TOO_LARGE_FOR_4),
    (
        lambda _record, _properties, headers, target: target.kind == "exchange" and "x-delay" in headers,
        "x-delay is kept: an x-delayed-message exchange delays the letter again and confirms it unrouted",
    ),
    (
        lambda _record, _properties, headers, _target: "x-deduplication-header" in headers,
        "x-deduplication-header is kept: an exchange or queue of that plugin which has seen its value drops "
        "the letter, and the broker confirms it",
    ),
    (
        lambda _record, properties, _headers, _target: "reply_to" in properties,
        "some letters have reply_to: the requester may no longer wait for the answer",
    ),
    (
        lambda record, _properties, headers, _target: record.raw_properties is None and bool(headers),
        "letters that were imported or whose headers were edited are sent with all headers as text",
    ),
)
