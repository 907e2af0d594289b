"""Agents at the page's server: who asks is proven without a cookie, and roles say what they may propose."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from support.consoles import TIMEOUT, Browser, Serve, name_person
from support.rows import each_row

from dlq.archive.storage.store import LocalStore
from dlq.core.errors import ConfigError
from dlq.replay import ledger
from dlq.replay.actor import system_user
from dlq.web.agents import PROPOSING, READING

TRIAGING = {"propose_dismissal", "propose_resolution", "propose_note"}
PROXY = {"serve": {"proxies": ["10.0.0.1"], "roles": {"read": ["*"], "triage": ["ann"]}}}


def ask(browser: Browser, method: str, params: dict[str, Any] | None = None, **headers: str) -> Any:
    """The answer to one JSON-RPC request of an agent."""
    told = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18", **headers}
    asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    return browser.client.post("/mcp", json=asked, headers=told)


def bearer(browser: Browser) -> dict[str, str]:
    return {"authorization": f"Bearer {browser.console.sessions.agents['']}"}


def names(browser: Browser, **headers: str) -> set[str]:
    return {tool["name"] for tool in ask(browser, "tools/list", **headers).json()["result"]["tools"]}


def propose_note(browser: Browser, headers: dict[str, str]) -> Any:
    """What the tool answers."""
    told = {"name": "propose_note", "arguments": {"fingerprint": TIMEOUT, "text": "look"}}
    return ask(browser, "tools/call", told, **headers).json()["result"]


def who_proposed(browser: Browser) -> str:
    """The one who has proposed something."""
    settings = browser.console.settings
    [event] = ledger.events(settings.ledger, LocalStore(settings.archive))
    return event.actor


def test_the_bearer_of_this_start_opens_all_that_its_owner_may(serve: Serve) -> None:
    browser = serve(enter=False)
    assert names(browser, **bearer(browser)) == {tool.__name__ for tool in (*READING, *PROPOSING)}
    told = {"name": "letters", "arguments": {"failure": TIMEOUT}}
    answer = ask(browser, "tools/call", told, **bearer(browser)).json()["result"]
    assert not answer["isError"]
    assert "jane.doe@example.com" not in json.dumps(answer)


def test_a_page_that_may_only_be_read_lets_agents_propose_nothing(serve: Serve) -> None:
    browser = serve(enter=False, serve={"roles": {"read": ["*"]}})
    assert names(browser, **bearer(browser)) == {tool.__name__ for tool in READING}
    assert propose_note(browser, bearer(browser))["isError"]


def test_a_proxy_says_for_whom_an_agent_proposes(serve: Serve) -> None:
    browser = serve(client="10.0.0.1", enter=False, **PROXY)
    ann, bob = name_person("ann"), name_person("bob")
    assert names(browser, **ann) - names(browser, **bob) == TRIAGING
    assert not propose_note(browser, ann)["isError"]
    assert who_proposed(browser) == "agent testclient for ann", "which its program's User-Agent says"


def test_what_lets_an_agent_in_opens_no_page_and_the_token_of_pages_lets_no_agent_in(serve: Serve) -> None:
    browser = serve(enter=False)
    agents_own, token = browser.console.sessions.agents[""], browser.console.sessions.token
    assert browser.get(f"/?token={agents_own}").status_code == 401
    assert browser.get("/letters", **bearer(browser)).status_code == 401
    assert ask(browser, "tools/list", authorization=f"Bearer {token}").status_code == 401


def test_an_agent_that_is_configured_goes_by_its_name(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "claude").write_text("c" * 40 + "\n")
    known = {"roles": {"triage": ["*"]}, "agents": {"claude": str(tmp_path / "claude")}}
    browser = serve(enter=False, serve=known)
    assert not propose_note(browser, {"authorization": f"Bearer {'c' * 40}"})["isError"]
    assert who_proposed(browser) == f"agent claude for {system_user()}"
    assert "" not in browser.console.sessions.agents


def test_what_is_no_bearer_is_refused_at_the_start(serve: Serve, tmp_path: Path) -> None:
    for content in ("", "short", "c" * 31, "two words of thirty-two characters"):
        (tmp_path / "claude").write_text(content)
        with pytest.raises(ConfigError, match=r"serve\.agents\.claude"):
            serve(enter=False, serve={"agents": {"claude": str(tmp_path / "claude")}})


@each_row(("headers", "status"), [
    ({}, 401), ({"authorization": "Bearer wrong"}, 401), ({"authorization": "Basic dTpw"}, 401),
    (name_person("ann"), 401), ({"origin": "https://evil.example"}, 403),
    ({"sec-fetch-site": "cross-site"}, 403), ({"host": "evil.example"}, 421),
])  # fmt: skip
def test_nobody_else_gets_in(serve: Serve, headers: dict[str, str], status: int) -> None:
    browser = serve()  # its cookie, which any site makes a browser send, opens nothing here
    assert ask(browser, "tools/list", **headers).status_code == status


def test_what_the_sdk_logs_is_a_line_that_steers_no_terminal(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An agent that obeys a letter may choose a name."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    browser = serve(enter=False)
    told = ask(browser, "prompts/get", {"name": "\x1b]0;owned\x07\n\u202e"}, **bearer(browser)).json()
    assert "Unknown prompt" in told["error"]["message"]
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("dlq: ")
    assert line.isprintable()


def test_who_logs_does_not_fail_by_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    browser = serve(enter=False)
    assert ask(browser, "tools/list", **bearer(browser)).status_code == 200
    monkeypatch.setattr("sys.stderr", None)
    logging.getLogger().error("%s of %s", "one")


def test_what_is_too_large_or_no_request_is_refused(serve: Serve) -> None:
    browser = serve(enter=False)
    asked = {"name": "query", "arguments": {"sql": "x" * 70_000}}
    assert ask(browser, "tools/call", asked, **bearer(browser)).status_code == 413
    assert browser.client.get("/mcp", headers=bearer(browser)).status_code == 405
