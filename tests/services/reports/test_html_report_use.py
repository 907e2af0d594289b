"""The HTML report in a real browser, as people use it."""

from pathlib import Path
from typing import Any

from support.archives import MINUTE, letter, write_analysis, write_segment
from support.html_reports import browser, page, search_for, status, url, visible_rows
from support.servers.chromium import Page

from dlq.archive.store import LocalStore
from dlq.core.rocketmq_topics import HALF
from dlq.reports import report

__all__ = ["browser", "page", "url"]


def test_the_chart_is_drawn(page: Page) -> None:
    colours = page.run(
        """(() => {
            const canvas = document.getElementById('timeline');
            const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            const seen = new Set();
            for (let i = 0; i < pixels.length; i += 4) {
                if (pixels[i + 3] > 200) seen.add(pixels.slice(i, i + 3).join());
            }
            return seen.size;
        })()"""
    )
    assert colours > 3


def test_incidents_stand_on_a_timeline(page: Page) -> None:
    lane = "document.querySelector('#incidents ~ .scroll rect.hot').getBoundingClientRect()"
    track = "document.querySelector('#incidents ~ .scroll rect.track').getBoundingClientRect()"
    start, width, whole = (
        page.run(text) for text in (f"{lane}.left - {track}.left", f"{lane}.width", f"{track}.width")
    )
    assert (start, whole > 50) == (0, True)  # it began before the first letter
    assert 0 < width < whole / 5  # and lasted 53 of 413 minutes
    assert (
        page.run("document.querySelectorAll('main section')[0].getAttribute('aria-labelledby')")
        == "incidents"
    )


def test_a_failure_has_a_sample_and_the_retention_clock_runs(page: Page) -> None:
    assert page.run("document.querySelector('.failures details pre').textContent").startswith("Boom")
    left = page.run("document.querySelector('#retention ~ .scroll time').textContent")
    assert left.endswith("days)")


def test_a_search_finds_letters_by_any_of_their_texts(page: Page) -> None:
    assert status(page) == "60 letters"
    assert search_for(page, "m-17<") == "1 letter"
    assert search_for(page, "expired pay") == "10 letters"
    assert search_for(page, "no such thing") == "0 letters"
    page.run("document.querySelector('#filters button[type=reset]').click()")
    assert status(page) == "60 letters"


def test_a_cause_a_failure_and_an_incident_lead_to_their_letters(page: Page) -> None:
    def drill(name: str) -> str:
        page.run(f"document.querySelector('button.drill[data-filter={name}]').click()")
        return status(page)

    assert drill("cause") == "20 letters"
    assert drill("fingerprint").startswith("15 letters of failure f")
    assert drill("incident_id").startswith("5 letters of incident i")
    assert page.run("document.activeElement.id") == "search"


def test_filters_and_the_open_letter_live_in_the_address(browser: Page, url: str) -> None:
    browser.open(url)
    assert search_for(browser, "m-17<") == "1 letter"
    browser.run("document.querySelector('#list tbody button').click()")
    fragment = browser.run("location.hash")
    browser.open("about:blank")
    browser.open(f"{url}{fragment}")
    assert status(browser) == "1 letter"
    assert browser.run("document.getElementById('letter').open") is True
    browser.run("document.getElementById('letter').close()")
    browser.run("document.querySelector('#filters button[type=reset]').click()")
    assert status(browser) == "60 letters"
    assert browser.run("location.hash") == ""


def test_an_incident_says_how_many_of_its_letters_are_in_the_file(browser: Page, tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "archive"))
    letters = [letter(n) for n in range(1, 261)]
    write_segment(store, "p", letters)
    common = {"cause": "expired", "advice": "check_first", "fingerprint": "f", "incident_id": "i"}
    first = letters[0].record_id
    incident = {"incident_id": "i", "start": MINUTE, "end": MINUTE, "size": 260, "first_record_id": first}
    write_analysis(
        store, "a", [{"record_id": one.record_id, **common} for one in letters],
        incidents=[{**incident, "sources": ["orders"], "causes": ["expired"], "ongoing": False, "new": True}],
    )  # fmt: skip
    report.write(report.make(store, with_letters=True), "html", str(tmp_path / "report.html"))
    browser.open((tmp_path / "report.html").as_uri())
    browser.run("document.querySelector('button.drill[data-filter=incident_id]').click()")
    assert status(browser) == (
        "201 of 260 letters of incident i are in this file; all of them: dlq ls --incident i"
    )
    assert search_for(browser, first).startswith("1 of 260 letters")


def test_columns_sort_and_pages_turn(page: Page) -> None:
    first = "document.querySelector('#list tbody td:nth-child(2)').textContent"
    newest = page.run(first)
    page.run("document.querySelector('button.sort[data-column=died]').click()")
    assert page.run(first) < newest
    assert (
        page.run("document.querySelector('button.sort').closest('th').getAttribute('aria-sort')")
        == "ascending"
    )
    assert visible_rows(page) == 25
    page.run("document.getElementById('following').click(); document.getElementById('following').click()")
    assert (visible_rows(page), page.run("document.getElementById('page').textContent")) == (
        10,
        "Page 3 of 3",
    )


def test_a_letter_opens_with_its_story_and_the_keyboard_closes_it(page: Page) -> None:
    page.run("(() => { const b = document.querySelector('#list tbody button'); b.focus(); b.click(); })()")
    text = page.run("document.getElementById('letter').textContent")
    assert page.run("document.getElementById('letter').open") is True
    for part in ("rejected in q", ", 2 times", "Boom", "at x", "dlq show 0000"):
        assert part in text
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="Escape", code="Escape", windowsVirtualKeyCode=27)
    assert page.run("document.getElementById('letter').open") is False
    assert page.run("document.activeElement.closest('table').id") == "list"


def test_everything_can_be_reached_by_the_tab_key(page: Page) -> None:
    focused = "document.activeElement"
    reached: set[Any] = set()
    for _ in range(80):
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        reached.add(page.run(f"{focused}.className || {focused}.id || {focused}.tagName"))
    assert {"skip", "drill", "drill plain", "search", "sort", "plain", "A"} <= reached


def test_paper_gets_the_numbers_and_no_controls(browser: Page, url: str) -> None:
    browser.open(url)
    browser.call("Emulation.setEmulatedMedia", media="print")
    shown = "(selector => getComputedStyle(document.querySelector(selector)).display)"
    assert [browser.run(f"{shown}('{selector}')") for selector in ("nav", ".filters", ".copy")] == [
        "none"
    ] * 3
    assert browser.run(f"{shown}('#list')") == "table"
    assert len(browser.call("Page.printToPDF")["data"]) > 20_000
    browser.call("Emulation.setEmulatedMedia", media="")


def test_a_phone_need_not_scroll_sideways(browser: Page, url: str) -> None:
    browser.open(url, 390)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    room = (
        "const box = document.getElementById('list').parentElement; return box.clientWidth - box.scrollWidth"
    )
    assert browser.run(f"(() => {{ {room}; }})()") >= 0


def test_a_half_message_is_stored_and_has_not_died(browser: Page, tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "archive"))
    half = letter(1, broker_kind="rocketmq", dead_letter_queue=HALF)
    write_segment(store, "p", [half])
    verdict = {"record_id": half.record_id, "cause": "transaction_pending", "advice": "hold", "origin": "pay"}
    write_analysis(store, "a", [verdict])
    report.write(report.make(store, with_letters=True), "html", str(tmp_path / "report.html"))
    browser.open((tmp_path / "report.html").as_uri())
    browser.run("document.querySelector('#list tbody button').click()")
    text = browser.run("document.getElementById('letter-content').textContent")
    assert "stored" in text
    assert "meant for" in text
    assert "died in" not in text
    assert "dead since" not in text
