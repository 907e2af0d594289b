"""From STOMP MESSAGE frames to records, for ActiveMQ Classic and Artemis."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from dlq.connectors.activemq.amqp.codec import NATIVE, Shown, decode_stored
from dlq.connectors.activemq.stomp.codec import Frame, headers_of, unescape
from dlq.connectors.base import ReadRequest
from dlq.connectors.records import common_columns, content_columns, key_column
from dlq.core.clock import datable
from dlq.core.columns import Column, Columns, Constant, Maps, collapse, map_column
from dlq.core.headers.message_ids import of_client
from dlq.core.headers.provenance import REPLAY_PREFIX
from dlq.core.identity import content_id, frame
from dlq.core.record import FLAG_INNER_NUL, NOTHING, Record

PER_DELIVERY = (b"subscription:", b"ack:", b"redelivered:", b"message-id:", b"browser:")
"""Header lines that differ from one delivery to the next (Artemis' message-id begins with the consumer)."""


class Heads(NamedTuple):
    """Header lines of many frames of one kind, a column for each header: their places among all frames, their
    headers, and what each keeps for life. They have the same headers in the same order, most with the same
    values, so what all of them share is decoded once."""

    places: Sequence[int]
    headers: Column
    stable: Column

    def column(self, name: str) -> Column:
        """Return one header; None where there is none."""
        if isinstance(self.headers, Maps):
            return self.headers.columns.get(name, Constant(None, len(self.places)))
        return [headers.get(name) for headers in self.headers]


def by_kind(heads: Sequence[bytes]) -> Iterator[Heads]:
    """Yield the heads, those of one kind together."""
    lines = [head.split(b"\n") for head in heads]
    if (found := _alike(range(len(heads)), lines)) is not None:
        yield found
        return
    kinds: dict[tuple[bytes, ...], list[int]] = {}
    for place, some in enumerate(lines):
        kinds.setdefault(tuple([line.rpartition(b":")[0] for line in some]), []).append(place)
    for places in kinds.values():
        alike = _alike(places, [lines[place] for place in places])
        yield alike or _one_by_one(places, [heads[place] for place in places])


def _one_by_one(places: Sequence[int], heads: Sequence[bytes]) -> Heads:
    headers = [headers_of(head, of_message=True) for head in heads]
    return Heads(places, headers, list(map(stable_lines, heads)))


def _alike(places: Sequence[int], heads: Sequence[list[bytes]]) -> Heads | None:
    """Return None where headers differ, or are no headers."""
    if len(set(map(len, heads))) != 1:
        return None
    columns: dict[bytes, list[Column]] = {}
    for lines in zip(*heads, strict=True):
        column = collapse(lines)
        name, colon, _ = lines[0].rpartition(b":")  # Classic escapes no name, and all values
        begin = name + colon
        if not colon or not (isinstance(column, Constant) or all(_begin_with(begin, lines))):
            return None
        columns.setdefault(begin, []).append(column)
    headers = {name[:-1].decode("utf-8", "replace"): _values(name, own[0]) for name, own in columns.items()}
    if len(headers) != len(columns):
        return None
    return Heads(places, Maps(headers, len(places)), _stable(columns, len(places)))


def _begin_with(begin: bytes, lines: Iterable[bytes]) -> Iterator[bool]:
    last = len(begin) - 1
    return (line.rfind(b":") == last and line.startswith(begin) for line in lines)


def _values(begin: bytes, lines: Column) -> Column:
    skipped = len(begin)

    def value(line: bytes) -> str:
        text = line[skipped:].decode("utf-8", "replace")
        return unescape(text) if "\\" in text else text

    return map_column(value, lines)


def _stable(columns: Mapping[bytes, Sequence[Column]], rows: int) -> Column:
    """Join sorted lines: a name ends with its colon, so names sort as lines do, but for those of one name,
    and for names with another colon."""
    names = [name for name in sorted(columns) if not name.startswith(PER_DELIVERY)]
    kept = [columns[name] for name in names]
    lines: Iterable[Sequence[bytes]] = zip(*chain(*kept), strict=True)
    are_odd = any(len(columns[name]) > 1 or name.count(b":") > 1 for name in names)
    in_order = map(sorted, lines) if are_odd else lines
    return collapse([*map(b"\n".join, in_order)]) if kept else Constant(b"", rows)


def stable_lines(head: bytes) -> bytes:
    """Return the header lines that a message keeps for life, sorted: Classic's order is a hash map's."""
    return b"\n".join(sorted([line for line in head.split(b"\n") if not line.startswith(PER_DELIVERY)]))


_ASTRAL, _SHOWN = re.compile(rb"[\xf0-\xf4][\x80-\xbf]{3}"), "\ufffd\ufffd".encode()


def _as_stored(stable: bytes) -> bytes:
    """Lines of which a letter's id is made, as Classic shows them once the letter has been in its store: two
    U+FFFD for a character beyond U+FFFF of a property, which from its memory come as they are."""
    return stable if stable.isascii() else _ASTRAL.sub(_SHOWN, stable)


Maker = Callable[[Sequence[Frame]], Sequence[Record]]
_NUMBERS = {str(n): n for n in range(256)}
"""Priorities; anything else is kept in the headers alone."""


class Place(NamedTuple):
    """Where letters are read."""

    queue: str
    kind: str
    version: str
    node: str


def bare_destination(destination: str | None) -> tuple[str | None, str | None]:
    """(queue or topic, name) of `/queue/orders`; Artemis writes the name alone. (None, None) for nothing."""
    for kind in ("queue", "topic"):
        if destination and destination.startswith((f"/{kind}/", f"{kind}://")):
            return kind, destination.removeprefix(f"/{kind}/").removeprefix(f"{kind}://")
    return ("queue", destination) if destination else (None, None)


def _classic_ids(heads: Heads) -> Column:
    return map_column(lambda text: text or "", heads.column("message-id"))


def _artemis_ids(heads: Heads) -> Column:
    """Return the core id that the message had where it died, else the one it has here."""
    return [*map(_artemis_id, heads.column("_AMQ_ORIG_MESSAGE_ID"), heads.column("message-id"))]


def _artemis_id(original: str | None, message_id: str | None) -> str:
    return original or (message_id or "").rpartition(",")[2]


def _logged_ids(heads: Heads, ids: Column) -> Column:
    """Return the ids that applications know: their client's own, whichever the broker has given."""
    openwire, amqp = heads.column("__HDR_MESSAGE_ID"), heads.column("NATIVE_MESSAGE_ID")
    return [*map(of_client, openwire, amqp, ids)]


def _artemis_origins(heads: Heads) -> Column:
    names = ("_AMQ_ORIG_ROUTING_TYPE", "_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE")
    return collapse([*map(artemis_origin, *map(heads.column, names))])


def artemis_origin(
    routing: str | None, address: str | None, queue: str | None
) -> tuple[str | None, str | None]:
    """(kind, name) of where a letter died, by what Artemis tells of it."""
    if routing == "0" and address:
        return "topic", address
    name = queue or address
    return ("queue", name) if name else (None, None)


def _classic_origins(heads: Heads) -> Column:
    return map_column(bare_destination, heads.column("original-destination"))


def _millis(text: str | None) -> int | None:
    """Milliseconds as microseconds; absent, zero and nonsense are None."""
    if not text or text == "0" or not text.isascii() or not text.isdigit() or len(text) > 15:
        return None
    return datable(int(text) * 1000) or None


def record_maker(request: ReadRequest, place: Place) -> Maker:
    """Return the function that turns this reading's frames into records."""
    artemis = place.kind == "artemis"
    ids_of, origins_of = (_artemis_ids, _artemis_origins) if artemis else (_classic_ids, _classic_origins)
    first_parts = frame(request.source.name.encode(), place.queue.encode())

    def make(frames: Sequence[Frame]) -> Sequence[Record]:
        kinds = list(by_kind([frame.head for frame in frames]))
        if len(kinds) == 1:
            return columns(frames, kinds[0])
        made: list[tuple[int, Record]] = []
        for heads in kinds:
            made += zip(heads.places, columns([frames[at] for at in heads.places], heads), strict=True)
        return [record for _, record in sorted(made, key=itemgetter(0))]

    def columns(frames: Sequence[Frame], heads: Heads) -> Columns:
        rows = len(frames)
        _, lines, bodies, inner_nuls, raw, properties, died_at = zip(*frames, strict=True)
        ids = ids_of(heads)
        stable = heads.stable if artemis else map_column(_as_stored, heads.stable)
        digests = [sha256(body).digest() for body in bodies]
        record_ids = _record_ids(first_parts, ids, stable, digests)
        message_ids: Column = _logged_ids(heads, ids) if artemis else ids
        types: Column = heads.column("content-type")
        encodings: Column = Constant(None, rows)
        if not artemis and "true" in heads.column(NATIVE):
            bodies, properties, types, encodings, named = _shown_natives(heads, bodies, properties, types)
            message_ids = [name or own for name, own in zip(named, ids, strict=True)]
            digests = [sha256(body).digest() for body in bodies]
        keyless = Constant(NOTHING, rows)
        is_escaped = artemis or raw[0] is not None  # Classic's STOMP alone shows names as they are
        headers = _with_bare_names(heads.headers) if is_escaped else heads.headers
        return Columns.build(
            rows,
            record_id=record_ids,
            dead_letter_queue=Constant(place.queue, rows),
            message_id=message_ids,
            physical_id=ids,
            key=key_column(request, message_ids, headers, keyless, bodies),
            headers=headers,
            properties=keyless if properties[0] is None else properties,
            raw_properties=lines if raw[0] is None else raw,
            content_type=types,
            content_encoding=encodings,
            flags=map_column(_flags, collapse(inner_nuls)),
            **_of_heads(heads, heads.column("_AMQ_ACTUAL_EXPIRY") if artemis else collapse(died_at)),
            **_of_origins(origins_of(heads)),
            **content_columns(bodies, digests),
            **common_columns(rows, request, place.kind, place.version, place.node),
        )

    return make


def _record_ids(first_parts: bytes, ids: Column, stable: Column, digests: Sequence[bytes]) -> Sequence[str]:
    rows = zip(ids, stable, digests, strict=True)
    return [
        content_id(one.encode(), lines, digest.hex().encode(), after=first_parts)
        for one, lines, digest in rows
    ]


def _shown_natives(
    heads: Heads, bodies: Sequence[bytes], properties: Sequence[Mapping[str, str] | None], types: Column
) -> Iterator[tuple[Any, ...]]:
    """Bodies, properties, content types, encodings and message ids, where some came by AMQP 1.0 as they
    were."""
    told = [
        decode_stored(body, known or NOTHING)
        if native == "true"
        else Shown(body, known or NOTHING, own, None)
        for body, known, native, own in zip(bodies, properties, heads.column(NATIVE), types, strict=True)
    ]
    return zip(*told, strict=True)


def _of_heads(heads: Heads, died_at: Column) -> dict[str, Column]:
    """Return what single headers tell."""
    of = heads.column
    return {
        "correlation_id": of("correlation-id"),
        "published_at": map_column(_millis, of("timestamp")),
        "dead_at": map_column(_millis, died_at),
        "expires_at": map_column(_millis, of("expires")),
        "failure_text": of("dlqDeliveryFailureCause"),
        "redelivered": map_column(_is_true, of("redelivered")),
        "persistent": map_column(_is_true, of("persistent")),
        "priority": map_column(_NUMBERS.get, of("priority")),
    }


def _of_origins(origins: Column) -> dict[str, Column]:
    return {"origin_kind": map_column(itemgetter(0), origins), "origin": map_column(itemgetter(1), origins)}


_ANNOTATED = f"JMS_AMQP_MA_{REPLAY_PREFIX}"
"""How Artemis' STOMP names what a replay by AMQP 1.0 left as an annotation, before it was a property."""


def _with_bare_names(headers: Column) -> Column:
    """Return the headers with unescaped names, and with what a replay has left by its own names."""
    if isinstance(headers, Maps):
        return Maps({_bare_name(name): column for name, column in headers.columns.items()}, len(headers))
    return [{_bare_name(name): value for name, value in one.items()} for one in headers]


def _bare_name(name: str) -> str:
    bare = unescape(name) if "\\" in name else name
    return bare.removeprefix("JMS_AMQP_MA_") if bare.startswith(_ANNOTATED) else bare


def _is_true(text: str | None) -> bool:
    return text == "true"


def _flags(inner_nul: bool) -> int | None:
    return FLAG_INNER_NUL if inner_nul else None
