"""All that was found between letters changes their verdicts, and the advice follows."""

from collections.abc import Sequence
from typing import NamedTuple

from dlq.analyzers.groups.advice import Known, advise
from dlq.analyzers.groups.classified import Classified
from dlq.analyzers.groups.contract import Context, Said
from dlq.analyzers.groups.relations import find
from dlq.core.causes import proof_of
from dlq.core.settings import Rule


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


def conclude(
    letter: Classified, said: Said, context: Context, rules: Sequence[Rule], max_laps: int
) -> Change | None:
    """Return what a letter's verdict becomes by what all rounds have said; None: nothing was found of it, and
    no rule of the user's speaks."""
    found = find(letter, said, context)
    if found is letter and letter.user_rule is None:
        return None
    also_possible = tuple(found.also_possible or ())
    advice, reason = advise(
        Known(
            found.cause,
            max_laps,
            mechanism=found.mechanism,
            also_possible=also_possible,
            exception_family=found.exception_family,
            laps=found.laps,
            user_rule=found.user_rule,
            beside_the_letter=found.beside_the_letter,
            transaction_state=found.transaction_state,
            store_state=found.store_state,
            duplicate=found.duplicate,
            message_id=found.message_id,
            keys=found.rocket.keys if found.rocket else None,
            burst_reason=found.burst_reason,
            rule=found.rule,
        ),
        rules,
    )
    return Change(
        found.cause,
        found.mechanism,
        found.rule,
        found.evidence,
        proof_of(found.cause, also_possible),
        also_possible,
        found.transaction_state,
        found.duplicate.duplicate_group,
        found.duplicate.duplicate_kind,
        found.incident_id,
        advice,
        reason,
    )


def with_rule(letter: Classified, rule: Rule) -> Classified:
    """Return a letter of which a rule of the user's speaks; what it says of the cause comes first."""
    if rule.cause is None:
        return letter._replace(user_rule=rule.name)
    return letter._replace(user_rule=rule.name, rule=rule.name, cause=rule.cause, also_possible=())
