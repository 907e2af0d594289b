"""What to do with a letter, and why, in words for somebody at 3 a.m.: one table, the first line that holds.

Never `replay` without evidence that a replay can work: what nobody knows is looked at first.
"""

from typing import TYPE_CHECKING, NamedTuple

from dlq.analyzers.rule import literal
from dlq.core.settings import Rule as UserRule

if TYPE_CHECKING:
    from pyspark.sql import Column


class Advice(NamedTuple):
    """`when` is Spark SQL over the columns of stage 1, of `duplicates` and `evidence`, and `max_laps`."""

    when: str
    advice: str
    reason: str


_APPLICATION = "cause = 'application_error'"
_WITH_EXCEPTION = "cause IN ('application_error', 'redelivery_exhausted') AND exception_family"

ADVICE: tuple[Advice, ...] = (
    Advice(
        "laps >= max_laps", "never", "it was replayed and died again too often: another replay will not help"
    ),
    Advice(
        "beside_the_letter",
        "never",
        "the broker's own record of a transaction; the letter that stands for it has the verdict",
    ),
    Advice(
        "transaction_state = 'committed'", "never", "its transaction was committed: the message was delivered"
    ),
    Advice(
        "transaction_state = 'rolled_back'",
        "never",
        "its transaction was rolled back: the business decided so",
    ),
    Advice(
        "transaction_state = 'ended'",
        "check_first",
        "its transaction has ended and nothing shows how: look its key up in the business database",
    ),
    Advice(
        "transaction_state = 'ready'",
        "hold",
        "its producer's coordinator holds it as ready and sends it again by itself, under the same id",
    ),
    Advice(
        "transaction_state = 'prepared'",
        "check_first",
        "its producer's coordinator does not know yet whether the work was done: look there",
    ),
    Advice(
        "store_state IN ('consumed', 'consumed_before')",
        "never",
        "its consumer's dedup store says that it was consumed: a replay is swallowed while that record "
        "lasts, and does the work twice afterwards",
    ),
    Advice(
        "store_state = 'consuming'",
        "hold",
        "its consumer's dedup store says that it is being consumed, or that a consumer crashed half-way: "
        "look again when that record has expired",
    ),
    Advice(
        "store_state = 'abandoned'",
        "check_first",
        "its consumer's dedup store says that a consumer began and never ended: part of the work may be done",
    ),
    Advice("cause = 'transaction_pending'", "hold", "its transaction has no outcome yet"),
    Advice(
        "cause IN ('check_max_exceeded', 'check_skipped')",
        "check_first",
        "the transaction's outcome is unknown: look its key up in the business database",
    ),
    Advice(
        "cause = 'suppressed_duplicate'",
        "check_first",
        "the client took it for a duplicate; that does not prove that it was processed: look before sending",
    ),
    Advice(
        "cause = 'duplicate_from_store'",
        "check_first",
        "the broker met its id twice: the first copy may have been processed",
    ),
    Advice(
        "exact_copy",
        "never",
        "the same message again, byte for byte: the first of its group stands for it",
    ),
    Advice(
        "repeats_id",
        "check_first",
        "another letter has the same message id and a different body: find out which one is right",
    ),
    Advice(
        "duplicate_kind = 'same_key' AND NOT first_of_group",
        "check_first",
        "another letter has the same business key: sending both may do the work twice",
    ),
    Advice(
        "duplicate_kind = 'same_body' AND NOT first_of_group AND coalesce(message_id, '') = ''",
        "check_first",
        "an identical letter died at the same place and neither has an id: they may be one message twice",
    ),
    Advice(
        "duplicate_kind = 'business_resend' AND NOT first_of_group",
        "check_first",
        "the application sent the same work again under a new id: both may do it twice",
    ),
    Advice("cause = 'unknown'", "check_first", "nothing says why it is here"),
    Advice(
        "cause = 'expired'",
        "check_first",
        "nobody consumed it in time: it may be too late for it, or the consumer was away",
    ),
    Advice(
        "store_state = 'too_old'",
        "check_first",
        "it died longer ago than its consumer's dedup store remembers: whether it was consumed since, "
        "only the business data know",
    ),
    Advice(
        "store_state = 'unasked'",
        "check_first",
        "a store that may know whether it was processed did not answer: dlq analyze, once that is back",
    ),
    Advice(
        "cause = 'overflow'",
        "fix_first",
        "nothing is wrong with it, the queue was full: make room first, or others die for it",
    ),
    Advice(
        "cause = 'unroutable'",
        "fix_first",
        "no binding took it: mend the binding or the routing key, then replay to the exchange",
    ),
    Advice(
        "cause = 'unreadable'",
        "fix_first",
        "the broker could not read it: mend the message (replay plan --edit) before it goes back",
    ),
    Advice(
        f"{_WITH_EXCEPTION} IN ('timeout', 'connection', 'throttled')",
        "replay",
        "what it needed was away or slow: replay once that is back",
    ),
    Advice(
        f"{_WITH_EXCEPTION} = 'duplicate'",
        "check_first",
        "the consumer found its work done already: it may have been processed",
    ),
    Advice(
        f"{_WITH_EXCEPTION} = 'database'",
        "fix_first",
        "the consumer's database refused it: mend that, then replay",
    ),
    Advice(
        f"{_WITH_EXCEPTION} = 'auth'",
        "fix_first",
        "the consumer had no right to do it: mend rights or credentials, then replay",
    ),
    Advice(
        f"{_WITH_EXCEPTION} IN ('serialization', 'validation')",
        "fix_first",
        "the consumer cannot read or accept it as it is: mend the consumer or the message, then replay",
    ),
    Advice(
        f"{_WITH_EXCEPTION} = 'not_found'",
        "check_first",
        "what it refers to was not there: look whether it is by now",
    ),
    Advice(f"{_WITH_EXCEPTION} = 'bug'", "fix_first", "a fault in the consumer's code: mend it, then replay"),
    Advice(
        _APPLICATION,
        "fix_first",
        "the application parked it with an error of its own: understand that, then replay",
    ),
    Advice(
        "cause = 'redelivery_exhausted'",
        "fix_first",
        "every attempt failed or ended with a crash: find out why in the consumer's log, then replay",
    ),
    Advice(
        "mechanism = 'retry_loop'",
        "fix_first",
        "it was refused each time it came round: waiting does not help, mend the consumer, then replay",
    ),
    Advice(
        "cause = 'poison_ack'",
        "fix_first",
        "the consumer refused it and gave no reason: its log at that time has it",
    ),
    Advice("true", "check_first", "no advice fits its cause"),
)


def columns(user_rules: tuple[UserRule, ...], max_laps: int) -> "dict[str, Column]":
    """`advice` and `advice_reason`; the user's rules come first."""
    from pyspark.sql import functions as F

    mine = [
        Advice(
            f"user_rule = {literal(rule.name)}", rule.advice, rule.reason or f"your rule {rule.name} says so"
        )
        for rule in user_rules
        if rule.advice
    ]
    cases = [line._replace(when=line.when.replace("max_laps", str(max_laps))) for line in (*mine, *ADVICE)]
    number = F.expr(f"CASE {' '.join(f'WHEN {line.when} THEN {n}' for n, line in enumerate(cases))} END")
    return {
        "advice": F.array(*(F.lit(line.advice) for line in cases))[number],
        "advice_reason": F.array(*(F.lit(line.reason) for line in cases))[number],
    }
