"""Where queues ended before anything of a plan was sent, and whether all that came to them since is there.

What is compared is a broker's own: offsets of its queues, times of its clock. Every broker that had a
writable queue then has to answer, whatever the name servers say by now.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dlq.connectors.base import Checkpoint, Target
from dlq.connectors.rocketmq.link.cluster import Cluster, refusal
from dlq.connectors.rocketmq.link.lenient_json import loads
from dlq.connectors.rocketmq.link.message import decode
from dlq.connectors.rocketmq.link.remoting import (
    Frame,
    ProtocolError,
    RequestCode,
    ResponseCode,
    long,
    understood,
)
from dlq.connectors.rocketmq.look.limits import Attributes, is_compacted
from dlq.connectors.rocketmq.look.routes import writable_queues
from dlq.connectors.rocketmq.read.queue import MessageQueue
from dlq.connectors.rocketmq.read.snapshot import QueueOffsets, message_at, offsets_of, unpulled_offsets
from dlq.connectors.rocketmq.republish import topic_of
from dlq.core import patience
from dlq.core.clock import now
from dlq.core.errors import AccessDenied, BrokerError
from dlq.core.rocketmq_topics import HALF

_KEPT = "#kept"
"""When the bounds were taken, in microseconds of our clock: what was sent before that is not behind them."""
_BOOT, CLOCK, _START, _FIRST, _STORED = "#boot", "#clock", "#start", "#first", "#stored"
"""Behind a broker's name: when it was started, what its clock said, where its log began, and (with its start)
when the first message there was stored. Behind a queue: when the last message before its end was. Times are
milliseconds of the broker's clock."""
_MASTER, _EPOCH = "#master ", "#epoch "
"""Behind a broker's name, and before its address, or what its controller has counted when it was elected."""
_UNTOLD = "untold"
_UNREADABLE = -1
"""The end of a queue that the user may not look at."""
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
        if not _fails(node, answer := cluster.call(node, RequestCode.RUNTIME_INFO, {})):
            break
    else:
        return None
    with understood(node):
        told = loads(answer.body.decode()).get("table") or {} if answer.code == ResponseCode.OK else {}
        runs = _RUNTIME.search(str(told.get("runtime")))
        if runs is None:
            return None
        days, hours, minutes, seconds = map(int, runs.groups())
        booted, end = long(told["bootTimestamp"]), long(told["commitLogMaxOffset"])
        clock = booted + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
        behind = long(told["dispatchBehindBytes"])
        return Runtime(booted, long(clock), long(told["commitLogMinOffset"]), end, end - behind)


def _fails(node: str, answer: Frame) -> bool:
    """4.9 does for a moment after its start."""
    is_error = answer.code == ResponseCode.SYSTEM_ERROR
    return is_error and not isinstance(refusal(node, answer), AccessDenied)


def bounds(cluster: Cluster, targets: Iterable[Target]) -> Checkpoint:
    """See `Connector.bounds`. Brokers whose queues the user may not look at are kept, too."""
    places = [
        place
        for topic in sorted({topic_of(target) for target in targets})
        for place in _places(cluster, topic)
    ]
    found = {_KEPT: now()} if places else {}
    for place in places:
        found |= _end_of(cluster, place)
    for node in {place.node for place in places}:
        if runtime := runtime_of(cluster, node):
            found |= store_of(node, runtime, _first_stored(cluster, node, runtime.log_start))
        found |= {**masters(cluster, [node]), **_epoch(cluster, node, cluster.configuration(node))}
    return found


def masters(cluster: Cluster, nodes: Iterable[str]) -> Checkpoint:
    """Return where the masters of brokers are now, by all name servers: a slave that is promoted has another
    address under the same name, and a log that began with the same message."""
    return {f"{node}{_MASTER}{address}": 1 for node in nodes for address in cluster.listed.get(node, ())}


def _epoch(cluster: Cluster, node: str, settings: Mapping[str, str]) -> Checkpoint:
    """Return the epoch of a master that a controller elects: one that was deposed, and elected again, has cut
    off what the other lacked (AutoSwitchHAClient). Nothing of one that none elects."""
    if settings.get("enableControllerMode") != "true":
        return {}
    answer = cluster.call(node, RequestCode.EPOCHS, {})
    with understood(node):
        told = loads(answer.body.decode()).get("epochList") if answer.code == ResponseCode.OK else ()
        last = max((long(one["epoch"]) for one in told or ()), default=_UNTOLD)
    return {f"{node}{_EPOCH}{last}": 1}


def why_another(before: Checkpoint, now: Checkpoint, node: str) -> str | None:
    """Return why a broker may not be the very one that letters were sent to; None where it is."""
    for what in (_MASTER, _EPOCH):
        start = f"{node}{what}"
        then, here = (sorted(k.removeprefix(start) for k in c if k.startswith(start)) for c in (before, now))
        if then != here or len(here) > 1 or _UNTOLD in here:
            was, is_now = (" and ".join(some) or "nothing known" for some in (then, here))
            masters = f"{what.strip('# ')} then: {was}; now: {is_now}"
            return f"has another master ({masters}), which may lack what the other took"
    return None


def store_of(node: str, runtime: Runtime, first: int | None) -> dict[str, int]:
    """Return what tells a broker's store from another; `first`: when the first message of its log was
    stored."""
    told = {_BOOT: runtime.booted, CLOCK: runtime.clock, _START: runtime.log_start}
    if first is not None:
        told[_first_of(runtime.booted)] = first
    return {f"{node}{key}": value for key, value in told.items()}


def _first_of(booted: int) -> str:
    """Bounds that a plan adds later keep what is known, so a later start's must not pass for the first's."""
    return f"{_FIRST}{booted}"


def _places(cluster: Cluster, topic: str) -> list[MessageQueue]:
    """Return where a message for `topic` may be put now."""
    if topic == HALF:
        return [MessageQueue(HALF, node, 0) for node in cluster.masters()]
    return [MessageQueue(topic, node, queue) for node, queue in writable_queues(cluster, topic)]


def _end_of(cluster: Cluster, place: MessageQueue) -> dict[str, int]:
    offsets = _offsets(cluster, place)
    if offsets is None:
        return {str(place): _UNREADABLE}
    last = _last_before(cluster, offsets, offsets.highest)
    return {str(place): offsets.highest, **({} if last is None else {f"{place}{_STORED}": last})}


def _offsets(cluster: Cluster, place: MessageQueue) -> QueueOffsets | None:
    """Return None where the user may not look."""
    for ask in (offsets_of, unpulled_offsets):
        try:
            if found := ask(cluster, place):
                return found
        except AccessDenied:
            continue
    return None


def _last_before(cluster: Cluster, offsets: QueueOffsets, end: int) -> int | None:
    """Return when the last message before `end` was stored; None where there is none any more."""
    there = message_at(cluster, offsets, end - 1) if offsets.lowest < end <= offsets.highest else None
    return None if there is None else there.stored_at


class Since:
    """What came to the queues of topics since `before` was kept, and what keeps it from being all."""

    def __init__(self, cluster: Cluster, before: Checkpoint, since: int) -> None:
        """Take the bounds. `since`: when the first of what is looked for was sent, in microseconds of our
        clock."""
        self._cluster, self._before = cluster, before
        self._is_older = since < before.get(_KEPT, 0)
        self._masters = cluster.masters(refresh=True)
        self._doubts: dict[str, list[str]] = {}
        self.is_another = False

    def end_of(self, place: MessageQueue) -> int | None:
        """Return where a queue ended; None where nothing says so."""
        end = self._before.get(str(place))
        return None if end == _UNREADABLE else end

    def why_changed(self) -> list[str]:
        """Return why what was read since the beginning may not be one broker's."""
        is_same = self._cluster.masters(refresh=True) == self._masters
        return [] if is_same else ["another broker has become a master while this was asked"]

    def look(self, topic: str) -> tuple[list[Range], list[str]]:
        """Return the ranges that can be read, and in words why they may not hold all that came. Asked once
        what is looked for cannot arrive any more."""
        known = self._known(topic)
        if not known:
            return [], [f"nothing says where {topic} ended before the first letter was sent"]
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
        return ranges, doubts or _why_compacted(topic, self._cluster.attributes(topic))

    def _known(self, topic: str) -> list[MessageQueue]:
        """Return queues that could be written to then, or can now."""
        start = f"{topic}@"
        keys = [key for key in self._before if key.startswith(start) and not key.endswith(_STORED)]
        then = [MessageQueue(topic, node, int(queue)) for node, _, queue in map(_parted, keys)]
        return sorted({*then, *_places(self._cluster, topic)}) if then else []

    def _ranges(self, places: Iterable[MessageQueue], doubts: list[str]) -> list[Range]:
        found = []
        for place in places:
            offsets, end = _offsets(self._cluster, place), self._before.get(str(place), 0)
            if offsets is None or end == _UNREADABLE:
                doubts.append(f"the user may not read {place}")
                continue
            doubts += [f"{place} {why}" for why in self._lost(offsets, end)]
            found.append(Range(offsets, max(end, offsets.lowest)))
        return found

    def _lost(self, offsets: QueueOffsets, end: int) -> list[str]:
        """Return why a queue may have held more than it does."""
        was = self._before.get(f"{offsets.place}{_STORED}")
        return why_lost(offsets, end, was, _last_before(self._cluster, offsets, end))

    def _of_node(self, node: str, topic: str) -> list[str]:
        if node not in self._doubts:
            self._doubts[node] = [f"{node} {why}" for why in self._why_not_all(node, topic)]
        return self._doubts[node]

    def _why_not_all(self, node: str, topic: str) -> list[str]:
        """Return why a broker's queues may not hold all that it took."""
        settings = self._cluster.configuration(node)
        here = {**masters(self._cluster, [node]), **_epoch(self._cluster, node, settings)}
        if another := why_another(self._before, here, node):
            self.is_another = True
            return [another]
        if settings.get("brokerRole") == "SLAVE":
            return ["is registered as a master, and is a slave"]
        runtime = runtime_of(self._cluster, node)
        if runtime is None or f"{node}{_BOOT}" not in self._before:
            return ["does not tell since when it runs, or the user may not ask it"]
        doubts = []
        start = max(runtime.log_start, self._before.get(f"{node}{_START}", 0))
        first = _first_stored(self._cluster, node, start)
        if not is_same_store(self._before, store_of(node, runtime._replace(log_start=start), first), node):
            doubts.append("was started since, and its store does not reach back to before that")
        if not _is_dispatched(self._cluster, node, runtime.log_end):
            doubts.append("does not put what it stores into its queues")
        uncommitted = _why_uncommitted(self._cluster, node, topic, settings, runtime.clock + 1000)
        return [*doubts, uncommitted] if uncommitted else doubts


def _why_compacted(topic: str, attributes: Attributes) -> list[str]:
    if attributes is None:
        return [f"the user may not read whether {topic} is compacted (GET on the topic)"]
    return [f"{topic} is compacted, which may have removed it"] if is_compacted(attributes) else []


def why_lost(offsets: QueueOffsets, end: int, was: int | None, last: int | None) -> list[str]:
    """Return why a queue that ended at `end` may have held more than it does. `was`: when the last message
    before that was stored, as it was told then; `last`: as it is told now, None where it is gone."""
    if offsets.lowest > end:
        return [f"begins at {offsets.lowest}: retention has taken what followed {end}"]
    if offsets.highest < end:
        return [f"ends at {offsets.highest}, before {end}: it was made anew, or its end was cut off"]
    return ["was made anew since"] if last is not None and was != last else []


def is_same_store(before: Checkpoint, now: Checkpoint, node: str) -> bool:
    """Return whether a broker has the store still that it had (`store_of`, then and now). One that was not
    started meanwhile has. Else its log has the same message where it began; or it begins later, by retention,
    with one from before then. The broker's clock may have been set meanwhile, so alone it proves nothing."""
    booted, start = now[f"{node}{_BOOT}"], now[f"{node}{_START}"]
    booted_then, start_then = before[f"{node}{_BOOT}"], before.get(f"{node}{_START}", 0)
    if booted == booted_then:
        return True
    first = now.get(f"{node}{_first_of(booted)}")
    first_then = before.get(f"{node}{_first_of(booted_then)}")
    if first is None or first_then is None:
        return False
    if start == start_then:
        return first == first_then
    return start > start_then and first < before[f"{node}{CLOCK}"]


def _parted(key: str) -> tuple[str, str, str]:
    """TOPIC@NODE:QUEUE -> node, colon and queue."""
    return key.partition("@")[2].rpartition(":")


def _first_stored(cluster: Cluster, node: str, log_start: int) -> int | None:
    """Return when the first message of a broker's log was stored, by its clock; None where it does not
    tell."""
    for position in (log_start, log_start + _ENTRY_HEADER):
        answer = cluster.call(node, RequestCode.VIEW_MESSAGE, {"offset": position})
        try:
            found = [*decode(answer.body)] if answer.code == ResponseCode.OK else []
        except ProtocolError:
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
    """Return a log that several keep may hold back what lacks their consent, and give it later. What was
    stored after it, at `moment` or later, and is shown proves that it does not; that is waited for."""
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
    answer = cluster.call(node, RequestCode.TOPIC_STATS, {"topic": topic})
    return (int(found[1]) for found in _LAST_STORED.finditer(answer.body))
