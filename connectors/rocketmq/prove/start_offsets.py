"""Where queues ended before anything of a plan was sent, and whether all that came to them since is there.

What is compared is a broker's own: offsets of its queues, times of its clock. Every broker that had a
writable queue then has to answer, whatever the name servers say by now.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from dlq.connectors.base import Evidence, Target
from dlq.connectors.proving import why_compacted, why_lost, why_unknown
from dlq.connectors.rocketmq.link import remoting
from dlq.connectors.rocketmq.link.cluster import Cluster, refusal
from dlq.connectors.rocketmq.link.message import decode
from dlq.connectors.rocketmq.look.limits import is_compacted
from dlq.connectors.rocketmq.look.routes import writable_queues
from dlq.connectors.rocketmq.prove.evidence import KEPT, Lead, QueueEnd, Store, list_queues
from dlq.connectors.rocketmq.read.queue import MessageQueue
from dlq.connectors.rocketmq.read.snapshot import QueueOffsets, message_at, offsets_of, unpulled_offsets
from dlq.connectors.rocketmq.republish import topic_of
from dlq.core.clock import now
from dlq.core.errors import AccessDenied, BrokerError
from dlq.core.headers.rocketmq_topics import DEAD_LETTERS, HALF, RETRY
from dlq.core.runtime import patience

_UNTOLD = "untold"
_ENTRY_HEADER = 48
"""Bytes before each message in DLedger's log (DLedgerEntry.BODY_OFFSET)."""
_RUNTIME = re.compile(r"(\d{1,9}) days, (\d{1,9}) hours, (\d{1,9}) minutes, (\d{1,9}) seconds")
_LAST_STORED = re.compile(rb'"lastUpdateTimestamp":(\d{1,19})\b')
"""In a document of which the keys are objects."""
_MOST_TOPICS = 500
_BY_QUORUM = ("enableDLegerCommitLog", "enableControllerMode")


class Runtime(NamedTuple):
    """What a broker tells of itself now. Times are milliseconds of its clock."""

    booted: int
    clock: int
    """Rounded down to a second."""
    log_start: int
    log_end: int
    dispatched: int
    """Up to which position of its log its queues are built."""


class Range(NamedTuple):
    """What came to a queue since the bounds were kept: [first, offsets.highest)."""

    offsets: QueueOffsets
    first: int


def runtime_of(cluster: Cluster, node: str) -> Runtime | None:
    """Return None when we may not ask, or it does not tell."""
    for _ in patience.tries(patience.CAUGHT_UP):
        if not _fails(node, answer := cluster.call(node, remoting.RequestCode.RUNTIME_INFO, {})):
            break
    else:
        return None
    with remoting.understood(node):
        told = answer.document().get("table") or {}
        runs = _RUNTIME.search(str(told.get("runtime")))
        if runs is None:
            return None
        days, hours, minutes, seconds = map(int, runs.groups())
        booted, end = remoting.long(told["bootTimestamp"]), remoting.long(told["commitLogMaxOffset"])
        clock = booted + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
        behind = remoting.long(told["dispatchBehindBytes"])
        return Runtime(
            booted, remoting.long(clock), remoting.long(told["commitLogMinOffset"]), end, end - behind
        )


def _fails(node: str, answer: remoting.Frame) -> bool:
    """4.9 does for a moment after its start."""
    is_error = answer.code == remoting.ResponseCode.SYSTEM_ERROR
    return is_error and not isinstance(refusal(node, answer), AccessDenied)


def bounds(cluster: Cluster, targets: Iterable[Target]) -> Evidence:
    """See `Connector.bounds`. Brokers whose queues the user may not look at are kept, too."""
    places = [
        place
        for topic in sorted({topic_of(target) for target in targets})
        for place in _with_dead(_places(cluster, topic))
    ]
    found: dict[str, int] = {KEPT: now()} if places else {}
    for place in places:
        found |= _end_of(cluster, place).write(place)
    for node in {place.node for place in places}:
        if runtime := runtime_of(cluster, node):
            first = _first_stored(cluster, node, runtime.log_start)
            found |= Store(runtime.booted, runtime.clock, runtime.log_start, first).write(node)
        found |= _lead_of(cluster, node, cluster.configuration(node)).write(node)
    return found


def masters(cluster: Cluster, node: str) -> Lead:
    """Return where the master of a broker is now, by all name servers."""
    return Lead(frozenset(cluster.listed.get(node, ())))


def _lead_of(cluster: Cluster, node: str, settings: Mapping[str, str]) -> Lead:
    """Return who leads a broker now."""
    lead = masters(cluster, node)
    if settings.get("enableControllerMode") != "true":
        return lead
    answer = cluster.call(node, remoting.RequestCode.EPOCHS, {})
    with remoting.understood(node):
        told = answer.document().get("epochList") or ()
        last = max((remoting.long(one["epoch"]) for one in told), default=_UNTOLD)
    return lead._replace(epoch=frozenset({str(last)}))


def why_another(before: Lead, now: Lead) -> str | None:
    """Return why a broker may not be the very one that letters were sent to; None where it is."""
    for what, then, here in zip(Lead._fields, before, now, strict=True):
        if then != here or len(here) > 1 or _UNTOLD in here:
            was, is_now = (" and ".join(sorted(some)) or "nothing known" for some in (then, here))
            masters = f"{what} then: {was}; now: {is_now}"
            return f"has another master ({masters}), which may lack what the other took"
    return None


def _places(cluster: Cluster, topic: str) -> list[MessageQueue]:
    """Return where a message for `topic` may be put now."""
    if topic == HALF:
        return [MessageQueue(HALF, node, 0) for node in cluster.masters()]
    return [MessageQueue(topic, node, queue) for node, queue in writable_queues(cluster, topic)]


def _with_dead(places: Collection[MessageQueue]) -> list[MessageQueue]:
    """Add where brokers since 5.1 put at once what is sent to a group that consumes in order: among its dead
    letters (SendMessageProcessor.handleRetryAndDLQ)."""
    groups = {(one.topic.removeprefix(RETRY), one.node) for one in places if one.topic.startswith(RETRY)}
    return sorted({*places, *(MessageQueue(f"{DEAD_LETTERS}{group}", node, 0) for group, node in groups)})


def _end_of(cluster: Cluster, place: MessageQueue) -> QueueEnd:
    offsets = _offsets(cluster, place)
    if offsets is None:
        return QueueEnd(None)
    return QueueEnd(offsets.highest, _last_before(cluster, offsets, offsets.highest))


def _offsets(cluster: Cluster, place: MessageQueue) -> QueueOffsets | None:
    """Return None where the user may not look."""
    empty: QueueOffsets | None = None
    for ask in (offsets_of, unpulled_offsets):
        try:
            if found := ask(cluster, place):
                return found
            empty = QueueOffsets(place, 0, 0)  # its broker has no such topic yet
        except AccessDenied:
            continue
    return empty


def _last_before(cluster: Cluster, offsets: QueueOffsets, end: int) -> int | None:
    """Return when the last message before `end` was stored; None where there is none any more."""
    there = message_at(cluster, offsets, end - 1) if offsets.lowest < end <= offsets.highest else None
    return None if there is None else there.stored_at


class Since:
    """What came to the queues of topics since `before` was kept, and what keeps it from being all."""

    def __init__(self, cluster: Cluster, before: Evidence, since: int) -> None:
        """Take the bounds. `since`: when the first of what is looked for was sent, in microseconds of our
        clock."""
        self._cluster, self._before = cluster, before
        self._is_older = since < before.get(KEPT, 0)
        self._masters = cluster.masters(refresh=True)
        self._doubts: dict[str, list[str]] = {}
        self.is_another = False

    def end_of(self, place: MessageQueue) -> int | None:
        """Return where a queue ended; None where nothing says so."""
        known = QueueEnd.read(self._before, place)
        return known and known.offset

    def why_changed(self) -> list[str]:
        """Return why what was read since the beginning may not be one broker's."""
        is_same = self._cluster.masters(refresh=True) == self._masters
        return [] if is_same else ["another broker has become a master while this was asked"]

    def look(self, topic: str) -> tuple[list[Range], list[str]]:
        """Return the ranges that can be read, and in words why they may not hold all that came. Asked once
        what is looked for cannot arrive any more."""
        known = self._known_queues(topic)
        if not known:
            return [], [why_unknown(topic)]
        doubts = [f"{topic}: what was sent may be older than what is known of it"] if self._is_older else []
        ranges: list[Range] = []
        for node in sorted({place.node for place in known}):
            if node not in self._masters:
                doubts.append(f"{node}, which took messages for {topic}, has no master that answers")
                continue
            places = [place for place in known if place.node == node]
            try:
                doubts += self._of_node(node, topic)
                ranges += self._ranges(places, doubts)
            except BrokerError as error:
                doubts.append(f"{node}: {error}")
        if not doubts:
            told = self._cluster.attributes(topic)
            doubts = why_compacted(topic, None if told is None else is_compacted(told), "GET on the topic")
        return ranges, doubts

    def _known_queues(self, topic: str) -> list[MessageQueue]:
        """Return queues that could be written to then, or can now."""
        then = list_queues(self._before, topic)
        return _with_dead({*then, *_places(self._cluster, topic)}) if then else []

    def _ranges(self, places: Iterable[MessageQueue], doubts: list[str]) -> list[Range]:
        found = []
        for place in places:
            offsets, end = _offsets(self._cluster, place), QueueEnd.read(self._before, place) or QueueEnd(0)
            if offsets is None or end.offset is None:
                doubts.append(f"the user may not read {place}")
                continue
            last = _last_before(self._cluster, offsets, end.offset)
            doubts += why_queue_lost(offsets, end, last)
            found.append(Range(offsets, max(end.offset, offsets.lowest)))
        return found

    def _of_node(self, node: str, topic: str) -> list[str]:
        if node not in self._doubts:
            self._doubts[node] = [f"{node} {why}" for why in self._why_not_all(node, topic)]
        return self._doubts[node]

    def _why_not_all(self, node: str, topic: str) -> list[str]:
        """Return why a broker's queues may not hold all that it took."""
        settings = self._cluster.configuration(node)
        here = _lead_of(self._cluster, node, settings)
        if another := why_another(Lead.read(self._before, node), here):
            self.is_another = True
            return [another]
        if settings.get("brokerRole") == "SLAVE":
            return ["is registered as a master, and is a slave"]
        runtime, before = runtime_of(self._cluster, node), Store.read(self._before, node)
        if runtime is None or before is None:
            return ["does not tell since when it runs, or the user may not ask it"]
        doubts = []
        start = max(runtime.log_start, before.start)
        first = _first_stored(self._cluster, node, start)
        if not is_same_store(before, Store(runtime.booted, runtime.clock, start, first)):
            doubts.append("was started since, and its store does not reach back to before that")
        if not _is_dispatched(self._cluster, node, runtime.log_end):
            doubts.append("does not put what it stores into its queues")
        uncommitted = _why_uncommitted(self._cluster, node, topic, settings, runtime.clock + 1000)
        return [*doubts, uncommitted] if uncommitted else doubts


def why_queue_lost(offsets: QueueOffsets, end: QueueEnd, last: int | None) -> list[str]:
    """Return why a queue, which may be read, may have held more than it does. `last`: when the last message
    before its end then was stored, as it is told now; None where it is gone."""
    why = why_lost(offsets.place, offsets.lowest, offsets.highest, end.offset or 0)
    return why or (
        [f"{offsets.place} was made anew since"] if last is not None and end.stored != last else []
    )


def is_same_store(before: Store, now: Store) -> bool:
    """Return whether a broker has the store still that it had, then and now. One that was not started
    meanwhile has. Else its log has the same message where it began; or it begins later, by retention, with
    one from before then. The broker's clock may have been set meanwhile, so alone it proves nothing."""
    if now.boot == before.boot:
        return True
    if now.first is None or before.first is None:
        return False
    if now.start == before.start:
        return now.first == before.first
    return now.start > before.start and now.first < before.clock


def _first_stored(cluster: Cluster, node: str, log_start: int) -> int | None:
    """Return when the first message of a broker's log was stored, by its clock; None where it does not
    tell."""
    for position in (log_start, log_start + _ENTRY_HEADER):
        answer = cluster.call(node, remoting.RequestCode.VIEW_MESSAGE, {"offset": position})
        try:
            found = [*decode(answer.body)] if answer.code == remoting.ResponseCode.OK else []
        except remoting.ProtocolError:
            continue  # the header of an entry of DLedger's
        if found:
            return found[0].stored_at
    return None


def _is_dispatched(cluster: Cluster, node: str, position: int) -> bool:
    """Return whether the queues are built up to a position of the log; waits for it."""
    runtimes = (runtime_of(cluster, node) for _ in patience.tries(patience.CAUGHT_UP))
    return any(runtime is not None and runtime.dispatched >= position for runtime in runtimes)


def _why_uncommitted(
    cluster: Cluster, node: str, topic: str, settings: Mapping[str, str], moment: int
) -> str | None:
    """Return why a log that several keep may hold back what lacks their consent, and give it later. Something
    that was stored at `moment` or later, and is shown, proves that it does not; that is waited for."""
    if not settings:
        return "does not let the user read whether others must agree to what it stores"
    if not any(settings.get(name) == "true" for name in _BY_QUORUM):
        return None
    topics = [topic, *sorted(cluster.topics() - {topic})[:_MOST_TOPICS]]
    for _ in patience.tries(patience.CAUGHT_UP):
        if any(at >= moment for one in topics for at in _last_shown(cluster, node, one)):
            return None
    return (
        "keeps its log with others (DLedger, a controller), who may yet agree to what it took, and it has "
        f"shown nothing newer within {patience.CAUGHT_UP:g} s; send it a message of any topic while this is "
        "asked"
    )


def _last_shown(cluster: Cluster, node: str, topic: str) -> Iterator[int]:
    """Yield when a broker stored the newest message that it shows of each queue of a topic."""
    answer = cluster.call(node, remoting.RequestCode.TOPIC_STATS, {"topic": topic})
    return (int(found[1]) for found in _LAST_STORED.finditer(answer.body))
