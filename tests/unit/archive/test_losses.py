"""Letters that are known to be lost stay in the books until somebody closes them."""

import pytest
from support.archives import letter, write_segment

from dlq.archive import losses
from dlq.archive.losses import Missing
from dlq.archive.storage.store import LocalStore


def ranges(store: LocalStore) -> list[tuple[int, int | None]]:
    return [(loss.first, loss.end) for loss in losses.open_ones(store, "orders")]


KEPT: list[tuple[list[Missing], list[tuple[int, int | None]]]] = [
    ([Missing("orders-0", 10, 20), Missing("orders-0", 10, 20), Missing("orders-0", 15, 25)],
     [(10, 20), (20, 25)]),
    ([Missing("orders-0", 10, 20, "one"), Missing("orders-0", 10, 20, "two")], [(10, 20), (10, 20)]),
    ([Missing("orders-1", 10, 15)], [(10, 12), (13, 15)]),  # the archive has one
    ([Missing("orders-0", 10, None), Missing("orders-0", 10, None)], [(10, None)]),
]  # fmt: skip


@pytest.mark.parametrize(("found", "told"), KEPT)
def test_a_loss_is_told_once_however_often_it_is_found(
    store: LocalStore, found: list[Missing], told: list[tuple[int, int | None]]
) -> None:
    captured = letter(1, dead_letter_queue="orders", queue_id=1, offset=12)
    write_segment(store, "p-0", [captured._replace(source="orders")])
    for one in found:
        losses.keep(store, "orders", [one])
    assert ranges(store) == told
    lost = losses.open_ones(store)
    assert losses.letters(lost) == sum(end - first for first, end in told if end is not None)
    assert ("nobody knows how many" in losses.in_words(lost)) == (told[0][1] is None)


def test_dismissed_losses_are_closed_until_they_are_opened_again(store: LocalStore) -> None:
    losses.keep(store, "orders", [Missing("orders-0", 10, 20)])
    assert losses.dismiss(store, "orders", "known", "ann") == 1
    assert losses.dismiss(store, "orders", "known", "ann") == 0
    assert ranges(store) == []
    losses.keep(store, "orders", [Missing("orders-0", 10, 20)])
    assert ranges(store) == []
    assert losses.reopen(store, "orders", "ann") == 1
    assert ranges(store) == [(10, 20)]


def test_a_loss_that_a_host_whose_clock_is_late_finds_after_a_dismissal_is_open(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses.keep(store, "orders", [Missing("orders-0", 10, 20)])
    early = losses.now() - 3_600_000_000
    losses.dismiss(store, "orders", "known", "ann")
    monkeypatch.setattr(losses, "now", lambda: early)
    losses.keep(store, "orders", [Missing("orders-0", 30, 40)])
    assert ranges(store) == [(30, 40)]
    assert losses.dismiss(store, "orders", "known, too", "ann") == 1
    assert ranges(store) == []
    assert losses.reopen(store, "orders", "ann") == 2
    assert len(ranges(store)) == 2
