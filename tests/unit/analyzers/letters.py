"""Letters for the analyzer tests, made with as few words as possible."""

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dlq.analyzers.reading import spark_schema
from dlq.archive.schema import SEGMENT, to_table
from dlq.connectors.interchange import parse_line, record_of
from dlq.core.record import Death, Record


def record(**columns: Any) -> Record:
    """A RabbitMQ letter with these columns."""
    given = {"record_id": "0" * 32, "source": "orders", "broker": "shop", "broker_kind": "rabbitmq"}
    return Record(**{**given, "dead_letter_queue": "orders.dlq", **columns})


def died(*deaths: tuple[Any, ...], **columns: Any) -> Record:
    """A letter with a death history of (reason, queue, count), most recent first."""
    history = [Death(*([reason, queue, "shop", ("key",)]), count) for reason, queue, count in deaths]
    return record(deaths=history, **columns)


def imported(document: dict[str, Any]) -> Record:
    """A letter as `dlq import` makes it."""
    return record_of(parse_line(json.dumps(document)), "orders", "shop", "1", lambda mid, _h, _p, _b: mid)


def frame(spark: SparkSession, records: list[Record]) -> DataFrame:
    """Records as Spark reads them from the archive, with their bodies."""
    rows = to_table(records).to_pylist(maps_as_pydicts="strict")
    made = spark.createDataFrame([tuple(row[name] for name in SEGMENT.names) for row in rows], spark_schema())
    return made.withColumn("body_text", F.col("body").cast("string"))
