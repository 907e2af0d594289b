"""Previews: what is known at once of letters that no analysis has judged, without Spark."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.analyzers.letters import died, record
from support.archives import letter, write_analysis, write_segment

from dlq.analyzers import preview
from dlq.analyzers.rules import Facts, Letter
from dlq.archive import analyses, manifests
from dlq.archive.analyses import VERDICTS
from dlq.archive.store import LocalStore
from dlq.core.errors import ArchiveError
from dlq.core.record import Death, Record
from dlq.core.settings import Settings

SPRING = {"x-exception-message": "out of stock", "x-original-exchange": "shop"}


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(str(tmp_path / "archive"))
    write_segment(store, "p-0", [letter(1), letter(2, headers=SPRING)])
    write_segment(store, "q-0", [letter(3, deaths=(Death("expired", "orders", "", (), 1),))])
    return store


def seen(store: LocalStore, **options: Any) -> list[dict[str, Any]]:
    table = preview.preview(store, Settings(), **options).verdicts
    assert table is not None
    return [dict(row) for row in table.to_pylist()]


def judged(*records: Record) -> list[dict[str, Any]]:
    table = preview.judge_all(map(Letter._make, records), Facts(), max_laps=3)
    assert table.schema == VERDICTS
    return [dict(row) for row in table.to_pylist()]


def test_every_letter_has_the_verdict_and_the_advice_that_follow_from_it_alone(store: LocalStore) -> None:
    assert [(row["record_id"], row["cause"], row["advice"]) for row in seen(store)] == [
        (letter(1).record_id, "unknown", "check_first"),
        (letter(2).record_id, "application_error", "fix_first"),
        (letter(3).record_id, "expired", "check_first"),
    ]


def test_an_archive_without_letters_has_a_preview_without_rows(tmp_path: Path) -> None:
    assert seen(LocalStore(str(tmp_path))) == []


def test_what_only_shows_between_letters_is_null() -> None:
    (row,) = judged(record())

    assert {row[name] for name in ("duplicate_group", "duplicate_kind", "incident_id")} == {None}


def test_only_segments_that_the_latest_analysis_has_not_read_are_judged(store: LocalStore) -> None:
    read(store, "p-0")

    assert [row["record_id"] for row in seen(store)] == [letter(3).record_id]


def test_a_segment_that_a_compaction_made_of_judged_ones_is_judged(store: LocalStore) -> None:
    read(store, "p-0", "q-0")
    write_segment(store, "r-0", [letter(1), letter(2), letter(3)])
    new = manifests.load(store, manifests.name_of("r-0"))
    manifests.write(store, manifests.Manifest(**{**vars(new), "replaces": ("p-0", "q-0")}))

    assert seen(store) == []


def read(store: LocalStore, *stems: str) -> None:
    """An analysis that has read these segments."""
    write_analysis(store, "20260101T000000", [])
    done = analyses.load(store, "20260101T000000")
    analyses.commit(store, analyses.Analysis(**{**vars(done), "segments": stems}))


def test_of_too_many_letters_only_their_number_is_known(store: LocalStore) -> None:
    assert preview.preview(store, Settings(), most=2) == (3, None)


def test_letters_of_a_page_are_judged_however_many_wait(store: LocalStore) -> None:
    page = {store.url("segments/source=orders/date=2026-11-21/p-0.parquet"): {letter(2).record_id}}

    assert [row["cause"] for row in seen(store, page=page, most=1)] == ["application_error"]


def test_a_letter_that_lies_under_two_sources_has_a_verdict_in_each(store: LocalStore) -> None:
    write_segment(store, "r-0", [letter(1, source="again")])

    assert len(seen(store)) == 4


def test_a_half_message_keeps_the_verdict_of_its_own() -> None:
    queue = "RMQ_SYS_TRANS_HALF_TOPIC"
    (row,) = judged(record(broker_kind="rocketmq", dead_letter_queue=queue))

    assert [row[name] for name in ("cause", "transaction_state", "advice")] == [
        "transaction_pending", "pending", "hold",
    ]  # fmt: skip


def test_the_advice_on_a_discarded_transaction_names_its_key() -> None:
    queue, known = "TRANS_CHECK_MAX_TIME_TOPIC", {"KEYS": "order-7"}
    (row,) = judged(record(broker_kind="rocketmq", dead_letter_queue=queue, properties=known))

    assert "look order-7 up" in row["advice_reason"]


@pytest.mark.parametrize(
    "odd",
    [
        record(),
        died(("rejected", "orders", 2**40)),
        died(("rejected", "orders", -(2**40))),
        died(("rejected", "orders", 1), headers={"x-retries": "2147483647"}),
        record(
            properties={"type": "EasyNetQ.SystemMessages.Error"}, body=b'{"Exception": "\\ud800\\u0000\\n"}'
        ),
        record(headers={"x-exception-message": "x" * 3_000_000, "retry-count": "9"}),
    ],
)
def test_no_letter_is_too_odd_to_be_previewed(odd: Record) -> None:
    assert len(judged(odd)) == 1


def test_a_damaged_segment_is_an_archive_error(store: LocalStore) -> None:
    store.put("segments/source=orders/date=2026-11-21/p-0.parquet", b"not parquet at all")

    with pytest.raises(ArchiveError, match=r"p-0\.parquet in the archive cannot be read"):
        preview.preview(store, Settings())


def test_a_preview_loads_neither_spark_nor_pandas(store: LocalStore) -> None:
    code = (
        "import sys; from dlq.analyzers.preview import preview; from dlq.archive.store import LocalStore\n"
        "from dlq.core.settings import Settings\n"
        "preview(LocalStore(sys.argv[1]), Settings()); print(*sys.modules)"
    )
    run = [sys.executable, "-c", code, store.location]
    loaded = subprocess.run(run, capture_output=True, text=True, check=True).stdout

    assert not {"pyspark", "pandas", "duckdb"} & set(loaded.split())
