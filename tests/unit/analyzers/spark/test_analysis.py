"""One analysis of a mixed archive by each engine: both say the same, row by row."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.analyzers import mixed
from support.analyzers.rocket_letters import BORN

from dlq.analyzers import analysis, classification
from dlq.analyzers.analysis import Engine, analyze
from dlq.analyzers.spark import engine as spark_engine
from dlq.archive import analyses, brief, store_facts, views
from dlq.archive.analyses import Analysis
from dlq.archive.storage.store import LocalStore
from dlq.archive.store_facts import Snapshot

Row = Mapping[str, Any]


class Analyzed(NamedTuple):
    """A committed analysis of the mixed archive, and its verdicts in the order of the letters."""

    store: LocalStore
    analysis: Analysis
    rows: list[Row]

    def of(self, scene: str) -> list[Row]:
        wanted = set(mixed.IDS[scene])
        return [row for row in self.rows if row["record_id"] in wanted]

    def query(self, sql: str) -> list[Any]:
        with views.connect(self.store) as connection:
            found: list[Any] = connection.sql(sql).fetchall()
        return found


@pytest.fixture(scope="module")
def analyzed(tmp_path_factory: pytest.TempPathFactory) -> Analyzed:
    """By the engine in the process: Spark writes the same rows."""
    return analyzed_by("plain", str(tmp_path_factory.mktemp("archive")))


def analyzed_by(engine: Engine, folder: str) -> Analyzed:
    store = LocalStore(folder)
    mixed.fill(store)
    dedup, shine = ([fact for case in mixed.ASKED_FOR for fact in case[1]] for _ in range(2))
    snapshots = [
        store_facts.write(store, "dedup", mixed.ASKED, iter(dedup)),
        store_facts.write(store, "shine", mixed.ASKED, iter(shine)),
        Snapshot("away", mixed.ASKED, error="evidence.away: Redis does not answer"),
    ]
    done = analyze(store, mixed.SETTINGS, snapshots=snapshots, engine=engine)
    files = (pq.read_table(store.parquet(name)).to_pylist() for name in done.tables["verdicts"])
    read = {row["record_id"]: row for file in files for row in file}
    return Analyzed(store, done, [read[letter.record_id] for letter in mixed.LETTERS])


@pytest.mark.spark
@pytest.mark.parametrize("table", [*analyses.TABLES, *brief.KEPT])
def test_both_engines_write_the_same_rows(by_both: Mapping[str, Analyzed], table: str) -> None:
    schema = (analyses.TABLES | analyses.KEPT)[table]
    plain, spark = (sorted(map(repr, rows_of(by_both[engine], table, schema.names))) for engine in by_both)
    assert plain == spark
    assert plain or table == "client_log"


@pytest.fixture(scope="module")
def by_both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Analyzed]:
    """Spark has many shares of the letters, which have groups in common."""
    engines: Sequence[Engine] = ("plain", "spark")
    with pytest.MonkeyPatch.context() as changed:
        for module in (classification, spark_engine):
            changed.setattr(module, "LARGEST_SHARE", 40)
        changed.setattr(analysis, "SUMMED_FROM", 1)
        return {engine: analyzed_by(engine, str(tmp_path_factory.mktemp(engine))) for engine in engines}


def rows_of(done: Analyzed, table: str, names: Sequence[str]) -> list[Row]:
    files = (pq.read_table(done.store.parquet(name), columns=names) for name in done.analysis.tables[table])
    return [row for file in files for row in file.to_pylist()]


def test_every_kind_of_duplicate_is_told_apart(analyzed: Analyzed) -> None:
    rows = analyzed.of("twins")
    assert [row["duplicate_kind"] for row in rows] == [kind for _, kind in mixed.TWINS]
    first, again = rows[2:4]
    assert first["duplicate_group"] == again["duplicate_group"] is not None
    assert (first["advice"], again["advice"]) == ("fix_first", "never")


def test_each_transaction_has_its_state_and_one_record_that_stands_for_it(analyzed: Analyzed) -> None:
    states = analyzed.query("SELECT unique_key, state FROM transactions WHERE broker_node <> 'broker-c'")
    assert {key: state for key, state in states if "|" not in key} == mixed.STATES
    assert [state for key, state in states if "|" in key] == ["ended"]
    story = "SELECT checks, copies, topic, producer_group, source, len(record_ids) FROM transactions WHERE unique_key = "
    assert analyzed.query(f"{story}'checked-out'") == [(15, 2, "orders", "tx", "bank", 3)]
    letters = [row for row in analyzed.of("transactions") if row["cause"] is not None]
    assert len(letters) == 7
    assert {row["cause"] for row in letters} == {
        "check_max_exceeded", "check_skipped", "transaction_pending", "unknown", "unroutable",
    }  # fmt: skip
    rows = [row for row in analyzed.of("transactions") if row["message_id"] != "young"]
    advised = {(row["cause"] is not None, row["advice"]) for row in rows}
    assert advised == {(True, "check_first"), (False, "never")}, "a rule of the user's speaks of them all"


def test_a_reconnects_suppressed_duplicates_are_one_burst(analyzed: Analyzed) -> None:
    rows = analyzed.of("burst")
    burst, other = rows[0]["incident_id"], rows[-1]["incident_id"]
    assert [row["incident_id"] for row in rows] == [burst] * 5 + [other]
    assert "9 to 11 came without a gap" in rows[1]["advice_reason"]
    columns = "broker, connection_id, origins, consumers, producers, ranges, beyond_prefetch"
    assert analyzed.query(f"SELECT {columns} FROM bursts WHERE incident_id = '{burst}'") == [
        ("amq", mixed.CONNECTION, ["orders", "stock"], [mixed.CONSUMER, f"{mixed.CONNECTION}:1:2"],
         [mixed.PRODUCER, f"{mixed.PRODUCER}0"], [f"{mixed.PRODUCER}:9-11", f"{mixed.PRODUCER}:20", f"{mixed.PRODUCER}0:1"], False),
    ]  # fmt: skip
    [row] = analyzed.query(
        f"SELECT start, \"end\", size, sources, causes FROM incidents WHERE incident_id = '{burst}'"
    )
    assert row[2:] == (5, ["legacy"], ["suppressed_duplicate"])
    assert [at.astimezone(UTC) for at in row[:2]] == [moment(BORN * 1000)] * 2


def test_letters_that_died_together_are_an_incident_and_the_usual_ones_are_not(analyzed: Analyzed) -> None:
    [told] = {row["incident_id"] for row in analyzed.of("an hour") if row["cause"] == "poison_ack"}
    assert told == "20261118-1105-poison_ack"
    assert {row["incident_id"] for row in analyzed.of("the usual")} == {None}
    marked = analyzed.query("SELECT count(*), min(dead_at), max(dead_at) FROM letters WHERE incident_id = "
                            f"'{told}'")  # fmt: skip
    [row] = analyzed.query(
        f"SELECT size, start, \"end\", new, ongoing, peak FROM incidents WHERE incident_id = '{told}'"
    )
    assert row[:3] == marked[0]
    assert row[5] == row[1]
    assert analyzed.analysis.extra["incidents"] == analyzed.query("SELECT count(*) FROM incidents")[0][0]


def test_what_stores_outside_say_decides_what_is_advised(analyzed: Analyzed) -> None:
    rows = analyzed.of("asked for")
    for row, (_, _, words, advice) in zip(rows, mixed.ASKED_FOR, strict=True):
        assert words in row["evidence"]
        assert row["advice"] == advice
    assert [row["transaction_state"] for row in rows[-3:]] == ["ready", "prepared", None]
    assert analyzed.analysis.extra["evidence"]["away"]["error"] == "evidence.away: Redis does not answer"


def test_the_users_own_rules_come_first(analyzed: Analyzed) -> None:
    [named] = [row for row in analyzed.rows if row["rule"] == "tenant"]
    assert (named["cause"], named["mechanism"], named["advice_reason"]) == ("expired", "reject", "we know it")
    [held] = [row for row in analyzed.of("twins") if row["advice"] == "hold"]
    assert (held["rule"], held["advice_reason"]) == ("shine-mq", "your rule retried says so")


def moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1e6, UTC)
