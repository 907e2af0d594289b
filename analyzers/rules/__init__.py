"""One letter: why did it die? Plain Python, without I/O: the same answer in a pull, in `dlq show`, in Spark.

`judge` asks the rules in order; the first that answers decides. A rule is a function `(letter, facts) ->
Finding | None`, whose docstring says when it speaks; a new one is a function in its broker's module and a
line in the `RULES` there. Which module is a broker's, its description says (`dlq.core.brokers`); those
that go by names which nobody else writes may be in a table of their own there, `FIRST`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

from dlq.analyzers.rules import custom_headers, exceptions, frameworks
from dlq.analyzers.rules.consumer_identity import name_owner
from dlq.analyzers.rules.letter import (
    LONGEST_EVIDENCE,
    Facts,
    Finding,
    Letter,
    Rule,
    first,
    if_fits,
    once_per_letter,
    producer_of,
    whole,
)
from dlq.analyzers.rules.origin_inference import find_by_name, find_way_back
from dlq.analyzers.rules.recording import RecordingLetter, as_letter
from dlq.analyzers.rules.shapes import remember, spare
from dlq.core.brokers import plugin_of, plugins
from dlq.core.causes import proof_of
from dlq.core.headers.failure_headers import first_published
from dlq.core.headers.provenance import REPLAY_LAP
from dlq.core.record import Record
from dlq.core.settings import Rule as UserRule

__all__ = [
    "BROKEN", "COLUMNS", "LONGEST_EVIDENCE", "Facts", "Letter", "RuleStep", "Verdict", "judge", "steps",
    "table",
]  # fmt: skip


class Verdict(NamedTuple):
    """What a letter says by itself. `attempts`: deliveries to the consumer, the first included."""

    cause: str
    mechanism: str
    rule: str
    evidence: str | None
    stale_evidence: bool
    proof: str | None
    also_possible: tuple[str, ...]
    attempts: int | None
    origin_kind: str | None
    origin: str | None
    origin_exchange: str | None
    origin_routing_key: str | None
    exception_class: str | None
    exception_message: str | None
    exception_family: str | None
    outer_exception: str | None
    """Of a chain what its outermost exception says, class and message."""
    fingerprint: str
    fingerprint_version: int
    producer_id: str | None
    producer_seq: int | None
    consumer_id: str | None
    connection_id: str | None
    transaction_state: str | None
    laps: int


_NOTHING = Finding(None)


def _unknown(_letter: Letter, _facts: Facts) -> Finding:
    """nothing above holds"""
    return _NOTHING


def _broken_rule(_letter: Letter, _facts: Facts) -> Finding:
    """a rule failed on it; the evidence names it"""
    return _NOTHING


OF_ANY_BROKER: tuple[Rule, ...] = (*frameworks.RULES, *custom_headers.RULES, *frameworks.REJECTS)
"""Rules for what frameworks and hands leave."""
_UNKNOWN = Rule(_unknown, "unknown", "none")
_BROKEN = Rule(_broken_rule, "unknown", "none")
BROKEN = _BROKEN.name
"""The `rule` of a letter that made a rule raise."""


def judge(record: Record, facts: Facts) -> Verdict:
    """Return the verdict on one letter. It never raises: a rule that does is named, and the letter is
    `unknown`."""
    return classify_letter(Letter._make(record), facts, lambda letter: _list_rules(letter.broker_kind))[0]


RulesFor = Callable[[Letter], Sequence[Rule]]


def rules_for_letters(facts: Facts) -> RulesFor:
    """Return which rules `classify_letter` asks of each of many letters."""
    return spare(_list_rules, facts, _QUESTIONS)


def classify_letters(facts: Facts) -> Callable[[Letter], tuple[Verdict, str | None]]:
    """Return what `classify_letter` says of many letters: those that died alike are classified once."""
    rules_for = rules_for_letters(facts)
    classify_alike = remember(lambda letter: _classify_named(letter, facts, rules_for))

    def classify_each(letter: Letter) -> tuple[Verdict, str | None]:
        named = frameworks.as_named(letter)
        return _with_producer(named, *classify_alike(named))

    return classify_each


def classify_letter(letter: Letter, facts: Facts, rules_for: RulesFor) -> tuple[Verdict, str | None]:
    """Return the verdict, and the text that the exception was read from, if any."""
    named = frameworks.as_named(letter)
    return _with_producer(named, *_classify_named(named, facts, rules_for))


def _with_producer(letter: Letter, verdict: Verdict, text: str | None) -> tuple[Verdict, str | None]:
    """Add the producer whose id is on the letter: that is no other letter's, however alike they died."""
    producer, number = _numbered_producer(letter)
    if producer is None:
        return verdict, text
    return verdict._replace(producer_id=producer, producer_seq=number), text


def _classify_named(letter: Letter, facts: Facts, rules_for: RulesFor) -> tuple[Verdict, str | None]:
    """Return all but the producer that the letter's own id tells."""
    rule, found = _first_finding(letter, facts, rules_for(letter))
    try:
        return _verdict(letter, rule, found, facts), found.error_text or found.error_message
    except Exception as error:  # noqa: BLE001 - a letter cannot end an analysis
        return _verdict(letter, _BROKEN, _rule_failure("for exceptions", error), facts), None


def _verdict(letter: Letter, rule: Rule, found: Finding, facts: Facts) -> Verdict:
    told = (
        exceptions.if_class(found.error_class),
        exceptions.if_told(found.error_message),
        exceptions.if_told(found.error_text),
    )
    failure = exceptions.explain(*told)
    published = _first_published(letter, found)
    if found.origin is None and rule.cause == "application_error":
        found = found._replace(origin=find_way_back(letter, *published, facts) or find_by_name(letter))
    where = found.origin if found.origin is not None else letter.dead_letter_queue
    has_exception = failure.exception_class is not None or failure.place is not None
    whom = where if has_exception else _of_whom(where, letter)
    others = rule.also_possible if found.also_possible is None else found.also_possible
    also = tuple([other for other in others if other != rule.cause])
    return Verdict(
        rule.cause,
        rule.mechanism,
        rule.name,
        None if found.evidence is None else found.evidence[:LONGEST_EVIDENCE],
        found.stale_evidence,
        proof_of(rule.cause, also),
        also,
        if_fits(found.attempts),
        found.origin_kind or (None if found.origin is None else "queue"),
        found.origin,
        *published,
        failure.exception_class,
        failure.exception_message,
        failure.firm_family,
        _outer(found, failure),
        exceptions.fingerprint(rule.cause, rule.mechanism, whom, failure),
        exceptions.FINGERPRINT_VERSION,
        _own_name(letter),
        None,
        found.consumer_id,
        found.connection_id,
        found.transaction_state,
        _laps(letter),
    )


def _outer(found: Finding, failure: exceptions.ReadException) -> str | None:
    """Return what its exception is wrapped in, if it is."""
    outer = failure.outer or exceptions.if_class(found.outer_error)
    if outer is None:
        return None
    itself = (failure.exception_class, f"{failure.exception_class}: {failure.exception_message}")
    return None if outer in itself else outer


def _of_whom(where: str, letter: Letter) -> str:
    """Return where it died, and whose failure it is, as far as the letter says without an exception."""
    whom = name_owner(letter)
    return where if whom is None else f"{where} {whom}"


def _numbered_producer(letter: Letter) -> tuple[str | None, int | None]:
    """Return the producer, and its number, by the letter's id, or the broker's."""
    found, number = producer_of(letter.message_id)
    return (found, number) if found is not None else producer_of(letter.headers.get("message-id"))


@once_per_letter
def _own_name(letter: Letter) -> str | None:
    """Return what the producer's client or application calls itself, where no id tells of it."""
    own = letter.headers.get("__HDR_PRODUCER_ID") or first(letter.properties, "app_id", "user_id")
    is_task = "task" in letter.headers and "id" in letter.headers
    return own or (letter.headers.get("origin") if is_task else None)


def _first_published(letter: Letter, found: Finding) -> tuple[str | None, str | None]:
    """Return how it was first published (exchange, key): a framework's note is older than any death."""
    told = (found.origin_exchange, found.origin_routing_key)
    return told if told != (None, None) else _published_by_headers(letter)


@once_per_letter
def _published_by_headers(letter: Letter) -> tuple[str | None, str | None]:
    return first_published(letter.headers)


@once_per_letter
def _laps(letter: Letter) -> int:
    """Return the laps that a replay left on the letter (a header or a property)."""
    value = letter.headers.get(REPLAY_LAP)
    return whole(value if value is not None else letter.properties.get(REPLAY_LAP)) or 0


_QUESTIONS = (_own_name, _published_by_headers, _laps, name_owner, frameworks.find_coordinator)
"""What is asked of every letter, beside its rules."""


@lru_cache(64)
def _list_rules(kind: str) -> tuple[Rule, ...]:
    """Return the rules for letters of a kind of broker, in order: frameworks say more than the broker
    does."""
    first, last = _rules_of(plugin_of(kind).rules)
    return (*first, *OF_ANY_BROKER, *last)


def _rules_of(module: str) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """Return what of a broker's module is asked before the frameworks of any broker, and after."""
    if not module:
        return (), ()
    found = import_module(module)
    return getattr(found, "FIRST", ()), found.RULES


def _first_finding(letter: Letter, facts: Facts, rules: Sequence[Rule]) -> tuple[Rule, Finding]:
    for rule in rules:
        try:
            found = rule.find(letter, facts)
        except Exception as error:  # noqa: BLE001 - a letter cannot end an analysis
            return _BROKEN, _rule_failure(rule.name, error)
        if found is not None:
            return rule, found
    return _UNKNOWN, _NOTHING


def _rule_failure(rule: str, error: Exception) -> Finding:
    return Finding(f"the rule {rule} failed on it: {type(error).__name__}: {error}")


class RuleStep(NamedTuple):
    """One rule's look at a letter."""

    rule: str
    when: str
    """When it speaks, for people."""
    saw: Mapping[str, object]
    """What it read of the letter, and the values that were there (None: nothing)."""
    spoke: bool


def steps(record: Record, facts: Facts) -> Iterator[RuleStep]:
    """Yield the rules that looked at a letter, in order, up to the one that decided."""
    letter = frameworks.as_named(Letter._make(record))
    for rule in _list_rules(letter.broker_kind):
        watched = RecordingLetter(letter)
        found = rule.find(as_letter(watched), facts)
        yield RuleStep(rule.name, rule.when, watched.saw, found is not None)
        if found is not None:
            return
    yield RuleStep(_UNKNOWN.name, _UNKNOWN.when, {}, True)


COLUMNS = ("rule", "broker", "cause", "mechanism", "proof", "also_possible", "when")
"""What `dlq rules` shows of a rule."""


def table(user_rules: Sequence[UserRule] = ()) -> Iterator[dict[str, str]]:
    """Yield the rules in order, for people, by the names COLUMNS. The user's own come first."""
    for mine in user_rules:
        row = (mine.name, "any", mine.cause or "", "", proof_of(mine.cause, ()) or "", "", mine.where)
        yield dict(zip(COLUMNS, row, strict=True))
    brokers: dict[str, list[str]] = {}
    for name, kind in plugins().items():
        brokers.setdefault(kind.rules, []).append(name)
    modules = [(", ".join(of), *_rules_of(module)) for module, of in brokers.items()]
    before = [(of, first) for of, first, _ in modules]
    after = [(of, last) for of, _, last in modules]
    for asked_of, rules in (*before, ("any", OF_ANY_BROKER), *after, ("any", (_UNKNOWN,))):
        for rule in rules:
            also = ", ".join(rule.also_possible)
            row = (rule.name, asked_of, rule.cause, rule.mechanism, rule.proof or "", also, rule.when)
            yield dict(zip(COLUMNS, row, strict=True))
