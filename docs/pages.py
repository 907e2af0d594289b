"""Pages of the site that lie outside docs/; the README is its first page. A hook of mkdocs (mkdocs.yml)."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "bench/README.md": "benchmarks.md",
    "tests/corpus/README.md": "corpus.md",
    "tests/README.md": "tests.md",
}
"""File in the repository -> page of the site."""
_LINK = re.compile(r"\]\(([\w./-]+)([)#])")
_LINK_OUT = re.compile(r"\[([^]]*)\]\(\.\./([\w./-]+)(#[^)]*)?\)")
"""A link from a page of docs/ to a file beside that folder."""


def page_of(link: str) -> str:
    """A link from the repository's root, as a page of the site needs it."""
    return PAGES.get(link, link.removeprefix("docs/"))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages, their links changed to where things are on the site."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        linked = _LINK.sub(lambda link: f"]({page_of(link[1])}{link[2]}", text)
        files.append(File.generated(config, page, content=linked))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links out of docs/ to their pages, and show those to other files as names."""
    return _LINK_OUT.sub(_led, markdown)


def _led(link: re.Match[str]) -> str:
    return f"[{link[1]}]({PAGES[link[2]]}{link[3] or ''})" if link[2] in PAGES else f"`{link[2]}`"
