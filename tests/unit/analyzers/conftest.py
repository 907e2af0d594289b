"""What the analyzers' tests share: verdicts on single letters, and one Spark session for the few that need it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dlq.analyzers.rules import Facts, judge
from dlq.analyzers.spark.session import FEW, session
from dlq.archive.store import LocalStore
from dlq.core.record import Record
from dlq.core.settings import Spark

CONF = {
    **FEW,  # for a handful of rows the best machine code comes too late
    "spark.sql.shuffle.partitions": "2",  # two show that order does not matter
}
Judge = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session(Spark(master="local[1]", conf=CONF)) as started:
        yield started


@pytest.fixture(scope="session", name="judge")
def _judge() -> Judge:
    """Records -> their verdicts, in the same order."""

    def run(*records: Record, facts: Facts | None = None) -> list[dict[str, Any]]:
        return [judge(letter, facts or Facts())._asdict() for letter in records]

    return run


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "archive"))
