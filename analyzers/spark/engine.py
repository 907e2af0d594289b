"""The engine of the many: Spark's Python workers classify letters, and look at them by shares; Spark brings
together what members of groups say under one key, in order, however many there are.

It knows neither brokers nor causes: `classification` says what is done with one letter, `groups.relations` by
which keys letters belong together and what that means.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dlq.analyzers.asked import Asked, Done
from dlq.analyzers.classification import LARGEST_SHARE, PART, Part, Terms, classify_share, shares
from dlq.analyzers.groups import relations, stores
from dlq.analyzers.groups.classified import number_of
from dlq.analyzers.groups.client_log import members
from dlq.analyzers.spark import client_log, tasks, user_rules
from dlq.analyzers.spark.files import Files, files_of, spark_schema
from dlq.analyzers.spark.session import session
from dlq.analyzers.spark.tasks import Concluded, Item, Sent, Shares
from dlq.archive import analyses
from dlq.archive.manifests import Manifest
from dlq.core.errors import ArchiveError

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

_BUCKET = 2_000_000
"""Letters whose keys a worker holds at once."""
_FAULTS = [re.compile(rf"{name}: (.*)") for name in ("NotOrdinaryError", "ArchiveError", "OSError")]
"""What ended a worker, in Python's words, which say the cause of an error before the error."""


def run(asked: Asked, terms: Terms, kept: Sequence[Part], master: str | None = None) -> Done:
    """Return all four steps, and all tables written. Raises UsageError when Spark cannot start, ConfigError
    for a bad user rule, ArchiveError for a segment that cannot be read."""
    settings = asked.settings.spark
    with session(settings, master) as spark, _told():
        files = files_of(asked.store)
        fresh = _classify_segments(spark, files, terms, asked.fresh(kept), f"{asked.folder}/classified")
        parts = [*kept, *fresh]
        _look_between(spark, asked, files, parts)
        return Done(parts)


@contextmanager
def _told() -> Iterator[None]:
    """Turn what a worker could not read or write inside into an ArchiveError."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        fault = next((found[1] for one in _FAULTS if (found := one.search(str(error)))), None)
        if fault is None:
            raise
        kind = analyses.Damaged if fault.startswith("cannot read ") else ArchiveError
        raise kind(fault) from error


def _classify_segments(
    spark: "SparkSession", files: Files, terms: Terms, committed: Sequence[Manifest], folder: str
) -> list[Part]:
    """Classify the letters of these segments into files below `folder` of the archive. Raises ArchiveError
    for a segment that cannot be read."""
    parts_of = shares(committed, spark.sparkContext.defaultParallelism)
    if not parts_of:
        return []

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        parts = [classify_share(files, terms, parts_of[number], folder) for number in numbers]
        yield pa.RecordBatch.from_pylist([part._asdict() for part in parts], schema=PART)

    each = spark.range(0, len(parts_of), 1, len(parts_of))
    parts = [Part(*row) for row in each.mapInArrow(run, spark_schema(PART)).collect()]
    for part in parts:
        if part.damage:
            raise ArchiveError(f"{part.damage}; dlq verify looks through all segments")
    return parts


def _look_between(spark: "SparkSession", asked: Asked, files: Files, parts: Sequence[Part]) -> None:
    """Carry out steps 2 to 4, and write all tables."""
    from pyspark import StorageLevel

    context, count = spark.sparkContext, sum(m.rows for m in asked.chosen)
    groups = _pack_shares(asked, parts)
    looked = _shares(asked, files, groups)
    buckets = 1 << max(context.defaultParallelism - 1, count // _BUCKET).bit_length()
    shared = _task_numbers(context, buckets).map(partial(tasks.find_shared, looked, buckets)).collect()
    looked = looked._replace(shared=shared)
    with client_log.readable():
        items = _items(spark, asked, looked, groups)
        concluded = _by_share(items, len(groups), partial(tasks.conclude_share, looked))
        concluded.persist(StorageLevel.MEMORY_AND_DISK)
        counted = concluded.mapPartitionsWithIndex(tasks.say_counted)
        all_said = concluded.mapPartitionsWithIndex(_tag_share).union(_reduce(looked, "of-all", counted))
        _by_share(all_said, len(groups), partial(tasks.write_verdicts, looked)).count()
    for name in shared:
        asked.store.delete(name)


def _pack_shares(asked: Asked, parts: Sequence[Part]) -> list[list[Part]]:
    """Pack files into shares: small ones together."""
    rows = {m.stem: m.rows for m in asked.segments}
    groups: list[list[Part]] = []
    filled = LARGEST_SHARE
    for part in parts:
        size = sum(rows[stem] for stem in part.stems)
        if filled + size > LARGEST_SHARE:
            groups.append([])
            filled = 0
        groups[-1].append(part)
        filled += size
    return groups


def _shares(asked: Asked, files: Files, groups: Sequence[Sequence[Part]]) -> Shares:
    return Shares(
        files,
        asked.folder,
        [[part.file for part in group] for group in groups],
        asked.since,
        asked.context(chain.from_iterable(groups), frozenset()),
        asked.settings.rules,
        asked.settings.replay.max_laps,
    )


def _task_numbers(context: "SparkContext", number: int) -> "RDD[int]":
    """Return numbers from 0, each a task of its own."""
    return context.parallelize(range(number), number)


def _by_share(items: "RDD[Any]", number: int, work: Any) -> "RDD[Any]":
    """Return what `work` makes of each share's number and the items that are said to it."""
    return items.partitionBy(number, int).mapPartitionsWithIndex(work)


def _items(
    spark: "SparkSession", asked: Asked, looked: Shares, groups: Sequence[Sequence[Part]]
) -> "RDD[Item]":
    """Return all that is said to the letters of each share, after all rounds."""
    from pyspark import StorageLevel

    context = spark.sparkContext
    outside = _outside_facts(spark, asked, looked)
    items: RDD[Item] = context.parallelize([], 1)
    if asked.settings.rules:
        segment_of = {m.stem: m.segment for m in asked.segments}
        segments = [[segment_of[stem] for part in group for stem in part.stems] for group in groups]
        items = user_rules.find(spark, looked, segments, asked.settings.rules)
        items.persist(StorageLevel.MEMORY_AND_DISK)
    for number in range(len(relations.ROUNDS)):
        sent = _by_share(items, len(groups), partial(tasks.say, looked, number))
        every = sent if outside is None or number else sent.union(outside)
        come = _reduce(looked, str(number), every)
        items = items.union(come.persist(StorageLevel.MEMORY_AND_DISK))
    return items


def _reduce(looked: Shares, name: str, sent: "RDD[Sent]") -> "RDD[Item]":
    """Return what members of each key come to. `name`: of the files of tables."""
    in_order = sent.repartitionAndSortWithinPartitions(partitionFunc=_of_key)
    return in_order.mapPartitionsWithIndex(partial(tasks.together, looked, name))


def _tag_share(share: int, concluded: Iterable[Concluded]) -> Iterator[tuple[int, Concluded]]:
    return ((share, one) for one in concluded)


def _of_key(order: tuple[int, tuple[Any, ...]]) -> int:
    return order[0]


def _outside_facts(spark: "SparkSession", asked: Asked, looked: Shares) -> "RDD[Sent] | None":
    """Return what stores outside and clients' logs say under keys."""
    context, found = spark.sparkContext, []
    for snapshot, of_store in asked.asked_stores():
        facts = context.parallelize(snapshot.files, max(1, len(snapshot.files)))
        read = partial(tasks.read_facts, looked.files)
        found.append(facts.flatMap(read).mapPartitions(partial(stores.members, of_store)))
    if asked.logs:
        found.append(client_log.lines(spark, asked.logs).mapPartitions(members))
    if not found:
        return None
    return context.union(found).map(lambda one: ((number_of(one.key), one.order), (None, one.key, one.said)))
