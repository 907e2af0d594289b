"""An HTML report of hostile letters, in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.archives import MINUTE, letter, write_analysis, write_segment
from support.servers.chromium import Page, chromium

from dlq.archive.store import LocalStore
from dlq.core.record import Death
from dlq.reports import report

ATTACKS = (
    "</script><script>window.pwned=1</script>", "<img src=x onerror=\"window.pwned=1;alert('pwned')\">",
    "{{ 7*7 }}{% raw %}", "\"><svg onload=window.pwned=1>", "javascript:window.pwned=1", "\x1b[2J\u202e<!--",
)  # fmt: skip
EVIL = " ".join(ATTACKS)


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
            "record_id": record.record_id, "source": record.source,
            "cause": ("application_error", "expired", "unknown")[place % 3],
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
