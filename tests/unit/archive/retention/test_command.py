"""`dlq retain` as a user types it."""

import json
from pathlib import Path

import pytest
from support.builders import Dlq
from support.retaining import Shop


def test_the_command_is_a_dry_run_unless_it_is_told_to_apply(dlq: Dlq, shop: Shop, tmp_path: Path) -> None:
    shop.runs(("a",), ("b",))
    (tmp_path / "dlq.toml").write_text(
        'archive = "archive"\n[retain]\nmax_age = "0s"\nstates = ["waiting"]\n'
    )
    documents = []
    for flags in ([], ["--dry-run"], ["--compact"], ["--apply", "--compact"], ["--apply"]):
        code, out, _err = dlq("-o", "json", "retain", *flags)
        assert code == 0
        documents.append(json.loads(out))
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
def test_a_wrong_rule_is_one_line(dlq: Dlq, tmp_path: Path, section: str, expected: str) -> None:
    (tmp_path / "dlq.toml").write_text(f"[retain]\n{section}\n")
    code, _out, err = dlq("retain", "--apply")
    assert (code, expected in err) == (2, True)
