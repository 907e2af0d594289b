"""On a real cluster whose workers have Python and pyarrow, and nothing of `dlq`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.analyzers.letters import died
from support.archives import write_segment
from support.servers.spark_cluster import SparkCluster
from support.servers.worker_python import BARE, PYTHON

from dlq.analyzers.spark.job import analyze
from dlq.archive.analyses import Analysis
from dlq.archive.store import LocalStore
from dlq.core.errors import UsageError
from dlq.core.settings import Settings, Spark

QUICK = {"spark.task.maxFailures": "1", "spark.driver.extraJavaOptions": "-Xss16m -XX:TieredStopAtLevel=1"}
ANOTHER_VERSION = """
import collections, sys
kind = collections.namedtuple("kind", "major minor micro releaselevel serial")
sys.version_info = kind(3, 99, 0, "final", 0)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    spark = SparkCluster(workers=1)
    spark.start()
    yield spark
    spark.stop()


@pytest.fixture
def store(tmp_path: Path, worker_program: str) -> LocalStore:
    store = LocalStore(str(tmp_path / "archive"))
    letters = [died(("rejected", "orders", 1), record_id=f"{n:032x}", captured_at=n) for n in (1, 2)]
    write_segment(store, "p-0", letters)
    return store


def analyzed(store: LocalStore, cluster: SparkCluster, python: str) -> Analysis:
    conf = {**QUICK, "spark.pyspark.python": python}
    return analyze(store, Settings(spark=Spark(conf=conf)), master=cluster.master)


@pytest.fixture
def of_another_version(tmp_path: Path) -> str:
    """A Python that says that it is another."""
    (tmp_path / "sitecustomize.py").write_text(ANOTHER_VERSION)
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {PYTHON} "$@"\n')
    program.chmod(0o755)
    return str(program)


def test_workers_get_the_rules_with_the_job(store: LocalStore, cluster: SparkCluster) -> None:
    assert dict(analyzed(store, cluster, PYTHON).causes) == {"poison_ack": 2}
    assert not any(place.endswith("dlq.zip") for place in sys.path)


def test_workers_without_the_program_are_one_line(store: LocalStore, cluster: SparkCluster) -> None:
    with pytest.raises(
        UsageError, match=r"on 127\.0\.0\.1 cannot judge letters: there is no program /no/python"
    ):
        analyzed(store, cluster, "/no/python")


def test_workers_without_pyarrow_are_one_line(store: LocalStore, cluster: SparkCluster) -> None:
    with pytest.raises(UsageError, match=rf"{BARE} has no pyarrow; .*spark\.pyspark\.python"):
        analyzed(store, cluster, BARE)


def test_workers_with_another_python_are_one_line(
    store: LocalStore, cluster: SparkCluster, of_another_version: str
) -> None:
    with pytest.raises(
        UsageError, match=rf"{of_another_version} is Python 3\.99; every worker needs Python 3"
    ):
        analyzed(store, cluster, of_another_version)
