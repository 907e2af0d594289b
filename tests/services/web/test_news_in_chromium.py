"""A replay's page that stays open: it hears of what begins later, and says when it hears nothing."""

import re
from pathlib import Path

import pytest
from support.servers.chromium import Page, chromium
from support.serving import Server, run, serving, write_archive
from support.waiting import eventually

LETTERS = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_archive(tmp_path, LETTERS)
    return tmp_path


def shows(page: Page, pattern: str) -> bool:
    return bool(re.search(pattern, str(page.run("document.body.innerText"))))


def open_replay(page: Page, server: Server) -> str:
    """The page of a plan that nobody applies yet."""
    chosen = {"source": "orders", "to": "queue:orders", "rate": "2", "any_advice": "1"}
    page.call("Page.navigate", url=server.address)
    eventually(lambda: page.run("location.search === '' && document.title") == "Now – dlq")
    plan = server.enter().post("/plans", chosen, "/plans/new?source=orders").removeprefix("/plans/")
    page.open(f"http://127.0.0.1:{server.port}/replays/{plan}")
    return plan


def test_an_open_page_hears_of_an_apply_that_begins_later_and_of_a_server_that_is_gone(folder: Path) -> None:
    with serving(folder) as server, chromium() as page:
        plan = open_replay(page, server)
        assert shows(page, f"0 of {LETTERS} confirmed; {LETTERS} not sent")
        digest = re.findall(r'name="digest" value="(\w+)"', server.get(f"/plans/{plan}"))[0]
        server.post(f"/plans/{plan}/apply", {"digest": digest}, f"/plans/{plan}")
        eventually(lambda: shows(page, r"[1-9]\d* of 12 confirmed; going on"))
        eventually(lambda: page.run("document.querySelector('form[action$=stop] button').disabled") is False)
        server.kill()
        eventually(lambda: shows(page, "No news since .* UTC: the server does not answer"))
        assert not shows(page, "going on")
        eventually(lambda: run(folder, "replay", "status", plan)["states"]["confirmed"] == LETTERS)
