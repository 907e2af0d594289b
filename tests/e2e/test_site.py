"""The documentation as pages: no link leads nowhere, and no page loads anything from elsewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}
ELSEWHERE = re.compile(r"\s*(https?:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""", re.IGNORECASE)


class Loaded(HTMLParser):
    """Collects what a page loads by itself, links to click left out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("rel") != "canonical":
            self.addresses.append(found.get(LOADING.get(tag, "")) or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly: a warning ends it with an error."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True,
    )  # fmt: skip
    return folder


def test_every_page_of_the_repository_is_on_the_site(site: Path) -> None:
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} | {"index", "contributing", "changes"}
    assert pages <= {page.stem for page in site.glob("*.html")}


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        addresses = Loaded(page.read_text(encoding="utf-8")).addresses
        assert any(address.endswith(".css") for address in addresses)
        assert [address for address in addresses if ELSEWHERE.match(address)] == [], page.name
    for sheet in site.rglob("*.css"):
        assert not IN_STYLES.search(sheet.read_text(encoding="utf-8")), sheet.name


def test_the_search_needs_no_server(site: Path) -> None:
    assert (site / "search/search_index.js").read_text(encoding="utf-8").startswith("var __index = ")
    assert "assets/iframe-worker.js" in (site / "index.html").read_text(encoding="utf-8")
