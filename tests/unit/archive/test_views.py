"""Looking at an archive: what counts, what wins, and what the SQL of users may not do."""

import os
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.archives import MINUTE, letter, parquet, write_analysis, write_segment
from support.rows import each_row

from dlq.archive import analyses, manifests, segments, user_sql, views
from dlq.archive.storage.store import LocalStore
from dlq.core.errors import ArchiveError, UsageError


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "arch'ive[1]"))


def judge(store: LocalStore, name: str = "a1", **verdict: Any) -> None:
    """An analysis that has a verdict of the first letter."""
    write_analysis(store, name, [{"record_id": letter(1).record_id, "cause": "expired", **verdict}])


@pytest.fixture
def look(store: LocalStore) -> Callable[..., list[tuple[Any, ...]]]:
    def ask(sql: str, **options: Any) -> list[tuple[Any, ...]]:
        return list(user_sql.run(views.connect(store, **options), sql).rows)

    return ask


Ask = Callable[..., list[tuple[Any, ...]]]


@each_row("view", ["records", "verdicts", "incidents", "transactions", "replays", "letters", "ls"])
def test_an_empty_archive_has_every_view_and_no_rows(look: Ask, view: str) -> None:
    assert look(f"SELECT * FROM {view}") == []


def test_ls_has_the_columns_of_the_design_in_order(store: LocalStore) -> None:
    write_segment(store, "p-0", [letter(1)])
    rows = user_sql.run(views.connect(store), "SELECT * FROM ls")
    assert list(rows.columns) == [
        "record_id", "source", "broker_kind", "dead_letter_queue", "origin", "cause", "mechanism",
        "attempts", "exception_class", "fingerprint", "incident_id", "advice", "message_id", "key",
        "published_at", "dead_at", "captured_at", "body_size", "laps", "replay_state", "analysis",
    ]  # fmt: skip


def test_a_segment_without_manifest_does_not_exist(store: LocalStore, look: Ask) -> None:
    write_segment(store, "p-0", [letter(1)])
    write_segment(store, "p-1", [letter(2)], committed=False)
    assert look("SELECT record_id FROM records") == [(letter(1).record_id,)]


def test_a_segment_that_was_compacted_away_does_not_count_twice(store: LocalStore, look: Ask) -> None:
    write_segment(store, "p-0", [letter(1)])
    write_segment(store, "p-1", [letter(1)])
    compacted = manifests.load(store, manifests.name_of("p-1"))
    manifests.write(store, manifests.Manifest(**{**vars(compacted), "replaces": ("p-0",)}))
    assert look("SELECT count(*) FROM letters") == [(1,)]


def test_the_verdict_wins_over_the_record_even_with_null(store: LocalStore, look: Ask) -> None:
    write_segment(store, "p-0", [letter(1), letter(2)])
    assert look("SELECT cause, analysis FROM ls") == [(None, None)] * 2
    judge(store, attempts=None, origin=None)
    assert look("SELECT record_id, cause, attempts, origin, analysis FROM letters ORDER BY 1") == [
        (letter(1).record_id, "expired", None, None, "a1"),
        (letter(2).record_id, None, 1, "orders", None),
    ]


def test_the_latest_analysis_is_shown_unless_another_is_named(store: LocalStore, look: Ask) -> None:
    write_segment(store, "p-0", [letter(1)])
    judge(store, "20260101T000000")
    judge(store, "20260102T000000", cause="overflow")
    assert look("SELECT cause FROM ls") == [("overflow",)]
    assert look("SELECT cause FROM ls", analysis="20260101T000000") == [("expired",)]


def test_the_newest_state_of_the_ledger_is_the_replay_state(store: LocalStore, look: Ask) -> None:
    write_segment(store, "p-0", [letter(1), letter(2)])
    one = letter(1).record_id
    ledger = pa.Table.from_pylist(
        [
            {"record_id": one, "plan": "b", "state": "confirmed", "updated_at": 2 * MINUTE},
            {"record_id": one, "plan": "a", "state": "returned", "updated_at": MINUTE},
        ],
        views.REPLAYS,
    )
    assert look("SELECT replay_state FROM ls ORDER BY record_id", replays=ledger) == [("confirmed",), (None,)]


def test_a_letter_of_two_sources_has_the_verdict_of_each(store: LocalStore, look: Ask) -> None:
    for source in ("one", "two"):
        write_segment(store, f"{source}-0", [letter(1, source=source)])
    known = {"record_id": letter(1).record_id}
    verdicts = [{**known, "source": "one", "advice": "replay"}, {**known, "source": "two", "advice": "never"}]
    write_analysis(store, "a1", verdicts)
    assert look("SELECT source, advice FROM letters ORDER BY 1") == [("one", "replay"), ("two", "never")]


def test_an_analysis_whose_verdicts_have_no_source_says_nothing(store: LocalStore, look: Ask) -> None:
    write_segment(store, "p-0", [letter(1)])
    judge(store)
    old = pa.schema([field for field in analyses.VERDICTS if field.name != "source"])
    row = {"record_id": letter(1).record_id, "cause": "expired"}
    store.put("analyses/a1/verdicts/part-0.parquet", parquet(pa.Table.from_pylist([row], old)))
    assert look("SELECT source, cause FROM verdicts") == [(None, "expired")]
    assert look("SELECT cause, analysis FROM letters") == [(None, None)]


def test_times_are_utc_and_bytes_stay_readable(store: LocalStore, look: Ask) -> None:
    write_segment(store, "p-0", [letter(1, body=b"h\xc3\xa9\xff", headers={"x": "1"})])
    assert look("SELECT dead_at, body, headers FROM letters") == [
        ("1970-01-01T00:01:00Z", "hé\\xff", {"x": "1"})
    ]


@each_row("condition", [
    "", "  ", "true) OR (true) ORDER BY (1", "true) UNION SELECT (1", "true; DROP VIEW ls", "true /*",
    "x for x in [1]", "cause =",
])  # fmt: skip
def test_a_condition_that_is_no_one_expression(store: LocalStore, look: Ask, condition: str) -> None:
    with pytest.raises(UsageError, match="--where"):
        user_sql.condition(condition)
    write_segment(store, "p-0", [letter(1, key="a)")])
    odd = user_sql.condition("key = 'a)' -- it may end in a comment")
    assert look(f"SELECT key FROM ls WHERE {odd}") == [("a)",)]


@each_row("sql", [
    "SELECT 1; SELECT 2", "DROP VIEW ls", "SET threads = 1", "COPY (SELECT 1) TO '/tmp/x'",
    "ATTACH '/tmp/x'", "INSTALL httpfs", "CALL pragma_version()", "CREATE TABLE x (a int)",
    "PRAGMA version", "",
])  # fmt: skip
def test_only_one_select_is_let_through(sql: str) -> None:
    with pytest.raises(UsageError, match="exactly one SELECT"):
        user_sql.single_select(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('/etc/passwd')", "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM glob('/etc/*')", "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_parquet('http://127.0.0.1:9/x.parquet')", "SELECT * FROM python_secret",
        "SELECT getenv('HOME')", "SELECT * FROM read_blob('{archive}/ledger.db')",
    ],
)  # fmt: skip
def test_user_sql_reaches_no_file_network_or_variable(store: LocalStore, look: Ask, sql: str) -> None:
    python_secret = pa.table({"a": [1]})
    write_segment(store, "p-0", [letter(1)])
    store.put("ledger.db", b"secret")
    with pytest.raises(duckdb.Error, match="locked"):
        views.connect(store).execute("SET enable_external_access = true")
    with pytest.raises(UsageError):
        look(user_sql.single_select(sql.format(archive=store.location.replace("'", "''"))))
    assert python_secret.num_rows == 1


@each_row("words", ["FileNotFoundError", "IO Error", "No magic bytes", "Corrupt", "Out of Memory Error"])
def test_what_a_user_or_a_letter_says_is_no_damage(store: LocalStore, look: Ask, words: str) -> None:
    write_segment(store, "p-0", [letter(1, failure_text=f"{words}: orders.csv")])
    with pytest.raises(UsageError, match="unknown column 'bogus'"):
        look(f"SELECT bogus FROM letters WHERE failure_text LIKE '%{words}%'")
    with pytest.raises(UsageError, match="Could not convert string"):
        look("SELECT failure_text::int FROM records")
    with pytest.raises(UsageError, match="Could not convert string"):
        list(views.segment_rows(views.connect(store), "failure_text::int = 1"))


def test_half_a_quoted_character_is_no_damage(store: LocalStore, look: Ask) -> None:
    write_segment(store, "p-0", [letter(1, failure_text="ä" * 40)])
    with pytest.raises(UsageError, match=r"^SQL: Invalid input for hex digit"):
        look("SELECT unhex(failure_text) FROM records")


@pytest.mark.parametrize("name", [b"origin_grouq", b"origin_grou\xff", None])
def test_another_name_in_a_footer_is_damage(store: LocalStore, look: Ask, name: bytes | None) -> None:
    """And so is what is no Parquet at all."""
    segments.commit(store, "orders", "p", 0, "drain", [letter(1)], {})
    content = store.get(segment := segment_of(store))
    store.put(segment, content.replace(b"origin_group", name) if name else b"not parquet at all")
    with pytest.raises(ArchiveError, match="cannot read "):
        look("SELECT origin_group FROM records")


@pytest.mark.parametrize("damage", [b"\0", b"A", b"\xff", None])
def test_a_segment_with_other_bytes_is_damage(store: LocalStore, look: Ask, damage: bytes | None) -> None:
    letters = [letter(n, headers={"x": f"{n}"}) for n in range(3)]
    segments.commit(store, "orders", "p", 0, "drain", letters, {})
    content = store.get(name := segment_of(store))
    group = pq.ParquetFile(BytesIO(content)).metadata.row_group(0)
    chunks = [group.column(place) for place in range(group.num_columns)]
    [chunk] = [one for one in chunks if one.path_in_schema == "headers.key_value.key"]
    start, end = chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size
    packed = content.index(b"\x28\xb5\x2f\xfd", start) + 4
    inside = bytes(byte ^ 0x55 for byte in content[packed:end])
    page = damage * (end - start) if damage else content[start:packed] + inside
    store.put(name, content[:start] + page + content[end:])
    with pytest.raises(ArchiveError, match="cannot read the archive: " if damage else name):
        look("SELECT headers FROM records")


def test_no_progress_is_drawn_between_the_data_where_python_runs_without_a_script(tmp_path: Path) -> None:
    program = (
        "from dlq.archive import views\nfrom dlq.archive.storage import store\n"
        "connection = views.connect(store.LocalStore('archive'))\n"
        "print(connection.execute(\"SELECT current_setting('enable_progress_bar')\").fetchone())"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=True)
    assert run.stdout == b"(False,)\n"


def segment_of(store: LocalStore) -> str:
    """The name of its only segment."""
    [manifest] = manifests.list_committed(store)
    return manifest.segment


@pytest.mark.parametrize("view", ["letters", "verdicts"])
def test_what_is_removed_while_somebody_looks_is_seen_to_the_end(store: LocalStore, view: str) -> None:
    write_segment(store, "p-0", [letter(1)])
    judge(store)
    connection = views.connect(store)
    for name in store.list(""):
        store.delete(name)
    found = user_sql.run(connection, f"SELECT record_id, cause FROM {view}").rows
    assert list(found) == [(letter(1).record_id, "expired")]


def test_what_is_moved_while_somebody_looks_is_said_in_a_line(store: LocalStore) -> None:
    write_segment(store, "p-0", [letter(1)])
    connection = views.connect(store)
    Path(store.location).rename(f"{store.location}.moved")
    with pytest.raises(ArchiveError, match="was moved during the query"):
        list(user_sql.run(connection, "SELECT record_id FROM letters").rows)


@pytest.mark.parametrize("name", ["a\\b", os.fsdecode(b"\xffd"), "x (deleted)", "s3:"])
def test_an_archive_may_lie_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    store = LocalStore(str(tmp_path / name))
    write_segment(store, "p-0", [letter(1)])
    found = user_sql.run(views.connect(store), "SELECT record_id FROM letters").rows
    assert list(found) == [(letter(1).record_id,)]


def test_no_link_at_the_name_of_what_was_removed_is_allowed(store: LocalStore, tmp_path: Path) -> None:
    write_segment(store, "p-0", [letter(1)])
    (tmp_path / "private").write_text("s3cret")
    Path(store.location, f"{segment_of(store)} (deleted)").symlink_to(tmp_path / "private")
    with pytest.raises(ArchiveError, match=r"a link to .*private by the name of a file that was removed"):
        views.connect(store)


@pytest.mark.parametrize(("sql", "quoted"), [
    ("select offset from records", '"offset"'),
    ("select max(r.OFFSET), count(*) from records r where offset > 1", '"offset"'),
    ("select cause, end from incidents", '"end"'),
])  # fmt: skip
def test_a_column_that_is_a_keyword_is_told_to_be_quoted(sql: str, quoted: str) -> None:
    with pytest.raises(UsageError, match=f"write {quoted} in double quotes"):
        user_sql.single_select(sql)


def test_another_mistake_gets_no_hint_and_what_is_right_stays_as_it_is() -> None:
    with pytest.raises(UsageError, match='write "offset" in double quotes'):
        user_sql.condition("offset > 5")
    for sql in ("selct offset from records", "select end end from"):
        with pytest.raises(UsageError, match=r"^(?!.*double quotes)"):
            user_sql.single_select(sql)
    sql = 'select "offset", case when true then 1 end from records limit 5 offset 1'
    assert user_sql.single_select(sql) == sql


@pytest.mark.parametrize("value", ["to_days(1000000000)", "[interval 2000000000 month]"])
def test_an_interval_that_python_does_not_know_is_a_mistake_in_a_line(value: str) -> None:
    with duckdb.connect() as connection, pytest.raises(UsageError, match="larger than can be shown"):
        list(user_sql.run(connection, f"select {value}").rows)
