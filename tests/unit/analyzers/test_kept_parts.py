"""Which letters are classified again, and by how many tasks; without Spark."""

from dataclasses import replace
from pathlib import Path

import pytest

from dlq.analyzers import classification, topology
from dlq.analyzers.classification import Terms
from dlq.analyzers.rules import Facts
from dlq.archive.manifests import Manifest
from dlq.archive.store import LocalStore

TERMS = Terms(Facts(delivery_limits={"orders": {"orders": 3}}), max_laps=3, with_text=False)


@pytest.mark.parametrize("other", [
    TERMS._replace(max_laps=4),
    TERMS._replace(with_text=True),
    TERMS._replace(facts=Facts()),
    TERMS._replace(facts=replace(TERMS.facts, delivery_limits={"orders": {"orders": 4}})),
    TERMS._replace(facts=replace(TERMS.facts, alternate_exchanges={"orders": ("unrouted",)})),
])  # fmt: skip
def test_other_terms_have_another_key(other: Terms) -> None:
    assert other.key() != TERMS.key() == Terms(*TERMS).key()


def test_other_code_has_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = tmp_path / "rules" / "mine.py"
    rule.parent.mkdir()
    rule.write_text("one")
    monkeypatch.setattr(classification, "files_in", lambda _room: tmp_path)
    before = TERMS.key()
    (tmp_path / "notes.txt").write_text("not code")
    assert TERMS.key() == before
    rule.write_text("two")
    assert TERMS.key() != before


def manifest(stem: str, rows: int) -> Manifest:
    return Manifest(stem, "p", "orders", "copy", f"{stem}.parquet", rows, "", "2026-10-26T07:33:20Z")


@pytest.mark.parametrize(
    ("rows", "parallel", "tasks"),
    [([], 2, 0), ([1], 8, 1), ([10] * 4, 2, 2), ([10] * 4, 4, 4), ([classification.LARGEST_SHARE] * 3, 1, 3)],
)
def test_each_core_has_a_share_and_no_share_is_too_large(rows: list[int], parallel: int, tasks: int) -> None:
    committed = [manifest(f"p-{n}", count) for n, count in enumerate(rows)]
    found = classification.shares(committed, parallel)
    assert len(found) == tasks
    assert sorted(one.stem for share in found for one in share) == [m.stem for m in committed]


@pytest.mark.parametrize(
    ("pulls", "looked_at"),
    [([], 1_793_000_000), (["20261026T080000-ab12"], 1_793_001_600), (["odd"], 1_793_000_000)],
)
def test_the_last_look_is_the_last_pull_or_empty(tmp_path: Path, pulls: list[str], looked_at: int) -> None:
    store = LocalStore(str(tmp_path))
    for pull in pulls:
        store.put(f"topology/{pull}.json", b"{}")
    assert topology.last_look(store, [manifest("p-0", 1)]) == looked_at * 1_000_000


def test_a_long_pull_looked_when_it_began(tmp_path: Path) -> None:
    segment = replace(manifest("p-0", 1), pull_id="20261026T070000-ab12")
    assert topology.last_look(LocalStore(str(tmp_path)), [segment]) == 1_792_998_000 * 1_000_000
