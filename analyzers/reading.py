"""Committed segments as a DataFrame: an explicit list of files, an explicit schema; and what Spark wrote."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from dlq.archive.manifests import Manifest
from dlq.archive.schema import SEGMENT
from dlq.archive.store import LocalStore, Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def spark_schema(schema: "pa.Schema" = SEGMENT) -> "StructType":
    """The Spark schema of an archive table; a segment unless another is named."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def spark_url(location: str) -> str:
    """How Spark names a place of the archive: local paths and s3 need a scheme that Hadoop knows."""
    if location.startswith("s3://"):
        return f"s3a://{location.removeprefix('s3://')}"
    return location if "://" in location else f"file://{location}"


def read_files(
    spark: "SparkSession", store: Store, names: Sequence[str], schema: "StructType"
) -> "DataFrame":
    """Some Parquet files of the archive. Names are taken literally, whatever characters are in the path."""
    reader = spark.read.schema(schema).option("__globPaths__", "false")
    return reader.parquet(*(spark_url(store.url(name)) for name in names))


def read_records(
    spark: "SparkSession", store: Store, committed: Sequence[Manifest], with_body: bool
) -> "DataFrame":
    """The records of these segments and `body_text`, which is null unless `with_body`."""
    from pyspark.sql import functions as F

    records = read_files(spark, store, [m.segment for m in committed], spark_schema())
    text = F.col("body").cast("string") if with_body else F.lit(None).cast("string")
    return records.withColumn("body_text", text)


def rows_of(store: Store, names: Sequence[str]) -> int:
    """How many rows these Parquet files have; their footers tell."""
    files = (pq.read_metadata(store.parquet(name)) for name in names)
    return sum(int(file.num_rows) for file in files)


def written(store: Store, prefix: str) -> tuple[str, ...]:
    """The Parquet files that Spark has written, durable by now."""
    names = tuple(name for name in store.list(prefix) if name.endswith(".parquet") and "/." not in name)
    if isinstance(store, LocalStore):
        for path in map(store.url, names):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
    return names
