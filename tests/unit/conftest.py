"""A folder of the test's own, its archive, and `dlq` in it."""

from pathlib import Path

import pytest
from support.builders import Dlq

from dlq.archive.storage.store import LocalStore
from dlq.cli.app import run


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "archive"))


@pytest.fixture
def dlq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Dlq:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: str) -> tuple[int, str, str]:
        code = run(words)
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call
