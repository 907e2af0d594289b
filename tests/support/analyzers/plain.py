"""What an analysis must say, without Spark: a loop over letters and groups in plain Python.

It asks the functions that the analysis asks, and finds groups with dictionaries where that has hashes, windows
and joins.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from dlq.analyzers.groups import bursts, duplicates, incidents, stores, transactions
from dlq.analyzers.groups.advice import Known, advise
from dlq.analyzers.groups.values import in_order
from dlq.analyzers.rules import Facts, Letter, Verdict, judge
from dlq.analyzers.rules.frameworks import coordinated
from dlq.analyzers.rules.rocketmq import Stored, role, stored, unique_key
from dlq.core.brokers import kind_of
from dlq.core.causes import proof_of
from dlq.core.record import Record
from dlq.core.settings import Settings
from dlq.core.store_facts import Fact

Identity = tuple[str, str]
"""Source and record_id."""
Says = Mapping[str, Any]


class Asking(NamedTuple):
    """What the analysis was about, beside the letters."""

    facts: Facts
    settings: Settings
    holds: Mapping[str, Callable[[Record], bool]]
    """The conditions of the user's rules, in Python."""
    nodes: Mapping[str, Mapping[str, transactions.Node]]
    told: Mapping[str, Sequence[Fact] | None]
    """What each store outside has; None: it did not answer."""
    asked_at: int


class One(NamedTuple):
    """A letter with what is known of it by itself."""

    record: Record
    verdict: Verdict
    cause: str | None
    """The user's own, else the verdict's."""
    user_rule: str | None
    coordinator: str | None
    work: str | None
    rocket: Stored | None

    @property
    def identity(self) -> Identity:
        return self.record.source, self.record.record_id


def verdicts(records: Iterable[Record], asking: Asking) -> dict[Identity, dict[str, Any]]:
    """The verdicts on all letters, by their identity."""
    letters = [_alone(record, asking) for record in records]
    shared, concluded = _shared(letters), _concluded(letters, asking)
    standing, told = _standing(letters), _told(letters, asking)
    found = {
        one.identity: _finished(
            one,
            asking,
            shared.get(one.identity),
            concluded.get(one.identity),
            standing.get(one.identity),
            told.get(one.identity),
        )
        for one in letters
    }
    _mark_incidents(letters, found)
    return found


def _alone(record: Record, asking: Asking) -> One:
    verdict, letter = judge(record, asking.facts), Letter._make(record)
    mine = next((rule for rule in asking.settings.rules if asking.holds[rule.name](record)), None)
    coordinator, work = coordinated(letter) or (None, None)
    return One(
        record,
        verdict._replace(rule=mine.name, also_possible=()) if mine and mine.cause else verdict,
        (mine.cause if mine else None) or verdict.cause,
        mine.name if mine else None,
        coordinator,
        work,
        stored(letter),
    )


def _finished(
    one: One,
    asking: Asking,
    shared: list[duplicates.Shared] | None,
    concluded: transactions.Conclusion | None,
    standing: bursts.Standing | None,
    told: stores.Answer | None,
) -> dict[str, Any]:
    record, verdict = one.record, one.verdict
    cause, mechanism, evidence, state, also = (
        one.cause,
        verdict.mechanism,
        verdict.evidence,
        verdict.transaction_state,
        verdict.also_possible,
    )
    if concluded is not None:
        cause = cause if one.user_rule else concluded.cause
        mechanism = concluded.mechanism or mechanism
        evidence = concluded.evidence or evidence
        state = concluded.transaction_state
        also = ()
    state = state or (told.told_transaction if told else None)
    twin = _twin(one, shared or [])
    advice, reason = advise(
        Known(
            cause,
            asking.settings.replay.max_laps,
            mechanism,
            also,
            verdict.exception_family,
            verdict.laps,
            one.user_rule,
            concluded is not None and concluded.beside_the_letter,
            state,
            told.store_state if told else None,
            twin,
            record.message_id,
            one.rocket.keys if one.rocket else None,
            None if standing is None else bursts.reason(standing),
        ),
        asking.settings.rules,
    )
    return {
        **verdict._asdict(),
        "cause": cause,
        "mechanism": mechanism,
        "proof": proof_of(cause, also),
        "also_possible": list(also),
        "evidence": stores.with_told(evidence, told.told if told else None),
        "transaction_state": state,
        "duplicate_group": twin.duplicate_group if twin else None,
        "duplicate_kind": twin.duplicate_kind if twin else None,
        "incident_id": bursts.burst_id(record.broker, standing.connection_id, None) if standing else None,
        "advice": advice,
        "advice_reason": reason,
    }


def _twin(one: One, shared: list[duplicates.Shared]) -> duplicates.Duplicate | None:
    record = one.record
    if one.rocket is not None:
        return duplicates.of_rocketmq_letter(
            record.record_id, record.body_sha256, one.rocket.replayed, shared
        )
    of_work = one.coordinator is not None or one.work is not None
    return duplicates.of_letter(record.record_id, record.body_sha256, of_work, shared)


def _shared(letters: Iterable[One]) -> dict[Identity, list[duplicates.Shared]]:
    """A match key is known by its number here, in the order in which they are met."""
    groups: dict[tuple[Any, ...], list[One]] = defaultdict(list)
    for one in letters:
        for match_key in _match_keys(one):
            groups[match_key].append(one)
    found: dict[Identity, list[duplicates.Shared]] = defaultdict(list)
    for number, (match_key, group) in enumerate(groups.items(), 1):
        for one in group:
            found[one.identity].append(_group(match_key[0], number, group))
    return found


def _match_keys(one: One) -> Iterator[tuple[Any, ...]]:
    record, verdict = one.record, one.verdict
    if kind_of(record.broker_kind).duplicates == "anywhere":
        place = (verdict.origin or "", verdict.laps)
        own = record.key if record.key and record.key != record.message_id else None
        key = one.work if one.work is not None else own
        if record.message_id:
            yield "same_message_id", record.broker, record.message_id, *place
        if key is not None:
            yield "same_key", record.broker, key, *place
        if record.body_size > 0:
            yield "same_body", record.broker, record.body_sha256, *place
        if record.message_id and verdict.origin is not None:
            yield "several_groups", record.broker, record.message_id
    elif one.rocket is not None and record.dead_letter_queue.startswith("%DLQ%"):
        queue = (record.broker, record.dead_letter_queue)
        business = one.rocket.keys if record.key in (None, record.message_id) else record.key
        if record.message_id is not None:
            yield "by_id", *queue, record.message_id
            yield "of_message", record.broker, record.message_id
        if business:
            yield "by_business", *queue, business, record.body_sha256


def _group(kind: str, number: int, group: Sequence[One]) -> duplicates.Shared:
    first = min(
        (one.record for one in group), key=lambda r: (r.dead_at or r.captured_at, r.record_id, r.body_sha256)
    )
    originals = [one for one in group if one.rocket is None or not one.rocket.replayed]
    rockets = [one.rocket for one in originals if one.rocket is not None]
    places = {one.record.dead_letter_queue if one.rocket else one.verdict.origin for one in group} - {None}
    return duplicates.Shared(
        kind,
        number,
        len(group),
        first.record_id,
        first.body_sha256,
        several_origins=len({rocket.origin_id for rocket in rockets} - {None}) > 1,
        one_birth=len({one.record.published_at for one in originals} - {None}) == 1,
        all_committed=bool(rockets)
        and len(rockets) == len(originals)
        and all((rocket.flags or 0) & 12 == 8 for rocket in rockets),
        any_fallback=any(
            one.rocket.sent_back_by_client or one.rocket.origin_id == one.record.message_id
            for one in originals
            if one.rocket is not None
        ),
        several_places=len(places) > 1,
        originals=len(originals),
    )


def _concluded(letters: Iterable[One], asking: Asking) -> dict[Identity, transactions.Conclusion]:
    found: dict[Identity, transactions.Conclusion] = {}
    parts: dict[tuple[str, str], list[tuple[str, One, Stored]]] = defaultdict(list)
    for one in letters:
        part = role(Letter._make(one.record), one.rocket) if one.rocket else None
        if part is not None and one.rocket is not None:
            parts[(one.record.source, one.record.broker)].append((part, one, one.rocket))
            found[one.identity] = transactions.concluded(None, one.record.record_id)
    for (source, _), records in parts.items():
        ended = _ended(records)
        keys: dict[str, list[transactions.Member]] = defaultdict(list)
        for part, one, rocket in records:
            if part != "finished":
                member = _member(part, one.record, rocket, ended.get(one.record.record_id, (None, None)))
                keys[unique_key(Letter._make(one.record), rocket)].append(member)
        for key, members in keys.items():
            resolved = transactions.resolve(key, sorted(members, key=_in_time), asking.nodes.get(source, {}))
            of_node = {transaction.broker_node: transaction for transaction in resolved}
            for member in members:
                made = transactions.concluded(of_node[member.broker_node], member.record_id)
                found[(source, member.record_id)] = made
    return found


def _in_time(one: transactions.Member) -> tuple[Any, ...]:
    return one.broker_node, in_order(one.dead_at), in_order(one.offset), one.record_id


def _member(
    part: str, record: Record, rocket: Stored, ended: tuple[int | None, int | None]
) -> transactions.Member:
    return transactions.Member(
        record.broker_node or "",
        record.record_id,
        part,
        record.message_id,
        record.captured_at,
        record.dead_at,
        record.published_at,
        judge(record, Facts()).origin,
        *ended,
        offset=rocket.offset,
        position=rocket.position,
        prepared=rocket.prepared,
        checks=rocket.checks,
        immunity=rocket.immunity,
        producer_group=rocket.producer_group,
    )


def _ended(records: Sequence[tuple[str, One, Stored]]) -> dict[str, tuple[int | None, int]]:
    copies, ends = defaultdict(list), defaultdict(list)
    for part, one, rocket in records:
        record, node = one.record, one.record.broker_node or ""
        if part == "half":
            copies[(node, rocket.offset)].append((record.record_id, record.dead_at))
        elif part == "finished":
            for offset in transactions.offsets(rocket.ended_offsets):
                ends[(node, offset)].append((record.dead_at, record.captured_at or 0))
    return {
        name: (at, seen_at)
        for place in ends
        for name, at, seen_at in transactions.ended_copies(copies.get(place, []), ends[place])
    }


def _standing(letters: Iterable[One]) -> dict[Identity, bursts.Standing]:
    """Of suppressed duplicates of a known connection; no log tells their reconnects apart."""
    found: dict[Identity, bursts.Standing] = {}
    connections: dict[tuple[str, str], list[One]] = defaultdict(list)
    for one in letters:
        if one.cause == "suppressed_duplicate" and one.verdict.connection_id is not None:
            connections[(one.record.broker, one.verdict.connection_id)].append(one)
    for (_, connection), burst in connections.items():
        for one in burst:
            found[one.identity] = _place(one.verdict, connection, [other.verdict for other in burst])
    return found


def _place(mine: Verdict, connection: str, burst: Sequence[Verdict]) -> bursts.Standing:
    of_queue = [one for one in burst if one.origin == mine.origin]
    of_producer = [one for one in of_queue if one.producer_id == mine.producer_id]
    numbers = {one.producer_seq for one in of_producer if one.producer_seq is not None}
    of_consumer = [one.producer_seq for one in of_producer if one.consumer_id == mine.consumer_id]
    first = last = mine.producer_seq
    while first is not None and first - 1 in numbers:
        first -= 1
    while last is not None and last + 1 in numbers:
        last += 1
    return bursts.Standing(
        connection,
        len(burst),
        len({one.consumer_id for one in burst} - {None}),
        len({one.producer_id for one in of_queue} - {None}),
        mine.producer_seq,
        max(numbers, default=None),
        min((number for number in of_consumer if number is not None), default=None),
        first,
        last,
    )


def _told(letters: Iterable[One], asking: Asking) -> dict[Identity, stores.Answer]:
    found: dict[Identity, list[stores.Answer]] = defaultdict(list)
    for one in letters:
        record = one.record
        letter = stores.Letter(
            record.broker_kind,
            record.dead_letter_queue,
            one.cause,
            record.message_id,
            record.key,
            one.verdict.origin,
            record.dead_at or record.captured_at,
            one.rocket.tag if one.rocket else None,
            one.coordinator,
            one.work,
        )
        for name, facts in asking.told.items():
            settings = asking.settings.evidence[name]
            if stores.is_asked(settings, record.source, letter):
                asked = stores.asked(settings, asking.asked_at)
                keys = stores.KINDS[settings.kind].keys(letter, asked)
                mine = None if facts is None else [fact for fact in facts if fact.key in keys]
                found[one.identity].append(stores.answer(settings.kind, letter, asked, mine))
    return {identity: stores.together(answers) for identity, answers in found.items()}


def _mark_incidents(letters: Sequence[One], found: dict[Identity, dict[str, Any]]) -> None:
    """A letter of a burst has its incident already; a record beside a letter has none."""
    slot_of = {one.identity: _slot(one.record) for one in letters}
    slots = [slot for slot in slot_of.values() if slot is not None]
    span = max(slots) - min(slots) + 1
    placed: dict[tuple[str, str, int], list[Identity]] = defaultdict(list)
    for identity, row in found.items():
        slot, is_of_burst = slot_of[identity], row["cause"] == "suppressed_duplicate" and row["connection_id"]
        if slot is not None and row["cause"] is not None and not is_of_burst:
            kind = incidents.kind_of(row["exception_family"], row["cause"])
            placed[(kind, row["fingerprint"], slot)].append(identity)
    counted = Counter({place: len(identities) for place, identities in placed.items()})
    for kind, of_kind in groupby(sorted(counted), key=lambda place: place[0]):
        rows = [incidents.Slot(*place[1:], counted[place]) for place in of_kind]
        for one in incidents.find(kind, rows, span):
            for identity in placed[(kind, one.slot.fingerprint, one.slot.slot)]:
                found[identity]["incident_id"] = one.incident_id


def _slot(record: Record) -> int | None:
    at = record.dead_at if record.dead_at is not None else record.published_at
    return None if at is None else at // (incidents.SLOT * 1_000_000)
