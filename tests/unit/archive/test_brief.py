"""Letters in brief are the letters, whatever became of them since they were classified."""

from itertools import product
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.archives import MINUTE, letter, parquet, write_segment
from support.rows import each_row

from dlq.analyzers import analysis
from dlq.analyzers.analysis import analyze
from dlq.archive import analyses, brief, manifests, views
from dlq.archive.manifests import Manifest
from dlq.archive.schema import REPLAYS
from dlq.archive.storage.store import LocalStore, Store
from dlq.core.configuration import parse
from dlq.core.record import Record

_COLUMNS = ", ".join(brief.COLUMNS)
_CONDITIONS = ["(true)", "(cause IS NOT NULL)", "(failure_text IS NULL)"]
_OF_LETTERS = """
    SELECT source, cause, fingerprint, replay_state, count(*), min(dead_at), max(dead_at), min(record_id),
           sum(body_size), count(*) FILTER (still_queued) FROM letters GROUP BY 1, 2, 3, 4"""
_OF_SUMS = """
    SELECT source, cause, fingerprint, replay_state, sum(letters), min(first), max(last), min(example),
           sum(body_bytes), sum(still_queued) FROM _sums GROUP BY 1, 2, 3, 4"""


def _failing(number: int, source: str = "orders") -> Record:
    place = number % 3
    text = f"com.shop.StockException: no stock\n\tat com.shop.Stock{place}.take(Stock.java:{place})"
    headers = {"x-exception-stacktrace": text, "x-first-death-reason": "rejected"}
    return letter(number, source=source, headers=headers, body=b"x" * number, captured_at=99 * MINUTE)


@pytest.fixture
def store(store: LocalStore) -> LocalStore:
    """Classified: p-0, p-1, p-2 and s-0 of orders, and q-0, which came by a file. Then p-1 and p-2 were
    written again as one, retention removed two letters of p-0, and r-0 was pulled; and s-1, as many letters
    as retention removed of s-0, when it wrote both as one."""
    known = {"p-0": range(1, 9), "p-1": range(9, 12), "p-2": range(12, 15), "s-0": range(50, 52)}
    for stem, numbers in known.items():
        write_segment(store, stem, [_failing(n) for n in numbers])
    write_segment(store, "q-0", [_failing(n, "file") for n in (1, 2, 30)])
    analyze(store, parse({}, {}), engine="plain")
    _write_again(store, "p-3", [_failing(n) for n in range(9, 15)], ("p-1", "p-2"))
    _write_again(store, "p-4", [_failing(n) for n in range(3, 9)], ("p-0",), purged=2)
    _write_again(store, "s-2", [_failing(n) for n in (51, 52)], ("s-0", "s-1"), purged=1)
    write_segment(store, "r-0", [_failing(n) for n in (40, 41)])
    return store


def _write_again(
    store: Store, stem: str, letters: list[Record], replaced: tuple[str, ...], purged: int = 0
) -> None:
    write_segment(store, stem, letters)
    known = vars(manifests.load(store, manifests.name_of(stem)))
    manifests.write(store, Manifest(**{**known, "replaces": replaced, "purged": purged}))


def _ledger(states: dict[int, str]) -> pa.Table:
    rows = [
        {"record_id": letter(n).record_id, "state": state, "key": str(n), "plan": "p", "updated_at": n}
        for n, state in states.items()
    ]
    return pa.Table.from_pylist(rows, REPLAYS)


def _look(store: Store) -> duckdb.DuckDBPyConnection:
    queued = {"p-0": (), "p-1": {letter(11).record_id}, "r-0": {letter(41).record_id}}
    states = {4: "confirmed", 10: "dismissed", 30: "in_doubt", 40: "confirmed"}
    return views.connect(store, _ledger(states), queued=queued)


def _are_summed_up(look: duckdb.DuckDBPyConnection) -> None:
    brief.sum_up(look)
    assert {*look.execute(_OF_SUMS).fetchall()} == {*look.execute(_OF_LETTERS).fetchall()}


def test_letters_in_brief_are_the_letters(store: LocalStore) -> None:
    look, ordered = _look(store), "ORDER BY source, record_id"
    whole = look.execute(f"SELECT {_COLUMNS} FROM letters {ordered}").fetchall()

    assert look.execute(f"SELECT {_COLUMNS} FROM _brief {ordered}").fetchall() == whole
    assert len(whole) == 19


def test_sums_are_those_of_all_letters(store: LocalStore) -> None:
    _are_summed_up(_look(store))


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "SUMMED_FROM", 1)


_LEFT: list[tuple[str, dict[str, tuple[str, ...]], bool]] = [
    ("no letter lies in its queue", {}, True),
    ("all of a source do", {"p-0": (), "p-1": (), "r-0": ()}, True),
    ("some of a source do", {"p-1": ()}, False),
    ("all but one do", {"p-0": (letter(4).record_id,), "p-1": (), "r-0": ()}, False),
]


@pytest.mark.usefixtures("summed")
@each_row("what, queued, are_kept", _LEFT)
def test_what_an_analysis_has_summed_up_is_joined_with_the_ledger(
    tmp_path: Path, what: str, queued: dict[str, tuple[str, ...]], are_kept: bool
) -> None:
    """Of the failures that the ledger does not know no letter is read."""
    store = LocalStore(str(tmp_path / what))
    write_segment(store, "p-0", [_failing(n) for n in range(1, 9)])
    write_segment(store, "p-1", [_failing(n) for n in range(9, 15)])
    write_segment(store, "q-0", [_failing(n, "file") for n in (1, 2, 30)])
    analyze(store, parse({}, {}), engine="plain")
    write_segment(store, "r-0", [_failing(n) for n in (40, 41)])
    look = views.connect(store, _ledger({4: "confirmed", 40: "confirmed"}), queued=queued)
    _are_summed_up(look)
    assert look.execute("SELECT count(*) FROM _again").fetchall() == [(17 if are_kept else 0,)]
    assert look.execute("SELECT count(*) FROM _touched").fetchall() == [(1 if are_kept else 0,)]
    views.narrow(look, "source = 'file'")
    _are_summed_up(look)


@pytest.mark.usefixtures("summed")
@each_row("content", [b"", b"no Parquet", None])
def test_sums_that_are_damaged_are_made_of_the_letters(tmp_path: Path, content: bytes | None) -> None:
    store = LocalStore(str(tmp_path / str(content)))
    write_segment(store, "p-0", [_failing(n) for n in range(1, 9)])
    [file] = analyze(store, parse({}, {}), engine="plain").tables["sums"]
    whole = Path(store.location, file).read_bytes()
    damaged = whole[:40] + b"?" * 200 + whole[240:] if content is None else content
    Path(store.location, file).write_bytes(damaged)
    _are_summed_up(views.connect(store))


@pytest.mark.usefixtures("summed")
def test_letters_without_a_failure_are_summed_up_once(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "archive"))
    write_segment(store, "p-0", [_failing(n) for n in range(1, 9)])
    tables = analyze(store, parse({}, {}), engine="plain").tables
    [file] = tables["verdicts"]
    said = pq.read_table(store.parquet(file)).to_pylist()
    said = [row | {"fingerprint": None} if row["dead_at"].minute % 2 else row for row in said]
    store.put(file, parquet(pa.Table.from_pylist(said, analyses.IN_FILES)))
    for name, table in views.sum_up_verdicts(store, [file]).items():
        store.put(tables[name][0], parquet(table))
    _are_summed_up(views.connect(store))


@each_row("dear", [True, False])
def test_letters_are_counted_the_same_one_by_one_and_by_those_that_are_alike(
    store: LocalStore, dear: bool
) -> None:
    look = _look(store)
    for condition in ("contains(exception_class, 'Stock')", "laps = 0", "failure_text IS NULL", "key = 'x'"):
        ((found,),) = look.execute(f"SELECT count(*) FROM letters WHERE {condition}").fetchall()
        assert views.count(look, condition, dear) == found


def test_the_newest_are_the_same_by_whatever_way(store: LocalStore) -> None:
    look = _look(store)

    @each_row(
        "where, columns, limit", product(_CONDITIONS, ["record_id", "record_id, failure_text"], [3, 40])
    )
    def are_the_same(where: str, columns: str, limit: int) -> None:
        sql = f"""
            SELECT {columns}, source FROM letters WHERE {where}
            ORDER BY dead_at DESC NULLS LAST, captured_at DESC NULLS LAST, record_id, source LIMIT {limit}"""

        found = views.newest(look, [*columns.split(", "), "source"], where, limit)

        assert list(found.rows) == look.execute(sql).fetchall()

    are_the_same()
