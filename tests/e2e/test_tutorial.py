"""The tutorial shows what a reader gets who types its commands."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
VARYING = (
    (re.compile(r"\d{8}T\d{6}-[0-9a-f]{6,8}"), "ID"),
    (re.compile(r"\b\d+\.\d+( ?s)?\b(?!%)"), "SECONDS"),
    (re.compile(r" +$", re.MULTILINE), ""),
)
LEFT_OUT = "…"


def alike(text: str) -> str:
    """Without what is different each time."""
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    return text


def examples(text: str) -> Iterator[tuple[str, str]]:
    """(command, what it prints)."""
    for example in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, printed = example.partition("\n")
        yield command, printed


def told(page: str) -> Iterator[tuple[str, str]]:
    """The examples of a page."""
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        yield from examples(block)


def pattern_of(printed: str) -> str:
    """A regular expression; `…` alone stands for some lines."""
    lines = alike(printed).strip("\n").splitlines()
    return "".join(r"(?:.*\n)*?" if line == LEFT_OUT else re.escape(line) + r"\n" for line in lines)


class Shell:
    """Types commands one after the other, and keeps what they printed."""

    def __init__(self, folder: Path, columns: int = 120, **environment: str) -> None:
        self.folder = folder
        self.seen: list[tuple[str, str]] = []
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {
            **os.environ, "PATH": path, "COLUMNS": str(columns), "XDG_CONFIG_HOME": str(folder),
            **environment,
        }  # fmt: skip

    def type(self, command: str) -> None:
        """A pipe gets JSON lines unless a table is asked for. What the demo types is kept, too."""
        words = command if " -o " in command else command.replace("dlq ", "dlq --no-color -o table ", 1)
        done = subprocess.run(
            words, shell=True, cwd=self.folder, env=self._environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        self.folder /= command.removeprefix("cd ") if command.startswith("cd ") else ""
        self.seen += examples(f"$ {command}\n{done.stdout}")

    def printed(self, command: str) -> str:
        """What a command printed, typed now unless the demo has done it; once each."""
        if alike(command) not in (alike(known) for known, _ in self.seen):
            self.type(command)
        place = next(n for n, (known, _) in enumerate(self.seen) if alike(known) == alike(command))
        lines = alike(self.seen.pop(place)[1].partition("\n# ")[0]).strip("\n").splitlines()
        return "".join(f"{line}\n" for line in lines)


def test_the_readme_shows_what_the_tour_reports_and_the_step_that_it_leaves_out_without_java(
    tmp_path: Path,
) -> None:
    ((command, printed),) = told((PAGE.parents[1] / "README.md").read_text(encoding="utf-8"))
    shell = Shell(tmp_path, columns=80, JAVA_HOME="/nowhere")  # Spark's step comes after the report
    shell.type("dlq demo --folder tour")
    found = shell.printed(command)
    assert re.fullmatch(pattern_of(printed), found), f"$ {command}\n{printed}\n---\n{found}"
    last = " ".join(shell.seen[-1][1].split())
    assert "Skipped, because Spark cannot run here: no java in JAVA_HOME" in last
    assert "install Java 17 or newer" in last
    assert "No verdict differs." not in last


def test_the_tutorial_shows_what_its_commands_print(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shown = list(told(PAGE.read_text(encoding="utf-8")))
    assert len(shown) > 12
    for command, printed in shown:
        found = shell.printed(command)
        told_alike = not printed or re.fullmatch(pattern_of(printed), found)
        assert told_alike, f"$ {command}\n{printed}\n---\n{found}"
