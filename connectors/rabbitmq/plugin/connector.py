"""RabbitMQ: the connector. `amqp091` reads and sends what 0-9-1 carries, `amqp10` the rest."""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from dlq.connectors import base
from dlq.connectors.chain import ChainOfTwo, ChainReading, QueueScan
from dlq.connectors.deadline import with_deadline, with_shared_deadline
from dlq.connectors.local.credentials import log_in
from dlq.connectors.net.links import LinkLostError, close_on_failure
from dlq.connectors.net.web import whole
from dlq.connectors.queue import goal_of
from dlq.connectors.rabbitmq import republish
from dlq.connectors.rabbitmq.amqp091.link.channel import Link
from dlq.connectors.rabbitmq.amqp091.read import RabbitReading, is_empty, keeps_marks
from dlq.connectors.rabbitmq.amqp10.read import UncarriedReading
from dlq.connectors.rabbitmq.amqp10.send import RabbitTwoWays, open_session
from dlq.connectors.rabbitmq.link import (
    connecting,
    connection_lost,
    login_of,
    parameters,
    place_of,
    refusal,
)
from dlq.connectors.rabbitmq.look import consumers as rabbitmq_consumption
from dlq.connectors.rabbitmq.look import definitions, discovery, doctor
from dlq.connectors.rabbitmq.look import limits as rabbitmq_limits
from dlq.connectors.rabbitmq.look import receivers as consumers
from dlq.connectors.rabbitmq.look.coverage import deaths as coverage
from dlq.connectors.rabbitmq.look.effects import harm
from dlq.connectors.rabbitmq.look.second_death import Prospects
from dlq.connectors.rabbitmq.look.topology import VirtualHost, lasting_depth, learn_apart, version_of
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rabbitmq.prove import witness as rabbitmq_witness
from dlq.connectors.rabbitmq.read import pattern as queue_pattern
from dlq.connectors.rabbitmq.read.private import RabbitPrivate
from dlq.connectors.rabbitmq.read.wildcards import is_pattern
from dlq.connectors.rabbitmq.send import Ways, forget
from dlq.connectors.rabbitmq.streams.look import StreamLook
from dlq.connectors.rabbitmq.streams.read import StreamReading
from dlq.core.errors import OF_ONE_MEMBER, DlqError, HarmRefused, NotFound, PoisonMessage, UsageError
from dlq.core.record import Record
from dlq.core.settings import AUTO, Source

_MESSAGE_CONTAINERS = (3, 13)
"""Since then the broker converts messages between protocols when it delivers them."""
_AMQP_1_0 = (4,)
"""Since then every node speaks it."""


class RabbitConnector(base.Connector):
    """One virtual host of RabbitMQ, by the contract of `Connector`. Connects when it is asked something."""

    window = 1000

    def __init__(self, broker: RabbitBroker) -> None:
        self._broker = broker
        self._choices = parameters(broker)
        self._link_before: Link | None = None
        self._prospects = Prospects(broker)

    @with_deadline
    def inspect(self, source: Source) -> base.Inspection:
        """Inspect a queue, or all that a pattern finds. That a witness could prove nothing is said, too."""
        try:
            look = queue_pattern.inspect if is_pattern(source.queue) else doctor.inspect
            found = look(self._broker, source.queue or "")
        except NotFound as error:
            raise self._with_name_meant(error, source) from error
        return self._with_witness(found) if self._broker.witness else found

    def _with_witness(self, found: base.Inspection) -> base.Inspection:
        against = self.check_witness()
        if self._broker.witness != AUTO:
            return replace(found, warnings=[*found.warnings, *against])
        said = f"none: {'; '.join(against)}" if against else "left by a replay"
        return replace(found, facts={**found.facts, "witness": said})

    @with_deadline
    def gauge(self, source: Source) -> base.Gauge:
        """Ask for the depth by a passive declare, with what the management API adds; of a pattern the sum."""
        queue = source.queue or ""
        if not is_pattern(queue):
            return rabbitmq_consumption.gauge(self._broker, [queue])
        known = rabbitmq_consumption.list_queues(self._broker)
        names, _ = queue_pattern.choose(self._broker, queue, known)
        return rabbitmq_consumption.gauge(self._broker, names, known)

    @with_deadline
    def members(self, source: Source) -> dict[str, int | None]:
        """Return the depth of each queue of a pattern, by the management API."""
        if not is_pattern(source.queue):
            return {}
        known = rabbitmq_consumption.list_queues(self._broker)
        names, _ = queue_pattern.choose(self._broker, source.queue or "", known)
        return {name: whole(known[name].get("messages")) for name in names}

    @with_deadline
    def discover(self) -> list[base.DeadLetterPlace]:
        """Return queues that arguments, policies, bindings or names show to be for dead letters
        (`discovery`)."""
        return discovery.discover(self._broker)

    @with_deadline
    def coverage(self) -> Sequence[base.Fate]:
        """Tell where the dead go, by the management API (`look.coverage`)."""
        if not self._broker.management_url:
            return [base.not_seen(self._broker.name, "management_url", "http://HOST:15672")]
        return coverage.predict(definitions.fetch(self._broker))

    @with_deadline
    def read(self, request: base.ReadRequest) -> base.Reading:
        """Read one queue by a window of its own, or those of a pattern in turn. Raises UsageError for a
        drain of a stream, of which nothing can be removed."""
        pattern = request.source.queue or ""
        if not is_pattern(pattern):
            return self._read_one(request)
        names, notes, host = queue_pattern.resolve(self._broker, pattern)
        started = time.monotonic()
        scans: list[QueueScan] = []
        unread: dict[str, DlqError] = {}
        for name in names:
            try:
                scans.append(self._scan(request, name, host, started))
            except OF_ONE_MEMBER as error:
                unread[name] = error
        shared = queue_pattern.of_the_host(scans)
        own = [*map(queue_pattern.without_the_host, scans)]
        reading = ChainReading(own, request.mode, request.limit, shared, unread=unread)
        reading.notes = [*reading.notes, *notes]
        reading.marks_redelivered = all(keeps_marks(scan.topology) for scan in own)
        return reading

    def _scan(self, request: base.ReadRequest, queue: str, host: VirtualHost, started: float) -> QueueScan:
        """Scan one queue of a pattern. It is looked at now, so that the snapshot is of one moment, and
        connected to again when its turn comes: hundreds of queues must not be hundreds of connections."""
        alone = replace(request, source=replace(request.source, queue=queue))
        seen = self._read_one(alone, host, started)
        seen.close()
        depth = seen.snapshot or 0

        def begin(limit: int | None) -> RabbitReading | ChainOfTwo:
            wanted = replace(alone, limit=limit)
            return self._begin_reading(self._link(), wanted, depth, seen.topology, seen.notes)

        return QueueScan(queue, depth, {"queue": queue, **seen.topology}, begin, seen.notes)

    def _read_one(
        self, request: base.ReadRequest, host: VirtualHost | None = None, since: float | None = None
    ) -> RabbitReading | ChainOfTwo | StreamReading:
        link = self._link()
        try:
            with close_on_failure(link):
                return self._read_queue(link, request, host, since)
        except LinkLostError as error:
            raise connection_lost(error, self._broker) from error
        except NotFound as error:
            raise self._with_name_meant(error, request.source) from error

    def _with_name_meant(self, error: NotFound, source: Source) -> NotFound:
        if is_pattern(source.queue):
            return error
        return NotFound(f"{error}{discovery.suggest_queue(self._broker, source.queue or '')}")

    def _read_queue(
        self, link: Link, request: base.ReadRequest, host: VirtualHost | None, since: float | None
    ) -> RabbitReading | ChainOfTwo | StreamReading:
        queue = request.source.queue or ""
        try:
            found = link.find_queue(queue)
        except PoisonMessage as error:  # 541, and no letter was asked for yet
            raise refusal(541, "INTERNAL_ERROR", self._broker) from error
        version = link.server_version
        topology = learn_apart(self._broker, queue, version, host)
        if topology.kind == "stream":
            if request.mode == "drain":
                raise UsageError(f"source {request.source.name}: {queue}: {doctor.NO_DRAIN}")
            notes = doctor.notes_on_stream(version)
            return self._of_stream(link, request, topology.document(), notes)
        against = harm(topology, found.message_count, request.mode)
        if against and not request.force:
            raise HarmRefused(f"source {request.source.name}: {against}")
        notes = [*doctor.notes_on(topology, request.mode, version, found.consumer_count), *topology.notes]
        depth = found.message_count
        if topology.kind in (None, "quorum"):
            depth = lasting_depth(lambda: int(link.find_queue(queue).message_count), since)
            depth = depth or self._proven_depth(link, queue)
        return self._begin_reading(link, request, depth, topology.document(), notes)

    def _of_stream(
        self, link: Link, request: base.ReadRequest, topology: Mapping[str, Any], notes: Sequence[str]
    ) -> StreamReading:
        """Read a stream, after a poisoned connection with a look by AMQP 1.0."""
        if not request.careful or version_of(link.server_version) < _AMQP_1_0:
            return StreamReading(link, request, topology, notes)
        session = open_session(self._broker)
        with close_on_failure(session):
            look = StreamLook(session, request, link.server_version)
            return StreamReading(link, request, topology, notes, look)

    def _begin_reading(
        self,
        link: Link,
        request: base.ReadRequest,
        depth: int,
        topology: Mapping[str, Any],
        notes: Sequence[str],
    ) -> RabbitReading | ChainOfTwo:
        """Read a copy, after a poisoned connection by both protocols, where what goes back does not count or
        may."""
        version = version_of(link.server_version)
        if not request.careful or version < _AMQP_1_0 or not doctor.may_release(topology, version):
            return RabbitReading(link, request, depth, topology, notes)
        with close_on_failure(link):
            session = open_session(self._broker)
        first = UncarriedReading(link, session, request, depth, topology, notes)
        goal = goal_of(depth, request.limit)
        return ChainOfTwo(first, lambda left: first.read_the_rest(left or 0), goal)

    def _proven_depth(self, link: Link, queue: str) -> int:
        """Return the depth of a quorum queue that says 0, as it does while it has no leader."""
        with closing(self._link()) as asking:
            return 0 if is_empty(asking, queue) else int(link.find_queue(queue).message_count)

    def _link(self) -> Link:
        """Put a node whose connection was lost behind the others, from which it may be cut off."""
        versions: list[str] = []

        def refused(code: int, text: str) -> DlqError:
            if code == 541 and versions and version_of(versions[0]) >= _MESSAGE_CONTAINERS:
                return _poison(self._broker, version_of(versions[0]))
            return refusal(code, text, self._broker)

        if self._link_before is not None and self._link_before.was_lost:
            lost = self._link_before.choice
            self._choices.sort(key=lambda choice: choice is lost)

        def connected() -> Link:
            login = login_of(self._broker)
            for choice in self._choices:
                choice.credentials = login
            return Link(self._choices, refused)

        with connecting(self._broker):
            self._link_before = link = log_in(self._broker, connected)
        versions.append(link.server_version)
        return link

    def target_of(self, record: Record, to: str) -> base.Target | None:
        """Return the queue of the last death, by the default exchange; an unroutable letter goes to its
        exchange."""
        return republish.target_of(record, to)

    @with_shared_deadline
    def preview(self, letter: base.Outgoing) -> base.SendPreview:
        """Strip x-death and its like, CC where it leads to other queues, BCC, user_id, expiration, and what
        tells of the failure."""
        return self._prospects.preview(letter, republish.preview(letter))

    @with_deadline
    def consumers(self, targets: Sequence[base.Target]) -> Mapping[base.Target, Sequence[str]]:
        """Return the queues that bindings lead to; only the management API proves them."""
        return consumers.consumers_of(self._broker, targets)

    @with_deadline
    def missing_targets(self, targets: Sequence[base.Target]) -> Mapping[base.Target, str]:
        """Return queues and exchanges that a passive declare does not find."""
        return rabbitmq_consumption.missing_targets(self._broker, targets)

    @with_deadline
    def limits(self, targets: Sequence[base.Target]) -> Mapping[base.Target, base.Limits]:
        """Return the limits by arguments and policies."""
        self._prospects.learn(targets)
        return rabbitmq_limits.limits(self._broker, targets)

    @with_deadline
    def consumption(self, targets: Sequence[base.Target]) -> Mapping[base.Target, Sequence[base.Consumption]]:
        """Return the consumption of each queue that a target reaches; the queues of an exchange only by the
        management API."""
        return rabbitmq_consumption.consumption(self._broker, targets)

    def publisher(self, request: base.SendRequest) -> base.Publisher:
        """Send with confirms and the mandatory flag, always; a witness is a queue that proves what arrived.
        What only AMQP 1.0 carries goes by that, with its outcome as the confirm."""
        plan, window, unsent = request.plan, request.window, request.unsent_seconds
        if request.witness:
            return rabbitmq_witness.WitnessedPublisher(self._broker, plan, window, request.private, unsent)
        return RabbitTwoWays(self._broker, plan, window, Ways(self._broker, plan, request.private), unsent)

    def check_witness(self) -> Sequence[str]:
        """Say why there can be no witness: no management API, or no right to leave one."""
        return rabbitmq_witness.check_rights(self._broker)

    @with_deadline
    def find(self, search: base.Search) -> base.Proof:
        """Find letters by the witness alone: RabbitMQ cannot be asked what it took."""
        return rabbitmq_witness.find(self._broker, search.plan, search.letters)

    def forget(self, request: base.SendRequest) -> None:
        """Delete the plan's exchanges and its witness queue, if there were any."""
        queues = [target.name for target in request.private if target.kind == "queue"]
        if request.witness:
            rabbitmq_witness.forget(self._broker, request.plan, queues)
        elif queues:
            forget(self._broker, request.plan, queues)

    def private(self, name: str) -> base.Private:
        """Return two queues, of which the one dead-letters into the other."""
        return RabbitPrivate(self._broker, name)


def _poison(broker: RabbitBroker, version: tuple[int, ...]) -> PoisonMessage:
    said = (
        f"{place_of(broker)}: the broker closed the connection (541) over a letter that it cannot convert to "
        "AMQP 0-9-1"
    )
    if version >= _AMQP_1_0:
        return PoisonMessage(f"{said}: such letters are read by AMQP 1.0, or stay in the queue")
    return PoisonMessage(
        f"{said}: an AMQP 1.0 message with a uuid or char property. Trying again in a loop removes the "
        "letters beside it from a quorum queue. Take it out with an AMQP 1.0 client or an amqp10 shovel"
    )
