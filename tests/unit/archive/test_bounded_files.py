"""Files of an archive that would hang a command, or fill its memory, are refused before they are read."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.archives import letter, parquet, write_segment

from dlq.archive import manifests, segments
from dlq.archive.storage import parquet as bounded
from dlq.archive.storage.store import LocalStore
from dlq.cli.app import run
from dlq.core.errors import ArchiveError

SEGMENT = "segments/source=orders/date=2026-11-21/p-0.parquet"
LOOKS = (["ls"], ["verify"], ["analyze"], ["retain", "--compact"], ["export", "-"])


@pytest.fixture
def store(store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    monkeypatch.chdir(tmp_path)
    write_segment(store, "p-0", [letter(1)])
    return store


@pytest.mark.parametrize("name", [SEGMENT, "manifests/p-0.json", "ledger.json"])
@pytest.mark.parametrize("what", ["pipe", "link"])
def test_what_is_no_ordinary_file_is_refused_at_once(store: LocalStore, name: str, what: str) -> None:
    path = Path(store.location, name)
    path.unlink(missing_ok=True)
    os.mkfifo(path) if what == "pipe" else path.symlink_to("/dev/zero")
    assert [run(command) for command in LOOKS[:2]] in ([3, 6], [3, 3])


def one_text_for_all() -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * 10_000), pa.array([b"x" * 2**20]))


def lists_of_nothing() -> pa.Array:
    number, each = 20_000, 1000
    return pa.ListArray.from_arrays(
        pa.array(range(0, number * each + 1, each)), pa.nulls(number * each, pa.string())
    )


@pytest.mark.parametrize(("values", "times"), [(one_text_for_all, 1), (lists_of_nothing, 15)])
def test_what_unpacks_to_gigabytes_is_refused(values: Callable[[], pa.Array], times: int) -> None:
    sink, table = pa.BufferOutputStream(), pa.table({"body": values()})
    with pq.ParquetWriter(sink, table.schema) as writer:
        for _ in range(times):
            writer.write_table(table)
    packed = sink.getvalue()
    assert len(packed) < 100_000
    with pytest.raises(pa.ArrowInvalid, match="unpacks to more than 4096 MiB"):
        bounded.open_parquet(pa.BufferReader(packed))


def test_many_rows_with_lists_and_structures_are_counted_and_read() -> None:
    """Row groups of 20,000 are what an analysis writes."""
    lists, names = pa.array([["one"]] * 45_000), pa.array([{"name": "one"}] * 45_000)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"lists": lists, "names": names}), sink, row_group_size=20_000)
    assert bounded.open_parquet(pa.BufferReader(sink.getvalue()), most=10**7).read().num_rows == 45_000
    with pytest.raises(pa.ArrowInvalid, match="unpacks to more than 1 MiB"):
        bounded.open_parquet(pa.BufferReader(sink.getvalue()), most=2**20)


def test_only_the_columns_that_are_read_count() -> None:
    table = pa.table({"id": pa.array(range(10_000)), "body": one_text_for_all()})
    file = bounded.open_parquet(pa.BufferReader(parquet(table)), columns=["id"])
    assert file.read(columns=["id"]).num_rows == 10_000


TOO_MUCH = "SELECT length(string_agg(repeat('x', 1000) || i, ',')) FROM range(6000000) t(i)"
MEASURED = """
import sys
from dlq.cli.app import run
code = run(["query", sys.argv[1]])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(code)
"""
"""What a process has inherited is not counted so."""


def test_looking_takes_two_gigabytes_at_most(store: LocalStore) -> None:
    command = [sys.executable, "-c", MEASURED, TOO_MUCH]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    said, used, *_ = done.stderr.splitlines()
    assert "failed to allocate" in said
    assert "takes more than the 2 GB of memory that a query may use" in said
    assert int(used.split()[1]) < 2.4 * 2**20, "KiB"


LOOKING = (
    ["ls"], ["show", "00000000"], ["query", "SELECT 1"], ["report"], ["failures"], ["export", "-"],
    ["dismiss", "--where", "true", "--reason", "x"],
)  # fmt: skip


@pytest.mark.parametrize(
    ("of", "to", "why"),
    [("q-0", "p-0", "3 rows, and its manifest says 1"), ("p-0", "q-0", "1 rows, and its manifest says 3")],
)
def test_looking_names_a_segment_with_other_rows_than_its_manifest_says(
    store: LocalStore, capfd: pytest.CaptureFixture[str], of: str, to: str, why: str
) -> None:
    write_segment(store, "q-0", [letter(2), letter(3), letter(4)])
    store.put(SEGMENT.replace("p-0", to), store.open(SEGMENT.replace("p-0", of)).read())
    for command in LOOKING:
        assert run(command) == 3, command
        assert f"{SEGMENT.replace('p-0', to)} in the archive has {why}" in capfd.readouterr().err


def test_a_segment_has_no_more_rows_than_its_manifest_says(
    store: LocalStore, capfd: pytest.CaptureFixture[str]
) -> None:
    write_segment(store, "q-0", [letter(1), letter(2)])
    store.put(SEGMENT, store.open(SEGMENT.replace("p-0", "q-0")).read())
    [manifest, _] = manifests.list_committed(store)
    with pytest.raises(ArchiveError, match="it has 2 rows, and may have 1 at most"):
        segments.record_ids(store, manifest)
    assert run(["verify"]) == 6
    for command in (["analyze"], ["replay", "plan"], ["retain", "--compact", "--apply"]):
        capfd.readouterr()
        assert run(command) == 3
        assert f"{SEGMENT} in the archive" in capfd.readouterr().err, command
