"""A team in a folder of the test's own, without Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.running import Team, classified

from dlq.analyzers import analysis as job
from dlq.connectors import memory


@pytest.fixture
def team(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Team]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(job, "analyze", classified)
    here = Team(tmp_path, tmp_path.name, capfd)
    here.profile()
    yield here
    memory.open_brokers.clear()
