"""What stores outside say of the letters: their consumers' dedup records, their producers' coordinators.

KINDS says how each kind of store is asked about a letter, and what its answer means.
Sources: DedupConsumeStrategy, RedisPersist and JDBCPersit of Jaskey/RocketMQDedupListener;
DistributedTransAspect, MessageAdapterHandler and RedisCoordinator of 7le/shine-mq 2.2.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from dlq.analyzers.groups.classified import Classified, Key
from dlq.analyzers.groups.contract import Context, Member, Reduced, Relation, Said
from dlq.analyzers.groups.values import highest, in_order, join_known, second
from dlq.core.headers.rocketmq_topics import DEAD_LETTERS
from dlq.core.settings import Evidence
from dlq.core.store_facts import Fact
from dlq.core.values.units import human_seconds, seconds

_STATES = ("no_record", "unasked", "too_old", "abandoned", "consuming", "consumed_before", "consumed")
"""`store_state`: where several stores know a letter, the last of these holds."""


class Letter(NamedTuple):
    """What the stores' questions need of a letter."""

    broker_kind: str
    dead_letter_queue: str
    cause: str | None = None
    message_id: str | None = None
    key: str | None = None
    origin: str | None = None
    died_at: int | None = None
    """Or when it was captured."""
    tag: str | None = None
    coordinator: str | None = None
    work: str | None = None


class Asked(NamedTuple):
    """One asking of one store."""

    name: str
    application: str | None
    asked_at: int
    kept_for: str
    """How long the store keeps a record, for people."""
    window_start: int
    """What died before may have had a record that has expired."""


class Record(NamedTuple):
    """A consumer's dedup record."""

    done: bool
    until: int | None
    """None: forever."""


class Found(NamedTuple):
    """What the facts under a letter's keys come to."""

    record: Record | None = None
    seen: frozenset[str] = frozenset()
    """Which of the coordinator's states."""
    failures: int | None = None


class _Case(NamedTuple):
    """A letter, what a store has of it, and when it was asked."""

    letter: Letter
    found: Found
    asked: Asked


class _Kind(NamedTuple):
    """How one kind of store is asked, and what its answer means."""

    knows: Callable[[Letter], bool]
    """Which letters it may know."""
    keys: Callable[[Letter, Asked], list[str]]
    """The keys under which it may know a letter."""
    state: Callable[[_Case], str | None]
    """Its answer as `store_state`."""
    transaction: Callable[[_Case], str | None]
    """Its answer as a transaction's state."""
    words: Callable[[_Case], str]
    """Its answer for people."""


class Answer(NamedTuple):
    """What is said of a letter: by a store, or by all of them."""

    store_state: str | None
    told_transaction: str | None
    told: str
    """For people."""


def _letter_of(one: Classified) -> Letter:
    """Return a letter as the stores are asked about it."""
    return Letter(
        one.broker_kind,
        one.dead_letter_queue,
        one.cause,
        one.message_id,
        one.key,
        one.origin,
        one.captured_at if one.dead_at is None else one.dead_at,
        one.rocket.tag if one.rocket else None,
        one.coordinator,
        one.work,
    )


def _key_of(asked: Asked, key: str) -> Key:
    return "fact", asked.name, asked.asked_at, key


def members(asked: Asked, facts: Iterable[Fact]) -> Iterator[Member]:
    """Return what a store says under keys."""
    return (Member(_key_of(asked, fact.key), (), fact) for fact in facts)


def _members(letters: Iterable[Classified], context: Context, _said: Said) -> Iterator[Member]:
    for one in letters:
        for asked, keys in _questions(one, context):
            yield from (Member(_key_of(asked, key), (), None) for key in keys or ())


def _questions(one: Classified, context: Context) -> Iterator[tuple[Asked, list[str] | None]]:
    """Yield each asking of a store that may know a letter, and by which keys; None: it did not answer."""
    if not context.asked:
        return
    letter = _letter_of(one)
    for asked, has_answered in context.asked:
        settings = context.evidence[asked.name]
        if is_asked(settings, one.source, letter):
            yield asked, KINDS[settings.kind].keys(letter, asked) if has_answered else None


def _reduce(_key: Key, told: Iterator[Fact | None], _context: Context) -> Iterator[Reduced]:
    yield Reduced([fact for fact in told if fact is not None] or None)


def conclude(one: Classified, said: Said, context: Context) -> Classified:
    """Return what the stores say of a letter that any of them may know."""
    answers = []
    for asked, keys in _questions(one, context):
        facts = None if keys is None else [fact for key in keys for fact in said.get(_key_of(asked, key), ())]
        answers.append(answer(context.evidence[asked.name].kind, _letter_of(one), asked, facts))
    if not answers:
        return one
    all_say = together(answers)
    return one._replace(
        evidence=with_told(one.evidence, all_say.told),
        transaction_state=one.transaction_state or all_say.told_transaction,
        store_state=all_say.store_state,
    )


def describe_store(settings: Evidence, taken_at: int) -> Asked:
    """Return a store of the configuration, asked at a time."""
    kept = seconds(settings.window)
    return Asked(
        settings.name, settings.application, taken_at, human_seconds(kept), taken_at - int(kept * 1e6)
    )


def is_asked(settings: Evidence, source: str, letter: Letter) -> bool:
    """Return whether this store may know this letter of this source."""
    is_mine = any(fnmatchcase(source, pattern) for pattern in settings.sources)
    return is_mine and letter.cause is not None and KINDS[settings.kind].knows(letter)


def fold(facts: Iterable[Fact]) -> Found:
    """Return the facts under a letter's keys, in any order."""
    record: Record | None = None
    seen: set[str] = set()
    failures: int | None = None
    for fact in facts:
        if fact.state in _RECORDS:
            one = Record(fact.state == "CONSUMED", fact.until)
            record = (
                one
                if record is None
                else max(record, one, key=lambda found: (found.done, in_order(found.until)))
            )
        elif fact.state in _COORDINATED:
            seen.add(fact.state)
        elif fact.state == "retries":
            failures = highest(failures, fact.number)
    return Found(record, frozenset(seen), failures)


def answer(kind: str, letter: Letter, asked: Asked, facts: Iterable[Fact] | None) -> Answer:
    """Return what a store says of a letter it may know. None instead of facts: it did not answer."""
    if facts is None:
        return Answer("unasked", None, f"{asked.name}: did not answer")
    case, means = _Case(letter, fold(facts), asked), KINDS[kind]
    return Answer(means.state(case), means.transaction(case), f"{asked.name}: {means.words(case)}")


def together(answers: Sequence[Answer]) -> Answer:
    """Return what all the stores say of one letter."""
    return Answer(
        strongest(one.store_state for one in answers),
        max((one.told_transaction for one in answers if one.told_transaction), default=None),
        "; ".join(sorted(one.told for one in answers)),
    )


def strongest(states: Iterable[str | None]) -> str | None:
    """Return the last in STATES of several stores' states."""
    return max((state for state in states if state is not None), key=_STATES.index, default=None)


def with_told(evidence: str | None, told: str) -> str | None:
    """Return a letter's evidence with what the stores told; neither crowds the other out."""
    return join_known((evidence and evidence[:300], told[:198]), "; ")


# A record with an unknown state counts as none: the listener consumes then.
_RECORDS = ("CONSUMED", "CONSUMING")


def _knows_consumed(letter: Letter) -> bool:
    is_dead = letter.dead_letter_queue.startswith(DEAD_LETTERS)
    return letter.broker_kind == "rocketmq" and is_dead and letter.origin is not None


def _keys_of_consumed(letter: Letter, asked: Asked) -> list[str]:
    group = letter.dead_letter_queue[5:] if asked.application is None else asked.application
    ids = dict.fromkeys(key for key in (letter.message_id, letter.key) if key)
    return [join_known((group, letter.origin, letter.tag or None, key), ":") for key in ids]


def _state_of_consumed(case: _Case) -> str:
    record = case.found.record
    if record is None:
        died_at = case.letter.died_at
        return "too_old" if died_at is not None and died_at < case.asked.window_start else "no_record"
    lasts = record.until is None or record.until > case.asked.asked_at
    if record.done:
        return "consumed" if lasts else "consumed_before"
    return "consuming" if lasts else "abandoned"


def _words_of_consumed(case: _Case) -> str:
    until = case.found.record.until if case.found.record else None
    at = None if until is None else second(until)
    expires = "" if at is None else f", its record expires at {at}"
    return {
        "consumed": f"consumed{expires}",
        "consumed_before": f"consumed; expired record, of {at}",
        "consuming": f"consuming{expires}",
        "abandoned": f"consuming; expired record, of {at}",
        "too_old": f"no record; one expires after {case.asked.kept_for}, and it died before that",
        "no_record": "no record",
    }[_state_of_consumed(case)]


_COORDINATED: Mapping[str, str] = {
    "rolled_back": "rolled back: its producer was told to undo the work",
    "ready": "ready: its producer has no confirm and sends it again",
    "prepared": "prepared: its producer has not said how the work ended",
}
"""The coordinator's states, and what they mean; where it has several, the first holds."""
_NAMED_ANEW = re.compile("_[0-9]{13}$")


def _knows_coordinated(letter: Letter) -> bool:
    return letter.broker_kind in ("rabbitmq", "memory") and bool(letter.message_id)


def _keys_of_coordinated(letter: Letter, _: Asked) -> list[str]:
    kinds = {"message": letter.message_id, "work": letter.work}
    return [f"{kind}:{name}" for kind, name in kinds.items() if name is not None]


def _is_checked_back(letter: Letter) -> bool:
    """compensatePrepare leaves the coordinator's name out of the ids that it makes."""
    if letter.message_id is None or letter.coordinator is None:
        return False
    is_anew = _NAMED_ANEW.search(letter.message_id) is not None
    return is_anew and not letter.message_id.startswith(f"{letter.coordinator}_")


def _transaction_of_coordinated(case: _Case) -> str | None:
    compensated = "compensated" if _is_checked_back(case.letter) else None
    return next((state for state in _COORDINATED if state in case.found.seen), compensated)


def _words_of_coordinated(case: _Case) -> str:
    state, failures = _transaction_of_coordinated(case), case.found.failures
    said = (
        None if state is None else _COORDINATED.get(state),
        "compensated: sent after a check-back" if _is_checked_back(case.letter) else None,
        "no record: its producer has nothing open" if state is None else None,
        None if failures is None else f"{failures} failed deliveries counted",
    )
    return join_known(said, ", ")


KINDS: Mapping[str, _Kind] = {
    "rocketmq-dedup": _Kind(
        _knows_consumed, _keys_of_consumed, _state_of_consumed, lambda _: None, _words_of_consumed
    ),
    "shine-mq": _Kind(
        _knows_coordinated,
        _keys_of_coordinated,
        lambda _: None,
        _transaction_of_coordinated,
        _words_of_coordinated,
    ),
}
"""By `kind` of the configuration."""


FACTS = Relation(("fact",), _members, _reduce, conclude, may_be_any=lambda context: bool(context.asked))
