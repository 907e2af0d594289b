"""What each of the three commands runs, and that each promise is kept by a test that `make test` runs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.rows import each_row
from support.tiers import EVERY, QUICK, SLOW, THOROUGH, has_promises, is_slow, is_thorough

ROOT = Path(__file__).parents[2]
_CONTRACTS = "tests/support/"


def rows_of_the_table() -> Iterator[tuple[str, str, list[str]]]:
    """Promise, first command that runs a test of it, its tests; one without a file is in the last named."""
    file = ""
    for line in (ROOT / "tests" / "README.md").read_text().splitlines():
        promise, _, rest = line.strip("| ").partition(" | ")
        command, _, tests = rest.partition(" | ")
        if "`tests/" not in tests:
            continue
        named = []
        for found in re.finditer(r"`(?:(tests/[\w/]+\.py)(?:::)?)?(test_\w+)?`", tests):
            file = found[1] or file
            named.append(f"{file}::{found[2]}" if found[2] else file)
        yield promise, command.strip("`"), named


TABLE = [*rows_of_the_table()]


def first_command(name: str) -> int:
    """0 for a test, or a file, of which `make check` runs a row, 1 for `make test`, 2 for `make test-all`."""
    if name.startswith(_CONTRACTS):
        return 1
    return 2 if is_thorough(name, 0) else 1 if is_slow(name) else 0


def is_there(name: str) -> bool:
    """Whether a file, or a test in it that may be named by its beginning, is there."""
    file, _, test = name.partition("[")[0].partition("::")
    path = ROOT / file
    return path.exists() and (not test or bool(re.search(rf"(?:def|class) {test}", path.read_text())))


@each_row("name", [*QUICK, *SLOW, *THOROUGH, *EVERY])
def test_what_is_on_a_list_is_there(name: str) -> None:
    assert is_there(name)


def test_the_table_names_tests_that_are_there() -> None:
    assert len(TABLE) > 100
    assert [name for _, _, tests in TABLE for name in tests if not is_there(name)] == []


def test_make_test_keeps_every_promise_and_the_table_says_which_command_runs_it_first() -> None:
    commands = ("make check", "make test", "make test-all")
    first = {promise: commands[min(map(first_command, tests))] for promise, _, tests in TABLE}
    assert first == {promise: command for promise, command, _ in TABLE}
    assert commands[2] not in first.values()


@pytest.mark.parametrize(("name", "row", "thorough"), [
    ("tests/unit/core/test_text.py::test_any", 7, False),
    ("tests/unit/test_costs.py::test_any[a row]", 0, False),
    ("tests/unit/test_costs.py::test_any[a row]", 1, True),
    ("tests/services/rabbitmq/test_lossless.py::test_any[4-quorum]", 3, False),
    ("tests/services/rabbitmq/test_lossless.py::test_any[3.10-quorum]", 3, True),
    ("tests/services/rabbitmq/test_quotas.py::test_any[4-quorum]", 0, True),
    ("tests/e2e/test_release.py::test_any", 0, True),
])  # fmt: skip
def test_make_test_runs_some_rows_on_the_newest_versions(name: str, row: int, thorough: bool) -> None:
    assert is_thorough(name, row) is thorough


def test_no_file_of_which_make_test_runs_something_is_left_out() -> None:
    tests = {name for _, _, tests in TABLE for name in tests if not is_thorough(name, 0)}
    assert [name for name in tests if not has_promises(name.partition("::")[0])] == []
    assert not has_promises("tests/services/rabbitmq/test_cluster.py")
