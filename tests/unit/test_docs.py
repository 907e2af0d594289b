"""The page of commands says what --help says, and every command explains itself."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


def _load() -> ModuleType:
    place = Path(__file__).parents[2] / "docs" / "commands.py"
    spec = importlib.util.spec_from_file_location("docs_commands", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DOCS = _load()
EVERY = list(DOCS.commands())
GROUPS = {words[:-1] for words in EVERY if len(words) > 1}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """help_of sets these for its process; a test gives them back."""
    for name in ("COLUMNS", "NO_COLOR", "TERM"):
        monkeypatch.setenv(name, "")


def test_the_page_of_commands_is_up_to_date() -> None:
    assert DOCS.PAGE.read_text(encoding="utf-8") == DOCS.page(), "run: python docs/commands.py"


def test_the_readme_has_the_exit_codes() -> None:
    assert DOCS.exit_codes() in (DOCS.PAGE.parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_explains_itself_and_its_options(words: tuple[str, ...]) -> None:
    text = DOCS.help_of(words)

    assert f"Usage: dlq {' '.join(words)}" in text
    assert len(text.splitlines()[2].strip()) > 10


@pytest.mark.parametrize("words", [words for words in EVERY if words not in GROUPS], ids=" ".join)
def test_every_command_has_an_example(words: tuple[str, ...]) -> None:
    _explanation, _mark, example = DOCS.help_of(words).partition("Example")

    assert f"dlq {' '.join(words)}" in example
