"""One more pull in an archive of many letters: what only looks at what the new letters touch says the same as a
whole analysis."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.analyzers import generated
from support.archives import parquet

from dlq.analyzers import analysis, classification, incremental, plain
from dlq.analyzers.analysis import Engine, analyze, analyze_touched, still_holds
from dlq.analyzers.spark import engine as spark_engine
from dlq.archive.analyses import KEPT, TABLES, Analysis
from dlq.archive.storage.store import LocalStore
from dlq.core.settings import Analysis as Limits
from dlq.core.settings import Rule, Settings

MANY = Settings(analysis=Limits(spark_from=400))
RULES = (
    Rule("mine", "message_id = 'm7'", "expired", "replay"),
    Rule("body", "body_text like '%5%' and source = 'all'", None, "hold"),
    Rule("not suppressed", "producer_seq = 7", "unknown"),
)


def tables_of(store: LocalStore, of: Analysis) -> Mapping[str, list[str]]:
    """The rows of each table, in any order."""
    schemas = {**TABLES, **KEPT}
    return {
        table: sorted(
            repr(row)
            for name in of.tables.get(table, ())
            for row in pq.read_table(store.parquet(name), columns=schema.names).to_pylist()
        )
        for table, schema in schemas.items()
    }


def whole(store: LocalStore, settings: Settings, folder: Path) -> tuple[LocalStore, Analysis]:
    """A first analysis of the same letters."""
    shutil.copytree(store.location, folder, ignore=shutil.ignore_patterns("analyses"))
    copy = LocalStore(str(folder))
    return copy, analyze(copy, settings, engine="plain")


@pytest.mark.parametrize(
    ("seed", "engine"),
    [*((seed, "plain") for seed in range(4)), pytest.param(4, "spark", marks=pytest.mark.spark)],
)
def test_several_pulls_in_a_row_end_as_one_analysis_of_all(
    tmp_path: Path, seed: int, engine: Engine, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With rules in every second archive, whose first letters nothing ever touches again."""
    if engine == "spark":
        request.getfixturevalue("spark")
        for module in (classification, spark_engine):
            monkeypatch.setattr(module, "LARGEST_SHARE", 100)
    monkeypatch.setattr(incremental, "ROW_GROUP", 100)
    monkeypatch.setattr(analysis, "SUMMED_FROM", 0)
    settings = Settings(rules=RULES if seed % 2 else (), analysis=MANY.analysis)
    random, store = Random(seed), LocalStore(str(tmp_path / "archive"))
    generated.alone(store, 120)
    generated.pull(store, random, 0, 0, 200) if engine == "spark" else None
    done, end, taken_over = analyze(store, settings, engine=engine), 200, set()
    for number, letters in enumerate((150, 7, 6, 10), 1):
        generated.pull(store, random, number, end, end := end + letters)
        before, now = done, analyze_touched(store, settings)
        assert now is not None
        done = now
        taken_over |= set(before.tables["verdicts"]) & set(done.tables["verdicts"])
        copy, of_all = whole(store, settings, tmp_path / f"whole {number}")
        assert tables_of(store, done) == tables_of(copy, of_all)
        assert (done.records, done.causes) == (of_all.records, of_all.causes)
        assert done.extra["incidents"] == of_all.extra["incidents"]
    assert taken_over


@pytest.fixture(scope="module")
def classified(tmp_path_factory: pytest.TempPathFactory) -> tuple[LocalStore, Mapping[str, list[str]]]:
    """An analyzed archive with letters of one more pull, and what a whole analysis says of all of them."""
    store = LocalStore(str(tmp_path_factory.mktemp("archive")))
    generated.pull(store, Random(7), 0, 0, 300)
    analyze(store, MANY, engine="plain")
    generated.pull(store, Random(8), 1, 300, 306)
    return store, tables_of(*whole(store, MANY, tmp_path_factory.mktemp("of all") / "whole"))


def of_type(schema: pa.Schema) -> memoryview:
    """A table whose columns are all numbers."""
    return parquet(pa.table({name: pa.array([1], pa.int8()) for name in schema.names}))


def nothing_in(schema: pa.Schema) -> memoryview:
    return parquet(pa.Table.from_pylist([{}], schema))


DAMAGE: dict[str, Callable[[memoryview], bytes | memoryview]] = {
    "cut short": lambda data: data[: len(data) // 2],
    "nonsense inside": lambda data: bytes(data[:4]) + bytes(range(256)) * 2 + bytes(data[516:]),
    "another table": lambda _: parquet(pa.table({"a": [1]})),
    "other types": lambda _: of_type({**TABLES, **KEPT}["verdicts"]),
    "nulls": lambda data: nothing_in(pq.read_table(pa.BufferReader(data)).schema),
    "too large": lambda _: parquet(
        pa.table({"source": pa.DictionaryArray.from_arrays(pa.array([0] * 10_000), pa.array(["x" * 2**20]))})
    ),
}


@pytest.mark.parametrize("kept", ["classified", "verdicts", "slots", "incidents"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_where_what_was_kept_is_damaged_all_is_classified_anew(
    classified: tuple[LocalStore, Mapping[str, list[str]]], tmp_path: Path, kept: str, damage: str
) -> None:
    store = LocalStore(shutil.copytree(classified[0].location, str(tmp_path / "archive")))
    [name] = [one for one in store.list("analyses/") if f"/{kept}/" in one]
    store.put(name, DAMAGE[damage](memoryview(store.open(name).read())))
    assert analyze_touched(store, MANY) is None
    assert tables_of(store, analyze(store, MANY, engine="plain")) == classified[1]


@pytest.mark.spark
def test_verdicts_that_spark_wrote_before_it_met_damage_are_of_no_analysis(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kept file is a share of its own, as files of 100,000 letters are; the last one is damaged."""
    monkeypatch.setattr(spark_engine, "LARGEST_SHARE", 1)
    store = LocalStore(str(tmp_path / "archive"))
    for number in range(3):
        generated.pull(store, Random(number), number, 30 * number, 30 * number + 30)
        before = analyze(store, Settings(), engine="plain")
    kept = Path(store.location, before.extra["parts"][-1]["file"])
    group = pq.ParquetFile(kept).metadata.row_group(0)
    [column] = [
        one
        for n in range(group.num_columns)
        if (one := group.column(n)).path_in_schema == "exception_message"
    ]
    data = bytearray(kept.read_bytes())
    start, size = column.dictionary_page_offset or column.data_page_offset, column.total_compressed_size
    kept.write_bytes(data[:start] + b"\xff" * size + data[start + size :])
    done = analyze(store, Settings(), engine="spark")
    assert tables_of(store, done)["verdicts"] == tables_of(store, before)["verdicts"]


def test_letters_that_touch_too_many_are_for_a_whole_analysis(
    classified: tuple[LocalStore, Mapping[str, list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has been written before that was seen is no part of it."""
    store = LocalStore(shutil.copytree(classified[0].location, str(tmp_path / "archive")))
    few = Settings(analysis=Limits(spark_from=20))
    assert analyze_touched(store, few) is None
    monkeypatch.setattr("dlq.analyzers.analysis._engine_for", lambda *_: plain.run)
    done = analyze(store, few)
    assert tables_of(store, done) == classified[1]
    assert analyze(store, few, only_new=True).records == done.records


@pytest.mark.parametrize("word", ["now()", "current_date", "cast('now' as timestamp)"])
def test_a_rule_that_asks_for_the_time_is_asked_of_all_letters_again(tmp_path: Path, word: str) -> None:
    store, settings = (LocalStore(str(tmp_path)), Settings(rules=(Rule("old", f"dead_at < {word}", None, "hold"),)))  # fmt: skip
    generated.alone(store, 10)
    analyze(store, settings, engine="plain")
    assert still_holds(store, settings) is None
    generated.pull(store, Random(1), 1, 0, 3)
    assert analyze_touched(store, settings) is None
