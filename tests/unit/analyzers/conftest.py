"""One Spark session for all of these tests: it is left running between them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from unit.analyzers.letters import frame

from dlq.analyzers.classify import classify
from dlq.analyzers.session import session
from dlq.analyzers.topology import Facts
from dlq.archive.store import LocalStore
from dlq.core.record import Record
from dlq.core.settings import Rule, Spark

CONF = {
    "spark.sql.shuffle.partitions": "2",  # two show that order does not matter
    # For a handful of rows the best machine code comes too late.
    "spark.driver.extraJavaOptions": "-Xss16m -XX:TieredStopAtLevel=1",
}
Judge = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session(Spark(master="local[1]", conf=CONF)) as started:
        yield started


@pytest.fixture(scope="session")
def judge(spark: SparkSession) -> Judge:
    """Records -> their stage 1 rows, in the same order."""

    def run(
        *records: Record, facts: Facts | None = None, rules: tuple[Rule, ...] = ()
    ) -> list[dict[str, Any]]:
        numbered = [letter._replace(record_id=f"{number:032x}") for number, letter in enumerate(records)]
        rows = classify(frame(spark, numbered), facts or Facts(), rules).collect()
        return [row.asDict() for row in sorted(rows, key=lambda row: str(row.record_id))]

    return run


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "archive"))
