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
