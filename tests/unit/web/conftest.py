"""A console over a small archive, asked without a network, and a shell beside it."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.archives import letter, write_analysis, write_segment
from support.builders import Dlq, in_file
from support.consoles import IDS, NULL, TIMEOUT, Browser, Serve

from dlq.archive.storage.store import LocalStore
from dlq.connectors.memory import broker_at
from dlq.core.configuration import parse
from dlq.web.app import make_app
from dlq.web.server import make_console

EVERYTHING = {right: ["*"] for right in ("triage", "plan", "approve", "apply", "reconcile", "unmask")}


@pytest.fixture
def store(store: LocalStore) -> LocalStore:
    """Three letters of one failure, one of another."""
    body = b'{"order": 1, "mail": "jane.doe@example.com"}'
    headers = {"x-customer": "jane.doe@example.com", "trace": "t-1"}
    known = {"body": body, "headers": headers, "body_size": len(body), "captured_at": 10**15}
    known["origin_kind"] = "queue"
    write_segment(store, "p-0", [letter(n, record_id=one, **known) for n, one in enumerate(IDS)])
    said = {
        "cause": "application_error", "advice": "replay", "exception_class": "java.lang.Boom",
        "rule": "framework", "mechanism": "framework", "origin": "orders", "origin_kind": "queue",
    }  # fmt: skip
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
        pages = make_app(console, log=False)
        browser = Browser(console, TestClient(pages, "http://127.0.0.1:8080", client=(client, 50000)))
        if enter:
            browser.enter()
        return browser

    return start


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """So many days go by."""

    def forward(days: float) -> None:
        passed = round(days * 86_400 * 10**9)
        monkeypatch.setattr(time, "time_ns", lambda: time.clock_gettime_ns(time.CLOCK_REALTIME) + passed)

    return forward


@pytest.fixture
def shop(tmp_path: Path) -> dict[str, Any]:
    """Of the configuration: the source of the letters, on an embedded broker with their queue."""
    url = in_file(tmp_path)
    for queue in ("orders", "orders.dlq"):
        broker_at(url).declare(queue)
    orders = {"broker": "shop", "queue": "orders.dlq"}
    return {"brokers": {"shop": {"kind": "memory", "url": url}}, "sources": {"orders": orders}}


@pytest.fixture
def dlq(store: LocalStore, dlq: Dlq) -> Callable[..., Any]:
    """A command, and the JSON that it prints."""

    def call(*words: str) -> Any:
        code, out, err = dlq(*words, "-o", "json")
        assert code in (0, 3, 6), (words, err)
        return json.loads(out) if out.strip() else None

    return call
