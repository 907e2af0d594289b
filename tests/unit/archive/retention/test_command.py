"""`dlq retain` as a user types it."""

import json
from pathlib import Path

import pytest
from support.retaining import Shop

from dlq.cli import app


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


@pytest.mark.parametrize(("section", "expected"), [
    ('states = ["held"]', "known are replayed, dismissed, waiting"),
    ('max_age = "old"', "duration"),
    ('max_size = "big"', "size"),
])  # fmt: skip
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
