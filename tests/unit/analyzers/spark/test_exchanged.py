"""What is exchanged in an archive while Spark analyzes it leads Spark nowhere else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.archives import letter, parquet, write_segment

from dlq.analyzers.analysis import analyze
from dlq.analyzers.classification import CLASSIFIED
from dlq.analyzers.spark import engine
from dlq.archive.storage.store import LocalStore
from dlq.core.errors import ArchiveError
from dlq.core.settings import Settings

pytestmark = pytest.mark.spark


def before(monkeypatch: pytest.MonkeyPatch, step: str, do: Callable[[], None]) -> None:
    then = getattr(engine, step)

    def both(*arguments: Any) -> Any:
        do()
        return then(*arguments)

    monkeypatch.setattr(engine, step, both)


def test_what_spark_writes_goes_into_the_archive_alone(
    spark: SparkSession, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segment(store, "p-0", [letter(1)])
    victim = tmp_path / "victim"
    victim.mkdir()

    def exchange() -> None:
        [folder] = Path(store.location, "analyses").iterdir()
        folder.rename(tmp_path / "before")
        folder.symlink_to(victim)

    before(monkeypatch, "_items", exchange)
    with pytest.raises((ArchiveError, OSError), match="it is a link, or lies behind one"):
        analyze(store, Settings(), engine="spark")
    assert list(victim.iterdir()) == []


def test_spark_reads_no_file_that_another_has_put_there(
    spark: SparkSession, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segment(store, "p-0", [letter(1)])
    foreign = tmp_path / "foreign.parquet"
    foreign.write_bytes(parquet(CLASSIFIED.empty_table()))

    def exchange() -> None:
        for path in Path(store.location, "analyses").rglob("classified/*.parquet"):
            path.unlink()
            path.symlink_to(foreign)

    before(monkeypatch, "_look_between", exchange)
    with pytest.raises(ArchiveError, match="it is a link, or lies behind one"):
        analyze(store, Settings(), engine="spark")


def test_a_segment_with_more_rows_than_its_manifest_says_is_named(
    spark: SparkSession, store: LocalStore
) -> None:
    write_segment(store, "p-0", [letter(1)])
    write_segment(store, "q-0", [letter(1), letter(2)])
    name = "segments/source=orders/date=2026-11-21/p-0.parquet"
    store.put(name, store.open(name.replace("p-0", "q-0")).read())
    with pytest.raises(ArchiveError, match=f"{name} .* it has 2 rows, and may have 1 at most"):
        analyze(store, Settings(), engine="spark")
