"""Letters that are known to be lost stay in the books until somebody closes them."""

from pathlib import Path

import pytest
from support.archives import letter, write_segment

from dlq.archive import losses
from dlq.archive.losses import Missing
from dlq.archive.store import LocalStore
from dlq.core.errors import ArchiveError


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "archive"))


def ranges(store: LocalStore) -> list[tuple[int, int | None]]:
    return [(loss.first, loss.end) for loss in losses.open_ones(store, "orders")]


def test_a_loss_is_told_once_however_often_it_is_found(store: LocalStore) -> None:
    losses.keep(store, "orders", [Missing("orders-0", 10, 20)])
    losses.keep(store, "orders", [Missing("orders-0", 10, 20), Missing("orders-0", 15, 25)])
    assert ranges(store) == [(10, 20), (20, 25)]
    assert losses.letters(losses.open_ones(store)) == 15


def test_the_same_offsets_of_another_log_are_another_loss(store: LocalStore) -> None:
    losses.keep(store, "orders", [Missing("orders-0", 10, 20, "one")])
    losses.keep(store, "orders", [Missing("orders-0", 10, 20, "two")])
    assert ranges(store) == [(10, 20), (10, 20)]


def test_what_the_archive_has_is_not_lost(store: LocalStore) -> None:
    captured = letter(1, dead_letter_queue="orders", queue_id=0, offset=12)
    write_segment(store, "p-0", [captured._replace(source="orders")])
    losses.keep(store, "orders", [Missing("orders-0", 10, 15)])
    assert ranges(store) == [(10, 12), (13, 15)]


def test_of_a_log_that_ended_early_nobody_knows_how_many(store: LocalStore) -> None:
    losses.keep(store, "orders", [Missing("orders-0", 10, None)])
    losses.keep(store, "orders", [Missing("orders-0", 10, None)])
    assert ranges(store) == [(10, None)]
    assert "nobody knows how many" in losses.in_words(losses.open_ones(store))


def test_dismissed_losses_are_closed_until_they_are_opened_again(store: LocalStore) -> None:
    losses.keep(store, "orders", [Missing("orders-0", 10, 20)])
    assert losses.dismiss(store, "orders", "known", "ann") == 1
    assert losses.dismiss(store, "orders", "known", "ann") == 0
    assert ranges(store) == []
    losses.keep(store, "orders", [Missing("orders-0", 10, 20)])
    assert ranges(store) == []
    assert losses.reopen(store, "orders", "ann") == 1
    assert ranges(store) == [(10, 20)]


@pytest.mark.parametrize(
    "text", [b"{", b'{"format": 1}', b'{"format": 1, "event": "gone", "source": "s", "at": "x"}']
)
def test_a_damaged_one_is_named(store: LocalStore, text: bytes) -> None:
    store.put("losses/odd.json", text)
    with pytest.raises(ArchiveError, match=r"losses/odd\.json"):
        losses.read_losses(store)
