"""A folder keeps the contract of the archive's storage."""

import errno
import fcntl
import os
import resource
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.store_contract import Opening, StoreContract

from dlq.archive import analyses
from dlq.archive.schema import to_records, to_table
from dlq.archive.storage.store import LocalStore, open_store
from dlq.core.errors import ArchiveError, Busy, FormatTooNew, UsageError
from dlq.core.record import Record
from dlq.replay.plans import planfile


class TestFolder(StoreContract):
    """The suite, on a folder."""

    @pytest.fixture
    def opening(self, tmp_path: Path) -> Opening:
        return lambda: LocalStore(str(tmp_path / "archive"))


def test_a_holder_that_has_not_yet_written_its_name_is_waited_for(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    with store.lock("work"):
        pass
    with (tmp_path / "locks/work").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        threading.Timer(0.2, lambda: (held.write("pid 7 on a"), held.flush())).start()
        with pytest.raises(Busy, match="work is locked by pid 7 on a"), store.lock("work"):
            pass


def test_a_lock_that_finds_no_room_for_its_holders_name_says_where(store: LocalStore) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(ArchiveError, match="cannot write locks/work in the archive"), store.lock("work"):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with store.lock("work"):
        pass


@pytest.mark.parametrize(("content", "reason"), [
    (b"{torn", "Expecting property name"),
    (b"[1]", "it must be an object"),
    (b'{"format": 1, "format": 2}', "its key .format. stands there twice"),
    (b"{}", "it lacks 'format'"),
    (b'{"format": "new"}', "format must be a whole number"),
    (b'{"format": 1}', "it lacks 'analysis'"),
    (b'{"format": 1, "tables": {}, "segments": []}', "it lacks 'analysis'"),
])  # fmt: skip
def test_a_damaged_document_is_named_with_what_it_lacks(tmp_path: Path, content: bytes, reason: str) -> None:
    store = LocalStore(str(tmp_path))
    store.put("analyses/a/analysis.json", content)
    with pytest.raises(ArchiveError, match=rf"^analyses/a/analysis.json in the archive is damaged: {reason}"):
        analyses.latest(store)


def test_a_document_of_a_newer_format_asks_for_an_upgrade(store: LocalStore) -> None:
    """Of the same format a field that nobody knows is damage."""
    store.put("plans/p.jsonl", b'{"format": 2, "color": "red"}')
    with pytest.raises(FormatTooNew, match="upgrade dlq"):
        planfile.load(store, "p")
    store.put("plans/p.jsonl", b'{"format": 1, "plan": "p", "color": "red"}')
    with pytest.raises(ArchiveError, match=r"plans/p.jsonl in the archive is damaged: .* 'color'"):
        planfile.load(store, "p")
    with pytest.raises(UsageError, match="only folders and s3://bucket/path"):
        open_store("gs://bucket/path")


@pytest.mark.parametrize(("code", "is_told"), [(errno.EOPNOTSUPP, False), (errno.EDQUOT, True)])
def test_a_file_system_that_cannot_set_room_aside_is_written_to(
    code: int, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(ArchiveError) if is_told else nullcontext():
        LocalStore(str(tmp_path)).prove_room(100)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


maps = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.text(max_size=3), max_size=3)


@given(st.lists(st.tuples(maps, maps), min_size=1, max_size=5), st.integers(0, 4))
def test_maps_come_back_of_any_names(rows: list[tuple[dict[str, str], dict[str, str]]], first: int) -> None:
    written = [
        Record(str(i), "s", "b", "memory", "q", headers=headers, properties=properties)
        for i, (headers, properties) in enumerate(rows)
    ]
    found = to_records(to_table(written).slice(first))
    assert [(r.record_id, list(r.headers.items()), list(r.properties.items())) for r in found] == [
        (r.record_id, list(r.headers.items()), list(r.properties.items())) for r in written[first:]
    ]
