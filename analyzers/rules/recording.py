"""A letter that remembers what was read of it: to show people what a rule saw, and to spare letters rules."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from dlq.analyzers.rules.letter import Letter

Read = str | tuple[str, str]
"""A column; of headers and properties the column and one of its names."""


class RecordingLetter:
    """Behaves like the letter."""

    def __init__(self, letter: Letter, answers: dict[Any, tuple[set[Read], Any]] | None = None) -> None:
        self._letter = letter
        self._answers = {} if answers is None else answers
        """What was asked once_per_letter -> the columns that were read for it, and the answer."""
        self.saw: dict[str, object] = {}
        """What was asked for by name, in words, and the values that were there (None: nothing)."""
        self.read: set[Read] = set()
        """Of what a value was read; of headers and properties names alone are no value."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._letter, name)
        if isinstance(value, Mapping):
            return _WatchedMap(value, name, self)
        self.saw[name] = value
        self.read.add(name)
        return value

    def once(self, ask: Callable[[Letter], Any]) -> Any:
        """Return the answer of a function that is `once_per_letter`, and note it, and what it has read."""
        if ask not in self._answers:
            inner = RecordingLetter(self._letter, self._answers)
            self._answers[ask] = (inner.read, ask(as_letter(inner)))
        read, value = self._answers[ask]
        self.saw[ask.__name__.strip("_").replace("_", " ")] = value
        self.read |= read
        return value


def as_letter(watched: RecordingLetter) -> Letter:
    """Return what a rule is given."""
    return cast(Letter, watched)


class _WatchedMap(Mapping[str, str]):
    """Headers or properties; all that `Mapping` gives of their values comes by `__getitem__`."""

    def __init__(self, values: Mapping[str, str], column: str, of: RecordingLetter) -> None:
        self._values, self._column, self._of = values, column, of

    def __getitem__(self, name: str) -> str:
        value = self._values[name]
        self._of.read.add((self._column, name))
        return value

    def get(self, name: str, default: Any = None) -> Any:
        one = "header" if self._column == "headers" else "property"
        self._of.saw[f"{one} {name}"] = value = super().get(name, default)
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
