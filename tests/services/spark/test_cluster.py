"""On a real cluster whose workers have Python and pyarrow, and nothing of `dlq`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.analyzers.letters import died
from support.analyzers.quick_spark import JAVA, QUICK
from support.archives import write_segment
from support.servers.spark_cluster import SparkCluster
from support.servers.worker_python import BARE, PYTHON

from dlq.analyzers.analysis import analyze
from dlq.analyzers.spark import shipping
from dlq.analyzers.spark.session import session
from dlq.archive.storage.store import LocalStore
from dlq.core.errors import UsageError
from dlq.core.settings import Settings, Spark

SETTINGS = {**QUICK, "spark.task.maxFailures": "1", "spark.executor.extraJavaOptions": JAVA}
ANOTHER_VERSION = """
import collections, sys
kind = collections.namedtuple("kind", "major minor micro releaselevel serial")
sys.version_info = kind(3, 99, 0, "final", 0)
"""


@pytest.fixture(scope="module")
def spark(worker_program: str) -> Iterator[SparkSession]:
    cluster = SparkCluster(workers=1)
    cluster.start()
    with session(Spark(conf={**SETTINGS, "spark.pyspark.python": PYTHON}), cluster.master) as started:
        yield started
    cluster.stop()


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(str(tmp_path / "archive"))
    letters = [died(("rejected", "orders", 1), record_id=f"{n:032x}", captured_at=n) for n in (1, 2)]
    write_segment(store, "p-0", letters)
    return store


@pytest.fixture
def of_another_version(tmp_path: Path) -> str:
    """A Python that says that it is another."""
    (tmp_path / "sitecustomize.py").write_text(ANOTHER_VERSION)
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {PYTHON} "$@"\n')
    program.chmod(0o755)
    return str(program)


def lack(store: LocalStore, spark: SparkSession, python: str) -> str:
    """What the user is told when the workers have this Python."""
    context = spark.sparkContext
    analyzed = shipping.told(context.master, python)(analyze)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(context, "pythonExec", python)
        with pytest.raises(UsageError) as told:
            analyzed(store, Settings(), engine="spark")
    return str(told.value)


def test_workers_get_the_rules_with_the_job(store: LocalStore, spark: SparkSession) -> None:
    assert dict(analyze(store, Settings(), engine="spark").causes) == {"poison_ack": 2}
    assert not any(place.endswith("dlq.zip") for place in sys.path)


def test_workers_that_cannot_classify_are_one_line(
    store: LocalStore, spark: SparkSession, of_another_version: str
) -> None:
    for python, *words in (
        ("/no/python", " cannot classify letters: there is no program /no/python"),
        (BARE, f"{BARE} has no pyarrow; ", "spark.pyspark.python"),
        (of_another_version, f"{of_another_version} is Python 3.99; every worker needs Python 3"),
    ):
        said = lack(store, spark, python)
        assert all(one in said for one in words), said
