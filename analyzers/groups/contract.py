"""How a thing that is looked for between letters is told, so that any engine can carry it out.

Letters are *members* of groups: each says something under the keys by which they belong together. What all
members of a key say is put in order and taken *together*. What that comes to is said to every letter that
asks for the key, and each relation concludes from it what it means for the letter.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from dlq.analyzers.groups.judged import Judged, Key
from dlq.core.settings import Evidence

if TYPE_CHECKING:
    from dlq.analyzers.groups.stores import Asked
    from dlq.analyzers.groups.transactions import Node


class Context(NamedTuple):
    """What is known beside the letters."""

    shared: Set[int]
    """The numbers of keys that several letters have, among them all of the letters that are looked at."""
    nodes: "Mapping[str, Mapping[str, Node]]"
    """Source -> node -> what pulls learned of it."""
    evidence: Mapping[str, Evidence]
    """The stores outside, by name."""
    asked: "Sequence[tuple[Asked, bool]]"
    """Each asking of a store, and whether it answered."""
    has_logs: bool
    """Whether there are clients' logs."""


class Member(NamedTuple):
    """What a letter, or something outside, says under a key."""

    key: Key
    order: tuple[Any, ...]
    """Members of a key come in this order."""
    said: Any


class Come(NamedTuple):
    """What the members of a key come to."""

    said: Any
    """To each of its letters; None: nothing."""
    rows: Iterable[tuple[str, Mapping[str, Any]]] = ()
    """Tables of the archive, and what they have of it."""


Said = Mapping[Key, Any]
"""What was said under keys so far."""


class Relation(NamedTuple):
    """A thing that is looked for between letters."""

    kinds: Sequence[str]
    """Of its keys."""
    column: str | None
    """Its letters have a value here. None: they share a key of `relations.keys_of`, or are any."""
    members: Callable[[Iterable[Judged], Context, Said], Iterator[Member]]
    """What letters say under keys: those of one share of them at once, so that what adds up need not be told
    letter by letter."""
    together: Callable[[Key, Iterator[Any], Context], Come]
    """What members say, in order: a stream, of which no more is kept than needed."""
