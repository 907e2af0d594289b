"""Consumers' logs: Spark reads them piece by piece and brings lines and letters of one message together,
`groups.client_log` says what a line holds."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from dlq.analyzers.groups import client_log
from dlq.analyzers.groups.client_log import ACKED, CUT_SHORT, FAILED, RECONNECTED, STATES, Line
from dlq.analyzers.groups.judged import Judged
from dlq.analyzers.spark.files import literal, read_files, save, spark_url
from dlq.analyzers.spark.rows import Row, by_group, judged_of
from dlq.archive.analyses import CLIENT_LOG, list_written
from dlq.archive.store import Store
from dlq.core.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UNREADABLE = re.compile(r"error while reading file (?:file://)?(\S+?)\.?(?:\s|$)")
"""Spark's FAILED_READ_FILE."""
_LINES = pa.schema([(name, pa.int64() if name == "at_ms" else pa.string()) for name in Line._fields])
_TOLD_BY = ("record_id", "message_id", "consumer_id", "cause")
"""Columns of the letters that `client_log.join` looks at."""
_judged = judged_of(_TOLD_BY)


def lines(spark: "SparkSession", paths: Sequence[str]) -> "DataFrame":
    """The poison acks of the logs, each with the fields of `Line`. Only the few lines that tell something are
    sorted; the logs themselves are read in parallel, piece by piece."""
    from pyspark.sql import functions as F

    text, tells = spark.read.text([literal(spark_url(path)) for path in paths]), F.col("value").rlike
    place = F.struct("_metadata.file_block_start", F.monotonically_increasing_id())
    told = text.select(F.col("_metadata.file_path").alias("file"), "value", place.alias("place")).filter(
        tells(ACKED) | tells(FAILED) | tells(RECONNECTED)
    )
    return by_group(told, ("file",), ("place",), _lines_of, _LINES)


def _lines_of(_file: Row, group: Iterator[Row]) -> Iterator[Row]:
    return client_log.read(row[1] for row in group)


def join(judged: "DataFrame", found: "DataFrame") -> "DataFrame":
    """Letters and lines side by side: CLIENT_LOG."""
    from pyspark.sql import functions as F

    suppressed = judged.filter(F.col("cause") == "suppressed_duplicate")
    letters = suppressed.select(F.col("message_id").alias("of_message"), *_TOLD_BY)
    of_lines = found.select(F.col("message_id").alias("of_message"), F.struct(*Line._fields).alias("line"))
    both = letters.unionByName(of_lines, allowMissingColumns=True)
    return by_group(both, ("of_message",), (), _joined, CLIENT_LOG)


def _joined(_message: Row, group: Iterator[Row]) -> Iterator[Row]:
    letters: list[Judged] = []
    told: list[Line] = []
    for _, *columns, line in group:
        if line is None:
            letters.append(_judged(columns))
        else:
            told.append(Line(**line))
    return iter(client_log.join(letters, told))


def _counts(joined: "DataFrame") -> dict[str, int]:
    """How many letters and lines have each state."""
    found = {row["state"]: int(row["count"]) for row in joined.groupBy("state").count().collect()}
    return {state: found.get(state, 0) for state in STATES}


def write(
    spark: "SparkSession", store: Store, judged: "DataFrame", paths: Sequence[str], folder: str
) -> dict[str, int] | None:
    """Write the join as a table of the analysis, and return its counts; None without logs."""
    if not paths:
        return None
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        save(store, join(judged, lines(spark, paths)), folder)
    except (Py4JJavaError, PySparkException) as error:
        broken = _UNREADABLE.search(str(error))
        if broken is None:
            raise
        raise UsageError(f"--client-log {broken[1]}: {CUT_SHORT}") from error
    return _counts(read(spark, store, folder))


def read(spark: "SparkSession", store: Store, folder: str) -> "DataFrame":
    """What `write` has written."""
    return read_files(spark, store, list_written(store, f"{folder}/"), CLIENT_LOG)
