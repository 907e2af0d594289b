"""Incidents: which letters belong together, and which are just what is usual."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from archives import write_segment
from pyspark.sql import SparkSession
from unit.analyzers.letters import died

from dlq.analyzers import incidents
from dlq.analyzers.spark.job import analyze
from dlq.archive import views
from dlq.archive.manifests import Manifest
from dlq.archive.store import LocalStore
from dlq.core.settings import Settings

MINUTE, HOUR, DAY = 60, 3_600, 86_400
START = 1_793_000_100  # 2026-10-26 07:35 UTC, where a slot begins
COLUMNS = (
    "record_id string, source string, cause string, exception_family string, fingerprint string, at double, "
    "published double, connection_id string, incident_id string"
)
TIMES = ("CAST(at AS timestamp) AS dead_at", "CAST(published AS timestamp) AS published_at")


def letters(fingerprint: str, times: Iterable[float], **columns: Any) -> list[dict[str, Any]]:
    """Letters of one failure that died so many seconds after START."""
    known = {"source": "orders", "cause": "application_error", "fingerprint": fingerprint}
    return [{**known, "at": float(START + at), **columns} for at in times]


def every(seconds: float, first: float, last: float) -> list[float]:
    return [first + n * seconds for n in range(int((last - first) / seconds) + 1)]


def judged(spark: SparkSession, rows: list[dict[str, Any]]) -> Any:
    names = [column.split()[0] for column in COLUMNS.split(", ")]
    numbered = [{"record_id": f"{n:04d}", **row} for n, row in enumerate(rows)]
    frame = spark.createDataFrame([tuple(row.get(name) for name in names) for row in numbered], COLUMNS)
    return frame.selectExpr("*", *TIMES)


class Found(NamedTuple):
    """Of each letter the scene that it belongs to and its incident, and the incidents' rows by their ids."""

    told: list[tuple[str, str | None]]
    table: dict[str, Any]

    def of(self, scene: str) -> list[str | None]:
        return [incident for name, incident in self.told if name == scene]


def found(spark: SparkSession, rows: list[dict[str, Any]], looked_at: float) -> Found:
    frame = judged(spark, rows)
    slots = incidents.find(incidents.slots(frame)).persist()
    told = incidents.mark(frame, slots).orderBy("record_id").select("incident_id").collect()
    table = incidents.table(slots, int((START + looked_at) * 1e6)).collect()
    slots.unpersist()
    scenes = [row.get("exception_family") or row["fingerprint"] for row in rows]
    return Found(
        list(zip(scenes, [row.incident_id for row in told], strict=True)),
        {row.incident_id: row for row in table},
    )


MINUTELY = every(2, 0, MINUTE)
BURST = every(20, 5 * DAY + HOUR, 5 * DAY + HOUR + 15 * MINUTE)
SCENES = [
    *letters("f", [*every(2 * HOUR, 0, 10 * DAY), *BURST], exception_family="bursting"),
    *letters("f", every(10 * MINUTE, 0, 10 * DAY), exception_family="steady"),
    *letters("f", range(4), exception_family="four"),
    *letters("f", range(6), exception_family="six"),
    *letters("f", every(12 * MINUTE, 0, 5 * HOUR), exception_family="slow"),
    *letters("f", [*MINUTELY, *(at + 2 * HOUR for at in MINUTELY)], exception_family="twice"),
    *letters("ttl", MINUTELY, cause="expired"),
    *letters("f", [0] * 6, exception_family="undated", at=None, published=float(START)),
    *letters("f", [0] * 6, exception_family="timeless", at=None),
    *letters("amq", range(6), cause="suppressed_duplicate", connection_id="c", incident_id="amq-1"),
    *letters("note", range(6), cause=None),
    *letters("f", [at + days * DAY for days in (0, 20, 60) for at in MINUTELY], exception_family="away"),
    *(
        row
        for service in range(20)
        for row in letters(
            f"f{service}",
            [service, 60 + service],
            source=f"source-{service % 2}",
            exception_family=("timeout", "connection", "database")[service % 3],
        )
    ),
]
"""Each scene is a kind of failures of its own, but for the dependency that many services miss."""


@pytest.fixture(scope="module")
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    """For a few rows expressions that are interpreted are ten times faster than those that are compiled."""
    names = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode", "spark.sql.adaptive.enabled")
    before = {name: spark.conf.get(name) for name in names}
    for name, value in zip(names, ("false", "NO_CODEGEN", "false"), strict=True):
        spark.conf.set(name, value)
    yield spark
    for name, known in before.items():
        spark.conf.set(name, known)


@pytest.fixture(scope="module")
def scenes(quick: SparkSession) -> Found:
    return found(quick, SCENES, 90 * DAY)


def test_a_burst_among_what_is_usual_is_an_incident_and_nothing_else(scenes: Found) -> None:
    told = scenes.of("bursting")
    (row,) = (row for name, row in scenes.table.items() if name.endswith("-bursting"))

    assert set(told[: -len(BURST)]) == {None}
    assert set(told[-len(BURST) :]) == {"20261031-0835-bursting"}
    assert (row["size"], row.fingerprint, row.new, row.ongoing) == (46, "f", False, False)
    assert row.first_record_id == f"{len(told) - len(BURST):04d}"
    assert (row.end - row.start).total_seconds() == 15 * MINUTE
    assert row.peak == row.start


def test_a_steady_stream_is_usual_however_many_letters_it_has(scenes: Found) -> None:
    assert set(scenes.of("steady")) == {None}


def test_four_letters_are_no_incident_and_half_a_dozen_are(scenes: Found) -> None:
    assert set(scenes.of("four")) == {None}
    assert set(scenes.of("six")) == {"20261026-0735-six"}


def test_few_letters_an_hour_are_an_incident_when_they_go_on(scenes: Found) -> None:
    assert set(scenes.of("slow")) == {"20261026-0735-slow"}


def test_what_a_dependency_does_to_many_services_is_one_incident_across_brokers(scenes: Found) -> None:
    row = scenes.table["20261026-0735-dependency"]

    assert (row["size"], row.sources) == (40, ["source-0", "source-1"])
    for family in ("timeout", "connection", "database"):
        assert set(scenes.of(family)) == {"20261026-0735-dependency"}


def test_bursts_of_other_causes_and_of_other_times_are_other_incidents(scenes: Found) -> None:
    assert set(scenes.of("twice")) == {"20261026-0735-twice", "20261026-0935-twice"}
    assert set(scenes.of("ttl")) == {"20261026-0735-expired"}


def test_a_letter_without_a_time_of_death_counts_where_it_was_published(scenes: Found) -> None:
    assert set(scenes.of("undated")) == {"20261026-0735-undated"}
    assert set(scenes.of("timeless")) == {None}


def test_bursts_of_a_connection_keep_their_letters_and_notes_beside_a_letter_have_none(scenes: Found) -> None:
    assert set(scenes.of("amq")) == {"amq-1"}
    assert set(scenes.of("note")) == {None}
    assert not [name for name in scenes.table if "suppressed" in name]


def test_a_failure_that_was_away_for_four_weeks_is_new(scenes: Found) -> None:
    assert [row.new for name, row in sorted(scenes.table.items()) if "away" in name] == [True, False, True]


def test_an_archive_of_one_bad_hour_is_one_incident_that_still_goes_on(quick: SparkSession) -> None:
    hour = found(quick, letters("f", every(MINUTE, 0, HOUR - 1)), HOUR + MINUTE)
    (row,) = hour.table.values()

    assert set(hour.of("f")) == {"20261026-0735-application_error"}
    assert (row["size"], row.new, row.ongoing) == (60, True, True)


def test_an_analysis_writes_incidents_and_marks_verdicts(quick: SparkSession, tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "archive"))
    write_segment(
        store,
        "p-0",
        [
            died(("rejected", "orders", 1), record_id=f"{n:032x}", dead_at=(START + n) * 1_000_000)
            for n in range(12)
        ],
    )
    assert analyze(store, Settings()).extra["incidents"] == 1

    sql = "SELECT incident_id, count(*) FROM letters GROUP BY 1"
    with views.connect(store) as connection:
        assert connection.sql(sql).fetchall() == [("20261026-0735-poison_ack", 12)]
        (row,) = connection.sql("SELECT size, sources, causes, first_record_id FROM incidents").fetchall()
    assert row == (12, ["orders"], ["poison_ack"], f"{0:032x}")


@pytest.mark.parametrize(
    ("pulls", "looked_at"),
    [([], 1_793_000_000), (["20261026T080000-ab12"], 1_793_001_600), (["odd"], 1_793_000_000)],
)
def test_the_last_look_is_the_last_pull_even_if_it_brought_nothing(
    tmp_path: Path, pulls: list[str], looked_at: int
) -> None:
    store = LocalStore(str(tmp_path))
    for pull in pulls:
        store.put(f"topology/{pull}.json", b"{}")
    segment = Manifest("p-0", "p", "orders", "copy", "s", 1, "", "2026-10-26T07:33:20Z")

    assert incidents.last_look(store, [segment]) == looked_at * 1_000_000
