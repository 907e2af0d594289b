"""All that was found between letters changes their verdicts, and the advice follows."""

from collections.abc import Sequence
from typing import NamedTuple

from dlq.analyzers.groups import bursts, stores, transactions
from dlq.analyzers.groups.advice import Known, advise
from dlq.analyzers.groups.duplicates import Duplicate
from dlq.analyzers.groups.judged import Judged
from dlq.analyzers.rules import LONGEST_EVIDENCE
from dlq.core.causes import proof_of
from dlq.core.settings import Rule


class Found(NamedTuple):
    """What was found of one letter; None: nothing of the kind."""

    duplicate: Duplicate | None = None
    concluded: transactions.Conclusion | None = None
    told: stores.Answer | None = None
    standing: bursts.Standing | None = None
    burst_id: str | None = None


NOTHING = Found()


class Change(NamedTuple):
    """What of a verdict is not as the letter by itself said."""

    cause: str | None
    mechanism: str | None
    rule: str | None
    evidence: str | None
    proof: str | None
    also_possible: Sequence[str]
    transaction_state: str | None
    duplicate_group: str | None
    duplicate_kind: str | None
    incident_id: str | None
    advice: str
    advice_reason: str


def conclude(letter: Judged, found: Found, rules: Sequence[Rule], max_laps: int) -> Change:
    """The verdict of a letter of which something was found, or a user's rule speaks. A cause that the user
    names stays."""
    letter = _of_transaction(letter, found.concluded)
    told, also_possible = found.told, tuple(letter.also_possible or ())
    state = letter.transaction_state or (told.told_transaction if told else None)
    advice, reason = advise(
        Known(
            letter.cause,
            max_laps,
            mechanism=letter.mechanism,
            also_possible=also_possible,
            exception_family=letter.exception_family,
            laps=letter.laps,
            user_rule=letter.user_rule,
            beside_the_letter=found.concluded is not None and found.concluded.beside_the_letter,
            transaction_state=state,
            store_state=told.store_state if told else None,
            duplicate=found.duplicate,
            message_id=letter.message_id,
            keys=letter.rocket.keys if letter.rocket else None,
            burst_reason=None if found.standing is None else bursts.reason(found.standing),
        ),
        rules,
    )
    return Change(
        letter.cause,
        letter.mechanism,
        letter.rule,
        stores.with_told(letter.evidence, told.told if told else None),
        proof_of(letter.cause, also_possible),
        also_possible,
        state,
        found.duplicate.duplicate_group if found.duplicate else None,
        found.duplicate.duplicate_kind if found.duplicate else None,
        found.burst_id,
        advice,
        reason,
    )


def with_rule(letter: Judged, rule: Rule) -> Judged:
    """A letter of which a rule of the user's speaks; what it says of the cause comes first."""
    if rule.cause is None:
        return letter._replace(user_rule=rule.name)
    return letter._replace(user_rule=rule.name, rule=rule.name, cause=rule.cause, also_possible=())


def _of_transaction(letter: Judged, made: transactions.Conclusion | None) -> Judged:
    if made is None:
        return letter
    evidence = letter.evidence if made.evidence is None else made.evidence
    return letter._replace(
        cause=letter.cause if letter.user_rule is not None else made.cause,
        mechanism=letter.mechanism if made.mechanism is None else made.mechanism,
        evidence=None if evidence is None else evidence[:LONGEST_EVIDENCE],
        also_possible=(),
        transaction_state=made.transaction_state,
    )
