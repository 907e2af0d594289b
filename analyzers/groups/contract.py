"""How a thing that is looked for between letters is told, so that any engine can carry it out.

Letters are *members* of groups: each says something under the keys by which they belong together. What all
members of a key say is put in order and taken *together*. What that comes to is said to every letter that
asks for the key, and each relation concludes from it what it means for the letter.

There are two stages. Relations look at letters by themselves, but only at those of which anything may be
found. Then all is known that a letter died of, and a census counts every letter, by whole columns.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from dlq.analyzers.groups.classified import Classified, Key, Sharing
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
    span: int
    """What the letters cover, in slots of `incidents`."""
    looked_at: int
    """When the last pull began, in microseconds since the epoch."""


class Member(NamedTuple):
    """What a letter, or something outside, says under a key."""

    key: Key
    order: tuple[Any, ...]
    """Members of a key come in this order."""
    said: Any


class Reduced(NamedTuple):
    """What the members of a key come to, or some of them."""

    said: Any
    """To the letters that ask; None: nothing."""
    rows: Iterable[tuple[str, Mapping[str, Any]]] = ()
    """Tables of the archive, and what they have of it."""
    key: Key | None = None
    """Under which it is said; None: the members'."""


Said = Mapping[Key, Any]
"""What was said under keys so far."""
Together = Callable[[Key, Iterator[Any], Context], Iterator[Reduced]]
"""What members say, in order: a stream, of which no more is kept than needed."""


def say_nothing(letter: Classified, _said: Said, _context: Context) -> Classified:
    """Return what concerns other relations alone."""
    return letter


class OwnRows(NamedTuple):
    """Rows that a relation alone writes."""

    table: str
    """Of the archive."""
    of: Sequence[str]
    """Columns that the table and letters have: a row is of the letters with the same values."""


class Relation(NamedTuple):
    """A thing that is looked for between letters."""

    kinds: Sequence[str]
    """Of its keys."""
    members: Callable[[Iterable[Classified], Context, Said], Iterator[Member]]
    """What letters say under keys: those of one share of them at once, so that what adds up need not be told
    letter by letter."""
    together: Together
    conclude: Callable[[Classified, Said, Context], Classified] = say_nothing
    """What was found of a letter, in what is known of it; the letter itself: nothing."""
    column: str | None = None
    """Its letters have a value here. None: they share a key, or are any."""
    rows: OwnRows | None = None
    """They follow from letters that share a key."""
    keys: Callable[[Sharing], Iterator[Key]] | None = None
    """What a letter may share with others. What is concluded of it follows from the letters that share a key
    with it, and from no others."""
    may_be_any: Callable[[Context], bool] = lambda _: False
    """Whether a letter may be of it that shares no key."""


class Alike(NamedTuple):
    """Letters that have the same values, and died in the same slot of time. Times are microseconds since the
    epoch; who does not say when it died counts where it was published."""

    values: tuple[Any, ...]
    """Of the columns that a census asks for, and whether those have a value that it wants to know of."""
    slot: int
    """Counted from the epoch."""
    letters: int
    first_at: int
    first_record_id: str
    last_at: int


class Census(NamedTuple):
    """A thing that is looked for among all letters, which are counted as far as they are alike."""

    kinds: Sequence[str]
    """Of its keys."""
    common: Sequence[str]
    """Columns of which letters that are alike have the same value."""
    known: Sequence[str]
    """Columns in which all of them have a value, or none has."""
    slot: int
    """Seconds."""
    members: Callable[[Iterable[Alike]], Iterator[Member]]
    together: Together
    column: str
    """Of the verdict; what a relation said there stays."""
    conclude: Callable[[Alike, Said], str | None]
    """What that column says of letters that are alike."""
