"""What to do with a letter, and why, in words for somebody at 3 a.m.: one table, the first line that holds.

Never `replay` without evidence that a replay can work: what nobody knows is looked at first.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from dlq.analyzers.groups.classified import Duplicate
from dlq.analyzers.rules import Letter, Verdict
from dlq.core.causes import CAUSES, MOVED, SAME_KEY
from dlq.core.settings import Rule as UserRule
from dlq.core.text import quote_value


class Known(NamedTuple):
    """All that is known of a letter when it is advised."""

    cause: str | None
    max_laps: int
    mechanism: str | None = None
    also_possible: tuple[str, ...] = ()
    exception_family: str | None = None
    laps: int | None = None
    user_rule: str | None = None
    beside_the_letter: bool = False
    transaction_state: str | None = None
    store_state: str | None = None
    duplicate: Duplicate = Duplicate()
    message_id: str | None = None
    keys: str | None = None
    """RocketMQ's KEYS."""
    burst_reason: str | None = None
    """What its burst says of a suppressed duplicate (`bursts.reason`)."""
    rule: str | None = None
    """Which decided; it may know that the letter's body remembers its retries."""

    def gist(self) -> "Known":
        """Return what decides: without the words that are each letter's own, since most letters are alike."""
        duplicate = self.duplicate._replace(duplicate_group=None)
        message_id = self.message_id and "an id"
        return self._replace(
            message_id=message_id, keys=None, burst_reason=None, rule=None, duplicate=duplicate
        )

    @property
    def is_likely(self) -> bool:
        """Its trace does not prove its cause; one that the user's rule names is taken at its word."""
        return bool(self.also_possible) and self.user_rule is None

    @property
    def possible(self) -> tuple[str | None, ...]:
        """What it may have died of."""
        return (self.cause, *self.also_possible)

    @property
    def repeats(self) -> str | None:
        """Its kind of duplicate, unless it is the first of them."""
        return self.duplicate.duplicate_kind if self.duplicate.first_of_group is False else None

    @property
    def exception(self) -> str | None:
        """The family of the exception that it died of."""
        died_of_one = self.cause in ("application_error", "redelivery_exhausted")
        return self.exception_family if died_of_one else None


class Advice(NamedTuple):
    """A line of the table. `reason` may depend on what else is known."""

    when: Callable[[Known], bool]
    advice: str
    reason: str | Callable[[Known], str]


def advise(known: Known, user_rules: Sequence[UserRule] = ()) -> tuple[str, str]:
    """Return what to do with it, and why; the user's rules come first."""
    for rule in user_rules:
        if rule.advice and rule.name == known.user_rule:
            return rule.advice, rule.reason or f"your rule {rule.name} says so"
    line = _line(known.gist())
    return line.advice, _with_memory(line, known.rule, _reason(line, known))


@lru_cache(maxsize=4096)
def _line(gist: Known) -> Advice:
    return next(line for line in ADVICE if line.when(gist))


def advise_alone(letter: Letter, verdict: Verdict, max_laps: int) -> tuple[str, str]:
    """Advice and its reason, as far as the letter alone tells."""
    line, known = _gist_alone(verdict, letter.message_id and "an id", max_laps)
    if not isinstance(line.reason, str):
        known = known._replace(message_id=letter.message_id, keys=letter.properties.get("KEYS"))
    return line.advice, _with_memory(line, verdict.rule, _reason(line, known))


@lru_cache(maxsize=512)
def _gist_alone(verdict: Verdict, message_id: str | None, max_laps: int) -> tuple[Advice, Known]:
    """Letters that died alike share their verdict."""
    gist = Known(
        verdict.cause,
        max_laps,
        mechanism=verdict.mechanism,
        also_possible=verdict.also_possible,
        exception_family=verdict.exception_family,
        laps=verdict.laps,
        transaction_state=verdict.transaction_state,
        message_id=message_id,
    )
    return _line(gist), gist


def _reason(line: Advice, known: Known) -> str:
    return line.reason if isinstance(line.reason, str) else line.reason(known)


_COUNTED = "the memory of its retries lies in its body{}, which goes back as it is: one failure may be enough"
_WRAPPED = (
    "the memory of its retries lies in its body, an object that holds the message, its error and the count: "
    "its consumer may expect the message alone"
)
_MEMORIES: Mapping[str, str] = {
    "symfony-in-body": _COUNTED.format(" (Symfony's stamps, serialized by PHP)"),
    "celery-in-body": _COUNTED.format(" (Celery's first protocol)"),
    "dramatiq": _COUNTED.format(""),
    "dramatiq-reject": _COUNTED.format(""),
    "enveloped": _WRAPPED,
    "enveloped-unread": _WRAPPED,
    "async-retry": "the memory of its retries lies in its header asyncRetry, which a replay takes away",
}
"""Rule -> what remembers the retries; bodies are not changed."""


def _with_memory(line: Advice, rule: str | None, reason: str) -> str:
    """Whoever may send it is told what its body remembers."""
    memory = _MEMORIES.get(rule or "") if line.advice not in ("never", "hold") else None
    return f"{reason}; {memory}" if memory else reason


def _of_discarded(known: Known) -> str:
    """Return where to look a discarded transaction up, and what the two ways back mean; its key in quotes, by
    which masked views know that it is a value."""
    if known.user_rule is not None:
        return "the transaction's outcome is unknown: look its key up in the business database"
    key = known.keys or known.message_id
    return (
        "it was never delivered, as far as the broker knows: look "
        f"{quote_value(key) if key else 'its body'} up in the business database. If it was committed "
        "there, publish it (--to origin forces the commit); if its producer is up and can tell, resume the "
        "check (--to resume) and let it decide"
    )


def _of_suppressed(known: Known) -> str:
    if known.burst_reason is not None and known.user_rule is None:
        return known.burst_reason
    return (
        "the client took it for a duplicate; that does not prove that it was processed: look before sending"
    )


_POSSIBLE: Mapping[str, str] = {
    "application_error": "its application gave up",
    "expired": "its time ran out",
    MOVED: "someone or a divert put it here",
    "overflow": "its queue was full",
    "poison_ack": "a consumer refused it",
    "redelivery_exhausted": "its attempts were used up",
    "unroutable": "nothing took it where it was sent",
}


def _of_likely(known: Known) -> str:
    usual, *others = (_POSSIBLE.get(cause or "", CAUSES.get(cause or "", "")) for cause in known.possible)
    return (
        f"most likely {usual}, but as well {' or '.join(others)}: nothing on it shows which; find that out "
        "(its consumer's log, whoever moves letters there), then replay"
    )


def _has(**told: object) -> Callable[[Known], bool]:
    """Return whether a letter's field of each name has the value, or one of a tuple's."""
    wanted = {name: values if isinstance(values, tuple) else (values,) for name, values in told.items()}
    return lambda known: all(getattr(known, name) in values for name, values in wanted.items())


ADVICE: tuple[Advice, ...] = (
    Advice(lambda known: known.laps is not None and known.laps >= known.max_laps, "never",
        "it was replayed and died again too often: another replay will not help"),
    Advice(lambda known: known.beside_the_letter, "never",
        "the broker's own record of a transaction; the letter that stands for it has the verdict"),
    Advice(_has(transaction_state="committed"), "never",
        "its transaction was committed: the message was delivered"),
    Advice(_has(transaction_state="rolled_back"), "never",
        "its transaction was rolled back: the business decided so"),
    Advice(_has(transaction_state="ended"), "check_first",
        "its transaction has ended and nothing shows how: look its key up in the business database"),
    Advice(_has(transaction_state="ready"), "hold",
        "its producer's coordinator holds it as ready and sends it again by itself, under the same id"),
    Advice(_has(transaction_state="prepared"), "check_first",
        "its producer's coordinator does not know yet whether the work was done: look there"),
    Advice(_has(store_state=("consumed", "consumed_before")), "never",
        "its consumer's dedup store says that it was consumed: a replay is swallowed while that record "
        "lasts, and does the work twice afterwards"),
    Advice(_has(store_state="consuming"), "hold",
        "its consumer's dedup store says that it is being consumed, or that a consumer crashed half-way: "
        "look again when that record has expired"),
    Advice(_has(store_state="abandoned"), "check_first",
        "its consumer's dedup store says that a consumer began and never ended: part of the work may be "
        "done"),
    Advice(_has(cause="transaction_pending"), "hold", "its transaction has no outcome yet"),
    Advice(_has(cause=("check_max_exceeded", "check_skipped")), "check_first", _of_discarded),
    Advice(_has(cause="suppressed_duplicate"), "check_first", _of_suppressed),
    Advice(_has(cause="duplicate_from_store"), "check_first",
        "the broker met its id twice: the first copy may have been processed"),
    Advice(lambda known: known.duplicate.exact_copy is True, "never",
        "the same message again, byte for byte: the first of its group stands for it"),
    Advice(lambda known: known.duplicate.repeats_id, "check_first",
        "another letter has the same message id and a different body: find out which one is right"),
    Advice(_has(repeats="same_key"), "check_first", SAME_KEY),
    Advice(lambda known: known.repeats == "same_body" and not known.message_id, "check_first",
        "an identical letter died at the same place and neither has an id: they may be one message twice"),
    Advice(_has(repeats="business_resend"), "check_first",
        "the application sent the same work again under a new id: both may do it twice"),
    Advice(_has(cause="unknown"), "check_first", "nothing says why it is here"),
    Advice(lambda known: known.is_likely and "expired" in known.possible, "check_first", _of_likely),
    Advice(_has(cause="expired"), "check_first",
        "nobody consumed it in time: it may be too late for it, or the consumer was away"),
    Advice(_has(store_state="too_old"), "check_first",
        "it died longer ago than its consumer's dedup store remembers: whether it was consumed since, only "
        "the business data know"),
    Advice(_has(store_state="unasked"), "check_first",
        "a store that may know whether it was processed did not answer: dlq analyze, once that is back"),
    Advice(lambda known: known.is_likely, "fix_first", _of_likely),
    Advice(_has(cause="overflow"), "fix_first",
        "nothing is wrong with it, the queue was full: make room first, or others die for it"),
    Advice(_has(cause="unroutable", mechanism="framework"), "fix_first",
        "its queue has no consumer for its type: deploy one, or end the subscription, before it goes back"),
    Advice(_has(cause="unroutable", mechanism="none"), "fix_first",
        "nothing took it where it was sent: make its queue or subscription there, then replay"),
    Advice(_has(cause="unroutable"), "fix_first",
        "no binding took it: fix the binding or the routing key, then replay to the exchange"),
    Advice(_has(cause="unreadable", mechanism="deserialization"), "fix_first",
        "its consumer could not read it, another one may: fix the deserializer, or the schema it asks for, "
        "or else the message (replay plan --edit), then replay"),
    Advice(_has(cause="unreadable"), "fix_first",
        "the broker could not read it: fix the message (replay plan --edit) before it goes back"),
    Advice(_has(exception=("timeout", "connection", "throttled")), "replay",
        "what it needed was away or slow: replay once that is back"),
    Advice(_has(exception="duplicate"), "check_first",
        "the consumer found its work done already: it may have been processed"),
    Advice(_has(exception="database"), "fix_first",
        "the consumer's database refused it: fix that, then replay"),
    Advice(_has(exception="auth"), "fix_first",
        "the consumer had no right to do it: fix rights or credentials, then replay"),
    Advice(_has(exception=("serialization", "validation")), "fix_first",
        "the consumer cannot read or accept it as it is: fix the consumer or the message, then replay"),
    Advice(_has(exception="not_found"), "check_first",
        "what it refers to was not there: look whether it is by now"),
    Advice(_has(exception="bug"), "fix_first", "a fault in the consumer's code: fix it, then replay"),
    Advice(_has(cause="application_error"), "fix_first",
        "the application parked it with an error of its own: understand that, then replay"),
    Advice(_has(cause="redelivery_exhausted"), "fix_first",
        "every attempt failed or ended with a crash: find out why in the consumer's log, then replay"),
    Advice(_has(mechanism="retry_loop"), "fix_first",
        "it was refused each time it came round: waiting does not help, fix the consumer, then replay"),
    Advice(_has(cause="poison_ack", mechanism="framework"), "fix_first",
        "the consumer refused it for good: the letter itself, or the consumer's log, says why"),
    Advice(_has(cause="poison_ack"), "fix_first",
        "the consumer refused it and gave no reason: its log at that time has it"),
    Advice(lambda _: True, "check_first", "no advice fits its cause"),
)  # fmt: skip
