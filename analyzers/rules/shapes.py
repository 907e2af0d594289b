"""Which rules need not be asked of a letter, because they had nothing to say of one with the same headers in
the same queue; and which questions need not.

Most rules look for headers that their framework leaves, or for its name of a queue. A rule is a function of
the letter and of what pulls learned; one that looked at nothing but names that are not there says the same of
each letter without them. So what each rule looks at is seen once for each shape, and the other letters of the
shape are spared those that cannot speak: two thirds and more, of RabbitMQ's. So it is with what is asked
`once_per_letter`: an answer that no value was read for is that of each letter of the shape.

And most letters die alike. Who asks a letter by `remember` gets the answer that another one of its shape got,
where the two agree in every value that was read of that other.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from dlq.analyzers.rules.letter import Facts, Letter, Rule
from dlq.analyzers.rules.recording import Read, RecordingLetter, as_letter
from dlq.core.record import COLUMNS

MOST_SHAPES = 4096
"""Of so many it is remembered; who makes up names all the time is asked everything."""

MOST_ANSWERS = 8192
"""Of so many letters it is remembered what they were told, and then forgotten."""
LONGEST_KEY = 8192
"""Characters of the values that an answer is remembered by."""
_MOST_WAYS = 8
"""So many sets of values are compared; letters of a shape that are read in more ways are asked themselves."""
_CREDIT, _PRICE = 128, 8
"""To watch what is read costs as much as several letters do, which others of the shape must have spared."""
_KNOWN = frozenset(COLUMNS) - {"body"}
"""Columns by whose values an answer is remembered."""

_T = TypeVar("_T")
_Question = Callable[[Letter], Any]
_Reader = Callable[[Letter], tuple[Any, ...]]
_Shape = tuple[str, str, str | None, tuple[str, ...], tuple[str, ...]]
_OF_SHAPE = {"broker_kind", "dead_letter_queue", "exchange"}
"""Columns that have few values; with the names of headers and of properties they are a letter's shape."""


def spare(
    rules_of: Callable[[str], Sequence[Rule]], facts: Facts, questions: Sequence[_Question]
) -> Callable[[Letter], Sequence[Rule]]:
    """Tell which rules to ask of a letter, as long as these are the facts, and give the letter those
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
    """Return the rules that may speak of letters of a shape, and the answers that all of these have in
    common."""
    answers: dict[Any, Any] = {}
    spared = [rule for rule in rules if _may_speak(rule, letter, facts, answers)]
    for ask in questions:
        with suppress(Exception):  # it is asked of the letter itself then, and told of
            ask(as_letter(RecordingLetter(letter, answers)))
    return spared, {ask: answer for ask, (read, answer) in answers.items() if read <= _OF_SHAPE}


def _shape(letter: Letter) -> _Shape:
    place = (letter.broker_kind, letter.dead_letter_queue, letter.exchange)
    return (*place, tuple(letter.headers), tuple(letter.properties))


def _may_speak(rule: Rule, letter: Letter, facts: Facts, answers: dict[Any, Any]) -> bool:
    watched = RecordingLetter(letter, answers)
    try:
        return rule.find(as_letter(watched), facts) is not None or not watched.read <= _OF_SHAPE
    except Exception:  # noqa: BLE001 - it is asked of the letter itself then, and told of
        return True


def remember(ask: Callable[[Letter], _T]) -> Callable[[Letter], _T]:
    """Return `ask`, as long as it says the same of letters with the same values; it must not say None."""
    return _Memory(ask).answer


class _Way(NamedTuple):
    """What was read of a letter, but for what its shape tells."""

    columns: tuple[str, ...]
    headers: tuple[str, ...]
    properties: tuple[str, ...]

    def reader(self) -> "_Reader":
        """Return a function that reads the same of another letter of the shape."""
        columns = _picker([COLUMNS.index(name) for name in self.columns])
        headers, properties = _picker(self.headers), _picker(self.properties)
        return lambda letter: (columns(letter), headers(letter.headers), properties(letter.properties))


def _picker(places: Sequence[Any]) -> Callable[[Any], Any]:
    return itemgetter(*places) if places else lambda _: None


def _way(read: Set[Read]) -> _Way:
    columns = {one for one in read if isinstance(one, str)} - _OF_SHAPE
    within: dict[str, list[str]] = {"headers": [], "properties": []}
    for column, name in sorted(one for one in read if not isinstance(one, str)):
        within[column].append(name)
    return _Way(tuple(sorted(columns)), *map(tuple, within.values()))


class _Told(Generic[_T]):
    """What letters of a shape were told."""

    def __init__(self) -> None:
        self.credit = _CREDIT
        self.answers: dict[_Way, tuple[_Reader, dict[tuple[Any, ...], _T]]] = {}

    def find(self, letter: Letter) -> _T | None:
        """Return what one was told that agrees with this."""
        for read, answers in self.answers.values():
            found = answers.get(read(letter))
            if found is not None:
                return found
        return None


class _Memory(Generic[_T]):
    """What letters were told, by their shape and by what was read of them."""

    def __init__(self, ask: Callable[[Letter], _T]) -> None:
        self._ask = ask
        self._told: dict[_Shape, _Told[_T]] = {}
        self._kept = 0

    def answer(self, letter: Letter) -> _T:
        """Return the answer that another letter got, or ask now."""
        shape = _shape(letter)
        told = self._told.get(shape)
        if told is None and len(self._told) < MOST_SHAPES:
            # Who asks may learn of the shape himself, and reads more of the first letter than of the others.
            self._told[shape] = _Told()
        if told is None or told.credit <= 0:
            return self._ask(letter)
        found = told.find(letter)
        if found is None:
            told.credit -= _PRICE
            return self._watch(letter, told)
        told.credit = min(told.credit + 1, _CREDIT)
        return found

    def _watch(self, letter: Letter, told: _Told[_T]) -> _T:
        watched = RecordingLetter(letter)
        found = self._ask(as_letter(watched))
        way = _way(watched.read)
        is_few = way in told.answers or len(told.answers) < _MOST_WAYS
        if is_few and _KNOWN.issuperset(way.columns):
            read = way.reader()
            values = read(letter)
            if len(repr(values)) <= LONGEST_KEY:
                self._make_room()
                told.answers.setdefault(way, (read, {}))[1][values] = found
        return found

    def _make_room(self) -> None:
        self._kept += 1
        if self._kept > MOST_ANSWERS:
            self._kept = 1
            for told in self._told.values():
                told.answers.clear()
