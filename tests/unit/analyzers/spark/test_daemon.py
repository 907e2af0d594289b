"""Where the Python workers of a local session take PySpark from."""

import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from dlq.analyzers.spark import daemon

HOME = Path(pyspark.__file__).parent
ARCHIVES = [str(path) for path in (HOME / "python" / "lib").glob("*.zip")]
OF_A_TEAM = "/of/a/team/rules.zip"


@pytest.mark.spark
def test_workers_take_it_from_its_folder(spark: SparkSession) -> None:
    ask = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.modules["pyspark"].__file__)
    assert [Path(str(file)).parent for file in ask.collect()] == [HOME]


def test_other_archives_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*ARCHIVES, OF_A_TEAM, str(HOME.parent)])
    daemon._without_archives()
    assert len(ARCHIVES) == 2
    assert sys.path == [OF_A_TEAM, str(HOME.parent)]


def test_what_is_nowhere_else_is_taken_from_its_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*ARCHIVES, OF_A_TEAM])
    daemon._without_archives()
    assert sys.path == [*ARCHIVES, OF_A_TEAM]
