"""Retention: what may leave leaves, and the books still balance."""

import json
from pathlib import Path

import pytest
from support.builders import Dlq
from support.retaining import AT_ONCE, Shop

from dlq.archive import compaction, housekeeping
from dlq.core.settings import Retain


def test_replayed_letters_leave_and_the_books_still_balance(shop: Shop) -> None:
    shop.runs(("a", "b", "c"))
    gone, kept, other = shop.ids
    shop.ledger_says("confirmed", gone)
    shop.retain()
    assert shop.ids == [kept, other]
    books = shop.books
    assert (books.captured, books.purged, books.waiting, books.balanced) == (3, 1, 2, True)


@pytest.mark.parametrize("state", ["planned", "sending", "in_doubt", "held"])
@pytest.mark.parametrize("states", [("replayed",), ("waiting",), ("replayed", "waiting")])
def test_what_is_open_never_leaves(shop: Shop, state: str, states: tuple[str, ...]) -> None:
    shop.runs(("a",))
    shop.ledger_says(state, *shop.ids)
    shop.ledger_says("confirmed", *shop.ids)  # to another target
    assert shop.look(Retain(max_age="0s", states=states)).choice.removed == 0


WAITING = Retain(max_age="0s", states=("waiting",))
LEAVING = [
    ("refused", AT_ONCE, False), ("refused", WAITING, True), (None, AT_ONCE, False), (None, WAITING, True),
    *(("dismissed", Retain(max_age="0s", states=(state,)), False) for state in ("replayed", "waiting")),
    ("dismissed", Retain(max_age="0s", states=("dismissed",)), True),
    ("confirmed", AT_ONCE, True), ("confirmed", Retain(max_age="1h"), False),
]  # fmt: skip


@pytest.mark.parametrize(("state", "rules", "leaves"), LEAVING)
def test_a_letter_leaves_only_where_the_rules_say_so(
    shop: Shop, state: str | None, rules: Retain, leaves: bool
) -> None:
    """Age counts from the capture."""
    shop.runs(("a",))
    if state:
        shop.ledger_says(state, *shop.ids)
    assert shop.look(rules).choice.removed == leaves


def test_what_a_copy_left_in_its_queue_never_leaves(shop: Shop) -> None:
    shop.put("a")
    shop.take("copy")
    shop.ledger_says("confirmed", *shop.ids)
    assert shop.look().choice.removed == 0
    shop.take("drain")
    assert shop.look().choice.removed == 1


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
    books = shop.books
    assert (books.captured, books.purged, books.waiting, books.balanced) == (2, 1, 1, True)


@pytest.mark.parametrize("state", ["planned", "sending", "in_doubt", "held"])
def test_what_somebody_sends_after_the_look_stays(shop: Shop, state: str) -> None:
    shop.runs(("a", "b"), ("c",))
    rules = Retain(max_age="0s", states=("waiting",))
    work = shop.look(rules)
    sent = shop.ids[0]
    shop.ledger_says(state, sent)
    done = housekeeping.do(shop.store, work, lambda: shop.replays)
    assert (work.choice.removed, done.removed, shop.ids) == (3, 2, [sent])


def test_what_is_opened_again_after_the_look_stays(shop: Shop) -> None:
    shop.runs(("a",))
    shop.ledger_says("dismissed", *shop.ids)
    work = shop.look(Retain(max_age="0s", states=("dismissed",)))
    done = housekeeping.do(shop.store, work, lambda: None)
    assert (work.choice.removed, done.removed, len(shop.ids)) == (1, 0, 1)


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
