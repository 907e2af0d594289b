"""Rows of Spark in Python: named tuples out of Arrow batches and back, and groups of rows that are sorted.

A group passes through Python as a stream: it is in memory only as far as its function keeps it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from dlq.analyzers.groups.judged import Judged
from dlq.analyzers.rules.rocketmq import Stored
from dlq.analyzers.spark.files import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IDENTITY = ("source", "record_id")
"""A letter that was imported under a second source is there twice."""
_BATCH = 10_000
"""Rows that go back to Spark at once."""

T = TypeVar("T")
Row = tuple[Any, ...]
Step = Callable[[Iterator[Row]], Iterable[Row]]
Meaning = Callable[[Row, Iterator[Row]], Iterable[Row]]
"""What a group means: its key, and its rows in order."""


def _values(column: pa.Array) -> list[Any]:
    """Times are microseconds since the epoch, as everywhere in `dlq`."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """The rows of some batches, in the order of their columns."""
    return chain.from_iterable(zip(*map(_values, batch.columns), strict=True) for batch in batches)


def batches(found: Iterable[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as batches of a schema."""
    stream = iter(found)
    while part := list(islice(stream, _BATCH)):
        columns = zip(*part, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def through_python(frame: "DataFrame", step: Step, schema: pa.Schema) -> "DataFrame":
    """What `step` makes of the rows of each partition."""

    def run(given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches(step(rows(given)), schema)

    return frame.mapInArrow(run, spark_schema(schema))


def by_group(
    frame: "DataFrame", keys: Sequence[str], order: Sequence[str], meaning: Meaning, schema: pa.Schema
) -> "DataFrame":
    """What `meaning` makes of the rows of each group, which come in order, nulls first.

    The frame's first columns must be `keys`; they are part of the rows.
    """
    width = len(keys)

    def step(given: Iterator[Row]) -> Iterator[Row]:
        groups = groupby(given, key=lambda row: row[:width])
        return chain.from_iterable(meaning(key, group) for key, group in groups)

    is_one = frame.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1"
    together = frame.coalesce(1) if is_one else frame.repartition(*keys)
    return through_python(together.sortWithinPartitions(*keys, *order), step, schema)


def judged_of(told_by: Sequence[str]) -> Callable[[Iterable[Any]], Judged]:
    """The function that makes a `Judged` of these columns; of the others it knows nothing."""
    places = [Judged._fields.index(name) for name in told_by]
    rocket_at, width = Judged._fields.index("rocket"), len(Judged._fields)

    def judged(columns: Iterable[Any]) -> Judged:
        row: list[Any] = [None] * width
        for place, value in zip(places, columns, strict=True):
            row[place] = value
        if row[rocket_at]:
            row[rocket_at] = Stored(**row[rocket_at])
        return Judged._make(row)

    return judged
