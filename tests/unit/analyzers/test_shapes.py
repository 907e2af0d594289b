"""Letters of one shape are spared rules that cannot speak, and are classified as if they had been asked all."""

from collections.abc import Iterator
from random import Random

import pytest
from corpus.report import entries, record
from support.analyzers import mixed

from dlq.analyzers.rules import Facts, classify_letter, classify_letters, judge, rules_for_letters, shapes
from dlq.analyzers.rules.letter import Letter, body_of
from dlq.archive.schema import to_records, to_table
from dlq.core.record import Record

LETTERS = [*map(record, entries()), *mixed.LETTERS]
VALUES = [value for letter in LETTERS for value in (*letter.headers.values(), *letter.properties.values())]


def test_every_letter_gets_the_verdict_of_all_rules_whichever_of_its_shape_came_first() -> None:
    random = Random(0)
    letters = [other for letter in LETTERS for other in (letter, changed(letter, random))]
    random.shuffle(letters)
    rules_for = rules_for_letters(Facts())
    for letter in letters:
        of_all = judge(letter, Facts())
        assert classify_letter(Letter._make(letter), Facts(), rules_for)[0] == of_all, letter


def changed(letter: Record, random: Random) -> Record:
    """Another letter of the same shape."""
    headers, properties = (
        {name: random.choice([value, "", random.choice(VALUES)]) for name, value in values.items()}
        for values in (letter.headers, letter.properties)
    )
    other = random.choice(LETTERS)
    return letter._replace(headers=headers, properties=properties, deaths=other.deaths, body=other.body)


def test_most_rules_are_spared() -> None:
    rules_for = rules_for_letters(Facts())
    letter = Letter._make(mixed.LETTERS[0])
    assert len(rules_for(letter)) < 25


def test_names_without_end_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MOST_SHAPES", 10)
    rules_for = rules_for_letters(Facts())
    letter = Letter._make(mixed.LETTERS[0])
    few = len(rules_for(letter))
    for number in range(shapes.MOST_SHAPES + 1):
        last = rules_for(letter._replace(headers={f"x-{number}": ""}))
    assert len(last) > few
    assert len(rules_for(letter)) == few


def test_many_letters_are_classified_as_each_alone_whichever_was_first_and_alike_ones_at_once() -> None:
    random = Random(0)
    kept = to_records(to_table(LETTERS))
    letters = [other for letter in kept for other in (letter, *spread(letter, random))]
    random.shuffle(letters)
    classify_each = classify_letters(Facts())
    for letter in letters:
        assert classify_each(Letter._make(letter))[0] == judge(letter, Facts()), letter


def spread(letter: Record, random: Random) -> Iterator[Record]:
    """Letters of the same shape that differ in one value each, some of them twice."""
    for _ in range(4):
        column = random.choice(["headers", "properties"])
        values = dict(getattr(letter, column))
        if values:
            values[random.choice([*values])] = random.choice(VALUES)
        for _ in range(2):
            yield letter._replace(message_id=f"ID:h-1-2-3:1:1:1:{random.randrange(9)}", **{column: values})


def test_letters_that_died_alike_are_asked_a_few_times_in_all() -> None:
    asked = []
    answer = shapes.remember(lambda letter: asked.append(letter) or letter.headers["x-error"])  # type: ignore[func-returns-value]
    for number in range(1000):
        headers = {"trace": str(number), "x-error": f"e{number % 3}"}
        letter = Letter._make(mixed.LETTERS[0]._replace(headers=headers, record_id=str(number)))
        assert answer(letter) == f"e{number % 3}"
    assert len(asked) == 4


def test_an_answer_is_of_its_broker_its_queue_and_its_source_alone() -> None:
    told = [Record._fields.index(name) for name in ("broker_kind", "dead_letter_queue", "source", "exchange")]
    answer = shapes.remember(lambda letter: tuple(getattr(letter, Record._fields[one]) for one in told))
    for number in range(300):
        letter = list(mixed.LETTERS[0])
        letter[told[number % 4]] = f"other {number % 7}"
        assert answer(Letter._make(letter)) == tuple(letter[one] for one in told)


def test_an_answer_for_which_a_body_was_read_is_nobody_elses() -> None:
    answer = shapes.remember(body_of)
    for number in range(10):
        body = str(number % 3).encode()
        assert answer(Letter._make(mixed.LETTERS[0]._replace(body=body))) == body


def test_what_is_remembered_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MOST_ANSWERS", 5)
    asked = []
    answer = shapes.remember(lambda letter: asked.append(1) or letter.key)  # type: ignore[func-returns-value]
    keys = [*"aabbccddeeffgg", "x" * shapes.LONGEST_KEY, "x" * shapes.LONGEST_KEY, "g", "a"]
    for key in keys:
        assert answer(Letter._make(mixed.LETTERS[0]._replace(key=key))) == key
    # Once for the shape, once for each of seven, twice for the long one, and for the one that is forgotten.
    assert len(asked) == 1 + 7 + 2 + 1
