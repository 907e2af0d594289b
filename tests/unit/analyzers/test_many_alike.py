"""Letters that have something in common cost no more each, however many they are."""

import gc
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support.analyzers.mixed import ends, given_up, half, real, rejected, shine, suppressed, twin
from support.archives import write_segment
from support.rows import each_row

from dlq.analyzers.analysis import analyze
from dlq.archive.storage.store import LocalStore
from dlq.core.record import Record
from dlq.core.settings import Settings

FEW, MANY = 1_000, 8_000
GROWTH = 1.3
"""Of the cost of a letter. One that looks at all the others would cost eight times as much."""
TRIES = 3
ALIKE: Mapping[str, Callable[[int], Record]] = {
    "body": lambda number: rejected(f"m{number}", "same"),
    "message id": lambda number: rejected("same", f"body {number}"),
    "message id and queue": lambda number: rejected("same", "a", f"queue {number}"),
    "connection": suppressed,
    "connection, each of a producer of its own": lambda number: suppressed(1, f"ID:shop-{number}:1:1:1"),
    "work of a coordinator": lambda number: shine(f"m{number}", "same"),
    "key of RocketMQ": lambda number: twin("same", ORIGIN_MESSAGE_ID=f"{number}"),
    "message of RocketMQ, each of another group": lambda number: twin("same", f"group{number}"),
    "transaction, halves": lambda number: half("same", number),
    "transaction, its ends": lambda number: ends(",".join(map(str, range(number, number + 5)))),
    "transaction, committed": lambda number: real("same", number),
    "transaction, given up": lambda number: given_up("same", checks=number % 15),
}


def cost(folder: Path, make: Callable[[int], Record], number: int) -> float:
    """CPU seconds of an analysis."""
    store = LocalStore(str(folder))
    letters = [make(one)._replace(record_id=f"{one:032x}") for one in range(number)]
    write_segment(store, "alike", [one._replace(source="alike") for one in letters])
    gc.collect()
    began = time.thread_time()
    analyze(store, Settings())
    return time.thread_time() - began


@each_row("make", ALIKE.values(), ids=ALIKE)
def test_letters_that_share_cost_each_as_much_as_of_few(
    make: Callable[[int], Record], tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp_path = tmp_path_factory.mktemp("alike")
    cost(tmp_path / "warm", make, 10)
    for number in range(TRIES):
        few, many = (cost(tmp_path / f"{number}-{size}", make, size) for size in (FEW, MANY))
        if many < GROWTH * MANY / FEW * few:
            return
    raise AssertionError(f"{few / FEW * 1e6:.0f} us each of {FEW}, {many / MANY * 1e6:.0f} each of {MANY}")
