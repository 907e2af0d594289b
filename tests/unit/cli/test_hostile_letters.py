"""No letter, whatever is in it, ends or stalls a command that shows or writes letters."""

import gzip
import json
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from support.archives import letter, write_segment
from support.builders import Dlq

from dlq.archive.storage.store import LocalStore
from dlq.core.record import Record

MAIL = b"to jane@example.com"


@pytest.fixture
def dlq(dlq: Dlq, store: LocalStore) -> Dlq:
    """Runs a command over an archive of these letters."""

    def call(letters: list[Record], *arguments: str) -> tuple[int, str, str]:
        write_segment(store, "p-0", letters)
        return dlq(*arguments)

    return call


def packed(layers: int, body: bytes = MAIL) -> bytes:
    for _ in range(layers):
        body = gzip.compress(body, mtime=0)
    return body


@pytest.mark.parametrize("mask", [(), ("--mask",)])
def test_headers_of_every_depth_are_exported(dlq: Dlq, mask: tuple[str, ...]) -> None:
    depths = [*range(850, 1010), 200_000]
    letters = [letter(n, headers={"h": "[" * depth + "]" * depth}) for n, depth in enumerate(depths)]
    code, out, err = dlq(letters, "export", *mask, "-")
    assert (code, out.count("\n")) == (0, len(depths)), err


MEMORY = 700 * 2**20
MANY_ZEROS = 2**28
RUN = """
import sys
from pathlib import Path
from dlq.cli.app import run
code = run(sys.argv[1:])
peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
Path("peak").write_text(peak)
sys.exit(code)
"""


def inflating(size: int) -> bytes:
    stream = zlib.compressobj()
    return b"".join(stream.compress(bytes(2**20)) for _ in range(size >> 20)) + stream.flush()


SHOWN_IN_FULL: dict[str, Callable[[], Record]] = {
    "1 MB that unpacks to 1 GB": lambda: letter(1, body=packed(1, bytes(2**24)) * 64),
    "a RocketMQ body": lambda: letter(1, body=inflating(MANY_ZEROS), broker_kind="rocketmq", flags=1),
    "JSON that grows a thousandfold": lambda: letter(1, body=b"[" * 900 + b"1," * 10**6 + b"1" + b"]" * 900),
}


@pytest.mark.parametrize("what", SHOWN_IN_FULL)
def test_a_body_is_shown_in_full_only_as_far_as_memory_reaches_and_the_rest_is_said(
    tmp_path: Path, what: str
) -> None:
    record = SHOWN_IN_FULL[what]()
    write_segment(LocalStore(str(tmp_path / "archive")), "p-0", [record])
    words = [sys.executable, "-c", RUN, "-o", "table", "show", "--full", record.record_id]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--body FILE writes all" in done.stdout
    assert int((tmp_path / "peak").read_text()) < MEMORY >> 10


def test_the_whole_body_is_written_to_a_file_unpacked(dlq: Dlq, tmp_path: Path) -> None:
    plain = b"\0\xff and more" * 1_000_000
    members = gzip.compress(plain) + gzip.compress(b"the end")
    record = letter(1, body=members)
    code, out, _ = dlq([record], "show", record.record_id, "--body", "b.bin")
    assert (code, json.loads(out)["bytes"]) == (0, len(plain) + 7)
    assert (tmp_path / "b.bin").read_bytes() == plain + b"the end"
    assert (tmp_path / "b.bin").stat().st_mode & 0o777 == 0o600


def test_a_body_goes_to_standard_output_masked_if_that_is_wanted(dlq: Dlq) -> None:
    record = letter(1, body=zlib.compress(MAIL), broker_kind="rocketmq", flags=1)
    show = ("show", record.record_id, "--body", "-")
    assert dlq([record], *show) == (0, MAIL.decode(), "")
    assert dlq([record], *show, "--mask") == (0, f"[masked: {len(record.body)} bytes]", "")
