"""The command, run as a user runs it."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import preloaded


class Outcome:
    """What a command printed, and its exit code."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self) -> Any:
        """Standard output as one JSON value."""
        return json.loads(self.out)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def dlq(tmp_path: Path) -> Callable[..., Outcome]:
    """Run `dlq WORDS...` in a folder of the test's own."""

    def run(*words: str, stdin: str = "", **environment: str) -> Outcome:
        given = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "xdg"), **environment}
        return Outcome(preloaded.run(words, tmp_path, given, stdin))

    return run
