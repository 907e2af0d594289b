"""One Spark session for all of these tests: it is left running between them."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from support.analyzers.quick_spark import QUICK

from dlq.analyzers.spark.session import session
from dlq.core.settings import Spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session(Spark(master="local[1]", conf=QUICK)) as started:
        yield started
