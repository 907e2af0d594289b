"""From a stored RocketMQ message to a record. Field names in `headers` are Java's (design section 9)."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from struct import pack

import pyarrow as pa

from dlq.connectors.base import ReadRequest
from dlq.connectors.records import common_columns, key_column
from dlq.connectors.rocketmq.link.message import host_name
from dlq.connectors.rocketmq.link.remoting import ProtocolError
from dlq.connectors.rocketmq.records.bodies import COMPRESSED, plain_body
from dlq.connectors.rocketmq.records.columns import StoredColumns, parse_blocks, parse_columns
from dlq.core.columns import ArrowArray, Column, Columns, Constant, Maps, collapse, map_column, values_of
from dlq.core.headers.rocketmq_topics import DEAD_LETTERS, DISCARDED, HALF, OP_TOPIC, origin_of
from dlq.core.identity import frame, placed_ids
from dlq.core.record import Record

_END_OF_TIME = 253_402_300_800_000
_ENCODINGS = {0: "deflate", 1: "lz4", 2: "zstd", 3: "deflate"}
"""HTTP's names; its `deflate` is the zlib format."""

_Maker = Callable[[Sequence[bytes]], Sequence[Record]]
_host_name = lru_cache(maxsize=4096)(host_name)


def record_maker(request: ReadRequest, version: str, node: str) -> _Maker:
    """Return the function that makes records of stored messages of one broker node, for one pull.

    It raises ProtocolError where one of them is damaged.
    """

    def make(messages: Sequence[bytes]) -> Sequence[Record]:
        if not messages:
            return []
        found = parse_columns(messages)
        if len(set(found.topic)) == 1:
            return columns(found)
        runs = groupby(zip(found.topic, messages, strict=True), itemgetter(0))
        return [
            record for _, run in runs for record in columns(parse_columns([message for _, message in run]))
        ]

    def columns(found: StoredColumns) -> Columns:
        topic = found.topic[0]
        rows, group = len(found.topic), _group(topic)
        store_hosts = collapse(found.store_host)
        physical_ids = _physical_ids(found, store_hosts)
        headers = _headers(found, physical_ids, store_hosts)
        properties = parse_blocks(found.properties)
        unique_keys = values_of(properties, "UNIQ_KEY")
        digests = [sha256(body).digest() for body in found.body]
        start = frame("\0".join((request.source.name, node, topic)).encode())
        return Columns.build(
            rows,
            record_id=placed_ids(Constant(start, rows), _places(found), found.properties, digests),
            dead_letter_queue=Constant(topic, rows),
            message_id=unique_keys,
            physical_id=physical_ids,
            key=key_column(request, unique_keys, headers, properties, _readable_bodies(found)),
            headers=headers,
            raw_properties=found.properties,
            body=found.body,
            body_size=[*map(len, found.body)],
            body_sha256=[digest.hex() for digest in digests],
            **_of_numbers(found, group),
            **_of_properties(topic, group, properties),
            **common_columns(rows, request, "rocketmq", version, node),
        )

    return make


def _physical_ids(found: StoredColumns, store_hosts: Column) -> list[str]:
    hosts, positions = map_column(_hex, store_hosts), _hex_numbers(found.commit_log_offset)
    return [f"{host}{position}" for host, position in zip(hosts, positions, strict=True)]


def _headers(found: StoredColumns, physical_ids: Sequence[str], store_hosts: Column) -> Maps:
    """Return the fixed fields."""
    return Maps({
        "msgId": physical_ids,
        "queueId": _texts(found.queue_id),
        "queueOffset": _texts(found.queue_offset),
        "commitLogOffset": _texts(found.commit_log_offset),
        "preparedTransactionOffset": _texts(found.prepared_transaction_offset),
        "sysFlag": _texts(found.sys_flag),
        "flag": _texts(found.flag),
        "reconsumeTimes": _texts(found.reconsume_times),
        "bornTimestamp": _texts(found.born_at),
        "bornHost": map_column(_host_name, collapse(found.born_host)),
        "storeTimestamp": _texts(found.stored_at),
        "storeHost": map_column(_host_name, store_hosts),
    }, len(physical_ids))  # fmt: skip


def _places(found: StoredColumns) -> Iterator[bytes]:
    """Return what names each in its broker."""
    numbers_of = (found.queue_id, found.queue_offset, found.commit_log_offset)
    return map(b"%d:%d:%d".__mod__, zip(*numbers_of, strict=True))


def _of_numbers(found: StoredColumns, group: str | None) -> dict[str, Column]:
    """Return what the fixed fields tell."""
    sys_flag, attempts = collapse(found.sys_flag), collapse(found.reconsume_times)
    return {
        "queue_id": collapse(found.queue_id),
        "offset": collapse(found.queue_offset),
        "published_at": _micros(found.born_at),
        "dead_at": _micros(found.stored_at),
        "attempts": Constant(None, len(found.topic)) if group is None else attempts,
        "content_encoding": map_column(_content_encoding, sys_flag),
        "flags": sys_flag,
    }


def _of_properties(topic: str, group: str | None, properties: Column) -> dict[str, Column]:
    """Return what the properties tell."""
    origins = _origins(topic, group, properties)
    return {
        "correlation_id": values_of(properties, "CORRELATION_ID"),
        "keys": map_column(_words, values_of(properties, "KEYS")),
        "origin_kind": map_column(_kind, origins),
        "origin": origins,
        "origin_group": Constant(group, len(properties)),
        "properties": properties,
    }


def _group(topic: str) -> str | None:
    return topic[len(DEAD_LETTERS) :] if topic.startswith(DEAD_LETTERS) else None


def _hex(host: bytes) -> str:
    return host.hex().upper()


def _words(keys: str | None) -> list[str]:
    return keys.split() if keys else []


def _kind(origin: str | None) -> str | None:
    return "topic" if origin else None


def _content_encoding(sys_flag: int) -> str | None:
    return _ENCODINGS.get(sys_flag >> 8 & 7) if sys_flag & COMPRESSED else None


def _origins(topic: str, group: str | None, properties: Column) -> Column:
    if topic in (HALF, DISCARDED):
        return values_of(properties, "REAL_TOPIC")
    if group is None:
        return Constant(None if topic == OP_TOPIC else topic, len(properties))
    told = zip(values_of(properties, "DLQ_ORIGIN_TOPIC"), values_of(properties, "RETRY_TOPIC"), strict=True)
    return map_column(partial(origin_of, group=group), collapse([first or second for first, second in told]))


def _hex_numbers(values: Sequence[int]) -> list[str]:
    digits = pack(f">{len(values)}q", *values).hex().upper()
    return [digits[at : at + 16] for at in range(0, len(digits), 16)]


def _texts(values: Sequence[int]) -> Column:
    """Numbers as decimal text."""
    found = collapse(values)
    return (
        map_column(str, found)
        if isinstance(found, Constant)
        else ArrowArray(pa.array(found).cast(pa.string()))
    )


def _micros(millis: Sequence[int]) -> list[int | None]:
    """Producers may send any time; what no calendar has stays in `headers` alone."""
    return [value * 1000 if 0 < value < _END_OF_TIME else None for value in millis]


def _readable_bodies(found: StoredColumns) -> Iterator[bytes]:
    """Yield the bodies that can be read, for the business key."""
    yield from map(readable_body, found.body, found.sys_flag)


def readable_body(body: bytes, sys_flag: int) -> bytes:
    """Return the body for the business key: as the producer wrote it, where it can be had."""
    try:
        return plain_body(body, sys_flag)
    except ProtocolError:
        return body
