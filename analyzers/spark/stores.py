"""What stores outside say of the letters: their snapshots lie in the archive, and Spark joins them by key.

What an answer means is said by `groups.stores`.
"""

from collections.abc import Iterator, Sequence
from fnmatch import translate
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import pyarrow as pa

from dlq.analyzers.groups.stores import (
    KINDS,
    Answer,
    Asked,
    Letter,
    answer,
    describe_store,
    is_asked,
    together,
)
from dlq.analyzers.spark.files import read_files, spark_schema
from dlq.analyzers.spark.rows import Meaning, Row, Step, by_group, through_python
from dlq.archive.schema import SEGMENT
from dlq.archive.store import Store
from dlq.archive.store_facts import FACTS, Snapshot
from dlq.core.settings import Evidence, Settings
from dlq.core.store_facts import Fact

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_S = pa.string()
_IDENTITY = [("source", _S), ("record_id", _S)]
_LETTER = [(name, SEGMENT.field("dead_at").type if name == "died_at" else _S) for name in Letter._fields]
_KEYED = pa.schema([*_IDENTITY, *_LETTER, ("key_there", _S)])
_ANSWERS = pa.schema([*_IDENTITY, *((name, _S) for name in Answer._fields)])


def answers(
    spark: "SparkSession", store: Store, letters: "DataFrame", settings: Settings, taken: Sequence[Snapshot]
) -> "DataFrame":
    """Letters after step 1 -> ANSWERS, a row for each letter that a store may know. There is a snapshot."""
    each = [_of_store(spark, store, letters, settings.evidence[one.name], one) for one in taken]
    every = reduce(lambda one, other: one.unionByName(other), each)
    return by_group(every, ("source", "record_id"), ("told",), _together, _ANSWERS)


def _together(key: Row, group: Iterator[Row]) -> Iterator[Row]:
    yield (*key, *together([Answer(*row[len(key) :]) for row in group]))


def _of_store(
    spark: "SparkSession", store: Store, letters: "DataFrame", settings: Evidence, taken: Snapshot
) -> "DataFrame":
    from pyspark.sql import functions as F

    mine, asking = _letters(letters, settings), describe_store(settings, taken.taken_at)
    if taken.error is not None:
        return through_python(mine, _unanswered(settings, asking), _ANSWERS)
    shape = spark_schema(FACTS)
    facts = read_files(spark, store, taken.files, FACTS) if taken.files else spark.createDataFrame([], shape)
    there = facts.select(F.col("key").alias("key_there"), "state", "until", "number")
    keyed = through_python(mine, _each_key(settings, asking), _KEYED)
    met = keyed.join(there, on="key_there", how="left").select(*_KEYED.names, "state", "until", "number")
    return by_group(met, ("source", "record_id"), (), _answered(settings, asking), _ANSWERS)


def _letters(letters: "DataFrame", settings: Evidence) -> "DataFrame":
    """The letters of a store's sources, with what its questions need."""
    from pyspark.sql import functions as F

    is_mine = reduce(or_, (F.col("source").rlike(translate(pattern)) for pattern in settings.sources))
    died_at = F.coalesce("dead_at", "captured_at").alias("died_at")
    known = letters.withColumns({"tag": F.col("rocket.tag")}).withColumn("died_at", died_at)
    return known.filter(is_mine).select("source", "record_id", *Letter._fields)


def _each_key(settings: Evidence, asking: Asked) -> Step:
    def step(rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            letter = Letter(*row[2:])
            if is_asked(settings, row[0], letter):
                yield from ((*row, key) for key in KINDS[settings.kind].keys(letter, asking) or (None,))

    return step


def _unanswered(settings: Evidence, asking: Asked) -> Step:
    def step(rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            letter = Letter(*row[2:])
            if is_asked(settings, row[0], letter):
                yield (*row[:2], *answer(settings.kind, letter, asking, None))

    return step


def _answered(settings: Evidence, asking: Asked) -> Meaning:
    width = len(_KEYED.names)

    def meaning(key: Row, group: Iterator[Row]) -> Iterator[Row]:
        first, *others = group
        facts = [Fact(row[width - 1], *row[width:]) for row in (first, *others) if row[width] is not None]
        yield (*key, *answer(settings.kind, Letter(*first[2 : width - 1]), asking, facts))

    return meaning
