"""Files of an archive that would hang a command, or fill its memory, are refused before they are read."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from support.archives import letter, parquet, write_segment

from dlq.archive import manifests, segments
from dlq.archive import parquet as bounded
from dlq.archive.store import LocalStore
from dlq.cli.app import run
from dlq.core.errors import ArchiveError

SEGMENT = "segments/source=orders/date=2026-11-21/p-0.parquet"
LOOKS = (["ls"], ["verify"], ["analyze"], ["retain", "--compact"], ["export", "-"])


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    monkeypatch.chdir(tmp_path)
    store = LocalStore(str(tmp_path / "archive"))
    write_segment(store, "p-0", [letter(1)])
    return store


@pytest.mark.parametrize("name", [SEGMENT, "manifests/p-0.json", "ledger.json"])
@pytest.mark.parametrize("what", ["pipe", "link"])
def test_what_is_no_ordinary_file_is_refused_at_once(store: LocalStore, name: str, what: str) -> None:
    path = Path(store.location, name)
    path.unlink(missing_ok=True)
    os.mkfifo(path) if what == "pipe" else path.symlink_to("/dev/zero")
    assert [run(command) for command in LOOKS[:2]] in ([3, 6], [3, 3])


BOMBS = {
    "a dictionary": pa.DictionaryArray.from_arrays(pa.array([0] * 10_000), pa.array([b"x" * 2**20])),
    "lists of nothing": pa.array([[None] * 1000] * 300_000, pa.list_(pa.string())),
}


@pytest.mark.parametrize("what", BOMBS)
def test_what_unpacks_to_gigabytes_is_refused(what: str) -> None:
    packed = parquet(pa.table({"body": BOMBS[what]}))
    assert len(packed) < 100_000
    with pytest.raises(pa.ArrowInvalid, match="unpacks to more than 4096 MiB"):
        bounded.opened(pa.BufferReader(packed))


def test_a_segment_has_no_more_rows_than_its_manifest_says(
    store: LocalStore, capfd: pytest.CaptureFixture[str]
) -> None:
    write_segment(store, "q-0", [letter(1), letter(2)])
    store.put(SEGMENT, store.open(SEGMENT.replace("p-0", "q-0")).read())
    [manifest, _] = manifests.every(store)
    with pytest.raises(ArchiveError, match="it has 2 rows, and may have 1 at most"):
        segments.record_ids(store, manifest)
    assert run(["verify"]) == 6
    for command in (["analyze"], ["replay", "plan"], ["retain", "--compact", "--apply"]):
        capfd.readouterr()
        assert run(command) == 3
        assert f"{SEGMENT} in the archive" in capfd.readouterr().err, command
