"""What the analyzers' tests share: verdicts on single letters."""

from collections.abc import Callable
from typing import Any

import pytest

from dlq.analyzers.rules import Facts, judge
from dlq.core.record import Record

Judge = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session", name="judge")
def _judge() -> Judge:
    """Records -> their verdicts, in the same order."""

    def run(*records: Record, facts: Facts | None = None) -> list[dict[str, Any]]:
        return [judge(letter, facts or Facts())._asdict() for letter in records]

    return run
