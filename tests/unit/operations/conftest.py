"""A workspace on an archive with the letters of one source, whose queue is the embedded broker's."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.builders import in_file, memory_sources

from dlq.cli.app import run
from dlq.cli.context import Context
from dlq.connectors.memory import broker_at
from dlq.operations.workspace import Notes, Workspace, open_workspace

Dlq = Callable[..., Any]


def _dead(number: int, reason: str = "rejected") -> dict[str, Any]:
    """A letter that died so many seconds after three at night."""
    time = f"2026-11-02T03:00:{number:02}Z"
    death = {"reason": reason, "queue": "orders", "exchange": "shop", "count": 1, "time": time}
    headers = {"x-death": [death], "x-first-death-queue": "orders"}
    return {"broker_kind": "rabbitmq", "message_id": f"m{number}", "headers": headers}


@pytest.fixture
def dead() -> Callable[[int], dict[str, Any]]:
    return _dead


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dlq.toml").write_text(
        memory_sources(in_file(tmp_path), "orders", more='mode = "drain"\n')
        + '[profiles.nightly]\nsources = ["orders"]\n[replay]\napproval = true\n'
    )
    broker = broker_at(in_file(tmp_path))
    for queue in ("orders", "orders.dlq"):
        broker.declare(queue)
    broker.put("orders.dlq", *(_dead(number) for number in range(4)), _dead(9, "expired"))
    return tmp_path


@pytest.fixture
def dlq(folder: Path, capfd: pytest.CaptureFixture[str]) -> Dlq:
    """Runs a command; the JSON that it prints."""

    def call(*words: str) -> Any:
        run(["-o", "json", *words])
        return json.loads(capfd.readouterr().out)

    return call


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def workspace(folder: Path, notes: Notes) -> Workspace:
    return open_workspace(Context().settings, notes)
