"""The HTML report in a real browser, as people use it: inert to attacks, and for everybody to read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.archives import MINUTE, letter, write_analysis, write_segment
from support.servers.axe import find_violations, read_axe
from support.servers.chromium import Page, chromium

from dlq.archive.storage.store import LocalStore
from dlq.core.headers.rocketmq_topics import HALF
from dlq.core.record import Death
from dlq.reports import report

ATTACKS = (
    "</script><script>window.pwned=1</script>", "<img src=x onerror=\"window.pwned=1;alert('pwned')\">",
    "{{ 7*7 }}{% raw %}", "\"><svg onload=window.pwned=1>", "javascript:window.pwned=1", "\x1b[2J\u202e<!--",
)  # fmt: skip
EVIL = " ".join(ATTACKS)
OPEN_FIRST = "document.querySelector('#list tbody button').click()"
DIALOG = "document.getElementById('letter')"


def fill(store: LocalStore) -> None:
    """Sixty letters of three causes; everything that strangers write is hostile."""
    letters = [
        letter(
            n * 7, record_id=f"{n:08x}{'a' * 24}", source=("orders", "pay")[n % 2],
            dead_letter_queue=f"q{EVIL}", message_id=f"m-{n}{EVIL}", content_type=EVIL,
            body=f'{{"a": "{EVIL}"}}'.encode(), body_size=20,
            headers={f"h{EVIL}": EVIL}, failure_text=f"Boom{EVIL}\n\tat x", published_at=MINUTE,
            deaths=(Death("rejected", f"q{EVIL}", "", (), 2, MINUTE),), captured_at=MINUTE, mode="copy",
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
            "record_id": record.record_id, "source": record.source,
            "cause": ("application_error", "expired", "unknown")[place % 3],
            "advice": ("replay", "check_first", "never")[place % 3], "evidence": EVIL,
            "advice_reason": EVIL, "fingerprint": f"f{place % 4}{EVIL}",
            "exception_class": f"com.{EVIL}", "exception_message": EVIL,
            "origin": f"o{EVIL}", "incident_id": f"i{EVIL}" if place < 5 else None,
        }
        for place, record in enumerate(letters)
    ]  # fmt: skip
    incident = {
        "incident_id": f"i{EVIL}", "start": MINUTE, "end": 60 * MINUTE, "size": 5,
        "sources": [f"s{EVIL}"], "causes": ["expired"], "ongoing": True, "new": True,
    }  # fmt: skip
    transaction = {"unique_key": "k", "state": f"t{EVIL}", "checks": 3, "copies": 1}
    write_analysis(store, "20260101T000000", verdicts[:20])
    write_analysis(store, "20260102T000000", verdicts, incidents=[incident], transactions=[transaction])


def written(store: LocalStore, **options: Any) -> str:
    """The address of the report on an archive."""
    place = Path(store.location).with_name("report.html")
    report.write(report.make(store, with_letters=True, **options), "html", str(place))
    return place.as_uri()


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "archive"))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    store = LocalStore(str(tmp_path_factory.mktemp("html") / "archive"))
    fill(store)
    return written(store, before="20260101T000000")


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


@pytest.mark.parametrize(("width", "scheme"), [(w, s) for w in (1200, 390) for s in ("light", "dark")])
def test_it_is_accessible_and_loads_logs_and_runs_nothing_of_strangers(
    page: Page, url: str, width: int, scheme: str
) -> None:
    axe = read_axe()
    page.open(url, width, prefers_color_scheme=scheme)
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    box = "document.getElementById('list').parentElement"
    assert page.run(f"{box}.clientWidth >= {box}.scrollWidth")
    assert find_violations(page, axe) == []
    page.run(OPEN_FIRST)
    assert find_violations(page, axe) == []
    assert page.run("window.pwned") is None
    assert page.problems == []
    assert set(page.requests) == {url}
    text = page.run("document.body.textContent")
    for attack in (*ATTACKS[:-1], "\\x1b[2J\\u202e<!--"):
        assert attack in text, "it is there to be read"


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


def test_incidents_stand_on_a_timeline_a_failure_has_a_sample_and_retention_a_clock(page: Page) -> None:
    box = "document.querySelector('#incidents ~ .scroll rect.{}').getBoundingClientRect()"
    lane, track = box.format("hot"), box.format("track")
    start, width, whole = map(page.run, (f"{lane}.left - {track}.left", f"{lane}.width", f"{track}.width"))
    assert (start, whole > 50) == (0, True)  # it began before the first letter
    assert 0 < width < whole / 5  # and lasted 53 of 413 minutes
    assert page.run("document.querySelector('main section').getAttribute('aria-labelledby')") == "incidents"
    assert page.run("document.querySelector('.failures details pre').textContent").startswith("Boom")
    assert page.run("document.querySelector('#retention ~ .scroll time').textContent").endswith("days)")


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


def test_filters_and_the_open_letter_live_in_the_address(page: Page, url: str) -> None:
    assert search_for(page, "m-17<") == "1 letter"
    page.run(OPEN_FIRST)
    fragment = page.run("location.hash")
    page.open("about:blank")
    page.open(f"{url}{fragment}")
    assert status(page) == "1 letter"
    assert page.run(f"{DIALOG}.open") is True
    page.run(f"{DIALOG}.close()")
    page.run("document.querySelector('#filters button[type=reset]').click()")
    assert status(page) == "60 letters"
    assert page.run("location.hash") == ""


def test_an_incident_says_how_many_of_its_letters_are_in_the_file(browser: Page, store: LocalStore) -> None:
    letters = [letter(n) for n in range(1, 261)]
    write_segment(store, "p", letters)
    common = {"cause": "expired", "advice": "check_first", "fingerprint": "f", "incident_id": "i"}
    first = letters[0].record_id
    incident = {"incident_id": "i", "start": MINUTE, "end": MINUTE, "size": 260, "first_record_id": first}
    write_analysis(
        store, "a", [{"record_id": one.record_id, **common} for one in letters],
        incidents=[{**incident, "sources": ["orders"], "causes": ["expired"], "ongoing": False, "new": True}],
    )  # fmt: skip
    browser.open(written(store))
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
    order = "document.querySelector('button.sort').closest('th').getAttribute('aria-sort')"
    assert page.run(order) == "ascending"
    rows = "document.querySelectorAll('#list tbody tr').length"
    assert page.run(rows) == 25
    page.run("document.getElementById('following').click(); document.getElementById('following').click()")
    assert (page.run(rows), page.run("document.getElementById('page').textContent")) == (10, "Page 3 of 3")


def test_a_letter_opens_with_its_story_and_the_keyboard_closes_it(page: Page) -> None:
    page.run("(() => { const b = document.querySelector('#list tbody button'); b.focus(); b.click(); })()")
    text = page.run(f"{DIALOG}.textContent")
    assert page.run(f"{DIALOG}.open") is True
    for part in ("rejected in q", ", 2 times", "Boom", "at x", "dlq show 0000"):
        assert part in text
    page.press("Escape")
    assert page.run(f"{DIALOG}.open") is False
    assert page.run("document.activeElement.closest('table').id") == "list"


def test_everything_can_be_reached_by_the_tab_key(page: Page) -> None:
    focused, reached = "document.activeElement", set[Any]()
    for _ in range(80):
        page.press("Tab")
        reached.add(page.run(f"{focused}.className || {focused}.id || {focused}.tagName"))
    assert {"skip", "drill", "drill plain", "search", "sort", "plain", "A"} <= reached


def test_paper_gets_the_numbers_and_no_controls(page: Page) -> None:
    page.call("Emulation.setEmulatedMedia", media="print")
    shown = "getComputedStyle(document.querySelector('{}')).display"
    found = [page.run(shown.format(one)) for one in ("nav", ".filters", ".copy", "#list")]
    assert found == ["none", "none", "none", "table"]
    assert len(page.call("Page.printToPDF")["data"]) > 20_000
    page.call("Emulation.setEmulatedMedia", media="")


def test_a_half_message_is_stored_and_has_not_died(browser: Page, store: LocalStore) -> None:
    half = letter(1, broker_kind="rocketmq", dead_letter_queue=HALF)
    write_segment(store, "p", [half])
    verdict = {"record_id": half.record_id, "cause": "transaction_pending", "advice": "hold", "origin": "pay"}
    write_analysis(store, "a", [verdict])
    browser.open(written(store))
    browser.run(OPEN_FIRST)
    text = browser.run("document.getElementById('letter-content').textContent")
    assert [one in text for one in ("stored", "meant for", "died in", "dead since")] == [
        True,
        True,
        False,
        False,
    ]
