"""Dead letters that other people have shown get the verdicts that they prove."""

from collections import Counter

from corpus.report import FIELDS, entries, graded, report, right

from dlq.core.brokers import plugins
from dlq.core.causes import CAUSES

LETTERS = tuple(entries())
GRADED = tuple(map(graded, LETTERS))


def test_the_corpus_is_large_and_holds_traps() -> None:
    brokers = Counter(entry.broker for entry in LETTERS)
    assert len(LETTERS) >= 350
    assert set(brokers) == {name for name, kind in plugins().items() if kind.line}
    assert min(brokers.values()) >= 35
    assert sum(entry.is_trap for entry in LETTERS) * 5 >= len(LETTERS)


def test_each_entry_says_where_it_is_from_and_what_it_proves() -> None:
    assert not [entry.name for entry in LETTERS if not entry.source.startswith(("https://", "made on "))]
    assert not [entry.name for entry in LETTERS if not entry.why or "\n" in entry.why]
    assert not [entry.name for entry in LETTERS if entry.expected["cause"] not in CAUSES]
    assert not [entry.name for entry in LETTERS if set(entry.expected) - {*FIELDS, "absent"}]
    assert not [name for name, count in Counter(entry.name for entry in LETTERS).items() if count > 1]


def test_the_causes_are_right() -> None:
    misses = [line for line in report(GRADED) if " expected, " in line]
    correct, of = right(GRADED, "cause")
    assert correct >= 0.99 * of, misses


def test_no_answer_is_wrong_but_those_that_are_known() -> None:
    """The tables of examples leave to the corpus what it shows; a new miss is named here or mended."""
    known: dict[str, set[str]] = {}
    assert {each.entry.name: {*each.misses} for each in GRADED if each.misses} == known


def test_no_letter_gets_a_cause_that_nothing_proves() -> None:
    assert not [each.entry.name for each in GRADED if each.is_forced]


def test_attempts_origins_and_exceptions_are_right() -> None:
    figures = [right(GRADED, field) for field in FIELDS if field != "cause"]
    assert sum(correct for correct, _ in figures) >= 0.97 * sum(of for _, of in figures)
