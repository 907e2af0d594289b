"""Retention and compaction: what may leave leaves, the rest stays what it was, and the books balance."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dlq.archive import analyses, compaction, housekeeping, manifests, segments
from dlq.archive.analyses import Analysis
from dlq.archive.housekeeping import Work
from dlq.archive.manifests import Manifest
from dlq.archive.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.cli import app
from dlq.connectors.memory import MemoryBroker, MemoryConnector, broker_at
from dlq.core.errors import ArchiveError, Busy
from dlq.core.settings import Broker, Retain, Settings, Source
from dlq.replay.verify import Books, verify

SOURCE = Source("orders", "shop", queue="orders.dlq")
AT_ONCE = Retain(max_age="0s")


class Shop:
    """An embedded broker with one dead-letter queue, and an archive."""

    def __init__(self, name: str, folder: Path) -> None:
        self.broker: MemoryBroker = broker_at(f"memory:{name}")
        self.broker.declare("orders.dlq")
        self.connector = MemoryConnector(Broker("shop", "memory", f"memory:{name}"))
        self.store = LocalStore(str(folder / "archive"))
        self.replays: pa.Table | None = None

    def put(self, *bodies: str) -> None:
        self.broker.put("orders.dlq", *({"broker_kind": "rabbitmq", "body_text": body} for body in bodies))

    def take(self, mode: Any = "drain") -> Any:
        return pull(self.store, self.connector, SOURCE, PullOptions(mode))

    def runs(self, *batches: tuple[str, ...]) -> None:
        for batch in batches:
            self.put(*batch)
            self.take()

    def ledger_says(self, state: str, *record_ids: str) -> None:
        rows = [{"record_id": i, "state": state} for i in record_ids]
        table = pa.Table.from_pylist(rows, pa.schema([("record_id", pa.string()), ("state", pa.string())]))
        self.replays = table if self.replays is None else pa.concat_tables([self.replays, table])

    def look(self, rules: Retain = AT_ONCE, compact: bool = False) -> Work:
        return housekeeping.look(self.store, rules, self.replays, compact)

    def retain(self, rules: Retain = AT_ONCE, compact: bool = False) -> Work:
        work = self.look(rules, compact)
        housekeeping.do(self.store, work)
        return work

    @property
    def committed(self) -> list[Manifest]:
        return sorted(manifests.every(self.store, "orders"), key=lambda manifest: manifest.created_at)

    @property
    def ids(self) -> list[str]:
        return [i for m in self.committed for i in segments.record_ids(self.store, m).to_pylist()]

    @property
    def books(self) -> Books:
        (books,) = verify(self.store, Settings())
        return books

    @property
    def files(self) -> list[str]:
        return self.store.list("segments/")


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    return Shop(request.node.nodeid, tmp_path)


def test_replayed_letters_leave_and_the_books_still_balance(shop: Shop) -> None:
    shop.runs(("a", "b", "c"))
    gone, kept, other = shop.ids
    shop.ledger_says("confirmed", gone)
    shop.retain()
    assert shop.ids == [kept, other]
    assert (shop.books.captured, shop.books.purged, shop.books.waiting, shop.books.balanced) == (
        3,
        1,
        2,
        True,
    )


@pytest.mark.parametrize("state", ["planned", "sending", "in_doubt", "held"])
@pytest.mark.parametrize("states", [("replayed",), ("waiting",), ("replayed", "waiting")])
def test_what_is_open_never_leaves(shop: Shop, state: str, states: tuple[str, ...]) -> None:
    shop.runs(("a",))
    shop.ledger_says(state, *shop.ids)
    shop.ledger_says("confirmed", *shop.ids)  # to another target
    assert shop.look(Retain(max_age="0s", states=states)).choice.removed == 0


def test_what_waits_leaves_only_where_the_rules_say_so(shop: Shop) -> None:
    shop.runs(("a", "b"))
    shop.ledger_says("refused", shop.ids[0])
    assert shop.look().choice.removed == 0
    assert shop.look(Retain(max_age="0s", states=("waiting",))).choice.removed == 2


def test_what_a_copy_left_in_its_queue_never_leaves(shop: Shop) -> None:
    shop.put("a")
    shop.take("copy")
    shop.ledger_says("confirmed", *shop.ids)
    assert shop.look().choice.removed == 0
    shop.take("drain")
    assert shop.look().choice.removed == 1


def test_age_counts_from_the_capture(shop: Shop) -> None:
    shop.runs(("a",))
    shop.ledger_says("confirmed", *shop.ids)
    assert shop.look(Retain(max_age="1h")).choice.removed == 0


def test_a_dry_run_changes_nothing_and_says_the_truth(shop: Shop) -> None:
    shop.runs(("a",), ("b",), ("c",))
    shop.ledger_says("confirmed", shop.ids[0])
    before = (shop.files, shop.committed)
    promised = shop.look(compact=True)
    assert (shop.files, shop.committed) == before
    shop.retain(compact=True)
    assert promised.segments == 3
    assert promised.segments_after == len(shop.files) == 1
    assert promised.choice.kept == len(shop.ids) == 2


def test_size_removes_the_oldest_until_it_fits(shop: Shop) -> None:
    shop.runs(("a",), ("b",), ("c",))
    shop.ledger_says("confirmed", *shop.ids)
    _oldest, second, newest = shop.ids
    size = sum(compaction.size_of(shop.store, m) for m in shop.committed)
    shop.retain(Retain(max_size=f"{size - 1}B"))
    assert shop.ids == [second, newest]
    assert shop.books.balanced


def test_many_small_segments_become_one_with_the_same_letters(shop: Shop) -> None:
    shop.runs(*((f"{n}",) for n in range(12)))
    before = sorted(shop.ids)
    shop.retain(compact=True)
    (one,) = shop.committed
    assert sorted(shop.ids) == before
    assert (one.settled, one.rows, len(shop.files), len(shop.store.list("manifests/"))) == (True, 12, 1, 1)
    assert shop.books.balanced
    assert shop.look(compact=True).groups == {"orders": []}


def test_the_checkpoint_of_a_drain_outlives_compaction(shop: Shop) -> None:
    for number, reached in enumerate([{"q0": 5, "q1": 9}, {"q0": 7}], 1):
        segments.commit(shop.store, "orders", "20261121T000000-abcd", number, "drain", [], reached)
    shop.retain(compact=True)
    (one,) = shop.committed
    assert (dict(one.checkpoint), one.rows, one.mode) == ({"q0": 7, "q1": 9}, 0, "drain")


def test_a_letter_like_a_removed_one_is_a_new_letter(shop: Shop) -> None:
    """Under the removed one's id it would pass for replayed, and be lost."""
    shop.runs(("same",))
    (gone,) = shop.ids
    shop.ledger_says("confirmed", gone)
    shop.retain()
    shop.runs(("same",))
    assert shop.ids != [gone]
    assert len(shop.ids) == 1
    shop.retain(compact=True)
    assert (shop.books.captured, shop.books.purged, shop.books.waiting, shop.books.balanced) == (
        2,
        1,
        1,
        True,
    )


def test_copies_that_were_compacted_are_still_known_when_they_are_drained(shop: Shop) -> None:
    for body in ("a", "b", "b"):
        shop.put(body)
        shop.take("copy")
    before = sorted(shop.ids)
    shop.retain(compact=True)
    drained = shop.take("drain")
    assert (drained.captured, drained.recaptured, sorted(shop.ids)) == (0, 3, before)
    assert all(manifest.settled for manifest in shop.committed)


class Crash(Exception):
    """The process ends here."""


def crash_at(store: LocalStore, monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    real: Callable[..., None] = getattr(store, call)
    calls = iter(range(1, 1000))

    def dying(*arguments: Any) -> None:
        if next(calls) == number:
            raise Crash
        real(*arguments)

    monkeypatch.setattr(store, call, dying)


CRASHES = [("put", 1), ("put", 2), ("put", 3), *(("delete", n) for n in range(1, 7))]


@pytest.mark.parametrize(("call", "number"), CRASHES)
def test_a_crash_in_mid_compaction_loses_and_doubles_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    shop.runs(("a", "b"), ("c",), ("d",))
    gone, *kept = shop.ids
    shop.ledger_says("confirmed", gone)
    with monkeypatch.context() as patched:
        crash_at(shop.store, patched, call, number)
        with pytest.raises(Crash):
            shop.retain(compact=True)
    assert shop.books.captured == 4
    assert shop.books.problems == []
    assert set(kept) <= set(shop.ids)
    shop.runs(("e",))
    shop.retain(compact=True)
    assert len(shop.ids) == 4
    assert (shop.books.captured, shop.books.purged, shop.books.balanced) == (5, 1, True)
    assert len(shop.files) == len(shop.store.list("manifests/")) == 1
    assert len(shop.store.list("purged/")) == 1


def test_who_reads_while_segments_are_replaced_sees_every_letter_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.runs(("a",), ("b",))
    before = sorted(shop.ids)
    listed, real = shop.store.list("manifests/"), shop.store.list
    shop.retain(compact=True)
    stale = [listed]  # what a reader has listed just before
    monkeypatch.setattr(shop.store, "list", lambda prefix: stale.pop() if stale else real(prefix))
    assert sorted(shop.ids) == before


def test_a_damaged_segment_is_not_written_again(shop: Shop) -> None:
    shop.runs(("a",), ("b",))
    first, second = shop.files
    shop.store.put(first, shop.store.get(second))
    with pytest.raises(ArchiveError, match="not what its manifest says"):
        shop.retain(compact=True)


def test_a_source_that_is_pulled_waits_for_the_next_time(shop: Shop) -> None:
    shop.runs(("a",), ("b",))
    work = shop.look(compact=True)
    with shop.store.lock("source-orders"):
        done = housekeeping.do(shop.store, work)
    assert len(done.busy) == 1
    assert "pid" in done.busy[0]
    assert len(shop.files) == 2


def test_two_rounds_at_once_are_one_too_many(shop: Shop) -> None:
    shop.runs(("a",))
    with shop.store.lock("retain"), pytest.raises(Busy, match="pid"):
        shop.retain()


def test_a_pull_between_look_and_do_wins(shop: Shop) -> None:
    shop.put("a", "b")
    shop.take("copy")
    shop.put("c")
    shop.take("copy")
    work = shop.look(compact=True)
    shop.take("drain")
    housekeeping.do(shop.store, work)
    assert all(manifest.settled for manifest in shop.committed)
    assert len(shop.ids) == 3


def write_analysis(store: LocalStore, name: str, uses: str) -> None:
    """An analysis with a table and rows of stage 1, which uses those of another analysis as well."""
    own = [f"analyses/{name}/{file}" for file in ("verdicts/v.parquet", "judged/j.parquet")]
    for file in own:
        store.put(file, b"")
    parts = [{"files": [own[1], f"analyses/{uses}/judged/j.parquet"], "stems": []}]
    tables = {"verdicts": (own[0],)}
    analyses.commit(store, Analysis(name, 0, {}, 0.0, "", "", tables, extra={"parts": parts}))


def test_old_analyses_go_but_not_what_a_kept_one_uses(shop: Shop) -> None:
    names = [f"20261120T00000{number}-000000" for number in range(3)]
    for name in names:
        write_analysis(shop.store, name, uses=names[1])
    shop.store.put("analyses/20200101T000000-000000/verdicts/half.parquet", b"")
    shop.retain(Retain(analyses=1))
    assert shop.store.list("analyses/") == [
        "analyses/20261120T000001-000000/judged/j.parquet",
        "analyses/20261120T000002-000000/analysis.json",
        "analyses/20261120T000002-000000/judged/j.parquet",
        "analyses/20261120T000002-000000/verdicts/v.parquet",
    ]


def test_temporaries_of_a_crash_go_when_they_are_old(shop: Shop) -> None:
    shop.runs(("a",))
    root = Path(shop.store.location)
    spilled = root / ".tmp-duckdb-1"
    spilled.mkdir()
    (spilled / "block").write_bytes(b"x")
    old, fresh = root / "manifests" / ".tmp-1-x.json", root / "manifests" / ".tmp-2-y.json"
    for path in (old, fresh):
        path.write_bytes(b"")
    for path in (old, spilled):
        os.utime(path, (1, 1))
    shop.retain()
    assert (old.exists(), spilled.exists(), fresh.exists()) == (False, False, True)
    assert len(shop.ids) == 1


def test_of_what_pulls_learned_only_the_newest_stays(shop: Shop) -> None:
    for name, text in (
        ("20261101T000000-aaaa", '{"format": 1, "source": "pay", "brokers": {"a": {}, "b": {}}}'),
        ("20261102T000000-aaaa", '{"format": 1, "source": "pay", "brokers": {"a": {}}}'),
        ("20261103T000000-aaaa", '{"format": 1, "source": "pay", "brokers": {"a": {}}}'),
        ("20261103T000001-aaaa", '{"format": 1, "source": "orders"}'),
    ):
        shop.store.put(f"topology/{name}.json", text.encode())
    shop.retain()
    assert [name[9:17] for name in shop.store.list("topology/")] == ["20261101", "20261103", "20261103"]


def test_the_command_is_a_dry_run_unless_it_is_told_to_apply(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shop.runs(("a",), ("b",))
    (tmp_path / "dlq.toml").write_text(
        'archive = "archive"\n[retain]\nmax_age = "0s"\nstates = ["waiting"]\n'
    )
    documents = []
    for flags in ([], ["--dry-run"], ["--compact"], ["--apply", "--compact"], ["--apply"]):
        assert app.run(["-o", "json", "retain", *flags]) == 0
        documents.append(json.loads(capfd.readouterr().out))
    assert [d["applied"] for d in documents] == [False, False, False, True, True]
    assert [d["removed"] for d in documents] == [2, 2, 2, 2, 0]
    assert [d["kept"] for d in documents] == [0, 0, 0, 0, 0]
    assert all(d["bytes"] > 0 for d in documents[:4])
    assert shop.files == []
    assert (shop.books.captured, shop.books.purged, shop.books.balanced) == (2, 2, True)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ('states = ["held"]', "known are replayed, waiting"),
        ('max_age = "old"', "duration"),
        ('max_size = "big"', "size"),
    ],
)
def test_a_wrong_rule_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    section: str,
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dlq.toml").write_text(f"[retain]\n{section}\n")
    assert app.run(["retain", "--apply"]) == 2
    assert expected in capfd.readouterr().err
