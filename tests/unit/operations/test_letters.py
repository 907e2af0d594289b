"""Letters page by page: each once, in the order of `dlq ls`, whatever comes or goes meanwhile."""

from pathlib import Path
from typing import Any

import pytest
from support.archives import MINUTE, letter, write_analysis, write_segment
from support.rows import each_row

from dlq.archive.storage.store import LocalStore
from dlq.connectors.base import Target
from dlq.core.errors import UsageError
from dlq.core.settings import Settings
from dlq.operations.reading.letters import LettersWanted, list_letters, read_columns, run_query, show_letter
from dlq.operations.reading.selecting import Selection
from dlq.operations.workspace import Notes, Workspace, open_workspace
from dlq.replay.ledger import opened
from dlq.replay.plans.letters import Letter

ORDERS = Target("queue", "orders")

EVERY = [
    letter(1), letter(2, dead_at=MINUTE, captured_at=7), letter(3, dead_at=MINUTE, captured_at=7),
    letter(4, dead_at=None, captured_at=9), letter(5, dead_at=None, captured_at=9),
    letter(6, dead_at=None, captured_at=8), letter(7, dead_at=MINUTE + 1),
]  # fmt: skip


@pytest.fixture
def books(tmp_path: Path) -> Workspace:
    """Letters that died at the same time, of which nothing says when, and one that lies under two sources."""
    store = LocalStore(str(tmp_path / "books"))
    write_segment(store, "p-0", EVERY)
    write_segment(store, "q-0", [letter(3, dead_at=MINUTE, captured_at=7, source="import")])
    return open_workspace(Settings(archive=str(tmp_path / "books")), Notes())


def pages(workspace: Workspace, size: int, selection: Selection) -> list[list[tuple[Any, ...]]]:
    found: list[list[tuple[Any, ...]]] = []
    after = None
    while True:
        page = list_letters(workspace, LettersWanted(selection, ("record_id", "source"), size, after))
        found.append(list(page.rows))
        if not page.is_more:
            return found
        after = page.last


@pytest.mark.parametrize("selection", [Selection(), Selection(where="attempts = 1")])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 9])
def test_pages_hold_every_letter_once_in_the_order_of_a_whole_list(
    books: Workspace, size: int, selection: Selection
) -> None:
    whole = list(list_letters(books, LettersWanted(selection, ("record_id", "source"))).rows)
    found = pages(books, size, selection)
    assert len(whole) == len(set(whole)) == 8
    assert [row for page in found for row in page] == whole
    assert {len(page) for page in found[:-1]} <= {size}


def test_a_letter_is_shown_with_the_replays_of_itself_and_the_state_of_its_copies(books: Workspace) -> None:
    ids = [letter(n).record_id for n in (1, 2, 7)]
    write_analysis(books.store, "a", [{"record_id": one, "duplicate_group": "g"} for one in ids[:2]])
    with opened(books.settings.ledger, books.store) as book:
        book.claim("plan", [Letter(n, one, one, 1, "shop", "p-0", 0, ORDERS) for n, one in enumerate(ids)])
    found = show_letter(books, ids[0])
    assert [one["key"] for one in found["replays"]] == ids[:1]
    assert [(one["record_id"], one["replay_state"]) for one in found["duplicates"]] == [(ids[1], "sending")]


@each_row("key", ["", "x", "~a~b", "now~1970-01-01T00:00:00Z~a~b", "~'; select 1~a~b"])
def test_a_key_that_is_none_is_refused(books: Workspace, key: str) -> None:
    with pytest.raises(UsageError, match="no key of a page"):
        list_letters(books, LettersWanted(after=key, limit=1))


def test_a_count_is_of_all_pages_and_a_key_holds_no_sql(books: Workspace) -> None:
    page = list_letters(books, LettersWanted(limit=2))
    assert len(list(page.rows)) == 2
    assert (page.is_more, page.count()) == (True, 8)
    page = list_letters(books, LettersWanted(after="~1970-01-01T00:00:00Z~' or true --~'", limit=9))
    assert list(page.rows) == []


def test_an_empty_archive_has_an_empty_page(tmp_path: Path) -> None:
    workspace = open_workspace(Settings(archive=str(tmp_path / "none")), Notes())
    page = list_letters(workspace, LettersWanted(limit=2))
    assert (list(page.rows), page.is_more, page.last, page.count()) == ([], False, None, 0)


def test_a_source_that_nobody_knows_is_refused_with_the_one_meant(books: Workspace) -> None:
    """It must not look like one without letters."""
    with pytest.raises(UsageError, match="did you mean 'orders'"):
        list_letters(books, LettersWanted(Selection(sources=["order"])))
    assert read_columns("body, source") == ["body", "source"]
    with pytest.raises(UsageError, match="did you mean 'source'"):
        read_columns("sorce")
    assert list(run_query(books, "select count(*) from letters").rows) == [(8,)]
    with pytest.raises(UsageError, match="exactly one SELECT"):
        run_query(books, "drop view letters")
