"""A condition of a rule means the same in Spark as elsewhere."""

import pytest
from pyspark.sql import SparkSession
from support.analyzers.conditions import LETTER, REFUSED, SAME, rule

from dlq.analyzers.conditions import condition
from dlq.analyzers.spark.files import spark_schema
from dlq.analyzers.spark.user_rules import RECORDS, apply_rules
from dlq.core.errors import ConfigError


def test_a_condition_means_the_same_in_spark(spark: SparkSession) -> None:
    letters = spark.createDataFrame(LETTER)
    asked = letters.selectExpr(*(condition(rule(where)) for where in SAME))
    assert list(asked.collect()[0]) == [*SAME.values()]


def test_spark_understands_and_refuses_what_the_engine_in_the_process_does(spark: SparkSession) -> None:
    records = spark.createDataFrame([], spark_schema(RECORDS))
    for where in SAME:
        apply_rules(records, [rule(where)])
    for where in REFUSED:
        with pytest.raises(ConfigError, match="rule 'mine'"):
            apply_rules(records, [rule(where)])


def test_a_body_that_is_no_text_has_none_in_spark_either(spark: SparkSession) -> None:
    schema = spark_schema(RECORDS)
    bodies = {b"\xac SKU-5": False, "SKU-5 für alle".encode(): True}
    rows = [
        {"share": 0, "source": "orders", "record_id": f"{n}", "body": body} for n, body in enumerate(bodies)
    ]
    records = spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)
    found = {row["record_id"] for row in apply_rules(records, [rule("body_text like '%SKU-5%'")]).collect()}
    assert found == {f"{n}" for n, holds in enumerate(bodies.values()) if holds}
