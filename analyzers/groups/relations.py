"""All that is looked for between letters: one line for each relation."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from dlq.analyzers.groups import bursts, client_log, duplicates, stores, transactions
from dlq.analyzers.groups.conclusions import Found
from dlq.analyzers.groups.contract import Context, Relation, Said
from dlq.analyzers.groups.judged import Judged, Key, Sharing, number_of

ROUNDS: Sequence[Sequence[Relation]] = (
    (duplicates.DUPLICATES, transactions.ENDED, stores.FACTS, client_log.LINES),
    (transactions.TRANSACTIONS, bursts.BURSTS),
)
"""Relations of the second round are told what the first one came to."""
OF_KIND: Mapping[str | int, Relation] = {
    kind: relation for relations in ROUNDS for relation in relations for kind in relation.kinds
}
"""Of a key's kind."""


def concerns_all(context: Context) -> bool:
    """Whether something is looked for that any letter may be of."""
    return bool(context.asked) or context.has_logs


_KEYS: tuple[Callable[[Sharing], Iterator[Key]], ...] = (
    duplicates.keys,
    transactions.keys,
    bursts.keys,
)


def keys_of(letter: Sharing) -> list[int]:
    """All that a letter may share with others, as the column `keys` has it. What is concluded of a letter
    follows from the letters that share a key with it, and from no others."""
    return [number_of(key) for relation in _KEYS for key in relation(letter)]


def find(letter: Judged, said: Said, context: Context) -> Found:
    """What was found of a letter, by what all rounds have said."""
    burst_id, standing = bursts.standing_of(letter, said)
    return Found(
        duplicates.conclude(letter, said, context),
        transactions.find(letter, said),
        stores.find(letter, said, context) if context.asked else None,
        standing,
        burst_id,
    )
