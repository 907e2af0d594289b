"""Writes docs/commands.md: every command with its --help. `python docs/commands.py` after a change."""

import io
import os
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from dlq.cli.app import command_line, run
from dlq.cli.exit import MEANS

PAGE = Path(__file__).with_name("commands.md")
WIDTH = "80"
_INTRODUCTION = """# Commands

This page shows the `--help` of every command. `docs/commands.py` writes it, and a test checks it.

The common options (`-c`, `-o`, `-q`, `-v`, `--no-input`, `--no-color`) may stand before or after the command.
Data goes to standard output, everything else to standard error.

{codes}
"""


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, and of the commands inside a group, in the order of the help."""
    for name, command in (group or command_line()).commands.items():
        yield (*path, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


def help_of(words: tuple[str, ...]) -> str:
    """What `dlq WORDS --help` prints on a terminal of WIDTH columns, without colours."""
    os.environ |= {"COLUMNS": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    printed = io.StringIO()
    with redirect_stdout(printed):
        run([*words, "--help"])
    return "\n".join(line.rstrip() for line in printed.getvalue().strip("\n").splitlines()).strip("\n")


def exit_codes() -> str:
    """The table of exit codes, for this page and others."""
    rows = [f"| {code.value} | {means} |" for code, means in MEANS.items()]
    return "\n".join(["| exit code | means |", "|---|---|", *rows])


def page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION.format(codes=exit_codes()), f"## dlq\n\n```text\n{help_of(())}\n```"]
    parts += [f"## dlq {' '.join(words)}\n\n```text\n{help_of(words)}\n```" for words in commands()]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
