"""Consumers' logs, which Spark reads piece by piece; `groups.client_log` says what a line holds."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING
from zlib import crc32

from dlq.analyzers.groups import client_log
from dlq.analyzers.groups.client_log import ACKED, CUT_SHORT, FAILED, RECONNECTED, Line
from dlq.analyzers.spark.files import literal, spark_url
from dlq.core.errors import UsageError

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

_UNREADABLE = re.compile(r"error while reading file (?:file://)?(\S+?)\.?(?:\s|$)")
"""Spark's FAILED_READ_FILE."""
_Told = tuple[tuple[str, int, int], str]
"""A line: its file, where in it, and its text."""


def lines(spark: "SparkSession", paths: Sequence[str]) -> "RDD[Line]":
    """Return the poison acks of the logs. Only the few lines that tell something are sorted; the logs
    themselves are read in parallel, piece by piece."""
    from pyspark.sql import functions as F

    text, tells = spark.read.text([literal(spark_url(path)) for path in paths]), F.col("value").rlike
    block = ("_metadata.file_path", "_metadata.file_block_start")
    place = F.struct(*block, F.monotonically_increasing_id())
    told = text.select(place, "value").filter(tells(ACKED) | tells(FAILED) | tells(RECONNECTED))
    of_place = told.rdd.map(lambda row: (tuple(row[0]), row[1]))
    return of_place.repartitionAndSortWithinPartitions(partitionFunc=_of_file).mapPartitions(_lines_of)


def _of_file(place: tuple[str, int, int]) -> int:
    return crc32(place[0].encode())


def _lines_of(told: Iterable[_Told]) -> Iterator[Line]:
    for _, of_file in groupby(told, key=lambda one: one[0][0]):
        yield from client_log.read(text for _, text in of_file)


@contextmanager
def readable() -> Iterator[None]:
    """Turn a log that breaks off inside into a UsageError that names it."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        broken = _UNREADABLE.search(str(error))
        if broken is None:
            raise
        raise UsageError(f"--client-log {broken[1]}: {CUT_SHORT}") from error
