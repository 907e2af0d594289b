"""The contract of the archive's storage as tests: one suite for every store (`archive/storage/store.py`)."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from support.waiting import PATIENCE

from dlq.archive.storage.store import Store
from dlq.core.errors import Busy, UsageError

Opening = Callable[[], Store]


class StoreContract:
    """A test class inherits this and gives an `opening` fixture: the same, empty archive at each call."""

    @pytest.fixture
    def store(self, opening: Opening) -> Store:
        return opening()

    def test_what_was_put_is_there_for_everybody(self, store: Store, opening: Opening) -> None:
        store.put("a/b", b"one")
        store.put("a/b", memoryview(b"two"))
        assert opening().get("a/b") == b"two"
        with opening().open("a/b") as file:
            assert file.read() == b"two"

    def test_what_is_not_there_is_said(self, store: Store) -> None:
        for look in (store.get, store.open):
            with pytest.raises(UsageError, match="there is no a/b in the archive"):
                look("a/b")

    def test_many_are_read_at_once_and_missing_ones_left_out(self, store: Store) -> None:
        store.put("a/1", b"one")
        store.put("a/2", b"")
        assert store.get_many(["a/1", "a/2", "a/3"]) == {"a/1": b"one", "a/2": b""}
        assert store.get_many([]) == {}

    def test_names_are_listed_by_prefix_in_order(self, store: Store) -> None:
        for name in ("a/2", "a/1", "ab", "a/b/c", "b"):
            store.put(name, b"")
        assert store.list("a/") == ["a/1", "a/2", "a/b/c"]
        assert store.list("a") == ["a/1", "a/2", "a/b/c", "ab"]
        assert store.list("none/") == []

    def test_what_was_deleted_is_gone_and_may_be_deleted_again(self, store: Store) -> None:
        store.put("a", b"")
        store.delete("a")
        store.delete("a")
        assert store.list("") == []

    def test_a_lock_names_its_holder_and_ends(self, store: Store, opening: Opening) -> None:
        with (
            store.lock("work"),
            pytest.raises(Busy, match=r"work is locked by pid \d+ on "),
            opening().lock("work"),
        ):
            pass
        with opening().lock("work"), store.lock("other"):
            pass

    def test_who_looks_at_a_lock_takes_nothing(self, store: Store, opening: Opening) -> None:
        assert store.holder("work") is None
        with store.lock("work"):
            assert str(os.getpid()) in (opening().holder("work") or "")
            assert store.holder("other") is None
        assert opening().holder("work") is None

    def test_nobody_is_busy_for_who_looks(self, opening: Opening) -> None:
        ended = threading.Event()

        def look(store: Store) -> None:
            while not ended.is_set():
                store.holder("work")

        with ThreadPoolExecutor(2) as lookers:
            looking = [lookers.submit(look, opening()) for _ in range(2)]
            try:
                store = opening()
                for _ in range(20):
                    with store.lock("work"):
                        pass
            finally:
                ended.set()
            assert [one.result() for one in looking] == [None, None]

    def test_only_one_of_many_gets_a_lock(self, opening: Opening) -> None:
        barrier = threading.Barrier(6)

        def gets_it(store: Store) -> bool:
            with ExitStack() as held:
                barrier.wait(PATIENCE)
                try:
                    held.enter_context(store.lock("work"))
                    return True
                except Busy:
                    return False
                finally:
                    barrier.wait(PATIENCE)

        with ThreadPoolExecutor(6) as racers:
            assert sum(racers.map(gets_it, [opening() for _ in range(6)])) == 1
