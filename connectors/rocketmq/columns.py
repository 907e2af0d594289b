"""Many stored messages parsed into columns at once, which costs less than one after another.

The layout is in `message`. Messages may differ in everything, IPv4 and IPv6 hosts included; what
depends on a length is found for all of them before anything is taken out.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dlq.connectors.rocketmq.message import BORN_V6, STORED_V6, V2, parse_properties
from dlq.connectors.rocketmq.remoting import ProtocolError
from dlq.core.columns import ArrowArray, Column, Constant, Maps

Numbers = npt.NDArray[np.int64]
_HEAD = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("commit_log_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_at", ">i8"),
    ]
)
_STORED_AT = np.dtype(">i8")
_TAIL = np.dtype([("times", ">i4"), ("prepared", ">i8"), ("length", ">i4")])
_V4_HOST, _V6_HOST = 8, 20


class StoredColumns(NamedTuple):
    """The fields of `StoredMessage`, each as a column: numbers as int64, the topic as text, the rest as
    Arrow's binary."""

    topic: pa.Array
    queue_id: Numbers
    queue_offset: Numbers
    commit_log_offset: Numbers
    sys_flag: Numbers
    flag: Numbers
    born_at: Numbers
    born_host: pa.Array
    stored_at: Numbers
    store_host: pa.Array
    reconsume_times: Numbers
    prepared_transaction_offset: Numbers
    body: pa.Array
    properties: pa.Array


def parse_columns(messages: Sequence[bytes]) -> StoredColumns:
    """The columns of one or more stored messages. Raises ProtocolError where one is damaged."""
    packed = b"".join(messages)
    sizes = np.fromiter(map(len, messages), np.int64, len(messages))
    try:
        return _parse_columns(packed, np.cumsum(sizes) - sizes, sizes)
    except (IndexError, pa.ArrowInvalid) as error:
        raise ProtocolError(f"a damaged message: {type(error).__name__}") from error


def _parse_columns(packed: bytes, starts: Numbers, sizes: Numbers) -> StoredColumns:
    data = np.frombuffer(packed, np.uint8)
    head = _fixed(data, starts, _HEAD)
    sys_flag = head["sys_flag"].astype(np.int64)
    born = starts + _HEAD.itemsize
    stored = born + np.where(sys_flag & BORN_V6, _V6_HOST, _V4_HOST)
    store = stored + _STORED_AT.itemsize
    rest = store + np.where(sys_flag & STORED_V6, _V6_HOST, _V4_HOST)
    tail = _fixed(data, rest, _TAIL)
    body = rest + _TAIL.itemsize
    body_end = body + tail["length"]
    is_long = head["magic"] == V2
    topic = body_end + 1 + is_long
    topic_end = topic + np.where(is_long, _short(data, topic - 2), data[topic - 1])
    properties = topic_end + 2
    end = properties + _short(data, topic_end)
    if (tail["length"] < 0).any() or (end > starts + sizes).any():
        raise ProtocolError("a message is longer than it says")
    return StoredColumns(
        _pieces(packed, topic, topic_end).cast(pa.string()),
        head["queue_id"].astype(np.int64),
        head["queue_offset"].astype(np.int64),
        head["commit_log_offset"].astype(np.int64),
        sys_flag,
        head["flag"].astype(np.int64),
        head["born_at"].astype(np.int64),
        _pieces(packed, born, stored),
        _fixed(data, stored, _STORED_AT).astype(np.int64),
        _pieces(packed, store, rest),
        tail["times"].astype(np.int64),
        tail["prepared"].astype(np.int64),
        _pieces(packed, body, body_end),
        _pieces(packed, properties, end),
    )


def _fixed(data: npt.NDArray[np.uint8], at: Numbers, layout: np.dtype[Any]) -> npt.NDArray[Any]:
    """What lies at each of these places, read by one layout."""
    found: npt.NDArray[Any] = data[at[:, None] + np.arange(layout.itemsize)].view(layout)[:, 0]
    return found


def _short(data: npt.NDArray[np.uint8], at: Numbers) -> Numbers:
    return data[at].astype(np.int64) << 8 | data[at + 1]


def _pieces(packed: bytes, starts: Numbers, ends: Numbers) -> pa.Array:
    """packed[start:end] of each row: every other piece between all these bounds."""
    bounds = np.stack([starts, ends], axis=1).ravel().astype(np.int32)
    return _between(bounds, packed).take(pa.array(np.arange(0, len(bounds), 2)))


def _between(bounds: npt.NDArray[np.int32], packed: Any) -> pa.Array:
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(packed)]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)


def parse_blocks(blocks: pa.Array) -> Column:
    """The property blocks of many messages; by name where all have the same names in the same order."""
    return _parse_alike(blocks) or [parse_properties(block) for block in blocks.to_pylist()]


def _parse_alike(blocks: pa.Array) -> Maps | None:
    """All at once, where each block is nothing but the same number of complete pairs."""
    rows, (_, bounds, packed) = len(blocks), blocks.buffers()
    ends = np.frombuffer(bounds, np.int32)[1 : rows + 1]
    data = np.frombuffer(packed or b"", np.uint8)[: ends[-1]]
    marks = np.flatnonzero((data == 1) | (data == 2))
    pairs, odd = divmod(len(marks), 2 * rows)
    if not pairs or odd:
        return None
    by_row = marks.reshape(rows, 2 * pairs)
    if (data[by_row] != [1, 2] * pairs).any() or (by_row[:, -1] + 1 != ends).any():
        return None
    inner = np.stack([marks, marks + 1], axis=1).ravel()
    try:
        text = _between(np.concatenate([[0], inner]).astype(np.int32), packed).cast(pa.string())
    except pa.ArrowInvalid:
        return None
    every = np.arange(rows) * 4 * pairs
    columns: dict[str, Column] = {}
    for place in range(0, 4 * pairs, 4):
        names = text.take(pa.array(every + place)).unique().to_pylist()
        if len(names) > 1 or names[0] in columns:
            return None
        columns[names[0]] = ArrowArray(text.take(pa.array(every + place + 2)))
    return Maps(columns, rows)


def numbers(values: Numbers) -> Constant | ArrowArray:
    """A column of numbers, once where they are all equal."""
    if (values == values[0]).all():
        return Constant(int(values[0]), len(values))
    return ArrowArray(pa.array(values))


def texts(values: Numbers) -> Constant | ArrowArray:
    """The same as decimal text."""
    found = numbers(values)
    if isinstance(found, Constant):
        return Constant(str(found.value), len(found))
    return ArrowArray(found.array.cast(pa.string()))


def views(values: pa.Array) -> list[memoryview]:
    """The values of a binary array that starts at its buffer's start, without a copy."""
    _, bounds, packed = values.buffers()
    data = memoryview(packed or b"")
    return [
        data[start:end]
        for start, end in pairwise(np.frombuffer(bounds, np.int32)[: len(values) + 1].tolist())
    ]
