"""The HTML report in a real browser is inert to attacks, and everybody can read it."""

from pathlib import Path

import pytest
from support.html_reports import ATTACKS, an_archive, browser, page, url
from support.servers.axe import find_violations, read_axe
from support.servers.chromium import Page

from dlq.core.settings import Mask
from dlq.reports import report

__all__ = ["browser", "page", "url"]
CANARY = "jane.doe@example.com"
VIEWS = [(1200, "light"), (1200, "dark"), (390, "light"), (390, "dark")]


@pytest.fixture(scope="module")
def axe() -> str:
    """The accessibility checker axe-core."""
    return read_axe()


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
    assert find_violations(browser, axe) == []
    browser.run("document.querySelector('#list tbody button').click()")
    assert find_violations(browser, axe) == []


def test_a_masked_report_holds_no_canary(tmp_path: Path) -> None:
    store = an_archive(tmp_path / "archive", f" {CANARY} ")
    plain, masked = (
        report.FORMATS["html"](report.make(store, mask=m, with_letters=True)) for m in (None, Mask())
    )
    assert CANARY in plain
    assert CANARY not in masked
