"""Help that is read at 3 a.m.: it fits a terminal, begins with a verb, and an error ends with what to do."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.builders import load_script
from support.rows import each_row

from dlq.cli.app import command_line
from dlq.core.errors import SAYS_WHAT_TO_DO, ConnectionLost, DlqError, UsageError, with_next_step

ROOT = Path(__file__).parents[3]
VERBS = re.compile(
    "(Add|Approve|Archive|Assign|Check|Choose|Classify|Close|Copy|Find|List|Move|Print|Query|Remove|Reopen|Report|"
    r"Resolve|Run|Send|Serve|Show|Silence|Stop|Take|Verify|Watch|Write)\b"
)
ODD_BEGINNINGS = re.compile(r"(Of|What|Who|Whose|Those)\b")
BANNED = re.compile(r"\b(and said|mend(s|ed|ing)?|tells|somebody('s)?)\b", re.IGNORECASE)
WIDTH, HEIGHT, MOST_WORDS, UNGROUPED = 80, 40, 22, 8


DOCS = load_script(ROOT / "docs" / "commands.py")
EVERY = list(DOCS.commands())


def command_of(words: tuple[str, ...]) -> Any:
    found = command_line()
    for word in words:
        found = found.commands[word]
    return found


def sentences(text: str) -> list[str]:
    """Prose, without the example."""
    prose = " ".join(text.partition("Example:")[0].replace("\\[", "[").split())
    return [each for each in re.split(r"(?<=[.!?])\s+(?=[A-Z-])", prose) if each]


def prose_of(words: tuple[str, ...]) -> list[str]:
    command = command_of(words)
    texts = [command.help, *(getattr(word, "help", None) or "" for word in command.params)]
    return [sentence for text in texts for sentence in sentences(text)]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """help_of sets these for its process; a test gives them back."""
    for name in ("COLUMNS", "NO_COLOR", "TERM"):
        monkeypatch.setenv(name, "")


@each_row("words", EVERY, ids=[" ".join(words) for words in EVERY])
def test_the_help_of_a_command_fits_a_small_terminal_and_begins_with_its_verb(words: tuple[str, ...]) -> None:
    lines = DOCS.help_of(words).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) <= HEIGHT - 2  # a blank line above and below
    assert VERBS.match(command_of(words).help)


@each_row("words", EVERY, ids=[" ".join(words) for words in EVERY])
def test_every_option_names_its_value_and_many_stand_in_named_groups(words: tuple[str, ...]) -> None:
    options = [word for word in command_of(words).params if word.param_type_name == "option"]
    ungrouped = [word.opts[0] for word in options if word.rich_help_panel is None]
    assert len(options) <= UNGROUPED or not ungrouped
    assert [word.opts[0] for word in options if word.metavar is None] == []


def test_the_options_of_a_plan_say_which_letters_go_where_with_which_changes_and_whose_consent() -> None:
    groups = {word.rich_help_panel for word in command_of(("replay", "plan")).params} - {None}
    assert groups == {"Which letters", "Where to", "What changes", "Consent"}


@each_row("words", EVERY, ids=[" ".join(words) for words in EVERY])
def test_sentences_of_the_help_are_plain(words: tuple[str, ...]) -> None:
    prose = prose_of(words)
    assert [one for one in prose if ODD_BEGINNINGS.match(one) or BANNED.search(one)] == []
    assert sum(len(one.split()) for one in prose) / len(prose) <= MOST_WORDS


def kinds(error: type[DlqError]) -> Iterator[type[DlqError]]:
    yield error
    for kind in error.__subclasses__():
        yield from kinds(kind)


USER_ERRORS = {kind.__name__ for kind in kinds(UsageError)}
REASONS = {"unwrapping.py"}
"""These raise why a letter is not unwrapped, which the plan says beside what becomes of it."""
GIVEN = re.compile(r"^<\w+>$|: <(error|text)>$")
"""An error's text that another function made, which is looked at there."""


def literal(node: ast.expr) -> str:
    """The text of an expression, with what is filled in as `<name>`."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(literal, node.values))
    if isinstance(node, ast.BoolOp):
        return " ".join(map(literal, node.values))
    text = ast.unparse(node.value if isinstance(node, ast.FormattedValue) else node)
    constants = {
        "_NO_SUCH_KEY": "; take it out", "_PYSPARK": "install PySpark", "_UNWATCHABLE": "; set mode",
        "_NO_BOUNDS": "; run dlq replay reconcile", "NO_DRAIN": "; use it", "CUT_SHORT": "; wait until",
        "against": "or insist with --force", "ask": "has to run",
    }  # fmt: skip
    return next((value for name, value in constants.items() if name in text), f"<{text}>")


def errors() -> Iterator[tuple[str, str]]:
    """(place, text) of every usage error, in every room."""
    for path in sorted(path for room in ROOT.glob("*/__init__.py") for path in room.parent.rglob("*.py")):
        if path.name in REASONS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in USER_ERRORS:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", literal(node.args[0])


def test_every_error_of_a_user_ends_with_what_to_do() -> None:
    found = list(errors())
    assert len(found) > 200
    assert [each for each in found if not SAYS_WHAT_TO_DO.search(each[1]) and not GIVEN.search(each[1])] == []
    assert [each for each in found if BANNED.search(each[1])] == []


def test_an_error_of_another_kind_has_an_advice_where_its_text_has_none() -> None:
    without = [kind for kind in kinds(DlqError) if not SAYS_WHAT_TO_DO.search(f"; {kind.advice}")]
    assert {*without} == {DlqError, *kinds(UsageError)}
    assert with_next_step(ConnectionLost("shop: it went")) == "shop: it went; run the command again"
    assert with_next_step(ConnectionLost("shop: it went; pull again")) == "shop: it went; pull again"
