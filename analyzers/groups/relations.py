"""By what letters belong together: one line for each thing that is looked for between letters.

What is concluded of a letter follows from the letters that share a key with it, and from no others.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256

from dlq.analyzers.groups import bursts, duplicates, transactions
from dlq.analyzers.groups.judged import Key, Sharing

_RELATIONS: tuple[Callable[[Sharing], Iterator[Key]], ...] = (
    duplicates.keys,
    transactions.keys,
    bursts.keys,
)


def keys_of(letter: Sharing) -> list[str]:
    """All that a letter may share with others, as the column `keys` has it."""
    return [text_of(key) for relation in _RELATIONS for key in relation(letter)]


def text_of(key: Key) -> str:
    """A key's kind, a blank, and a name that no other key has, though letters are made to look alike."""
    return f"{key[0]} {sha256(repr(key).encode()).hexdigest()[:16]}"
