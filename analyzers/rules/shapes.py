"""Which rules need not be asked of a letter, because they had nothing to say of one with the same headers in
the same queue.

Most rules look for headers that their framework leaves, or for its name of a queue. A rule is a function of
the letter and of what pulls learned; one that looked at nothing but names that are not there says the same of
each letter without them. So what each rule looks at is seen once for each shape, and the other letters of the
shape are spared those that cannot speak: two thirds and more, of RabbitMQ's.
"""

from collections.abc import Callable, Sequence

from dlq.analyzers.rules.letter import Facts, Letter, Rule
from dlq.analyzers.rules.watched import Watched, as_letter

MOST_SHAPES = 4096
"""Of so many it is remembered; who makes up names all the time is asked everything."""

_Shape = tuple[str, str, str | None, tuple[str, ...], tuple[str, ...]]
_OF_SHAPE = {"broker_kind", "dead_letter_queue", "exchange"}
"""Columns that have few values; with the names of headers and of properties they are a letter's shape."""


def spare(rules_of: Callable[[str], Sequence[Rule]], facts: Facts) -> Callable[[Letter], Sequence[Rule]]:
    """The function that tells which rules to ask of a letter, as long as these are the facts. `rules_of`: a
    kind of broker -> all of its rules."""
    known: dict[_Shape, Sequence[Rule]] = {}

    def rules_for(letter: Letter) -> Sequence[Rule]:
        shape = _shape(letter)
        found = known.get(shape)
        if found is None:
            found = rules_of(letter.broker_kind)
            if len(known) < MOST_SHAPES:
                found = known[shape] = [rule for rule in found if _may_speak(rule, letter, facts)]
        return found

    return rules_for


def _shape(letter: Letter) -> _Shape:
    place = (letter.broker_kind, letter.dead_letter_queue, letter.exchange)
    return (*place, tuple(letter.headers), tuple(letter.properties))


def _may_speak(rule: Rule, letter: Letter, facts: Facts) -> bool:
    watched = Watched(letter)
    try:
        return rule.find(as_letter(watched), facts) is not None or not watched.read <= _OF_SHAPE
    except Exception:  # noqa: BLE001 - it is asked of the letter itself then, and told of
        return True
