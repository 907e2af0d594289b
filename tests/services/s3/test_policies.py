"""What a bucket's policy forbids is one clear line, and nothing is lost by it."""

import os
import subprocess
from pathlib import Path

import pytest
from support import preloaded
from support.servers.s3_server import BUCKET, S3Server

LINE = '{"broker_kind": "rabbitmq", "queue": "q", "body_text": "x"}\n'


@pytest.fixture
def folder(tmp_path: Path, s3_server: S3Server) -> Path:
    """An archive with a letter, made by the bucket's owner."""
    place = f"s3://{BUCKET}/{tmp_path.name}"
    (tmp_path / "dlq.toml").write_text(
        f'archive = "{place}"\n[ledger]\nurl = "sqlite:///{tmp_path}/ledger.db"\n'
    )
    (tmp_path / "letters.jsonl").write_text(LINE)
    assert (
        dlq(tmp_path, s3_server.environment, "import", "letters.jsonl", "--source", "orders").returncode == 0
    )
    return tmp_path


def dlq(folder: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, **environment}
    return preloaded.run(words, folder, given)


def in_one_line(said: subprocess.CompletedProcess[str]) -> bool:
    return said.returncode == 3 and said.stderr.count("\n") == 1 and said.stderr.startswith("dlq: cannot ")


def test_who_may_only_read_looks_and_is_refused_to_write(folder: Path, s3_server: S3Server) -> None:
    reader = s3_server.allow("s3:GetObject")
    assert dlq(folder, reader, "ls", "-o", "csv").stdout.count("\n") == 2
    refused = dlq(folder, reader, "import", "letters.jsonl", "--source", "other")
    assert in_one_line(refused), refused.stderr
    assert dlq(folder, s3_server.environment, "ls", "-o", "csv").stdout.count("\n") == 2


def test_who_may_not_delete_is_told_so_and_locks_for_nobody_else(folder: Path, s3_server: S3Server) -> None:
    writer = s3_server.allow("s3:GetObject", "s3:PutObject")
    for _ in range(2):
        refused = dlq(folder, writer, "import", "letters.jsonl", "--source", "other")
        assert refused.returncode == 3, refused.stderr
        assert "Access Denied.; check" in refused.stderr
    assert dlq(folder, s3_server.environment, "import", "letters.jsonl", "--source", "other").returncode == 0
    assert dlq(folder, s3_server.environment, "ls", "-o", "csv").stdout.count("\n") == 3


@pytest.mark.parametrize("command", [("ls",), ("verify",), ("analyze",)])
def test_who_may_not_read_is_told_so(folder: Path, s3_server: S3Server, command: tuple[str, ...]) -> None:
    blind = s3_server.allow("s3:PutObject")
    said = dlq(folder, blind, *command)
    assert in_one_line(said), said.stderr
