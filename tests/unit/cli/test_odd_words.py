"""What a shell makes of a variable that is not set, and files that only look like a configuration."""

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.archives import letter, write_segment
from support.rows import each_row

from dlq.archive.storage.store import LocalStore
from dlq.cli.app import command_line, hoist, run
from dlq.core.errors import UsageError
from dlq.operations.reading.selecting import EVERY

TOML = {
    "a number of 5,000 digits": f"archive = {'9' * 5000}",
    "a number of 25,000 digits": f"archive = 0x{'f' * 25_000}",
    "a float of 5,000 digits": f"archive = {'9' * 5000}.0",
    "lists in lists": f"archive = {'[' * 20_000}",
    "lists in lists that end": f"archive = {'[' * 900}{']' * 900}",
    "tables in tables": f"archive = {'{a=' * 20_000}",
    "tables of tables": f"[analysis.{'a.' * 3000}b]",
    "a byte-order mark": "\ufeffarchive = 'a'",
    "NUL": "\0",
    "a key twice": "archive = 'a'\narchive = 'b'",
    "a day that is none": "archive = 2020-13-45",
}


@pytest.fixture(autouse=True)
def archive(store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    monkeypatch.chdir(tmp_path)
    write_segment(store, "p-0", [letter(1)])
    return store


def check_refused(words: Sequence[str], capfd: pytest.CaptureFixture[str]) -> str:
    """It ends with 2, and all that it says is a line."""
    gc.collect()  # what other tests have left complains when it is collected deep within a document
    assert run(words) == 2
    out, err = capfd.readouterr()
    assert (out, err[:5], err.count("\n")) == ("", "dlq: ", 1)
    return err


@each_row("text", TOML.values(), ids=TOML)
def test_what_is_no_toml_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "dlq.toml").write_text(text)
    said = check_refused(["rules"], capfd)
    assert said.startswith("dlq: dlq.toml")
    assert len(said) < 500


def options(command: Any, *words: str) -> Iterator[tuple[str, ...]]:
    """Each option of each command that takes a value, as it is typed."""
    for option in command.params:
        if option.param_type_name == "option" and not option.is_flag and option.name != "reason":
            yield (*words, option.opts[-1])
    for name, each in getattr(command, "commands", {}).items():
        yield from options(each, *words, name)


OPTIONS = [*options(command_line())]


@each_row("words", OPTIONS, ids=[" ".join(words) for words in OPTIONS])
def test_an_empty_value_is_refused_and_chooses_nothing(
    archive: LocalStore, capfd: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    before = sorted(archive.list(""))
    check_refused([*words[:-1], f"{words[-1]}=", "x"], capfd)
    assert sorted(archive.list("")) == before


@each_row("words", [
    "ls --failure=", "ls --incident=", "ls --source=", "report --since=", "export - --where=",
    "replay plan --failure=", "dismiss --failure= --reason=expected",
])  # fmt: skip
def test_an_option_that_chooses_letters_and_is_empty_is_named(
    capfd: pytest.CaptureFixture[str], words: str
) -> None:
    """A shell makes it of a variable that is not set."""
    option = words.partition("=")[0].split()[-1]
    said = check_refused(words.split(), capfd)
    assert said == f"dlq: {option} is empty: give it a value, or leave it out\n"
    assert EVERY.is_all
    assert EVERY._replace(sources=[]).is_all
    assert option == "--source" or not EVERY._replace(**{option[2:]: ""}).is_all


def test_a_ramp_takes_no_share_that_no_harm_exceeds(capfd: pytest.CaptureFixture[str]) -> None:
    said = check_refused(["replay", "apply", "x", "--ramp", "--max-harm", "nan"], capfd)
    assert said == "dlq: --max-harm nan: write a percentage, 0 to 100\n"


FILES = {"file", "client_log", "body", "out", "edit", "folder", "config"}


def texts(command: Any, *words: str) -> Iterator[tuple[str, ...]]:
    """Each option and argument that takes a text which is no file's name, with one that is no UTF-8."""
    for word in command.params:
        if word.name not in FILES and word.param_type_name == "argument":
            yield (*words, "\udcff")
        elif word.name not in FILES and not word.is_flag:
            yield (*words, f"{word.opts[-1]}=\udcff", "x")
    for name, each in getattr(command, "commands", {}).items():
        yield from texts(each, *words, name)


@each_row("words", [*texts(command_line())])
def test_what_is_no_utf_8_is_refused_in_a_line(capfd: Any, words: tuple[str, ...]) -> None:
    check_refused(words, capfd)


def test_a_file_may_have_any_name_and_steers_no_terminal(
    archive: LocalStore, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["export", "a\udcff.jsonl"]) == 0
    assert (tmp_path / "a\udcff.jsonl").exists()
    assert run(["report", "--format", "markdown", "--out", "\x1b[31m\u202e.md"]) == 0
    assert r"report written to \x1b[31m\u202e.md" in capfd.readouterr().err


@each_row(("words", "hoisted"), [
    ("ls -o csv", "-o csv ls"), ("ls -ocsv", "-o csv ls"), ("ls -o=csv", "-o csv ls"),
    ("ls -cdlq.toml --limit 5", "-c dlq.toml ls --limit 5"), ("ls -qv", "-q -v ls"),
    ("ls -qocsv", "-q -o csv ls"), ("ls -qo csv", "-q -o csv ls"),
    ("ls --output=csv --config x --quiet", "--output=csv --config x --quiet ls"),
    ("ls --sort -cause -ocsv", "-o csv ls --sort -cause"), ("ls --sort", "ls --sort"),
    ("-c ls replay plan --text -v", "-c ls replay plan --text -v"), ("pull --force -v", "-v pull --force"),
    ("export -", "export -"), ("show -x", "show -x"), ("show -- -q", "show -- -q"),
])  # fmt: skip
def test_common_options_come_to_the_front_however_they_are_written(words: str, hoisted: str) -> None:
    assert hoist(words.split()) == hoisted.split()


@pytest.mark.parametrize("words", ["ls -o", "ls --config", "ls -qo"])
def test_a_common_option_without_its_value_is_named(words: str) -> None:
    with pytest.raises(UsageError, match=r"^-(o|-config) needs a value"):
        hoist(words.split())
