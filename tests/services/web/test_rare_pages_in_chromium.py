"""The pages of a bad night can be read and used by everybody: an incident, a pull, a letter that is edited,
letters in doubt, plans that wait for consent; with names, headers and stacks as long as they come."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.servers.axe import find_violations, read_axe
from support.servers.chromium import Page, chromium
from support.serving import Server, put_in_doubt, run, serving, write_archive
from support.waiting import eventually

VIEWS = [(1400, "light"), (1400, "dark"), (390, "light"), (390, "dark")]
LONG = "w" * 300
STACK = f"com.shop.{'Very' * 40}Long: {LONG}\n" + f"\tat com.shop.{'p' * 150}.A.b(A.java:1)\n" * 90
PLAN = ("replay", "plan", "--any-advice", "--to", "queue:orders", "--reason", LONG)


def burst() -> str:
    """Letters that died in the last minute, as an export has them."""
    began = datetime.now(UTC) - timedelta(minutes=1)
    letters = (
        {
            "broker_kind": "rabbitmq", "queue": "q" * 200, "body_text": '{"order": 1}',
            "message_id": f"{LONG[:200]}{n}", "dead_at": (began + timedelta(seconds=n)).isoformat(),
            "headers": {"h" * 250: LONG, "x-exception-stacktrace": STACK},
        }
        for n in range(50)
    )  # fmt: skip
    return "\n".join(map(json.dumps, letters))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in the middle of it: letters are in doubt, and an agent's plan waits."""
    folder: Path = tmp_path_factory.mktemp("night")
    write_archive(folder, 3)
    (folder / "burst.jsonl").write_text(burst())
    run(folder, "import", "burst.jsonl", "--source", "orders")
    put_in_doubt(folder, run(folder, *PLAN)["plan"], 3, f"no answer from {LONG}")
    run(folder, *PLAN, "--limit", "9", "--as", f"agent {LONG} for ada")
    with serving(folder) as found:
        yield found.enter()


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Page]:
    with chromium() as page:
        page.call("Page.navigate", url=server.address)
        eventually(lambda: page.run("location.search === '' && document.title") == "Now – dlq")
        yield page


@pytest.fixture(scope="module")
def paths(server: Server) -> list[str]:
    """The rare pages, and the two that say what waits."""
    plans = re.findall(r"/plans/(\d{8}T[\w-]+)", server.get("/plans"))
    (incident,) = {*re.findall(r'/incidents/[^"?]+', server.get("/incidents"))}
    command = server.post("/pull", {}, "/pull")
    assert "Waits for your consent" in server.get("/")
    (doubtful,) = (one for one in dict.fromkeys(plans) if "no answer from" in server.get(f"/replays/{one}"))
    return [
        "/pull",
        incident,
        command,
        "/",
        "/plans",
        *(f"/plans/{one}" for one in plans),
        f"/replays/{doubtful}",
    ]


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_axe_finds_nothing_on_the_pages_of_a_bad_night(
    server: Server, browser: Page, paths: list[str], width: int, scheme: str
) -> None:
    base, axe, found = f"http://127.0.0.1:{server.port}", read_axe(), {}
    letter = re.findall(r"/letters/[0-9a-f]{32}", server.get("/letters"))[0]
    for path in [*dict.fromkeys(paths), letter]:
        browser.open(base + path, width, prefers_color_scheme=scheme)
        if path == letter:
            browser.run("document.querySelector('form[action$=\"/draft\"]').submit()")
            eventually(lambda: browser.run("document.querySelector('textarea[name=body]') !== null"))
        wide = browser.run("document.documentElement.scrollWidth > innerWidth")
        if (violations := find_violations(browser, axe, "target-size")) or wide:
            found[path] = violations, wide
    assert found == {}


def test_what_goes_on_is_said_of_the_time_of_the_last_look(server: Server, browser: Page) -> None:
    browser.open(f"http://127.0.0.1:{server.port}/")
    said = re.findall(r"going on\b.{12}", browser.run("document.body.innerText"))
    assert said
    assert all(re.match(r"going on at (the last|\d\d:\d\d)", one) for one in said), said
