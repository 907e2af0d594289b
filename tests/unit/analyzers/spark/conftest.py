"""One Spark session for all of these tests: it is left running between them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dlq.analyzers.spark.session import session
from dlq.archive.store import LocalStore
from dlq.core.settings import Spark

CONF = {
    "spark.sql.shuffle.partitions": "2",  # two show that order does not matter
    # For a handful of rows the best machine code comes too late.
    "spark.driver.extraJavaOptions": "-Xss16m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session(Spark(master="local[1]", conf=CONF)) as started:
        yield started


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "archive"))
