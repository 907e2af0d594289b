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

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from dlq.analyzers.groups.judged import Identity, Judged, Key, Sharing
from dlq.core.brokers import kind_of
from dlq.core.rocketmq_topics import DEAD_LETTERS

MATCH_KEYS = ("same_message_id", "same_key", "same_body", "several_groups")
"""What letters of one broker can share; stronger kinds first."""

ROCKETMQ_MATCH_KEYS = ("by_id", "by_business", "of_message")
"""What RocketMQ's can share: an id, or a business key and a body, in one dead-letter topic; an id in all of
a broker."""

_ELSEWHERE = ("several_groups", "of_message")
"""Only letters of several places have these in common."""

_GROUPS = ("same_key", "same_message_id", "same_body")
"""The widest relation names the group: a business key spans resends under new message ids."""

_OF_COORDINATED: Mapping[str, str] = {"same_message_id": "producer_resend", "same_key": "business_resend"}
"""What a coordinator does on purpose: it sends again under the same id until the broker confirms."""


class Duplicate(NamedTuple):
    """What a letter is to others. A flag that is None cannot be told."""

    duplicate_group: str | None = None
    duplicate_kind: str | None = None
    first_of_group: bool | None = None
    """It is the oldest."""
    repeats_id: bool = False
    """An older letter has its message id."""
    exact_copy: bool | None = False
    """And the same body."""


class Shared(NamedTuple):
    """A key of a letter, and what all the letters that have it come to. A letter that lacks an id (a key, a
    body) has no such key."""

    key: str
    """Of `relations.text_of`; its kind is one of MATCH_KEYS or ROCKETMQ_MATCH_KEYS."""
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
    """A letter that is compared with all of its broker, and its match keys; `coordinated`: its producer has a
    transactions' coordinator."""
    met = _met(shared)
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
    """A letter in `%DLQ%<group>`, and its match keys; None when it is alone. `replayed`: it is a replay."""
    met = _met(shared if replayed else (_among_originals(one) for one in shared))
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
    """A letter is no duplicate of its own replays: they are its later laps."""
    return shared if shared.originals is None else shared._replace(size=shared.originals)


_Met = Mapping[str, Shared]


def _met(shared: Iterable[Shared]) -> _Met:
    """The match keys that others have too, by kind."""
    return {one.kind: one for one in shared if one.size > 1 and _counts(one)}


def _counts(shared: Shared) -> bool:
    return shared.several_places or shared.kind not in _ELSEWHERE


def _repeats(oldest: Shared | None, record_id: str, body_sha256: str | None) -> tuple[bool, bool | None]:
    """Whether a letter repeats the oldest one, and whether the bodies are the same; None: one is unknown."""
    if oldest is None or oldest.first_record_id == record_id:
        return False, False
    if oldest.first_body_sha256 is None or body_sha256 is None:
        return True, None
    return True, oldest.first_body_sha256 == body_sha256


def _is_replay(met: _Met, replayed: bool) -> bool:
    return "by_id" in met and replayed


def _is_double_commit(met: _Met, _: bool) -> bool:
    group = met.get("by_id")
    return group is not None and group.several_origins and group.all_committed and group.one_birth


def _is_resend(met: _Met, _: bool) -> bool:
    group = met.get("by_id")
    return group is not None and group.several_origins and group.any_fallback is False


_ROCKETMQ_KINDS: tuple[tuple[str, Callable[[_Met, bool], bool]], ...] = (
    ("replay_returned", _is_replay),
    ("double_commit", _is_double_commit),
    ("producer_resend", _is_resend),
    ("redelivery_or_rebalance", lambda met, _: "by_id" in met),
    ("business_resend", lambda met, _: "by_business" in met),
    ("several_groups", lambda met, _: "of_message" in met),
)
"""The first line that holds."""


def find(letters: Iterable[Judged]) -> dict[Identity, Duplicate | None]:
    """What the letters that share a key with others are to them."""
    groups: dict[str, list[Judged]] = defaultdict(list)
    for letter in letters:
        for key in letter.keys:
            groups[key].append(letter)
    shared: dict[Identity, list[Shared]] = defaultdict(list)
    members: dict[Identity, Judged] = {}
    for key, group in groups.items():
        if len(group) > 1 and _is_of_duplicates(key):
            come_to = total(key, group)
            for letter in group:
                shared[letter.identity].append(come_to)
                members[letter.identity] = letter
    return {identity: conclude(members[identity], found) for identity, found in shared.items()}


def _is_of_duplicates(key: str) -> bool:
    """Whether it is a key of `keys`."""
    return key.startswith(_STARTS)


_STARTS = tuple(f"{kind} " for kind in (*MATCH_KEYS, *ROCKETMQ_MATCH_KEYS))


def keys(letter: Sharing) -> Iterator[Key]:
    """What makes letters duplicates. A replayed message that died again is a new lap of its original, not a
    duplicate of it; a coordinated message is named by its work, whatever its producer calls the message."""
    if kind_of(letter.broker_kind).duplicates == "anywhere":
        yield from _anywhere(letter)
    elif letter.rocket is not None and letter.dead_letter_queue.startswith(DEAD_LETTERS):
        queue = (letter.broker, letter.dead_letter_queue)
        business = letter.rocket.keys if letter.key in (None, letter.message_id) else letter.key
        if letter.message_id is not None:
            yield "by_id", *queue, letter.message_id
            yield "of_message", letter.broker, letter.message_id
        if business:
            yield "by_business", *queue, business, letter.body_sha256 or ""


def _anywhere(letter: Sharing) -> Iterator[Key]:
    place = (letter.origin or "", letter.laps)
    key = letter.work if letter.work is not None else _own_key(letter)
    if letter.message_id:
        yield "same_message_id", letter.broker, letter.message_id, *place
    if key is not None:
        yield "same_key", letter.broker, key, *place
    if letter.body_size > 0:
        yield "same_body", letter.broker, letter.body_sha256 or "", *place
    if letter.message_id and letter.origin is not None:
        yield "several_groups", letter.broker, letter.message_id


def _own_key(letter: Sharing) -> str | None:
    return letter.key if letter.key and letter.key != letter.message_id else None


TOLD_BY = (
    "record_id", "dead_letter_queue", "message_id", "body_sha256", "published_at", "dead_at", "captured_at",
    "origin", "rocket",
)  # fmt: skip
"""Columns of the letters that `total` looks at."""


def total(key: str, group: Iterable[Judged]) -> Shared:
    """What all the letters that have a key come to. They are taken in one by one, however many they are."""
    letters = iter(group)
    seen = _Seen(next(letters))
    for letter in letters:
        seen.take(letter)
    return Shared(
        key,
        seen.size,
        seen.first.record_id,
        seen.first.body_sha256,
        several_origins=seen.origin_ids.are_several,
        one_birth=seen.births.is_one,
        all_committed=seen.committed == seen.originals > 0,
        any_fallback=seen.any_fallback,
        several_places=seen.places.are_several,
        originals=seen.originals,
    )


class _Values:
    """Whether values that are known are one or several: of all that were seen two say it."""

    def __init__(self) -> None:
        self._seen: set[str | int] = set()

    def take(self, value: str | int | None) -> None:
        if value is not None and len(self._seen) < 2:
            self._seen.add(value)

    @property
    def is_one(self) -> bool:
        return len(self._seen) == 1

    @property
    def are_several(self) -> bool:
        return len(self._seen) > 1


class _Seen:
    """What was seen of the letters of a key so far."""

    def __init__(self, first: Judged) -> None:
        self.size = self.originals = self.committed = 0
        self.first = first
        self.origin_ids, self.births, self.places = _Values(), _Values(), _Values()
        self.any_fallback: bool | None = None
        self.take(first)

    def take(self, letter: Judged) -> None:
        self.size += 1
        self.first = min(self.first, letter, key=_age)
        rocket = letter.rocket
        self.places.take(letter.origin if rocket is None else letter.dead_letter_queue)
        if rocket is not None and rocket.replayed:
            return
        self.originals += 1
        self.births.take(letter.published_at)
        if rocket is not None:
            self.origin_ids.take(rocket.origin_id)
            self.committed += (rocket.flags or 0) & 12 == 8
            is_fallback = rocket.sent_back_by_client or rocket.origin_id == letter.message_id
            self.any_fallback = bool(self.any_fallback or is_fallback)


def _age(letter: Judged) -> tuple[int, str, str]:
    at = letter.captured_at if letter.dead_at is None else letter.dead_at
    return at, letter.record_id, letter.body_sha256 or ""


def conclude(letter: Judged, shared: Iterable[Shared]) -> Duplicate | None:
    """What a letter is to others, by the match keys that it shares with them."""
    if letter.rocket is not None:
        return of_rocketmq_letter(letter.record_id, letter.body_sha256, letter.rocket.replayed, shared)
    of_work = letter.coordinator is not None or letter.work is not None
    return of_letter(letter.record_id, letter.body_sha256, of_work, shared)
