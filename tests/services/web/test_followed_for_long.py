"""A page that is followed for long holds no more than at its beginning, in the browser and in the server.

What a replay's states are is made up here, and news come fifty times as fast as they do: so seconds bring as
many of them as minutes of a real one, which other tests follow.
"""

import os
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
import uvicorn
from support.servers.chromium import Page
from support.serving import browsing, run, write_archive
from support.waiting import PATIENCE, eventually, settled

from dlq.core.configuration import parse
from dlq.core.runtime import patience
from dlq.replay.states import STATES
from dlq.web import live
from dlq.web.app import make_app
from dlq.web.console import Console
from dlq.web.pages import replays
from dlq.web.server import make_console

EVERY, LETTERS = 0.02, 40
EARLY, LATE = 40, 240
"""So many news have come."""
_goes_on = threading.Event()
"""What the page follows."""
_COUNT = """
    window.news = 0;
    const seen = new MutationObserver(() => { window.news += 1; });
    seen.observe(document.getElementById("live"), {childList: true});
"""


class Held(NamedTuple):
    """What the page and the server hold."""

    nodes: int
    listeners: int
    heap: int
    """Bytes of scripts."""
    descriptors: int
    followed: int
    memory: int
    """Bytes of the server."""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    """A server in this process, whose news come fast."""
    sent = 0

    def count_own(*_: object) -> dict[str, int]:
        nonlocal sent
        sent += _goes_on.is_set()
        return {**dict.fromkeys(STATES, 0), "confirmed": sent}

    _goes_on.set()
    monkeypatch.setattr(patience, "FRESH", EVERY)
    monkeypatch.setattr(replays, "_tell_who", lambda *_: "dlq replay apply, begun by ann")
    monkeypatch.setattr(replays, "_count_own", count_own)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_archive(tmp_path, LETTERS)
    settings = parse(tomllib.loads((tmp_path / "dlq.toml").read_text()))
    console = make_console(settings, str(tmp_path / "dlq.toml"), 1)
    config = uvicorn.Config(make_app(console, log=False), port=0, ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    eventually(lambda: server.started)
    monkeypatch.setenv("PORT", str(server.servers[0].sockets[0].getsockname()[1]))
    yield console
    server.should_exit = server.force_exit = True
    thread.join(PATIENCE)


def measure(page: Page) -> Held:
    """While no news come, as what each replaces is there until it is collected."""
    _goes_on.clear()
    settled(lambda: page.run("window.news"))
    page.call("HeapProfiler.collectGarbage")
    found = {one["name"]: int(one["value"]) for one in page.call("Performance.getMetrics")["metrics"]}
    process = psutil.Process()
    held = Held(
        found["Nodes"], found["JSEventListeners"], found["JSHeapUsedSize"],
        process.num_fds(), live.listeners, process.memory_info().rss,
    )  # fmt: skip
    _goes_on.set()
    return held


def test_a_page_that_is_followed_for_long_keeps_its_size(served: Console, tmp_path: Path) -> None:
    base = f"http://127.0.0.1:{os.environ['PORT']}"
    plan = run(tmp_path, "replay", "plan", "--any-advice", "--to", "queue:orders")["plan"]
    with browsing(f"{base}/?token={served.sessions.token}") as page:
        page.call("Performance.enable")
        page.open(f"{base}/replays/{plan}")
        page.run(_COUNT)
        eventually(lambda: page.run("window.news") > EARLY)
        early = measure(page)
        eventually(lambda: page.run("window.news") > LATE)
        # A browser collects a document as a whole, and not always at the first call.
        late = eventually(lambda: found if (found := measure(page)).nodes < early.nodes + 10 else None)
        assert late.listeners <= early.listeners
        assert late.heap - early.heap < 2**19
        assert late.descriptors <= early.descriptors + 2, "of its own requests"
        assert (early.followed, late.followed) == (1, 1)
        assert late.memory - early.memory < 16 * 2**20
        page.open("about:blank")
        eventually(lambda: live.listeners == 0)
        assert page.problems == []
