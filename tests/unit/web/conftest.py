"""A console over a small archive, asked without a network."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient
from support.archives import letter, write_analysis, write_segment
from support.consoles import Browser, Serve

from dlq.archive.store import LocalStore
from dlq.core.configuration import parse
from dlq.web.app import make_app
from dlq.web.server import make_console

IDS = [f"{number:x}" * 32 for number in range(1, 5)]
TIMEOUT, NULL = "aa" * 16, "bb" * 16
EVERYTHING = {right: ["*"] for right in ("triage", "plan", "approve", "apply", "reconcile", "unmask")}


@pytest.fixture
def store(store: LocalStore) -> LocalStore:
    """Three letters of one failure, one of another."""
    body = b'{"order": 1, "mail": "jane.doe@example.com"}'
    headers = {"x-customer": "jane.doe@example.com", "trace": "t-1"}
    known = {"body": body, "headers": headers, "body_size": len(body), "captured_at": 10**15}
    known["origin_kind"] = "queue"
    write_segment(store, "p-0", [letter(n, record_id=one, **known) for n, one in enumerate(IDS)])
    said = {"cause": "application_error", "advice": "replay", "exception_class": "java.lang.Boom"}
    said |= {
        "rule": "framework",
        "mechanism": "framework",
        "origin": "orders",
        "origin_kind": "queue",
    }
    texts = {TIMEOUT: "no answer for jane.doe@example.com", NULL: "no stock of 'SKU-1'"}
    named = dict.fromkeys(IDS[:3], TIMEOUT) | {IDS[3]: NULL}
    verdicts = [
        {"record_id": one, "fingerprint": name, "exception_message": texts[name], **said}
        for one, name in named.items()
    ]
    write_analysis(store, "20260101T000000", verdicts)
    return store


@pytest.fixture
def serve(store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """A browser that has opened the printed address; `[serve]` and other tables of the configuration by
    keyword, and the address that the browser has."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def start(client: str = "127.0.0.1", enter: bool = True, **tables: object) -> Browser:
        known = {"serve": {"roles": EVERYTHING}, **tables}
        console = make_console(parse({"archive": store.location, **known}), None, 8080)
        browser = Browser(
            console, TestClient(make_app(console, log=False), "http://127.0.0.1:8080", client=(client, 50000))
        )
        if enter:
            browser.enter()
        return browser

    return start
