"""Texts for users are short and plain: README, help, pages of docs, and the changelog."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.rows import each_row

from dlq.cli.app import command_line

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
PAGES = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]  # fmt: skip
BANNED = re.compile(
    r"\bmend(s|ed|ing)?\b|\b(and|is|are|be) said\b|\bsomebody('s)?\b|\banybody\b|\btells\b|\bin vain\b",
    re.IGNORECASE,
)
"""Words that a reader stumbles over; the field has others: fix, report, someone, match."""
OPENING = re.compile(r"(What|Who|Whom|Whose|Those|Of|Whoever|Whatever)\b")
"""How no sentence of ours begins."""
AVERAGE = 22
_FENCED = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+", re.MULTILINE)
_LINK = re.compile(r"!?\[([^]]*)\]\([^)]*\)")
_BOLD_LEAD = re.compile(r"^\*\*([^*]+)\*\*\s*")


def paragraphs(markdown: str) -> Iterator[str]:
    """The paragraphs, list items and cells of a page as plain text; no code, and no headings."""
    text = _LINK.sub(r"\1", _FENCED.sub("", markdown))
    for block in re.split(r"\n\s*\n", _ITEM.sub("\n\n", text)):
        lines = [line.strip() for line in block.strip().splitlines() if not line.startswith("#")]
        if any(line.startswith("|") for line in lines):
            yield from (cell.strip() for line in lines for cell in line.strip("|").split("|"))
        else:
            yield " ".join(lines)


def sentences(paragraph: str) -> Iterator[str]:
    """The sentences of a paragraph; a bold lead (`**Cost.**`) is one of its own."""
    for part in re.split(r"(?<=[.!?])[*)]*\s+|\*\*\s+", _BOLD_LEAD.sub(r"\1. ", paragraph)):
        if part.strip(" .*"):
            yield part.strip(" *")


def said(markdown: str) -> list[str]:
    """All sentences of a page."""
    return [sentence for paragraph in paragraphs(markdown) for sentence in sentences(paragraph)]


def prose(markdown: str) -> list[str]:
    """Sentences that have an end: no cells of tables, no labels."""
    return [one for one in said(markdown) if re.search(r"[.!?:]\W*$", one) and len(one.split()) > 3]


def average(found: list[str]) -> float:
    return sum(len(one.split()) for one in found) / len(found)


def helps(group: Any = None, name: str = "dlq") -> Iterator[tuple[str, str]]:
    """(command, what its help explains and what each option's does)."""
    command = group or command_line()
    for one in (command, *(p for p in command.params if getattr(p, "help", None))):
        text = re.sub(r"^\s*Example.*?(\n\s*\n|\Z)", "", one.help or "", flags=re.DOTALL | re.MULTILINE)
        yield name, " ".join(text.split())
    for inner, child in getattr(command, "commands", {}).items():
        yield from helps(child, f"{name} {inner}")


HELPS = [*helps()]


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= 700
    first = README.splitlines()[2]
    assert len(first.split()) <= 15
    assert (ROOT / "docs" / "security.md").stat().st_size <= 15 * 1024


def test_the_changelog_has_few_plain_bullets_for_this_version() -> None:
    version = re.search(r"^## \[?0\.9\.0.*?(?=^## |\Z)", CHANGELOG, re.DOTALL | re.MULTILINE)
    assert version is not None
    bullets = re.findall(r"^- (.*(?:\n  .*)*)", version[0], re.MULTILINE)
    assert 10 < len(bullets) <= 40
    assert [bullet for bullet in bullets if len([*sentences(" ".join(bullet.split()))]) > 1] == []


def test_sentences_of_readme_and_help_are_short() -> None:
    assert average(prose(README)) <= AVERAGE
    of_commands: dict[str, list[str]] = {}
    for name, text in HELPS:
        of_commands.setdefault(name, []).extend(sentences(text))
    assert {name: found for name, found in of_commands.items() if found and average(found) > AVERAGE} == {}


@each_row("page", PAGES, ids=lambda page: page.name)
def test_no_page_says_what_a_reader_stumbles_over_or_begins_in_the_air(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [line for line in _FENCED.sub("", text).splitlines() if BANNED.search(line)] == []
    assert [one for one in said(text) if OPENING.match(one)] == []


def test_help_is_plain() -> None:
    assert [(name, text) for name, text in HELPS if BANNED.search(text)] == []
    assert [(name, one) for name, text in HELPS for one in sentences(text) if OPENING.match(one)] == []


FOLDERS = sorted(path.parent for path in ROOT.glob("*/__init__.py"))


def texts(module: Path) -> Iterator[str]:
    """Texts of a module that a user may see: no docstrings, and none below an attribute."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.value


@each_row("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_text_of_the_code_has_such_words(folder: Path) -> None:
    found = [
        (str(module.relative_to(ROOT)), text) for module in folder.rglob("*.py") for text in texts(module)
    ]
    assert [each for each in found if BANNED.search(each[1])] == []
    pages = [page.read_text(encoding="utf-8") for page in folder.rglob("*.jinja")]
    assert [
        page for page in pages if BANNED.search(re.sub(r"\{[#%].*?[#%]\}", "", page, flags=re.DOTALL))
    ] == []
