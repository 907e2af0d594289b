"""Which rules need not be asked of a letter, because they had nothing to say of one with the same headers in
the same queue; and which questions need not.

Most rules look for headers that their framework leaves, or for its name of a queue. A rule is a function of
the letter and of what pulls learned; one that looked at nothing but names that are not there says the same of
each letter without them. So what each rule looks at is seen once for each shape, and the other letters of the
shape are spared those that cannot speak: two thirds and more, of RabbitMQ's. So it is with what is asked
`once_per_letter`: an answer that no value was read for is that of each letter of the shape.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from dlq.analyzers.rules.letter import Facts, Letter, Rule
from dlq.analyzers.rules.watched import Watched, as_letter

MOST_SHAPES = 4096
"""Of so many it is remembered; who makes up names all the time is asked everything."""

_Question = Callable[[Letter], Any]
_Shape = tuple[str, str, str | None, tuple[str, ...], tuple[str, ...]]
_OF_SHAPE = {"broker_kind", "dead_letter_queue", "exchange"}
"""Columns that have few values; with the names of headers and of properties they are a letter's shape."""


def spare(
    rules_of: Callable[[str], Sequence[Rule]], facts: Facts, questions: Sequence[_Question]
) -> Callable[[Letter], Sequence[Rule]]:
    """Tells which rules to ask of a letter, as long as these are the facts, and gives the letter those
    answers that its shape has. `rules_of`: a kind of broker -> all of its rules; `questions`: what is asked
    of letters beside them."""
    known: dict[_Shape, tuple[Sequence[Rule], Mapping[Any, Any]]] = {}

    def rules_for(letter: Letter) -> Sequence[Rule]:
        shape = _shape(letter)
        found = known.get(shape)
        if found is None:
            rules = rules_of(letter.broker_kind)
            if len(known) >= MOST_SHAPES:
                return rules
            found = known[shape] = _look_at(rules, questions, letter, facts)
        spared, answers = found
        letter.__dict__.update(answers)
        return spared

    return rules_for


def _look_at(
    rules: Sequence[Rule], questions: Sequence[_Question], letter: Letter, facts: Facts
) -> tuple[Sequence[Rule], Mapping[Any, Any]]:
    """The rules that may speak of letters of a shape, and the answers that all of these have in common."""
    answers: dict[Any, Any] = {}
    spared = [rule for rule in rules if _may_speak(rule, letter, facts, answers)]
    for ask in questions:
        with suppress(Exception):  # it is asked of the letter itself then, and told of
            ask(as_letter(Watched(letter, answers)))
    return spared, {ask: answer for ask, (read, answer) in answers.items() if read <= _OF_SHAPE}


def _shape(letter: Letter) -> _Shape:
    place = (letter.broker_kind, letter.dead_letter_queue, letter.exchange)
    return (*place, tuple(letter.headers), tuple(letter.properties))


def _may_speak(rule: Rule, letter: Letter, facts: Facts, answers: dict[Any, Any]) -> bool:
    watched = Watched(letter, answers)
    try:
        return rule.find(as_letter(watched), facts) is not None or not watched.read <= _OF_SHAPE
    except Exception:  # noqa: BLE001 - it is asked of the letter itself then, and told of
        return True
