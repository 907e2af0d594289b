"""The page of commands says what --help says, every command explains itself, and examples in the
documentation are sound."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from support.builders import load_script
from support.rows import each_row
from typer.core import TyperCommand

from dlq.cli.app import command_line, hoist
from dlq.core.brokers import NAMES, REGISTRY, all_named
from dlq.core.configuration import parse

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
UNFINISHED = re.compile("Missing|requires an argument")
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))


DOCS = load_script(ROOT / "docs" / "commands.py")
EVERY = list(DOCS.commands())
GROUPS = {words[:-1] for words in EVERY if len(words) > 1}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """help_of sets these for its process; a test gives them back."""
    for name in ("COLUMNS", "NO_COLOR", "TERM"):
        monkeypatch.setenv(name, "")


def test_the_page_of_commands_is_up_to_date() -> None:
    assert DOCS.PAGE.read_text(encoding="utf-8") == DOCS.page(), "run: python docs/commands.py"


@each_row("words", EVERY, ids=" ".join)
def test_every_command_explains_itself_and_its_options_with_an_example(words: tuple[str, ...]) -> None:
    text = DOCS.help_of(words)
    assert f"Usage: dlq {' '.join(words)}" in text
    assert len(text.splitlines()[2].strip()) > 10
    assert words in GROUPS or f"dlq {' '.join(words)}" in text.partition("Example")[2]


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of some languages, at the left margin or indented in a list."""
    return [text for _, language, text in FENCED.findall(page.read_text("utf-8")) if language in languages]


def called(line: str) -> Iterator[list[str]]:
    """The words of each `dlq` that a line of shell calls."""
    words = shlex.split(line.removeprefix("$ "), comments=True)
    ends = [n for n, word in enumerate(words) if word in ("|", "&&", ";") or word.startswith(">")]
    for begin, end in zip([0, *(n + 1 for n in ends)], [*ends, len(words)], strict=True):
        if words[begin:end][:1] == ["dlq"]:
            yield words[begin + 1 : end]


def in_blocks(page: Path) -> Iterator[list[str]]:
    """Commands that can be typed as they are."""
    for block in blocks(page, "sh", "console"):
        is_session = any(line.startswith("$ ") for line in block.splitlines())
        for line in block.splitlines():
            if line.startswith("$ dlq " if is_session else "dlq "):
                yield from called(line)


def in_text(page: Path) -> Iterator[list[str]]:
    """Commands that a text names, often without all that they need."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for code in re.findall(r"`(dlq [^`]+)`", text):
        yield from called(code.replace("[SOURCE…]", "SOURCE").replace("…", ""))


@pytest.fixture
def parsed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real command line, up to where a command would begin."""
    monkeypatch.setattr(TyperCommand, "invoke", lambda *_: 0)


def refusal(words: list[str]) -> str:
    """What the command line has against some words; "" for nothing."""
    if words == ["--install-completion"]:  # which typer does while it reads the words
        return ""
    try:
        command_line().main(hoist(words), prog_name="dlq", standalone_mode=False)
    except typer.TyperException as error:
        return str(error) or "no command"
    return ""


@pytest.mark.usefixtures("parsed_only")
@each_row("page", PAGES, ids=lambda page: page.name)
def test_the_command_line_takes_every_example(page: Path) -> None:
    assert [(words, refusal(words)) for words in in_blocks(page) if refusal(words)] == []
    refused = [(words, refusal(words)) for words in in_text(page)]
    assert [each for each in refused if each[1] and not UNFINISHED.search(each[1])] == []


def test_examples_are_found() -> None:
    assert len([words for page in PAGES for words in in_blocks(page)]) > 30
    assert len([words for page in PAGES for words in in_text(page)]) > 60
    assert len([block for page in PAGES for block in blocks(page, "toml")]) > 8


@each_row("page", [page for page in PAGES if blocks(page, "toml")], ids=lambda page: page.name)
def test_every_configuration_is_one_that_is_read(page: Path) -> None:
    for block in blocks(page, "toml"):
        parse(tomllib.loads(re.sub(r"^   ", "", block, flags=re.MULTILINE)))


def test_every_promise_of_the_page_of_security_links_to_its_test() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    promised = page.partition("## What is promised")[2].partition("## What is not promised")[0]
    rows = [row for row in promised.splitlines() if row.startswith("| ") and row != "| promise | test |"]
    linked = [re.findall(r"\[test\]\(\.\./(tests/[\w/]+\.py)\)", row) for row in rows]
    assert len(rows) > 30
    assert [row for row, files in zip(rows, linked, strict=True) if len(files) != 1] == []
    table = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    assert [file for (file,) in linked if file not in table] == []


LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def linked_from(page: Path) -> set[Path]:
    """Files of the repository that a page links to."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return {(page.parent / name).resolve() for name in LINK.findall(text) if ":" not in name}


@each_row("page", PAGES, ids=lambda page: page.name)
def test_no_link_of_a_page_leads_nowhere(page: Path) -> None:
    assert [path for path in linked_from(page) if not path.exists()] == []


def test_every_page_is_linked_from_the_index_or_another_page() -> None:
    linked = {path for page in PAGES for path in linked_from(page) - {page.resolve()}}
    assert [page.name for page in PAGES if page.resolve() not in linked | {ROOT / "README.md"}] == []


@pytest.mark.parametrize("file", ["pyproject.toml", "mkdocs.yml", "README.md", "docs/commands.md"])
def test_every_broker_of_the_registry_is_named(file: str) -> None:
    assert NAMES.keys() == REGISTRY.keys() - {"memory"}
    text = (ROOT / file).read_text(encoding="utf-8")
    missing = [name for name in NAMES.values() if name not in text]
    assert not missing
    assert file == "README.md" or all_named() in " ".join(text.split())
