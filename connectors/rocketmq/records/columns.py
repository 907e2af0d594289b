"""Many stored messages as columns, and their property blocks, which cost less together than one by one."""

from collections.abc import Sequence
from typing import NamedTuple

from dlq.connectors.rocketmq.link.message import fields, parse_properties
from dlq.core.columns import Column, Maps

_NO_MARKS = bytes({*range(256)} - {1, 2})


class StoredColumns(NamedTuple):
    """The fields of `StoredMessage`, each as a column."""

    topic: Sequence[str]
    queue_id: Sequence[int]
    queue_offset: Sequence[int]
    commit_log_offset: Sequence[int]
    sys_flag: Sequence[int]
    flag: Sequence[int]
    born_at: Sequence[int]
    born_host: Sequence[bytes]
    stored_at: Sequence[int]
    store_host: Sequence[bytes]
    reconsume_times: Sequence[int]
    prepared_transaction_offset: Sequence[int]
    body_crc: Sequence[int]
    body: Sequence[bytes]
    properties: Sequence[bytes]


def parse_columns(messages: Sequence[bytes]) -> StoredColumns:
    """Return the columns of one or more stored messages. Raises ProtocolError where one is damaged."""
    return StoredColumns._make(zip(*map(fields, messages), strict=True))


def parse_blocks(blocks: Sequence[bytes]) -> Column:
    """Return the property blocks of many messages; by name where all have the same names in the same
    order."""
    return _parse_alike(blocks) or [parse_properties(block) for block in blocks]


def _parse_alike(blocks: Sequence[bytes]) -> Maps | None:
    """Return all at once, where each block is nothing but the same number of complete pairs."""
    rows, pairs = len(blocks), blocks[0].count(b"\2")
    packed = b"".join(block + b"\2" for block in blocks)  # a mark more shows where each block ends
    are_whole = all(block.endswith(b"\2") for block in blocks)
    if not are_whole or packed.translate(None, _NO_MARKS) != (b"\1\2" * pairs + b"\2") * rows:
        return None
    try:
        pieces = packed.decode().replace("\2", "\1").split("\1")
    except UnicodeDecodeError:
        return None
    row, columns = 2 * pairs + 1, dict[str, Column]()
    for place in range(0, row - 1, 2):
        names = set(pieces[place:-1:row])
        if len(names) > 1 or not columns.keys().isdisjoint(names):
            return None
        columns[names.pop()] = pieces[place + 1 :: row]
    return Maps(columns, rows)
