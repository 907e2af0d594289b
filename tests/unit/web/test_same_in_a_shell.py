"""What a page shows, and does, a command shows and does: the same numbers, of the same moment."""

import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.archives import MINUTE, write_analysis
from support.builders import in_file, memory_sources
from support.consoles import FAILURE, IDS, NULL, TIMEOUT, Browser, Serve, commands_on

from dlq.archive.storage.store import LocalStore
from dlq.connectors.base import Fate
from dlq.connectors.memory import MemoryConnector
from dlq.replay.plans import planfile
from dlq.replay.states import STATES
from dlq.web.pages import ACTS, ROUTES

INCIDENT, KEY = "c" * 16, "7F0000010001"


@dataclass
class Site:
    """A browser and a shell beside each other."""

    browser: Browser
    dlq: Callable[..., Any]
    plan: str

    def page(self, path: str) -> str:
        answer = self.browser.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text


@pytest.fixture
def site(
    serve: Serve, store: LocalStore, shop: Any, dlq: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Site:
    """An archive with something of everything: an incident, a transaction, a plan of which one letter was
    sent, a dismissal, a note."""
    lost = Fate("queue", "<billing>", "reject", "lost", (), "it has no dead-letter exchange", "fix")
    monkeypatch.setattr(MemoryConnector, "coverage", lambda _self: [lost], raising=False)
    text = memory_sources(in_file(tmp_path), "orders", more='[replay]\nramp_wait = "0.2s"\n')
    Path(tmp_path, "dlq.toml").write_text(text)
    write_all_kinds(store)
    dlq("dismiss", IDS[3], "--reason", "sent anew")
    dlq("failures", "note", TIMEOUT, "the gateway")
    dlq("replay", "apply", dlq("replay", "plan", IDS[0])["plan"])
    browser = serve(**shop)
    made = browser.post("/plans", {"failure": TIMEOUT}, "/plans/new")
    return Site(browser, dlq, str(made.headers["location"]).removeprefix("/plans/"))


def write_all_kinds(store: LocalStore) -> None:
    """An analysis with verdicts, an incident and a transaction."""
    said = {
        "cause": "application_error", "advice": "replay", "exception_class": "java.lang.Boom", "attempts": 3,
        "rule": "framework", "mechanism": "framework", "origin": "orders", "origin_kind": "queue",
    }  # fmt: skip
    named = dict.fromkeys(IDS[:3], TIMEOUT) | {IDS[3]: NULL}
    verdicts = [
        {"record_id": one, "fingerprint": name, "incident_id": INCIDENT if one != IDS[1] else None, **said}
        for one, name in named.items()
    ]
    incident = {
        "incident_id": INCIDENT, "size": 3, "sources": ["orders"], "causes": ["application_error"],
        "fingerprint": TIMEOUT, "first_record_id": IDS[0], "ongoing": True, "new": False,
        "start": MINUTE, "peak": 2 * MINUTE, "end": 3 * MINUTE,
    }  # fmt: skip
    known = {"unique_key": KEY, "state": "pending", "checks": 1_234, "topic": "t", "record_ids": [IDS[0]]}
    write_analysis(store, "20260201T000000", verdicts, incidents=[incident], transactions=[known])


def texts(page: str) -> str:
    """What a person reads, in one line."""
    main = page.partition("<main")[2].partition('aria-labelledby="shell"')[0]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main)).split())


def cells(page: str, label: str) -> list[int]:
    """The numbers of a column, from the top."""
    found = re.findall(rf'data-label="{re.escape(label)}">([\d,]+)[< ]', page)
    return [int(text.replace(",", "")) for text in found]


def section(page: str, name: str) -> str:
    return page.partition(f'aria-labelledby="{name}"')[2].partition("</section>")[0]


def column(rows: list[Mapping[str, Any]], name: str) -> list[int]:
    return [row[name] or 0 for row in rows]


def same_now(page: str, _site: Site, told: Any) -> None:
    assert f"{told['letters']} dead letters in {len(told['sources'])} source" in texts(page)
    assert cells(section(page, "sources"), "Letters") == column(told["sources"], "letters")
    assert cells(section(page, "sources"), "Still queued") == column(told["sources"], "still_queued")
    assert cells(section(page, "bursts"), "Letters") == column(told["incidents"], "size") == [3]
    assert cells(section(page, "bursts"), "Wait") == column(told["incidents"], "waiting")


def same_failures(page: str, _site: Site, told: Any) -> None:
    assert cells(page, "Wait") == column(told, "waiting") == [2]
    assert cells(page, "Letters") == column(told, "letters")
    assert f"{len(told)} failure" in texts(page)


def same_failure(page: str, _site: Site, told: Any) -> None:
    assert f"{told['waiting']} wait {told['letters']} letters" in texts(page)
    assert len(told["history"]) == section(page, "history").count('data-label="Who"') == 1


def same_letters(page: str, _site: Site, told: Any) -> None:
    assert f"{len(told)} letters." in texts(page)
    assert column(told, "attempts") == [3] * 4
    assert "attempts 3" in texts(page), "what is the same in each row is said once"
    assert 'data-label="attempts"' not in page.lower()


def same_letter(page: str, _site: Site, told: Any) -> None:
    silent = sum(not step["spoke"] for step in told["explain"])
    assert f"{silent} rule" in texts(page)
    assert f"{told['body_size']} B" in texts(page)
    assert f"{told['attempts']} delivery attempts" in texts(page)
    assert len(told["replays"]) == section(page, "replays").count('data-label="State"') == 1


def same_incidents(page: str, _site: Site, told: Any) -> None:
    assert cells(page, "Letters") == column(told["incidents"], "size") == [3]
    assert cells(page, "Wait") == column(told["incidents"], "waiting") == [1]


def same_incident(page: str, site: Site, told: Any) -> None:
    (row,) = site.dlq("incidents")["incidents"]
    assert f"{row['waiting']} wait {row['size']} letters" in texts(page)
    by_failure = [sum(one["fingerprint"] == name for one in told) for name in (TIMEOUT, NULL)]
    assert cells(page, "Letters") == by_failure == [2, 1]


def same_plans(page: str, _site: Site, told: Any) -> None:
    assert cells(page, "Letters") == column(told[::-1], "letters") == [2, 1]
    for row in told:
        state = "confirmed" if row["confirmed"] else "planned"
        assert f"{row[state]} {state}" in texts(page)


def same_plan(page: str, site: Site, told: Any) -> None:
    assert f"planned {told['states']['planned']}" in texts(page)
    listed = re.findall(r'href="/letters/\w{32}"', section(page, "letters"))
    assert len(listed) == sum(told["states"].values()) == 2
    assert site.dlq("replay", "plan", "--failure", TIMEOUT)["left_out"] == {"replayed": 1}
    assert re.search(r"replayed.*?<td class=\"n\">1<", page, re.DOTALL)


def same_replay(page: str, _site: Site, told: Any) -> None:
    found = re.findall(r'<span class="tag state-(\w+)">.*?<td class="n">([\d,]+)</td>', page)
    assert {name: int(count) for name, count in found} == {n: c for n, c in told["states"].items() if c}
    assert set(told["states"]) == {str(one) for one in STATES}
    assert f"{told['states']['confirmed']} of {sum(told['states'].values())} confirmed" in texts(page)


def same_transactions(page: str, _site: Site, told: Any) -> None:
    assert cells(page, "Checks") == column(told, "checks") == [1_234]


def same_books(page: str, _site: Site, told: Any) -> None:
    for name in ("captured", "replayed", "held", "dismissed", "purged", "waiting", "in_doubt", "lost"):
        assert cells(page, name.replace("_", " ")) == column(told["sources"], name)
    (row,) = told["sources"]
    assert (row["captured"], row["replayed"], row["dismissed"], row["waiting"]) == (4, 1, 1, 2)


def same_pull(page: str, _site: Site, told: Any) -> None:
    [source] = told["sources"]
    assert cells(page, "Letters there now") == [source["depth"]]
    assert '<span class="tag">copy</span>' in page


def same_audit(page: str, _site: Site, told: Any) -> None:
    assert page.count('data-label="Who"') == len(told) > 3


def same_coverage(page: str, _site: Site, told: Any) -> None:
    assert page.count('data-label="Verdict"') == told["counts"]["total"] == 1
    assert "1 lost, 0 unknown, 0 kept" in texts(page)


def same_new_plan(page: str, site: Site, told: Any) -> None:
    assert told["selected"] + sum(told["left_out"].values()) == 3
    assert "3 letters chosen" in texts(page)


PAGES: Mapping[str, tuple[str, Callable[[str, Site, Any], None]]] = {
    "/": ("/", same_now),
    "/pull": ("/pull", same_pull),
    "/failures": ("/failures", same_failures),
    "/failures/{fingerprint}": (FAILURE, same_failure),
    "/letters": ("/letters", same_letters),
    "/letters/{record_id}": (f"/letters/{IDS[0]}", same_letter),
    "/incidents": ("/incidents", same_incidents),
    "/incidents/{incident_id}": (f"/incidents/{INCIDENT}", same_incident),
    "/plans": ("/plans", same_plans),
    "/plans/new": (f"/plans/new?failure={TIMEOUT}", same_new_plan),
    "/plans/{plan}": ("/plans/PLAN", same_plan),
    "/replays/{plan}": ("/replays/PLAN", same_replay),
    "/transactions": ("/transactions", same_transactions),
    "/books": ("/books", same_books),
    "/audit": ("/audit", same_audit),
    "/coverage": ("/coverage", same_coverage),
}
"""Path of a route -> one of its pages, and what compares its numbers with those of its first command."""
OF_COMMANDS = "/commands/{job}"
"""What a command prints is that page."""


def test_every_page_is_compared_here() -> None:
    shown = {route.path for route in ROUTES if route.method == "GET" and not route.path.endswith("/events")}
    assert shown == {*PAGES, OF_COMMANDS}


@pytest.mark.parametrize("route", PAGES)
def test_every_number_of_a_page_is_that_of_the_command_it_shows(site: Site, route: str) -> None:
    path, compare = PAGES[route]
    page = site.page(path.replace("PLAN", site.plan))
    shown = section(page, "shell").partition("<details")[0]
    compare(page, site, site.dlq(*commands_on(shown)[0]))


def test_every_change_has_a_command_on_the_pages_that_offer_it() -> None:
    for route in ROUTES:
        if route.method == "POST":
            assert route.commands, route.path
            assert route.on, route.path
            for page in route.on:
                assert set(route.commands) <= set(ACTS.get(page, ())), (route.path, page)


def test_a_ramp_that_was_stopped_is_not_stopped_any_more_once_the_plan_is_applied_again(
    site: Site, store: LocalStore
) -> None:
    planfile.keep_ramp(store, site.plan, [{"sent": 1, "came_back": 1, "evidence": "consumed"}], "harm")
    assert "The ramp was stopped" in site.page(f"/replays/{site.plan}")
    site.dlq("replay", "apply", site.plan)
    assert "The ramp was stopped" not in site.page(f"/replays/{site.plan}")


FILLED = {
    "OWNER": "ann", "WHY": "seen", "HOW": "2.4.1", "TEXT": "x", "TIME": "3d", "RATE": "5", "ID": IDS[1],
    "FILE": "file.jsonl",
}  # fmt: skip


@pytest.mark.parametrize("route", [path for path, acts in ACTS.items() if acts])
def test_what_a_page_does_its_commands_do_in_a_shell(site: Site, route: str) -> None:
    path = PAGES[route][0].replace("PLAN", site.plan).replace(IDS[0], IDS[1])
    shown = commands_on(site.page(path), " act")
    assert len(shown) == len(ACTS[route])
    for words in shown:
        if "--sent" in words:  # no letter of the site is in doubt
            continue
        filled = [FILLED.get(word, word) for word in words]
        site.dlq(*filled, *(("--as", "bob") if "approve" in words else ()))
