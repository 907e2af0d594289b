"""`dlq analyze` says when letters made a rule fail, and ends with 3."""

from dataclasses import replace
from typing import Any

import pytest
from support.archives import letter, write_segment
from support.builders import Dlq
from support.running import classified

from dlq.analyzers import analysis as job
from dlq.archive.store import LocalStore

SEE = "see dlq query \"SELECT record_id, evidence FROM verdicts WHERE rule = 'broken-rule'\""


@pytest.mark.parametrize(("broken", "code", "said"), [
    (0, 0, ""),
    (1, 3, f"dlq: 1 letter made a rule fail and is unknown; {SEE}\n"),
    (1234, 3, f"dlq: 1,234 letters made a rule fail and are unknown; {SEE}\n"),
])  # fmt: skip
def test_letters_that_made_a_rule_fail_are_counted(
    dlq: Dlq, store: LocalStore, monkeypatch: pytest.MonkeyPatch, broken: int, code: int, said: str
) -> None:
    def done(*arguments: Any, **options: Any) -> Any:
        return replace(classified(*arguments, **options), extra={"broken": broken, "parts": []})

    write_segment(store, "p-0", [letter(1)])
    monkeypatch.setattr(job, "analyze", done)
    assert dlq("-o", "json", "analyze")[::2] == (code, said)
