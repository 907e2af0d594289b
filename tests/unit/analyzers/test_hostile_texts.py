"""No pattern of the rules runs away: each reads 64 KiB of what hurts it most within a second.

What hurts is made from the pattern itself: what leads to each of its repetitions, then what is repeated
there, again and again, and then something that fits nothing.
"""

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from dlq.analyzers import rules
from dlq.core.headers.frameworks import FRAMEWORKS

LENGTH = 65_536
LONGEST_SECONDS = 1.0
UNITS = (
    "a", "a.", "A", "7", "-", ".", " ", "\n", "\r\n", "\t", "\u2028", "é", "😀", "\x00", '"', "'", "(", "[", "{", "<",
    "a@", "7-", "7,", " at ", "\n\tat x(", "\n\tat a/", "\n    at async a.b (", '\n  File "/a/', "Caused by: ", "x: ",
    " ---> ", "(Inner Exception #7", "A-1-2-3:", "ID:a-1-2-3:1:1:1:1", "http", "http://", "status 5", "argument",
    "exception", "deadbeef", "a b", "a:", "a=", "a,", "%41", "Error",
)  # fmt: skip

_parser, _compiler = (importlib.import_module(f"re._{name}") for name in ("parser", "compiler"))
_SAMPLES = ["a", *"7 \n\t.:-/(\"'é_A\x00[<@,;]«»„“", *map(chr, range(33, 127))]
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


def patterns_in(value: object, seen: set[int]) -> Iterator[re.Pattern[str]]:
    """Patterns in a module's variable, also inside of tables."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, Mapping):
        for item in (*value.keys(), *value.values()):
            yield from patterns_in(item, seen)
    elif isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from patterns_in(item, seen)


def all_patterns() -> dict[str, re.Pattern[str]]:
    found: dict[str, re.Pattern[str]] = {}
    for module in pkgutil.iter_modules(rules.__path__):
        variables = vars(importlib.import_module(f"{rules.__name__}.{module.name}"))
        for name, value in variables.items():
            for number, pattern in enumerate(patterns_in(value, set())):
                if not name.startswith("__") and isinstance(pattern.pattern, str):
                    found[f"{module.name}.{name}.{number}"] = pattern
    of_rows = (pattern for row in FRAMEWORKS for pattern in patterns_in(vars(row), set()))
    return found | {f"frameworks {pattern.pattern}": pattern for pattern in of_rows}


def _char(item: tuple[Any, Any]) -> str:
    """A character of a class."""
    one = _compiler.compile(_parser.SubPattern(_parser.State(), [item]))
    return next((sample for sample in _SAMPLES if one.match(sample)), "a")


def _inside(kind: str, value: Any) -> list[Any]:
    """The sequences that a part is made of."""
    if kind in _REPEATS:
        return [value[2]]
    if kind in ("SUBPATTERN", "ASSERT", "ASSERT_NOT"):
        return [value[-1]]
    if kind == "ATOMIC_GROUP":
        return [value]
    return list(value[1]) if kind == "BRANCH" else []


def example(items: Any) -> str:
    """A text that these parts of a pattern fit, more or less."""
    text = ""
    for kind, value in items:
        if str(kind) == "LITERAL":
            text += chr(value)
        elif str(kind) in ("IN", "ANY", "NOT_LITERAL"):
            text += _char((kind, value))
        elif inside := _inside(str(kind), value) if not str(kind).startswith("ASSERT") else ():
            text += example(inside[0]) * (max(1, int(value[0])) if str(kind) in _REPEATS else 1)
    return text


def pumps(items: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """What leads to each repetition or alternative, and what is repeated there."""
    for number, (kind, value) in enumerate(items):
        lead = before + example(items[:number])
        for sequence in _inside(str(kind), value):
            if sequence_example := example(sequence):
                yield lead, sequence_example
            yield from pumps(sequence, lead)
    if whole := example(items):
        yield before, whole
        yield before, whole[:-1] or whole


def hostile_to(pattern: re.Pattern[str], length: int = LENGTH) -> set[str]:
    """Texts of this length, each a beginning and a unit again and again."""
    units = {(lead, unit) for lead, unit in pumps(_parser.parse(pattern.pattern, pattern.flags)) if unit}
    units |= {("", lead + unit) for lead, unit in units}
    units |= {("", unit) for unit in UNITS}
    return {(lead + unit * (length // len(unit)))[: length - 1] + "\x00" for lead, unit in units}


def slowest(pattern: re.Pattern[str], length: int = LENGTH) -> tuple[float, str]:
    """The longest time that a text took, or the first that is too long, and the beginning of that text."""
    worst = (0.0, "")
    for text in hostile_to(pattern, length):
        started = time.thread_time()
        pattern.search(text)
        pattern.match(text)
        worst = max(worst, (time.thread_time() - started, text[:40]))
        if worst[0] > LONGEST_SECONDS:
            break
    return worst


ALL = all_patterns()


def test_patterns_are_found_in_every_kind_of_variable() -> None:
    names = {name.rpartition(".")[0] for name in ALL}
    assert {"exceptions.FAMILIES", "exceptions._VARIABLE"} <= names


def test_a_pattern_that_runs_away_is_seen() -> None:
    share = 128  # of the length and of the time: even so it is too slow
    assert slowest(re.compile(r"\w+\w+@"), LENGTH // share)[0] > LONGEST_SECONDS / share


@pytest.mark.parametrize("name", ALL)
def test_no_pattern_runs_away(name: str) -> None:
    seconds, text = slowest(ALL[name])
    assert seconds < LONGEST_SECONDS, text
