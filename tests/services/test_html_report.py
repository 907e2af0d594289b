"""The HTML report in a real browser: it works, it is inert to attacks, and everybody can use it."""

import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from archives import MINUTE, letter, write_analysis, write_segment
from services.chromium import Page, chromium

from dlq.archive.store import LocalStore
from dlq.connectors.rocketmq_records import HALF
from dlq.core.record import Death
from dlq.reports import report

ATTACKS = (
    "</script><script>window.pwned=1</script>", "<img src=x onerror=\"window.pwned=1;alert('pwned')\">",
    "{{ 7*7 }}{% raw %}", "\"><svg onload=window.pwned=1>", "javascript:window.pwned=1", "\x1b[2J\u202e<!--",
)  # fmt: skip
EVIL = " ".join(ATTACKS)
CANARY = "jane.doe@example.com"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dlq-tests" / "axe"
VIEWS = [(1200, "light"), (1200, "dark"), (390, "light"), (390, "dark")]


@pytest.fixture(scope="module")
def axe() -> str:
    """The accessibility checker axe-core, from npm, kept between runs."""
    if not list(CACHE.glob("*.tgz")):
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["npm", "pack", "axe-core@4", "--silent"], cwd=CACHE, check=True, capture_output=True, timeout=120
        )
    with tarfile.open(next(CACHE.glob("*.tgz"))) as package:
        member = package.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


def an_archive(folder: Path, hostile: str) -> LocalStore:
    """Sixty letters of three causes; everything that strangers write is hostile."""
    store = LocalStore(str(folder))
    letters = [
        letter(
            n * 7, record_id=f"{n:08x}{'a' * 24}", source=("orders", "pay")[n % 2],
            dead_letter_queue=f"q{hostile}", message_id=f"m-{n}{hostile}", content_type=hostile,
            body=f'{{"a": "{hostile}"}}'.encode(), body_size=20,
            headers={f"h{hostile}": hostile}, failure_text=f"Boom{hostile}\n\tat x", published_at=MINUTE,
            deaths=(Death("rejected", f"q{hostile}", "", (), 2, MINUTE),), captured_at=MINUTE, mode="copy",
        )
        for n in range(1, 61)
    ]  # fmt: skip
    sixty_years = 60 * 365 * 86_400_000
    kept = f'{{"format": 1, "source": "orders", "message_ttl": {sixty_years}}}'
    store.put("topology/p.json", kept.encode())
    for source in ("orders", "pay"):
        write_segment(store, f"p-{source}", [record for record in letters if record.source == source])
    verdicts = [
        {
            "record_id": record.record_id, "cause": ("application_error", "expired", "unknown")[place % 3],
            "advice": ("replay", "check_first", "never")[place % 3], "evidence": hostile,
            "advice_reason": hostile, "fingerprint": f"f{place % 4}{hostile}",
            "exception_class": f"com.{hostile}", "exception_message": hostile,
            "origin": f"o{hostile}", "incident_id": f"i{hostile}" if place < 5 else None,
        }
        for place, record in enumerate(letters)
    ]  # fmt: skip
    incident = {
        "incident_id": f"i{hostile}", "start": MINUTE, "end": 60 * MINUTE, "size": 5,
        "sources": [f"s{hostile}"], "causes": ["expired"], "ongoing": True, "new": True,
    }  # fmt: skip
    transaction = {"unique_key": "k", "state": f"t{hostile}", "checks": 3, "copies": 1}
    write_analysis(store, "20260101T000000", verdicts[:20])
    write_analysis(store, "20260102T000000", verdicts, incidents=[incident], transactions=[transaction])
    return store


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("html")
    store = an_archive(folder / "archive", EVIL)
    document = report.make(store, before="20260101T000000", with_letters=True)
    report.write(document, "html", str(folder / "report.html"))
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with chromium() as page:
        yield page


@pytest.fixture
def page(browser: Page, url: str) -> Page:
    browser.problems.clear()
    browser.requests.clear()
    browser.open(url)
    return browser


def visible_rows(page: Page) -> int:
    return int(page.run("document.querySelectorAll('#list tbody tr').length"))


def status(page: Page) -> str:
    """What the list says of itself, after the events of this moment."""
    text = "document.getElementById('status').textContent"
    return str(page.run(f"new Promise(done => setTimeout(() => done({text}), 50))"))


def search_for(page: Page, text: str) -> str:
    page.run(
        f"(() => {{ const box = document.getElementById('search'); box.value = {text!r};"
        "box.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    return status(page)


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_it_loads_nothing_logs_nothing_and_runs_nothing_of_strangers(
    browser: Page, url: str, width: int, scheme: str
) -> None:
    browser.problems.clear()
    browser.requests.clear()
    browser.open(url, width, prefers_color_scheme=scheme)
    browser.run("document.querySelector('#list tbody button').click()")

    assert browser.run("window.pwned") is None
    assert browser.problems == []
    assert set(browser.requests) == {url}


def test_attacks_are_there_to_be_read(page: Page) -> None:
    page.run("document.querySelector('#list tbody button').click()")
    text = page.run("document.body.textContent")

    for attack in ATTACKS[:-1]:
        assert attack in text
    assert "\\x1b[2J\\u202e<!--" in text


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


def test_the_policy_refuses_scripts_styles_and_connections_that_someone_might_get_in(page: Page) -> None:
    refused = page.run(
        """(async () => {
            const tried = [];
            const attempt = async (name, act) => { try { await act(); } catch { tried.push(name); } };
            await attempt('html', () => { document.body.innerHTML = '<b>x</b>'; });
            await attempt('eval', () => eval('window.pwned = 1'));
            await attempt('fetch', () => fetch('http://127.0.0.1:1/'));
            await attempt('script', () => {
                const script = document.createElement('script');
                script.textContent = 'window.pwned = 1';
                document.body.append(script);
            });
            return tried;
        })()"""
    )

    assert refused == ["html", "eval", "fetch", "script"]
    assert page.run("window.pwned") is None


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_axe_finds_no_violation(browser: Page, url: str, axe: str, width: int, scheme: str) -> None:
    browser.open(url, width, prefers_color_scheme=scheme)
    browser.run(f"{axe};0")
    found = "axe.run(document).then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html).slice(0, 3)]))"

    assert browser.run(found) == []
    browser.run("document.querySelector('#list tbody button').click()")
    assert browser.run(found) == []


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
    assert drill("fingerprint").startswith("15 letters, only fingerprint f")
    assert drill("incident_id").startswith("5 letters, only incident_id i")
    assert page.run("document.activeElement.id") == "search"


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


def test_a_masked_report_holds_no_canary(tmp_path: Path) -> None:
    store = an_archive(tmp_path / "archive", f" {CANARY} ")
    plain, masked = (
        report.FORMATS["html"](report.make(store, masks=m, with_letters=True)) for m in (None, ())
    )

    assert CANARY in plain
    assert CANARY not in masked
