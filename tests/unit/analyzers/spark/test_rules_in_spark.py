"""A condition of a rule means the same in Spark as elsewhere."""

from pyspark.sql import SparkSession
from support.analyzers.conditions import LETTER, SAME, rule

from dlq.analyzers.conditions import condition


def test_a_condition_means_the_same_in_spark(spark: SparkSession) -> None:
    letters = spark.createDataFrame(LETTER)
    asked = letters.selectExpr(*(condition(rule(where)) for where in SAME))
    assert list(asked.collect()[0]) == [*SAME.values()]
