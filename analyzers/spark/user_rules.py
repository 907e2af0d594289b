"""The rules of the user's configuration: Spark SQL over a record's columns and its verdict."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from dlq.analyzers.classification import CLASSIFIED
from dlq.analyzers.conditions import condition
from dlq.analyzers.spark.files import spark_schema
from dlq.analyzers.spark.tasks import Item, Shares, key_of_rule
from dlq.analyzers.user_rules import BETTER, check_rules
from dlq.archive.schema import SEGMENT
from dlq.archive.storage import parquet
from dlq.core.errors import ConfigError
from dlq.core.settings import Rule

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

RECORDS = pa.schema(
    [
        pa.field("share", pa.int32()),
        *SEGMENT,
        *(field for field in CLASSIFIED if field.name not in SEGMENT.names),
        *(CLASSIFIED.field(other).with_name(f"better_{name}") for name, other in BETTER.items()),
    ]
)
"""A record, and its verdict by itself."""
_ALWAYS = ("share", "source", "record_id", "failure_text", *(f"better_{name}" for name in BETTER), *BETTER)


def apply_rules(records: "DataFrame", rules: Sequence[Rule]) -> "DataFrame":
    """RECORDS -> share, source, record_id and number: of each letter the first rule that holds. Raises
    ConfigError naming the rule whose condition is no Spark SQL over these columns."""
    from pyspark.sql import functions as F

    check_rules(rules)
    better = {
        "attempts": F.coalesce("better_attempts", "attempts"),
        "origin": F.coalesce("better_origin", "origin"),
        "failure_text": F.coalesce("failure_text", "better_failure_text"),
    }
    if "body" in records.columns:
        better["body_text"] = F.try_validate_utf8(F.col("body").cast("string"))
    asked = records.withColumns(better)
    conditions = [_check_condition(asked, rule) for rule in rules]
    number = F.coalesce(*(F.when(F.expr(where), F.lit(n)) for n, where in enumerate(conditions)))
    held = asked.select("share", "source", "record_id", number.alias("number"))
    return held.filter(F.col("number").isNotNull())


def _check_condition(asked: "DataFrame", rule: Rule) -> str:
    from pyspark.errors import PySparkException

    where = f"({condition(rule)})"
    try:
        asked.filter(where).schema  # noqa: B018 - Spark resolves it now
    except PySparkException as error:
        reason = (error.getMessage() or str(error)).splitlines()[0]
        raise ConfigError(
            f"rule {rule.name!r}: where = {rule.where!r} is no condition over a record's columns: {reason}"
            "; correct it"
        ) from error
    return where


def find(
    spark: "SparkSession", shares: Shares, segments: Sequence[Sequence[str]], rules: Sequence[Rule]
) -> "RDD[Item]":
    """Return which of the rules holds of a letter, said to it. `segments`: of each share, in the order of its
    letters."""
    words = {word.lower() for rule in rules for word in re.findall(r"\w+", rule.where)}
    wanted = {*_ALWAYS, *words, *(("body",) if "body_text" in words else ())}
    schema = pa.schema([field for field in RECORDS if field.name in wanted])

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            yield from _records(shares, number, segments[number], schema)

    each = spark.range(0, len(segments), 1, len(segments))
    held = apply_rules(each.mapInArrow(run, spark_schema(schema)), rules)
    return held.rdd.map(lambda row: (row[0], (key_of_rule((row[1], row[2])), row[3])))


def _records(
    shares: Shares, number: int, segments: Sequence[str], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a share beside their verdicts, row group by row group."""
    of_record = [name for name in SEGMENT.names if name in schema.names]
    of_verdict = [name for name in schema.names if name in CLASSIFIED.names and name not in SEGMENT.names]
    classified = shares._replace(since=None).read(number, [*of_verdict, *BETTER.values()])
    for name in segments:
        with parquet.readable(name):
            file = parquet.open_parquet(shares.files.parquet(name))
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=of_record)
                mine, classified = classified[: len(table)], classified[len(table) :]
                columns = {name: table[name] for name in of_record}
                columns |= {name: mine[name] for name in of_verdict}
                columns |= {f"better_{name}": mine[other] for name, other in BETTER.items()}
                columns["share"] = pa.repeat(number, len(table))
                made = pa.table({name: columns[name] for name in schema.names}).cast(schema)
                yield from made.to_batches()
