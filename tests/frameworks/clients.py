"""The clients, pinned, from the registries into `.brokers`, once; and how a program that uses them starts.

python tests/frameworks/clients.py [py js go ...]   those of some languages; without a word all of them
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.environments import ROOT, environment
from support.jvm import BROKERS, QUICK, compiled, copy_dependencies

_CLIENTS = Path(__file__).resolve().parent / "clients"
_LOCKED = ROOT / "requirements" / "frameworks.txt"
PROGRAMS = _CLIENTS.parent / "programs"


class Language(NamedTuple):
    """What programs of one language need."""

    pins: Sequence[Path]
    """Files that name the clients and their versions; others are fetched into another folder."""
    fetch: Callable[[Path], None]
    """Into a folder that is there."""
    start: Callable[[Path, Path], Sequence[str]]
    """By the folder and a program: the command."""
    variables: Callable[[Path], Mapping[str, str]] = lambda _folder: {}


def _fetch_python(folder: Path) -> None:
    environment(folder / "venv", "-r", _LOCKED, locked=_LOCKED)


def _fetch_node(folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(_CLIENTS / name, folder)
    # Scripts of packages would be run as whoever runs the tests.
    subprocess.run(["npm", "ci", "--silent", "--ignore-scripts", "--no-audit"], cwd=folder, check=True)


def _build_go(folder: Path) -> None:
    for path in (_CLIENTS / "go.mod", _CLIENTS / "go.sum", PROGRAMS / "watermill.go"):
        shutil.copy(path, folder)
    subprocess.run(["go", "build", "-o", "program", "."], cwd=folder, check=True)


def _start_java(folder: Path, program: Path) -> Sequence[str]:
    jars = f"{folder}/*"
    texts = {path.stem: path.read_text() for path in (PROGRAMS / "Lab.java", program)}
    return ["java", "-Xmx256m", *QUICK, "-cp", f"{compiled(texts, jars)}:{jars}", program.stem]


def _java(pom: Path) -> Language:
    return Language([pom], lambda folder: copy_dependencies(pom, folder), _start_java)


LANGUAGES: Mapping[str, Language] = {
    "py": Language(
        [_LOCKED],
        _fetch_python,
        lambda folder, program: [str(folder / "venv/bin/python"), "-u", str(program)],
    ),
    "js": Language(
        [_CLIENTS / "package-lock.json"],
        _fetch_node,
        lambda _folder, program: ["node", str(program)],
        lambda folder: {"NODE_PATH": str(folder / "node_modules")},
    ),
    "go": Language(
        [_CLIENTS / "go.mod", _CLIENTS / "go.sum", PROGRAMS / "watermill.go"],
        _build_go,
        lambda folder, _program: [str(folder / "program")],
    ),
    "java": _java(_CLIENTS / "pom.xml"),
    "CamelRabbit": _java(_CLIENTS / "CamelRabbit.xml"),
    "KafkaParts": _java(_CLIENTS / "KafkaParts.xml"),
}
"""Ending of a program, or the name of one whose clients do not go with the others' -> its language."""


def install(name: str) -> Path:
    """Fetch what a language's programs need; returns at once when it is there."""
    language = LANGUAGES[name]
    digest = sha256(b"".join(path.read_bytes() for path in language.pins)).hexdigest()[:8]
    folder = BROKERS / f"frameworks-{name}-{digest}"
    if not folder.exists():
        BROKERS.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BROKERS, prefix="fetching-") as work:
            fetched = Path(work, "whole")
            fetched.mkdir()
            language.fetch(fetched)
            fetched.rename(folder)
    return folder


def start(program: str, *words: str, log: Path, **variables: str) -> "subprocess.Popen[str]":
    """A program with its words; what it prints is for who reads it, what goes wrong is in the log."""
    stem, _, ending = program.rpartition(".")
    name = stem if stem in LANGUAGES else ending
    folder, language = install(name), LANGUAGES[name]
    with log.open("ab") as errors:
        return subprocess.Popen(
            [*language.start(folder, PROGRAMS / program), *words],
            env={**os.environ, **language.variables(folder), **variables},
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


if __name__ == "__main__":
    for each in sys.argv[1:] or LANGUAGES:
        print(install(each))
