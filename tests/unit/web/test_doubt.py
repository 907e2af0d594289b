"""Letters in doubt on a replay's page: why they are, and what somebody who knows says of them."""

from typing import Any

import pytest
from support.consoles import IDS, Browser, Serve

from dlq.core.errors import UsageError
from dlq.replay import ledger
from dlq.replay.ledger.contract import Result
from dlq.replay.plans import planfile
from dlq.web.jobs import Jobs
from dlq.web.pages import replays

WHY = "the broker closed the connection of jane.doe@example.com: invalid expiration 'zebra'"
MASKED = {"roles": {"read": ["*"], "plan": ["*"], "apply": ["*"], "reconcile": ["*"]}}


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Those of the command that the page begins, which is not run."""
    kept: list[str] = []

    def start(_jobs: Jobs, words: list[str], _about: str, _by: str) -> Any:
        kept.extend(words)
        raise UsageError("a test begins no commands")

    monkeypatch.setattr(Jobs, "start", start)
    return kept


@pytest.fixture
def plan_in_doubt(serve: Serve, shop: dict[str, Any]) -> tuple[Browser, str]:
    """A plan of which three letters were sent, and nothing came back."""
    browser = serve(serve=MASKED, **shop)
    made = browser.post("/plans", {"id": IDS}, "/plans/new")
    plan = str(made.headers["location"]).removeprefix("/plans/")
    store = browser.console.look.workspace.store
    some = list(planfile.letters(store, plan))[:3]
    with ledger.opened(browser.console.settings.ledger, store) as book:
        book.claim(plan, some)
        book.record_results([Result(one.key, "in_doubt", WHY) for one in some])
    return browser, plan


def test_the_page_says_why_and_of_which(plan_in_doubt: tuple[Browser, str]) -> None:
    browser, plan = plan_in_doubt
    text = browser.get(f"/replays/{plan}").text
    for one in IDS[:3]:
        assert f'name="id" value="{one}"' in text
    assert text.count("the broker closed the connection of ?: invalid expiration") == 1 + 3
    assert "zebra" not in text
    assert f'value="{IDS[3]}"' not in text
    assert "<button disabled>Plan a replay</button>" in browser.get(f"/letters/{IDS[0]}").text
    assert 'data-label="in doubt">3<' in browser.get("/books").text


def test_the_page_names_the_keys_that_stopped(
    plan_in_doubt: tuple[Browser, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, plan = plan_in_doubt
    stopped = {"key": "jane.doe@example.com", "record_id": IDS[0], "why": "died_again", "left": IDS[1:3]}
    read = replays.read_replay_status
    status = lambda *asked, **how: read(*asked, **how) | {"stopped_keys": [stopped]}  # noqa: E731
    monkeypatch.setattr(replays, "read_replay_status", status)
    text = browser.get(f"/replays/{plan}").text.partition("Keys that stopped")[2]
    assert f"dlq replay apply {plan} --release KEY" in text
    assert "died again" in text
    assert "jane.doe" not in text


def test_what_somebody_knows_is_said_by_the_command(
    plan_in_doubt: tuple[Browser, str], words: list[str]
) -> None:
    browser, plan = plan_in_doubt
    decided: list[tuple[dict[str, Any], list[str] | None]] = [
        ({"act": "sent", "id": IDS[0]}, [f"--sent={IDS[0]}"]),
        ({"act": "not_sent", "id": IDS[:2]}, [f"--not-sent={one}" for one in IDS[:2]]),
        ({"act": "hold", "id": IDS[0]}, [f"--hold={IDS[0]}"]), ({"act": "sent", "all": "1"}, ["--all-sent"]),
        ({"act": "sent"}, None), ({"act": "all-sent", "id": IDS[0]}, None),
        ({"act": "sent", "id": [IDS[0], "a\0b"]}, None), ({"act": "sent", "id": "--all-sent"}, None),
    ]  # fmt: skip
    for fields, options in decided:
        words.clear()
        assert browser.post(f"/plans/{plan}/decide", fields, f"/replays/{plan}").status_code == 409
        assert words == ([] if options is None else ["replay", "reconcile", plan, *options]), fields
