"""Dead letters of other people, classified: `make corpus` prints how often the rules are right, and every
miss.

The letters are in the TOML files beside this program, one file a kind of broker (see README.md there).
"""

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dlq.analyzers.rules import Facts, Verdict, judge
from dlq.connectors.jsonl.format import parse_line, record_of
from dlq.core.record import Record

FOLDER = Path(__file__).parent
SOURCE = "corpus"
FIELDS = {"cause": "cause", "attempts": "attempts", "origin": "origin", "exception": "exception_class"}
"""What an entry may expect -> the verdict's field."""
_OURS = ("name", "source", "why", "trap", "expected", "facts")


class Entry(NamedTuple):
    """A letter, where it was found, and what it proves."""

    broker: str
    name: str
    source: str
    why: str
    is_trap: bool
    expected: Mapping[str, Any]
    """Of FIELDS; `absent` lists those that the letter does not tell."""
    facts: Facts
    line: Mapping[str, Any]
    """The letter as a line for `dlq import`."""


class Graded(NamedTuple):
    """An entry and what the rules made of it."""

    entry: Entry
    verdict: Verdict

    @property
    def answers(self) -> dict[str, tuple[Any, Any]]:
        """Field -> what was expected and what was found."""
        expected = {field: self.entry.expected[field] for field in FIELDS if field in self.entry.expected}
        expected |= dict.fromkeys(self.entry.expected.get("absent", ()))
        return {field: (value, getattr(self.verdict, FIELDS[field])) for field, value in expected.items()}

    @property
    def misses(self) -> dict[str, tuple[Any, Any]]:
        """The answers that are wrong."""
        return {field: pair for field, pair in self.answers.items() if pair[0] != pair[1]}

    @property
    def is_forced(self) -> bool:
        """A cause where none is proven."""
        return self.entry.expected["cause"] == "unknown" != self.verdict.cause


def entries() -> Iterator[Entry]:
    """All entries, file by file."""
    for path in sorted(FOLDER.glob("*.toml")):
        for given in tomllib.loads(path.read_text())["letter"]:
            yield _entry(path.stem, given)


def _entry(broker: str, given: Mapping[str, Any]) -> Entry:
    line = {name: value for name, value in given.items() if name not in _OURS}
    return Entry(
        broker,
        given["name"],
        given["source"],
        given["why"],
        given.get("trap", False),
        given["expected"],
        Facts(**{name: {SOURCE: told} for name, told in given.get("facts", {}).items()}),
        {"broker_kind": broker, **line},
    )


def record(entry: Entry) -> Record:
    """The letter as `dlq import` makes it of its line."""
    document = parse_line(json.dumps(entry.line))
    return record_of(document, SOURCE, "corpus", "1", lambda message_id, _h, _p, _b: message_id)


def graded(entry: Entry) -> Graded:
    """The verdict that `dlq import` of the letter's line would show."""
    return Graded(entry, judge(record(entry), entry.facts))


def right(all_graded: Iterable[Graded], field: str) -> tuple[int, int]:
    """How many answers to a field are right, of how many."""
    pairs = [each.answers[field] for each in all_graded if field in each.answers]
    return sum(expected == found for expected, found in pairs), len(pairs)


def _share(part: int, of: int) -> str:
    return f"{part:4} of {of:4}  {100 * part / of:6.1f} %" if of else "   -"


def _matrix(all_graded: Sequence[Graded]) -> Iterator[str]:
    """Rows: what is expected; columns, by number: what was found."""
    counts = Counter((each.entry.expected["cause"], each.verdict.cause) for each in all_graded)
    causes = sorted({cause for pair in counts for cause in pair})
    yield f"{'expected, found':24}" + "".join(f"{number:>5}" for number in range(1, len(causes) + 1))
    for number, cause in enumerate(causes, 1):
        cells = "".join(f"{counts[cause, found] or '.':>5}" for found in causes)
        yield f"{number:2} {cause:21}{cells}"


def report(all_graded: Sequence[Graded]) -> Iterator[str]:
    """The report, line by line."""
    yield from _matrix(all_graded)
    yield ""
    for field in FIELDS:
        yield f"{field:24}{_share(*right(all_graded, field))}"
    yield f"{'forced labels':24}{sum(each.is_forced for each in all_graded):4}"
    yield ""
    for broker in sorted({each.entry.broker for each in all_graded}):
        yield f"{broker:24}{_share(*right([g for g in all_graded if g.entry.broker == broker], 'cause'))}"
    yield f"{'traps':24}{_share(*right([g for g in all_graded if g.entry.is_trap], 'cause'))}"
    for each in all_graded:
        for field, (expected, found) in each.misses.items():
            yield ""
            yield f"{each.entry.broker}: {each.entry.name}"
            yield f"  {field}: {expected!r} expected, {found!r} found by {each.verdict.rule}"
            yield f"  {each.entry.why}; {each.entry.source}"


if __name__ == "__main__":
    print(*report([graded(entry) for entry in entries()]), sep="\n", file=sys.stdout)
