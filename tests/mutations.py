"""Break sixty promises on purpose, and see that a test notices: `python tests/mutations.py [ROOM …]`.

`mutations.txt` lists six changes of each room's code: what breaks, the test that catches it, the file, and
the lines that go (`-`) and come (`+`). Each is made in a copy of the project, which is imported in place of
it, by the children of a test too; there its test has to fail. Before that, all pass without any change.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import copy2, copytree, ignore_patterns
from typing import NamedTuple

from support.tiers import is_slow, is_thorough

ROOT = Path(__file__).parents[1]
_LINKED = (".venv", ".brokers")
_NOT_COPIED = ignore_patterns(".*", "build", "dist", "site", "*.egg-info")
_COMMANDS = {"make check": "not (slow or thorough)", "make test": "not thorough", "make test-all": ""}
"""Command -> which rows of a test it runs."""
_PASSED, _FAILED = 0, 1
"""How pytest ends; all else, such as a file that cannot be imported, proves nothing."""
_SECONDS = 300
"""A test that a change keeps from ending has noticed it."""
_AT_ONCE = 2


class Mutation(NamedTuple):
    """A change of the product that breaks a promise."""

    breaks: str
    test: str
    file: str
    old: str
    new: str

    @property
    def command(self) -> str:
        """The first command that runs its test."""
        thorough, slow = is_thorough(self.test, 0), is_slow(self.test)
        return "make test-all" if thorough else "make test" if slow else "make check"


def read_table() -> list[Mutation]:
    """All of them, by room."""
    blocks = (Path(__file__).with_suffix(".txt")).read_text().strip().split("\n\n")
    return [_mutation(block.splitlines()) for block in blocks]


def _mutation(lines: Sequence[str]) -> Mutation:
    breaks, test, file, *change = lines
    old, new = ("\n".join(line[1:] for line in change if line[0] == sign) for sign in "-+")
    return Mutation(breaks, test, file, old, new)


@contextmanager
def _copied(project: Path) -> Iterator[Path]:
    """A copy of it, compiled files too, which libraries and brokers are linked into."""
    with tempfile.TemporaryDirectory(prefix="dlq-mutations-") as folder:
        copy = Path(folder) / "dlq"
        copytree(project, copy, symlinks=True, ignore=_NOT_COPIED)
        for name in _LINKED:
            (copy / name).symlink_to(ROOT / name)
        yield copy


def _run(copy: Path, tests: Sequence[str], rows: str) -> int:
    """Run tests in a copy, whose folders are found as `dlq` before those that are installed."""
    words = ["-m", "pytest", "-qx", "-p", "no:cacheprovider", f"--timeout={_SECONDS}", "-m", rows, *tests]
    environment = os.environ | {"PYTHONPATH": str(copy / "typings"), "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run([sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True)
    if done.returncode not in (_PASSED, _FAILED) or (done.returncode and len(tests) > 1):
        sys.stderr.write((done.stdout + done.stderr)[-2_000:])
    return done.returncode


def _is_caught(copy: Path, mutation: Mutation) -> bool:
    path = copy / mutation.file
    path.write_text(path.read_text().replace(mutation.old, mutation.new))
    try:
        return _run(copy, [mutation.test], _COMMANDS[mutation.command]) == _FAILED
    finally:
        copy2(ROOT / mutation.file, path)


def _tell_caught(project: Path, mutations: Sequence[Mutation]) -> list[bool]:
    """Try some in a copy of their own, one after the other."""
    caught = []
    with _copied(project) as copy:
        for each in mutations:
            caught.append(_is_caught(copy, each))
            by = each.test if caught[-1] else "NOTHING: it survives"
            print(f"{each.breaks} | {by} | {each.command}", flush=True)
    return caught


def main(rooms: Sequence[str]) -> int:
    """Try those of some rooms, or of all; how many survive decides how it ends."""
    table = [each for each in read_table() if not rooms or each.file.split("/")[0] in rooms]
    with _copied(ROOT) as copy, ThreadPoolExecutor(_AT_ONCE) as workers:
        for command, rows in _COMMANDS.items():
            tests = sorted({each.test for each in table if each.command == command})
            if tests and _run(copy, tests, rows) != _PASSED:
                print(f"not all tests of {command} that are named pass without any change: nothing is proven")
                return 2
        print("mutation | caught by | command")
        shares = [table[start::_AT_ONCE] for start in range(_AT_ONCE)]
        caught = [*workers.map(partial(_tell_caught, copy), shares)]
    survive = sum(one.count(False) for one in caught)
    print(f"{len(table) - survive} of {len(table)} are caught")
    return int(survive > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
