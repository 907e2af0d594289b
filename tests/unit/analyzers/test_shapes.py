"""Letters of one shape are spared rules that cannot speak, and are judged as if they had been asked all."""

from random import Random

from corpus.report import entries, record
from support.analyzers import mixed

from dlq.analyzers.rules import Facts, judge, judge_letter, rules_for_letters, shapes
from dlq.analyzers.rules.letter import Letter
from dlq.core.record import Record

LETTERS = [*map(record, entries()), *mixed.LETTERS]
VALUES = [value for letter in LETTERS for value in (*letter.headers.values(), *letter.properties.values())]


def test_every_letter_gets_the_verdict_of_all_rules_whichever_of_its_shape_came_first() -> None:
    for seed in range(4):
        random = Random(seed)
        letters = [other for letter in LETTERS for other in (letter, changed(letter, random))]
        random.shuffle(letters)
        rules_for = rules_for_letters(Facts())
        for letter in letters:
            of_all = judge(letter, Facts())
            assert judge_letter(Letter._make(letter), Facts(), rules_for)[0] == of_all, letter


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


def test_what_names_alone_answer_is_asked_once_for_all_letters_of_a_shape() -> None:
    rules_for = rules_for_letters(Facts())
    first, other = (Letter._make(mixed.LETTERS[0]._replace(message_id=name)) for name in ("m1", "m2"))
    for letter in (first, other):
        rules_for(letter)
    answered = {ask.__name__ for ask in vars(other) if callable(ask)}
    assert {"find_coordinator", "_laps"} <= answered
    assert answered.isdisjoint({"history", "death_text"})


def test_names_without_end_are_not_remembered() -> None:
    rules_for = rules_for_letters(Facts())
    letter = Letter._make(mixed.LETTERS[0])
    few = len(rules_for(letter))
    for number in range(shapes.MOST_SHAPES + 1):
        last = rules_for(letter._replace(headers={f"x-{number}": ""}))
    assert len(last) > few
    assert len(rules_for(letter)) == few
