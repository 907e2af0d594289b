"""`dlq show --explain`: which rules looked at a letter, what each saw, which one spoke, and what follows."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.analyzers.letters import died, record
from support.archives import letter, write_analysis, write_segment

from dlq.analyzers.rules import Facts
from dlq.archive.storage.store import LocalStore
from dlq.cli.app import run
from dlq.core.record import Record
from dlq.core.settings import Rule, Settings
from dlq.reports.letters import explain

SPRING = {
    "x-exception-message": "out of \x1b[2Jstock",
    "x-original-exchange": "shop",
    "who": "jane@example.com",
}


def document(of: Record, **values: Any) -> dict[str, Any]:
    """What `dlq show` knows of a letter."""
    names = ("duplicate_group", "duplicate_kind", "transaction_state", "incident", "rule", "advice_reason",
             "advice_meaning")  # fmt: skip
    told = {"duplicates": [], "analysis": "20260101T000000", "advice": "fix_first", **dict.fromkeys(names)}
    found = {"headers": dict(of.headers), "properties": dict(of.properties), "failure_text": of.failure_text}
    found |= {**told, **values}
    return found | {"explain": explain.gather(found, of, Facts())}


def printed(of: Record, settings: Settings = Settings(), **values: Any) -> str:  # noqa: B008 - it is frozen
    console = Console(file=io.StringIO(), width=80)
    explain.render(console, document(of, **values), settings)
    text = str(console.file.getvalue())  # type: ignore[attr-defined]  # the StringIO of the line above
    assert all(len(line) <= 80 for line in text.splitlines())
    return " ".join(text.split())


def test_the_rules_are_told_in_order_up_to_the_one_that_spoke() -> None:
    steps = document(record(headers=SPRING))["explain"]
    assert [step["rule"] for step in steps] == ["spring-cloud-stream", "spring-amqp"]
    assert [step["spoke"] for step in steps] == [False, True]
    assert steps[0]["saw"]["header x-exception-message"].startswith("out of")
    assert steps[0]["saw"]["header retry-count"] is None
    assert "RepublishMessageRecoverer" in steps[1]["when"]


def test_rules_that_found_nothing_or_saw_the_same_share_a_line() -> None:
    text = printed(died(("rejected", "orders", 2)))
    silent = r"silent \d\d rules found nothing of what they ask for: spring-cloud-stream, spring-amqp,"
    assert re.search(silent, text)
    assert "retry-loop asks for: x-death has rejected and expired entries" in text
    assert "spoke reject: the last death is rejected" in text
    assert "saw history: last: rejected in orders, 2 x" in text
    text = printed(record(broker_kind="activemq", failure_text="java.lang.Throwable: odd"))
    assert "rules saw the same, which is not what they ask for: amq-audit-other-consumer," in text
    assert "spoke unknown: nothing above holds" in printed(record())


def test_nothing_hostile_reaches_the_terminal_and_long_texts_are_cut() -> None:
    text = printed(record(headers=SPRING))
    assert "\x1b" not in text
    assert "out of \\x1b[2Jstock" in text
    steps = document(record(headers={**SPRING, "x-exception-message": "x" * 10_000}))["explain"]
    assert max(len(text or "") for step in steps for text in step["saw"].values()) == 200


def test_of_a_body_it_only_says_that_it_was_read() -> None:
    error = {"type": "EasyNetQ.SystemMessages.Error"}
    spoke = document(record(properties=error, body=b'{"Exception": "secret"}'))["explain"][-1]
    assert (spoke["rule"], spoke["saw"]["body document"]) == ("easynetq", "read")
    assert "secret" not in str(spoke)


def test_what_was_found_between_letters_leads_to_the_advice() -> None:
    found = {"duplicate_group": "g1", "duplicate_kind": "same_key", "duplicates": [{"record_id": "b"}]}
    found |= {"transaction_state": "committed", "incident": {"incident_id": "i1", "size": 30}}
    text = printed(record(), **found, advice="never", advice_reason="it was delivered")
    assert "duplicates same_key: 1 other letter in group g1" in text
    assert "transaction committed: the message was delivered" in text
    assert "incident i1, of size 30" in text
    assert text.endswith("advice never: it was delivered")


def test_rules_that_are_the_users_own_or_of_another_time_are_told() -> None:
    settings = Settings(rules=(Rule("gateway", "true"),))
    assert "yours gateway: asked first, by dlq analyze only" in printed(record(), settings)
    assert "the analysis went by your own rule gateway" in printed(record(), settings, rule="gateway")
    assert "other rules or facts than today's: old-one" in printed(record(), rule="old-one")


def test_a_rule_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("odd")

    monkeypatch.setattr(explain, "steps", fails)
    assert "spoke broken-rule: a rule failed: odd" in printed(record())


@pytest.fixture
def show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)
    store = LocalStore(str(tmp_path / "archive"))
    write_segment(store, "p-0", [letter(1), letter(2, headers={**SPRING, "x-error": "jane@example.com"})])
    write_analysis(store, "20260101T000000", [{"record_id": letter(1).record_id, "cause": "unknown"}])

    def call(*arguments: str) -> str:
        assert run([*arguments, "--explain"]) == 0
        return capfdbinary.readouterr()[0].decode()

    return call


@pytest.mark.parametrize("number", [1, 2])
def test_json_has_a_key_of_steps_masked_if_wanted_and_a_terminal_has_them_at_the_end(
    show: Callable[..., str], number: int
) -> None:
    one = letter(number).record_id
    steps = json.loads(show("-o", "json", "show", one))["explain"]
    assert [set(step) for step in steps] == [{"rule", "when", "saw", "spoke"}] * len(steps)
    assert [step["spoke"] for step in steps].count(True) == 1
    assert "jane@example.com" not in show("-o", "json", "show", one, "--mask")
    assert show("-o", "table", "show", one).index("\nWhy\n") > 0
