"""How one queue is read in each mode, on Classic and on Artemis."""

import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from dlq.connectors.activemq.amqp.link import Amqp10
from dlq.connectors.activemq.amqp.read import OF_AMQP, OTHERS, ArtemisReading
from dlq.connectors.activemq.link.sockets import by_openwire
from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.activemq.look.jolokia import details
from dlq.connectors.activemq.look.queues import Queues, subscription
from dlq.connectors.activemq.openwire.link import OpenWireConnection
from dlq.connectors.activemq.openwire.read import OpenWireScan
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.read.browse import browse_queue
from dlq.connectors.activemq.read.isolated import IsolatedReading, list_messages
from dlq.connectors.activemq.read.lossy import (
    ArtemisClasses,
    lossy_on_artemis,
    lossy_on_classic,
)
from dlq.connectors.activemq.records.amqp10 import record_maker as amqp10_record_maker
from dlq.connectors.activemq.records.frames import Maker, Place, record_maker
from dlq.connectors.activemq.records.shadows import with_shadows
from dlq.connectors.activemq.stomp.codec import MAX_FRAME, Frame, headers_of
from dlq.connectors.activemq.stomp.link import Link
from dlq.connectors.activemq.stomp.read import Scan, Started, StompReading, is_end_of_browse, nudge
from dlq.connectors.base import ReadRequest
from dlq.connectors.chain import QueueScan, scan_twice
from dlq.connectors.net.links import close_on_failure
from dlq.core.errors import ConnectionLost, HarmRefused
from dlq.core.record import Record

_WINDOW_BYTES = 48 * 2**20
WINDOW_LETTERS = 6_000
"""Three segments: one that is filled, one that is written, one on its way."""
_LEAST = 100
"""Letters of a window, however large they are: so many need not be looked at before, and what cannot be
read may lie behind them."""
_CONSUMER_LETTERS = 3_000
_COPIED_WITH_CLASSES = 10_000
"""Artemis tells the classes of all letters that are out, and a copy holds the whole queue: a fifth more time
for 10,000 letters, eight times as much for 40,000. Beyond, their bodies must do; a copy destroys nothing."""
_PREFETCH = "activemq.prefetchSize"
_ALL = 2**31 - 1
_ASKED_ROWS = 20
"""Letters of a batch where each is a question to Jolokia, which may take long: between batches the caller
looks at its clock."""
_FEW, _PAUSE = 32, 0.05
"""Letters that are looked at to learn how large they are, and seconds that the next may take."""

ARTEMIS_COPY = (
    "copy on Artemis has to take the letters and give them back: there is no browsing over STOMP, and "
    "management shows bodies cut at 256 bytes. If dlq is killed meanwhile, each letter has a delivery more; "
    "after max-delivery-attempts (10 by default) a letter moves from the DLQ to the DLQ and its origin is "
    "lost. Use --mode drain, or insist with --force"
)
BROWSE = (
    "A browse changes nothing, but the broker may end it early: at 400 letters where a policy matches, "
    "or at its memory limit. With --force the letters are taken and given back instead."
)
_TAKE_BACK = "The letters are taken and given back: marked as redelivered, and in front of newer ones."
TAKE_BACK_ARTEMIS = "The letters are taken and given back by UNSUBSCRIBE, which counts no delivery."
DRAIN = "Letters are removed once they are durable; none is ever refused (a NACK would destroy it)."
_UNPROVEN = "The queue's size is unknown, so its end is taken from silence, not proven; {}."
_UNLISTED = (
    "Messages that came by AMQP 1.0, if there are any, stay in the queue: STOMP might not show them, and "
    "management does not list them to this user; set amqp_url."
)
_LISTED = 200
_LISTS_FEW = (
    f"A copy shows, of messages that came by AMQP 1.0, at most the {_LISTED} that management lists at once; "
    "a drain takes all. Set amqp_url to see them."
)
_UNASKED = "Jolokia was not asked: {}."


def scan_of(
    broker: ActiveMQBroker, queues: Queues, request: ReadRequest, queue: str, amqp: Amqp10 | None = None
) -> Scan | OpenWireScan | QueueScan:
    """Return how to read one queue; no connection is made yet, but its size is asked for. `amqp`: Artemis',
    to be asked whether it is spoken. Raises HarmRefused."""
    if by_openwire(broker) and not queues.artemis:
        return _by_openwire(broker, queues, request, queue)
    if amqp is None or queues.management is None:
        return _by_stomp(broker, queues, request, queue)
    facts = queues.facts(queue)
    if not amqp.is_spoken:
        return _isolated_scan(broker, queues, request, queue, queues.management)
    address = subscription(queue, True, facts)["destination"]
    place = Place(queue, "artemis", queues.version, amqp.node)
    others = _by_stomp(broker, queues, request, queue, {"selector": OTHERS})
    by_amqp = partial(ArtemisReading, broker, request, address, amqp10_record_maker(request, place))
    return scan_twice(others, by_amqp, others.begin)


def _by_openwire(broker: ActiveMQBroker, queues: Queues, request: ReadRequest, queue: str) -> OpenWireScan:
    facts = queues.facts(queue)
    browse = request.mode == "copy" and not request.force

    def start(limit: int | None) -> tuple[OpenWireConnection, int, Maker]:
        connection = OpenWireConnection(broker, MAX_FRAME)
        bound = 1 if _goes_one_by_one(request) else limit or _ALL
        if request.mode == "drain":
            with close_on_failure(connection):
                bound = min(bound, _letters(_mean_of_messages(connection, queue)))
        make = record_maker(request, Place(queue, "activemq", queues.version, connection.node))
        return connection, bound, make

    return OpenWireScan(
        request=request,
        queue=queue,
        start=start,
        browse=browse,
        depth=facts.depth if facts else None,
        topology={"queue": queue, **dict(facts.facts if facts else {})},
        notes=[_of_mode(False, browse, request), *_of_size(queues, facts is not None)],
        modified=bool(queues.version) and not _is_fixed(queues.version),
    )


def _isolated_scan(
    broker: ActiveMQBroker, queues: Queues, request: ReadRequest, queue: str, management: Management
) -> Scan | QueueScan:
    """Scan by STOMP, and one by one what came by AMQP 1.0; where that cannot be listed, it stays."""
    others = _by_stomp(broker, queues, request, queue, {"selector": OTHERS})
    if management.messages(queue, OF_AMQP) is None:
        return replace(others, notes=[*others.notes, _UNLISTED])
    if request.mode == "copy" and (others.depth is None or others.depth > _LISTED):
        others = replace(others, notes=[*others.notes, _LISTS_FEW])

    destination = {**subscription(queue, True, queues.facts(queue)), "ack": "client-individual"}

    def start(_limit: int | None) -> Started:
        link = Link(broker)
        make = record_maker(request, Place(queue, "artemis", link.version, link.node))
        return Started(link, destination, make, _lossy(queues, request, queue, None))

    def first(goal: int | None) -> StompReading:
        depth = None if others.depth is None else max(0, others.depth - len(list_messages(management, queue)))
        return replace(others, depth=depth).begin(goal)

    listed = replace(others, start=start, depth=None)
    return scan_twice(others, first, partial(IsolatedReading, listed, broker, management))


def _letters(mean_size: int) -> int:
    return max(_LEAST, min(WINDOW_LETTERS, _WINDOW_BYTES // mean_size))


def _mean_of_messages(connection: OpenWireConnection, queue: str) -> int:
    """Return the mean size of messages as `_mean_size` does, by OpenWire."""
    letters = connection.browse(queue, _FEW, _PAUSE)
    found = [len(one.marshalled) + len((one.message and one.message.content) or b"") for one in letters]
    return max(1, sum(found) // len(found)) if found else 1024


def _by_stomp(
    broker: ActiveMQBroker,
    queues: Queues,
    request: ReadRequest,
    queue: str,
    selected: Mapping[str, str] = MappingProxyType({}),
) -> Scan:
    if queues.artemis and request.mode == "copy" and not request.force:
        raise HarmRefused(ARTEMIS_COPY)
    if broker.jolokia_details:
        request = replace(request, batch_rows=min(request.batch_rows, _ASKED_ROWS))
    facts = queues.facts(queue)
    depth = facts.depth if facts else None
    browse = request.mode == "copy" and not request.force
    kind = "artemis" if queues.artemis else "activemq"

    def start(limit: int | None) -> Started:
        link = Link(broker)
        with close_on_failure(link):
            return started(link, limit)

    def started(link: Link, limit: int | None) -> Started:
        if link.artemis != queues.artemis:  # whose browse by STOMP would take all that there is
            raise ConnectionLost(f"{link.place}: it is of another kind than before; let url name one kind")
        destination = subscription(queue, queues.artemis, facts)
        classic_drain = request.mode == "drain" and not (queues.artemis or request.careful)
        cumulative = classic_drain and _forgets(link.version)
        window = _window(link, request, destination, browse, limit)
        if cumulative:
            window = {**window, "ack": "client"}
        consumers = 1
        if classic_drain and not cumulative:
            window, consumers = _spread(window)
        make = record_maker(request, Place(queue, kind, link.version, link.node))
        make = with_shadows(make) if link.artemis else make
        make = with_details(make, queues, queue) if broker.jolokia_details else make
        lossy = _lossy(queues, request, queue, depth, of_amqp=not selected)
        if link.artemis and by_openwire(broker):
            named = destination["destination"]
            make, lossy = _with_hidden(broker, named, limit, selected.get("selector"), make, lossy)
        wake = b"" if browse or link.artemis else nudge(destination, link.token)
        return Started(link, {**destination, **window, **selected}, make, lossy, wake, consumers, cumulative)

    return Scan(
        request=request,
        queue=queue,
        start=start,
        browse=browse,
        depth=depth,
        topology={"queue": queue, **dict(facts.facts if facts else {})},
        notes=[_of_mode(queues.artemis, browse, request), *_of_size(queues, facts is not None)],
    )


def _forgets(version: str) -> bool:
    """Return whether a Classic broker forgets the ack ids that a cumulative acknowledgement covers. Earlier
    ones (StompSubscription) may keep each of them until the connection ends."""
    return _is_fixed(version)


def _is_fixed(version: str) -> bool:
    """Return whether this is a Classic whose STOMP has got its corrections, UTF-8 among them (AMQ-8398)."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    return (5, 18, 6) <= numbers < (6,) or numbers >= (6, 1, 4)


def _goes_one_by_one(request: ReadRequest) -> bool:
    """Return whether the next letter is to come when one is acknowledged, which a copy does with none."""
    return request.careful and request.mode == "drain"


def _window(
    link: Link, request: ReadRequest, destination: Mapping[str, str], browse: bool, limit: int | None
) -> Mapping[str, str]:
    """Return how far the broker may run ahead of the acknowledgements. Classic counts letters, Artemis
    bytes."""
    if browse:
        return {"ack": "auto", "browser": "true"}
    if link.artemis:
        size = -1 if request.mode == "copy" else 1024 if request.careful else _WINDOW_BYTES
        return {"ack": "client-individual", "consumer-window-size": str(size)}
    letters = _ALL
    if request.mode == "drain" and not request.careful and (limit is None or limit > _LEAST):
        letters = _letters(_mean_size(link, destination))
    bound = 1 if _goes_one_by_one(request) else min(letters, limit or _ALL)
    return {"ack": "client-individual", _PREFETCH: str(bound)}


def _mean_size(link: Link, destination: Mapping[str, str]) -> int:
    """Mean frame size of the first letters, by browsing a few (Classic: changes nothing). 1024 for none."""
    few = {"id": link.token, "ack": "client", "browser": "true", _PREFETCH: str(_FEW)}
    link.request("SUBSCRIBE", {**destination, **few})
    sizes: list[int] = []
    while len(sizes) < _FEW:
        frames = [frame for frame in link.receive(_PAUSE) if frame.command == b"MESSAGE"]
        sizes += [len(frame.head) + len(frame.body) for frame in frames]
        if not frames or is_end_of_browse(frames[-1].head):
            break
    link.request("UNSUBSCRIBE", {"id": link.token})
    link.discard()
    return sum(sizes) // len(sizes) if sizes else 1024


def _spread(window: Mapping[str, str]) -> tuple[Mapping[str, str], int]:
    """Return the window shared among several consumers, and how many they are."""
    letters = int(window[_PREFETCH])
    consumers = max(1, letters // _CONSUMER_LETTERS)
    return {**window, _PREFETCH: str(letters // consumers)}, consumers


def with_details(make: Maker, queues: Queues, queue: str) -> Maker:
    """Return records with what Jolokia knows of each letter beside what STOMP carries (Classic)."""

    def detailed(record: Record) -> Record:
        shown = queues.message(queue, record.physical_id or "")
        known = details(shown) if shown else {}
        return record._replace(properties={**record.properties, **known})

    return lambda frames: [detailed(record) for record in make(frames)]


_Lossy = Callable[[Frame], str | None]
"""Why a letter must stay in its queue, or None."""


def _with_hidden(
    broker: ActiveMQBroker, queue: str, limit: int | None, selector: str | None, make: Maker, lossy: _Lossy
) -> tuple[Maker, _Lossy]:
    """Return the same with what Artemis tells by OpenWire alone."""
    with closing(OpenWireConnection(broker, MAX_FRAME)) as connection:
        found = browse_queue(connection, queue, limit, selector)
    return (
        lambda frames: make([found.complete(frame) for frame in frames]),
        lambda frame: found.why_lossy(frame, lossy),
    )


def _lossy(
    queues: Queues, request: ReadRequest, queue: str, depth: int | None, of_amqp: bool = True
) -> _Lossy:
    if queues.management is not None:
        is_small = request.mode == "drain" or (depth is not None and depth <= _COPIED_WITH_CLASSES)
        class_of = ArtemisClasses(queues.management, queue, of_amqp) if is_small else lambda _frame: None
        return lambda frame: lossy_on_artemis(frame, class_of)

    def look_up(frame: Frame) -> Mapping[str, Any] | None:
        return queues.message(queue, headers_of(frame.head).get("message-id", ""))

    return lambda frame: lossy_on_classic(frame, request.include_empty, look_up)


def _of_mode(artemis: bool, browse: bool, request: ReadRequest) -> str:
    if request.mode == "drain":
        return DRAIN
    if browse:
        return BROWSE
    return TAKE_BACK_ARTEMIS if artemis else _TAKE_BACK


def _of_size(queues: Queues, sized: bool) -> list[str]:
    if sized:
        return [_UNASKED.format(queues.trouble)] if queues.trouble else []
    return [_UNPROVEN.format(queues.trouble or "set jolokia_url or statistics_plugin")]
