"""All that is looked for between letters: one line for each."""

from collections.abc import Mapping, Sequence
from itertools import chain

from dlq.analyzers.groups import bursts, client_log, duplicates, incidents, stores, transactions
from dlq.analyzers.groups.classified import Classified, Sharing, number_of
from dlq.analyzers.groups.contract import Census, Context, Relation, Said, Together, say_nothing

ROUNDS: Sequence[Sequence[Relation]] = (
    (duplicates.DUPLICATES, transactions.ENDED, stores.FACTS, client_log.LINES),
    (transactions.TRANSACTIONS, bursts.BURSTS),
)
"""Relations of the second round are told what the first one came to."""
CENSUSES: Sequence[Census] = (incidents.INCIDENTS,)
"""They are taken when all relations have concluded."""
EVERY: Sequence[Relation] = (*chain.from_iterable(ROUNDS),)
TOGETHER: Mapping[str | int, Together] = {
    **{kind: one.together for one in EVERY for kind in one.kinds},
    **{kind: one.together for one in CENSUSES for kind in one.kinds},
}
"""Of a key's kind."""
_KEYS = tuple((relation.column, relation.keys) for relation in EVERY if relation.keys is not None)
_CONCLUDE = tuple(relation.conclude for relation in EVERY if relation.conclude is not say_nothing)


def keys_of(letter: Sharing) -> list[int]:
    """Return all that a letter may share with others, as the column `keys` has it."""
    asked = [keys for column, keys in _KEYS if column is None or getattr(letter, column) is not None]
    return [number_of(key) for keys in asked for key in keys(letter)]


def find(letter: Classified, said: Said, context: Context) -> Classified:
    """Return a letter with all that was found of it, by what all rounds have said."""
    for conclude in _CONCLUDE:
        letter = conclude(letter, said, context)
    return letter
