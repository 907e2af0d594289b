"""A segment's letters, as the rules want them: without their bodies, which are fetched when a rule asks.

One row group is in memory at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import repeat
from typing import IO, NamedTuple

import pyarrow as pa

from dlq.analyzers.rules import Letter
from dlq.archive.schema import check_cells, check_columns, column_values
from dlq.archive.storage import parquet
from dlq.core.record import COLUMNS, Record

UNREAD = frozenset(
    {
        "physical_id", "correlation_id", "keys", "origin_group",
        "first_dead_at", "expires_at", "redelivered", "raw_properties", "body", "content_type",
        "content_encoding", "persistent", "priority", "pull_id",
    }
)  # fmt: skip
"""Columns that no rule looks at (a test holds that): a letter read here does not have them."""
_READ = tuple(name for name in COLUMNS if name not in UNREAD)


class Group(NamedTuple):
    """The letters of one row group, and the columns that they were read from."""

    letters: Sequence[Letter]
    table: pa.Table


def read(source: IO[bytes] | pa.NativeFile, most_rows: int = parquet.MOST_ROWS) -> Iterator[Group]:
    """Yield the letters of a segment, row group by row group. Raises OSError, pa.ArrowException."""
    with parquet.open_parquet(source, most_rows) as file:
        check_columns(file.schema_arrow, (*_READ, "body"))
        for number in range(file.num_row_groups):
            table = file.read_row_group(number, columns=list(_READ))
            check_cells(table)

            @cache
            def bodies(number: int = number) -> pa.ChunkedArray:
                return file.read_row_group(number, columns=["body"])["body"]

            yield Group(_letters(table, bodies), table)


def _letters(table: pa.Table, bodies: Callable[[], pa.ChunkedArray]) -> list[Letter]:
    columns = [
        column_values(table[name], name) if name in _READ else repeat(Record._field_defaults.get(name, ""))
        for name in COLUMNS
    ]
    letters = list(map(Letter._make, zip(*columns, strict=False)))
    for row, letter in enumerate(letters):
        letter.fetch_body = partial(_body, bodies, row)
    return letters


def _body(bodies: Callable[[], pa.ChunkedArray], row: int) -> bytes:
    body: bytes | None = bodies()[row].as_py()
    return body or b""
