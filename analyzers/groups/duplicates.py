"""Duplicates: letters that are, or may be, the same message again.

Letters are compared within one broker, and by where they died: the same message dead at two
consumers' queues is each consumer's own letter (`several_groups`, a note), not a duplicate; the same
message in two dead-letter queues, dead at one queue, is. A letter without an id never groups by id.

RocketMQ's leave more. UNIQ_KEY is the producer's; ORIGIN_MESSAGE_ID says which stored message was sent back
(an offset id, or UNIQ_KEY itself when the client fell back to sending). Same key, same origin: delivered
twice. Same key, other origin: the producer's retry, each with a new time of birth, or a half message
committed twice, whose time of birth both real messages keep. Consumers leave no name, so a redelivery cannot
be told from a rebalance.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import NamedTuple, TypeVar

from dlq.analyzers.groups.classified import Classified, Duplicate, Key, Sharing, number_of
from dlq.analyzers.groups.contract import Context, Member, Reduced, Relation, Said
from dlq.core.brokers import plugin_of
from dlq.core.headers.rocketmq_topics import DEAD_LETTERS

MATCH_KEYS = ("same_message_id", "same_key", "same_body", "several_groups")
"""What letters of one broker can share; stronger kinds first."""

ROCKETMQ_MATCH_KEYS = ("by_id", "by_business", "of_message")
"""What RocketMQ's can share: an id, or a business key and a body, in one dead-letter topic; an id in all of
a broker."""

_ELSEWHERE = ("several_groups", "of_message")
"""Only letters of several places have these in common."""

_GROUPS = ("same_key", "same_message_id", "same_body")
"""The widest relation names the group: a business key spans resends under new message ids."""

_V = TypeVar("_V", int, str)

_OF_COORDINATED: Mapping[str, str] = {"same_message_id": "producer_resend", "same_key": "business_resend"}
"""What a coordinator does on purpose: it sends again under the same id until the broker confirms."""


class Shared(NamedTuple):
    """A key of a letter, and what all the letters that have it come to. A letter that lacks an id (a key, a
    body) has no such key."""

    key: str
    """Its kind, a blank, and the name of the letters that have it."""
    size: int
    first_record_id: str
    """Of the oldest letter."""
    first_body_sha256: str | None
    several_origins: bool = False
    """More than one ORIGIN_MESSAGE_ID, where they have one."""
    one_birth: bool = False
    """One time of birth, where they have one."""
    all_committed: bool = False
    any_fallback: bool | None = None
    """A client sent one of them itself. None: that is known of none."""
    several_places: bool = False
    """They died at several queues, or of several consumers' groups."""
    originals: int | None = None
    """How many of them are not replays, whose facts alone are told here. None: all."""

    @property
    def kind(self) -> str:
        return self.key.partition(" ")[0]

    @property
    def group(self) -> str:
        """The name of the letters that have it."""
        return self.key.partition(" ")[2]


def of_letter(
    record_id: str, body_sha256: str | None, coordinated: bool, shared: Iterable[Shared]
) -> Duplicate:
    """Return a letter that is compared with all of its broker, and its match keys; `coordinated`: its
    producer has a transactions' coordinator."""
    met = _shared_by_kind(shared)
    kind = next((kind for kind in MATCH_KEYS if kind in met), None)
    group = next((met[kind] for kind in _GROUPS if kind in met), None)
    repeats, exact = _repeats(met.get("same_message_id"), record_id, body_sha256)
    return Duplicate(
        duplicate_group=group.group if group else None,
        duplicate_kind=_OF_COORDINATED.get(kind, kind) if coordinated and kind else kind,
        first_of_group=group.first_record_id == record_id if group else None,
        repeats_id=repeats,
        exact_copy=exact,
    )


def of_rocketmq_letter(
    record_id: str, body_sha256: str | None, replayed: bool | None, shared: Iterable[Shared]
) -> Duplicate | None:
    """Return a letter in `%DLQ%<group>`, and its match keys; None when it is alone. `replayed`: it is a
    replay."""
    met = _shared_by_kind(shared if replayed else (_among_originals(one) for one in shared))
    by_id, by_business = met.get("by_id"), met.get("by_business")
    kind = next((kind for kind, holds in _ROCKETMQ_KINDS if holds(met, replayed is True)), None)
    if kind is None:
        return None
    named, oldest = by_business or by_id, by_id or by_business
    repeats, exact = _repeats(None if kind == "replay_returned" else by_id, record_id, body_sha256)
    return Duplicate(
        duplicate_group=named.group if named else None,
        duplicate_kind=kind,
        first_of_group=oldest.first_record_id == record_id if oldest else None,
        repeats_id=repeats,
        exact_copy=exact,
    )


def _among_originals(shared: Shared) -> Shared:
    """Count originals alone: a letter's own replays are its later laps, and no duplicates."""
    return shared if shared.originals is None else shared._replace(size=shared.originals)


_Met = Mapping[str, Shared]


def _shared_by_kind(shared: Iterable[Shared]) -> _Met:
    """Return the match keys that others have too, by kind."""
    return {one.kind: one for one in shared if one.size > 1 and _counts(one)}


def _counts(shared: Shared) -> bool:
    return shared.several_places or shared.kind not in _ELSEWHERE


def _repeats(oldest: Shared | None, record_id: str, body_sha256: str | None) -> tuple[bool, bool | None]:
    """Return whether a letter repeats the oldest one, and whether the bodies are the same; None: one is
    unknown."""
    if oldest is None or oldest.first_record_id == record_id:
        return False, False
    if oldest.first_body_sha256 is None or body_sha256 is None:
        return True, None
    return True, oldest.first_body_sha256 == body_sha256


def _is_double_commit(met: _Met, _: bool) -> bool:
    group = met.get("by_id")
    return group is not None and group.several_origins and group.all_committed and group.one_birth


def _is_resend(met: _Met, _: bool) -> bool:
    group = met.get("by_id")
    return group is not None and group.several_origins and group.any_fallback is False


_ROCKETMQ_KINDS: tuple[tuple[str, Callable[[_Met, bool], bool]], ...] = (
    ("replay_returned", lambda met, replayed: "by_id" in met and replayed),
    ("double_commit", _is_double_commit),
    ("producer_resend", _is_resend),
    ("redelivery_or_rebalance", lambda met, _: "by_id" in met),
    ("business_resend", lambda met, _: "by_business" in met),
    ("several_groups", lambda met, _: "of_message" in met),
)
"""The first line that holds."""


def keys(letter: Sharing | Classified) -> Iterator[Key]:
    """Return what makes letters duplicates. A replayed message that died again is a new lap of its original,
    not a duplicate of it; a coordinated message is named by its work, whatever its producer calls the
    message."""
    if plugin_of(letter.broker_kind).duplicates == "anywhere":
        return _anywhere(letter)
    return _of_group(letter)


def _of_group(letter: Sharing | Classified) -> Iterator[Key]:
    """Yield the keys of a letter for RocketMQ's consumers."""
    if letter.rocket is not None and letter.dead_letter_queue.startswith(DEAD_LETTERS):
        queue = (letter.broker, letter.dead_letter_queue)
        business = letter.rocket.keys if letter.key in (None, letter.message_id) else letter.key
        if letter.message_id is not None:
            yield "by_id", *queue, letter.message_id
            yield "of_message", letter.broker, letter.message_id
        if business:
            yield "by_business", *queue, business, letter.body_sha256 or ""


def _anywhere(letter: Sharing | Classified) -> Iterator[Key]:
    place = (_place(letter) or "", letter.laps)
    key = letter.work if letter.work is not None else _own_key(letter)
    if letter.message_id:
        yield "same_message_id", letter.broker, letter.message_id, *place
    if key is not None:
        yield "same_key", letter.broker, key, *place
    if letter.body_size > 0:
        yield "same_body", letter.broker, letter.body_sha256 or "", *place
    if letter.message_id and letter.origin is not None:
        yield "several_groups", letter.broker, letter.message_id


def _place(letter: Sharing | Classified) -> str | None:
    """Return where it died: at a subscription, not only at its address."""
    return f"{letter.origin}::{letter.subscription}" if letter.subscription else letter.origin


def _own_key(letter: Sharing | Classified) -> str | None:
    return letter.key if letter.key and letter.key != letter.message_id else None


class Total(NamedTuple):
    """What letters that share a key come to, however many they are: totals add up (`add`)."""

    size: int
    oldest: tuple[int, int, str, str, bool]
    """When it died, when it was captured (brokers may tell the former in whole seconds), its record_id and
    its body, and whether that is known."""
    originals: int
    committed: int
    """Of the originals; so are times of birth, origins and fallbacks."""
    births: frozenset[int]
    """Of these sets two values are kept: they say that there are several."""
    origin_ids: frozenset[str]
    places: frozenset[str]
    any_fallback: bool | None


def _total(letter: Classified) -> Total:
    rocket = letter.rocket
    at = letter.captured_at if letter.dead_at is None else letter.dead_at
    place = _place(letter) if rocket is None else letter.dead_letter_queue
    is_original = rocket is None or not rocket.replayed
    facts = rocket if is_original else None
    return Total(
        1,
        (at, letter.captured_at, letter.record_id, letter.body_sha256 or "", letter.body_sha256 is not None),
        int(is_original),
        int(facts is not None and (facts.flags or 0) & 12 == 8),
        _as_set(letter.published_at) if is_original else frozenset(),
        _as_set(facts.origin_id) if facts else frozenset(),
        _as_set(place),
        (facts.sent_back_by_client or facts.origin_id == letter.message_id) if facts else None,
    )


def _as_set(value: _V | None) -> frozenset[_V]:
    return frozenset() if value is None else frozenset((value,))


def add(one: Total, other: Total) -> Total:
    """Return what the letters of both come to."""
    return Total(
        one.size + other.size,
        min(one.oldest, other.oldest),
        one.originals + other.originals,
        one.committed + other.committed,
        _two_of(one.births | other.births),
        _two_of(one.origin_ids | other.origin_ids),
        _two_of(one.places | other.places),
        other.any_fallback if one.any_fallback is None else one.any_fallback or bool(other.any_fallback),
    )


def _two_of(values: frozenset[_V]) -> frozenset[_V]:
    return values if len(values) < 3 else frozenset(list(values)[:2])


def members(letters: Iterable[Classified], context: Context, _said: Said) -> Iterator[Member]:
    """Yield for each key that several letters have what these come to."""
    totals: dict[Key, Total] = {}
    for letter in letters:
        if not context.shared.isdisjoint(letter.keys):
            of_letter = _total(letter)
            for key in keys(letter):
                if number_of(key) in context.shared:
                    totals[key] = add(totals[key], of_letter) if key in totals else of_letter
    return (Member(key, (), total) for key, total in totals.items())


def together(_key: Key, totals: Iterator[Total], _context: Context) -> Iterator[Reduced]:
    """Yield the totals of one key as one."""
    yield Reduced(reduce(add, totals))


def conclude(letter: Classified, said: Said, context: Context) -> Classified:
    """Return what a letter is to others, by the keys that it shares with them."""
    if context.shared.isdisjoint(letter.keys):
        return letter
    shared = [_summarize(key, said[key]) for key in keys(letter) if key in said]
    found = _of_shared(letter, shared) if shared else None
    return letter if found is None else letter._replace(duplicate=found)


def _of_shared(letter: Classified, shared: Iterable[Shared]) -> Duplicate | None:
    if letter.rocket is not None:
        return of_rocketmq_letter(letter.record_id, letter.body_sha256, letter.rocket.replayed, shared)
    of_work = letter.coordinator is not None or letter.work is not None
    return of_letter(letter.record_id, letter.body_sha256, of_work, shared)


def _summarize(key: Key, total: Total) -> Shared:
    _, _, record_id, body_sha256, is_known = total.oldest
    return Shared(
        f"{key[0]} {number_of(key) % 2**64:016x}",
        total.size,
        record_id,
        body_sha256 if is_known else None,
        several_origins=len(total.origin_ids) > 1,
        one_birth=len(total.births) == 1,
        all_committed=total.committed == total.originals > 0,
        any_fallback=total.any_fallback,
        several_places=len(total.places) > 1,
        originals=total.originals,
    )


DUPLICATES = Relation((*MATCH_KEYS, *ROCKETMQ_MATCH_KEYS), members, together, conclude, keys=keys)
