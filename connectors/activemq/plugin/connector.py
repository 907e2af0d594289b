"""ActiveMQ Classic and Artemis; the broker tells which of the two it is.

Where the configuration has an address for OpenWire, Classic's letters are read and sent by it, and Artemis'
are completed by it and sent."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from dlq.connectors import base
from dlq.connectors.activemq import republish
from dlq.connectors.activemq.amqp.link import Amqp10, with_amqp
from dlq.connectors.activemq.amqp.send import Amqp10Sender
from dlq.connectors.activemq.link.sockets import by_openwire, is_openwire
from dlq.connectors.activemq.look import coverage as artemis_coverage
from dlq.connectors.activemq.look import strategies
from dlq.connectors.activemq.look.artemis import NO_MANAGEMENT
from dlq.connectors.activemq.look.doctor import bridge_facts, inspection, prepared_facts
from dlq.connectors.activemq.look.effects import harm
from dlq.connectors.activemq.look.jolokia import Jolokia, why_dead_letters
from dlq.connectors.activemq.look.limits import limits
from dlq.connectors.activemq.look.queues import Queues, is_pattern
from dlq.connectors.activemq.openwire.link import OpenWireConnection
from dlq.connectors.activemq.openwire.send import OpenWireSender, with_openwire
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.prove.evidence import Count, read_counts, read_runs, write_counts
from dlq.connectors.activemq.prove.markers import PROBES, Trail, marker_queue
from dlq.connectors.activemq.prove.routing import UNKNOWN_TYPE, UNPROVEN, Routing, letters_by_target
from dlq.connectors.activemq.read.private import ArtemisPrivate, ClassicPrivate
from dlq.connectors.activemq.read.removal import count_removals
from dlq.connectors.activemq.read.scan import scan_of
from dlq.connectors.activemq.read.silence import why_silent
from dlq.connectors.activemq.read.ways import WaysReading
from dlq.connectors.activemq.records import amqp10
from dlq.connectors.activemq.records.frames import bare_destination
from dlq.connectors.activemq.send import Sender, StompSender
from dlq.connectors.activemq.stomp.link import Link
from dlq.connectors.activemq.stomp.send import TransactionPublisher
from dlq.connectors.chain import ChainReading, Scan, WhyIncomplete
from dlq.connectors.deadline import with_deadline, with_shared_deadline
from dlq.connectors.proving import decide, numbers_of
from dlq.connectors.sending import TwoWayPublisher
from dlq.core.errors import OF_ONE_MEMBER, ConfigError, DlqError, HarmRefused
from dlq.core.record import Record
from dlq.core.runtime import patience
from dlq.core.settings import Source

_TAKEN = "of the {1} messages that were taken from {0} not all were ours: the last of its markers may be gone"
_NODE_UNTOLD = (
    "Artemis did not say which broker it is (nodeID), then or now, so this may be another, a mirror"
)
_ELSEWHERE = "this is broker {}, and letters were sent to {}: what is not here, a mirror's, may be there"
_COMMITTED = (
    "the broker has committed it; nothing that Classic answers reports a letter that it then drops for a "
    "composite's filter, a plugin, a topic without subscribers or an expiry at once"
)
_CONFIRMED = (f"confirmed means: {_COMMITTED}",)


class ActiveMQConnector(base.Connector):
    """One ActiveMQ broker (or several addresses of one)."""

    window = 1000

    def __init__(self, broker: ActiveMQBroker) -> None:
        self._broker, self._by_openwire = broker, by_openwire(broker)
        self.kind, self.version = (_by_greeting if is_openwire(broker) else _by_stomp)(broker)
        self.queues = Queues(broker, self.kind, self.version)
        self._routing = Routing(self.queues.management) if self.queues.management else None
        self._amqp = Amqp10(broker) if self.kind == "artemis" else None

    @with_deadline
    def inspect(self, source: Source) -> base.Inspection:
        """Asks Jolokia, or Artemis over STOMP; with `openwire_url` its connection is tried, too."""
        xml = self._broker.activemq_xml
        found = inspection(self.queues, _queue_of(source), self.kind, self.version, self._by_openwire, xml)
        if self._amqp is not None:
            found = with_amqp(found, self._amqp)
        if self._routing is None:
            found = replace(found, facts={**found.facts, "confirmed": _COMMITTED})
        elif not self._routing.tells:
            found = replace(found, warnings=[*found.warnings, f"A replay: {UNPROVEN}."])
        return with_openwire(found, self._broker) if self._by_openwire else found

    @with_deadline
    def gauge(self, source: Source) -> base.Gauge:
        """Ask management for the depth. What it does not tell of one queue is not known of a pattern."""
        names = self.queues.resolve_names(_queue_of(source))
        facts = [self.queues.facts(name) for name in names]
        known = [
            base.Consumption(name, one.depth, one.consumers, one.acknowledged)
            for name, one in zip(names, facts, strict=True)
            if one is not None
        ]
        return base.gauge_of(known) if len(known) == len(names) else base.Gauge(None)

    @with_deadline
    def members(self, source: Source) -> dict[str, int | None]:
        """Return the depth of each queue of a pattern, from management."""
        queue = _queue_of(source)
        names = self.queues.resolve_names(queue) if is_pattern(queue) else []
        return {name: facts.depth if (facts := self.queues.facts(name)) else None for name in names}

    @with_deadline
    def discover(self) -> list[base.DeadLetterPlace]:
        """Classic marks the queues that it dead-letters into, by default ActiveMQ.DLQ; on Artemis they are
        known by their names (DLQ, ExpiryQueue, and what is created with the prefix DLQ.)."""
        jolokia = Jolokia(self._broker, self.kind == "artemis")
        return [
            base.DeadLetterPlace(name, {"queue": name}, "queue", because, facts.depth, facts.consumers)
            for name, facts in sorted(jolokia.queues().items())
            if (because := why_dead_letters(name, facts))
        ]

    @with_deadline
    def coverage(self) -> list[base.Fate]:
        """Artemis by its management (`look.coverage`), Classic by its activemq.xml (`look.strategies`)."""
        management = self.queues.management
        if management is None:
            return self._classic_coverage()
        told = management.definitions()
        if told is None:
            return [base.Fate("broker", self._broker.name, "any", "unknown", (), NO_MANAGEMENT)]
        queues, settings, diverts = told
        return artemis_coverage.predict(artemis_coverage.Definitions(queues, settings, diverts, [*settings]))

    def _classic_coverage(self) -> list[base.Fate]:
        name, path = self._broker.name, self._broker.activemq_xml
        if not path:
            return [base.not_seen(name, "activemq_xml", "/etc/activemq/activemq.xml")]
        if not self._broker.jolokia_url:
            return [base.not_seen(name, "jolokia_url", "http://host:8161/api/jolokia")]
        policies = strategies.load(path, f"brokers.{name}.activemq_xml")
        return strategies.predict(policies, Jolokia(self._broker, artemis=False).queues())

    @with_deadline
    def read(self, request: base.ReadRequest) -> base.Reading:
        """Return the source's queue, or those of a pattern in turn, each on a connection of its own."""
        names = self.queues.resolve_names(_queue_of(request.source))
        scans: dict[str, Scan] = {}
        kept: list[str] = []
        unread: dict[str, DlqError] = {}
        for name in names:
            try:
                scans[name] = self._scan(request, name, kept)
            except OF_ONE_MEMBER as error:
                unread[name] = error
        ways, management = self.queues.ways_of_the_dead(), self.queues.management
        made_as = partial(WaysReading, management) if management else ChainReading
        silent = self._why_silent(request, scans)
        chain = list(scans.values())
        reading = made_as(chain, request.mode, request.limit, ways, silent, lambda: kept, unread)
        if request.mode == "drain":
            reading.notes = [*reading.notes, *bridge_facts(self.queues)]
        if not reading.snapshot:
            reading.notes = [*reading.notes, *prepared_facts(self.queues)]
        return reading

    def _scan(self, request: base.ReadRequest, queue: str, kept: list[str]) -> Scan:
        why = None if request.force else harm(self.queues, queue, request.mode)
        if why:
            raise HarmRefused(f"{why}. Insist with --force")
        scan = scan_of(self._broker, self.queues, request, queue, self._amqp)
        if request.mode == "copy":
            return scan
        return count_removals(scan, partial(self.queues.count_taken, queue), self.queues.artemis, kept)

    def _why_silent(self, request: base.ReadRequest, scans: Mapping[str, Scan]) -> WhyIncomplete | None:
        """Return what explains silence; None for a browse, which may end early by itself."""
        if request.mode == "copy" and not request.force:
            return None
        return lambda queue, held: why_silent(self.queues, queue, held, scans[queue].topology)

    def target_of(self, record: Record, to: str) -> base.Target | None:
        """Return where the letter died; on Artemis the queue of its subscription alone, where it names one. A
        divert that it names is no queue, and what it diverted may have gone on to its own: nothing says
        where."""
        target = republish.target_of(record, to)
        named = record.headers.get("_AMQ_ORIG_QUEUE") if to == "origin" else None
        return None if named and self._routing and self._routing.is_divert(named) else target

    @with_shared_deadline
    def preview(self, letter: base.Outgoing) -> base.SendPreview:
        """Preview a replay. With `openwire_url` properties keep their types; by STOMP all become strings."""
        known = self._preview(letter)
        if self._routing is None:
            return known
        against, untold = self._routing.prospects(letter.target)
        if self._routing.is_unknown(letter.target, letter.record):
            against = UNKNOWN_TYPE.format(letter.target.name)
        if not against and not untold:
            return known
        unless_named = {**known.unless_named, "target": against} if against else known.unless_named
        return known._replace(unless_named=unless_named, warnings=[*known.warnings, *untold])

    def _preview(self, letter: base.Outgoing) -> base.SendPreview:
        if not amqp10.is_of_amqp(letter.record):
            always = () if self._routing else _CONFIRMED
            return republish.preview_whole(letter, self._by_openwire, always)
        if self._amqp is None or not self._amqp.is_spoken:
            hint = self._amqp.trouble if self._amqp else "this is no Artemis"
            return base.SendPreview(problem=f"it came by AMQP 1.0, and goes back only by it: {hint}")
        return republish.preview_by_amqp(letter)

    @with_deadline
    def consumers(self, targets: Sequence[base.Target]) -> Mapping[base.Target, Sequence[str]]:
        """Return who gets what is sent to each target: a queue that exists is its own consumer, one that does
        not has none; of topics Artemis tells the queues of the subscriptions, Classic nothing."""
        if self._routing is not None:
            return {t: self._routing.receivers(t) for t in targets if self._routing.tells}
        names = self.queues.names()
        asked = {t: t.name for t in targets if t.kind == "queue" and names is not None}
        return {t: [name] if name in (names or ()) else [] for t, name in asked.items()}

    @with_deadline
    def missing_targets(self, targets: Sequence[base.Target]) -> Mapping[base.Target, str]:
        """Elsewhere than on Artemis nothing: the first letter makes its queue, and `consumers` says that
        nobody is there."""
        if self._routing is None:
            return {}
        found = {target: self._routing.why_missing(target) for target in targets}
        return {target: why for target, why in found.items() if why is not None}

    @with_deadline
    def limits(self, targets: Sequence[base.Target]) -> Mapping[base.Target, base.Limits]:
        """Return the limits of Artemis, as far as the user may ask; Classic tells of none."""
        found = {t: limits(self._routing, self.queues, t) for t in targets} if self._routing else {}
        return {target: known for target, known in found.items() if known is not None}

    @with_deadline
    def consumption(self, targets: Sequence[base.Target]) -> Mapping[base.Target, Sequence[base.Consumption]]:
        """Return how much waits in each queue. Of the consumers of a topic nothing is known."""
        names = self.queues.names()
        asked = {t: t.name.rpartition("::")[2] for t in targets if t.kind == "queue" or "::" in t.name}
        found = {target: self._consumption(name, names) for target, name in asked.items()}
        return {target: [known] for target, known in found.items() if known is not None}

    def _consumption(self, queue: str, names: Sequence[str] | None) -> base.Consumption | None:
        """Return what a queue has; nothing of one that is not there, which its first letter makes."""
        if names is not None and queue not in names:
            return base.Consumption(queue, 0, 0, 0)
        known = self.queues.facts(queue)
        return (
            None
            if known is None
            else base.Consumption(queue, known.depth, known.consumers, known.acknowledged)
        )

    def publisher(self, request: base.SendRequest) -> base.Publisher:
        """Transactions with markers, by OpenWire where it is configured, else by STOMP; what came to Artemis
        by AMQP 1.0 by that, in a run of its own."""
        routing = Routing(self.queues.management) if self.queues.management else None
        publisher = TransactionPublisher(self._sender, request, routing)
        if self._amqp is None:
            return publisher
        by_amqp = partial(TransactionPublisher, partial(Amqp10Sender, self._broker), request, routing)
        return TwoWayPublisher(publisher, by_amqp, lambda letter: amqp10.is_of_amqp(letter.record))

    def _sender(self) -> Sender:
        return (OpenWireSender if self._by_openwire else StompSender)(self._broker)

    @with_deadline
    def bounds(self, targets: Iterable[base.Target]) -> base.Evidence:
        """Return what Artemis has counted at the targets: a marker proves a commit, and not that a queue got
        it."""
        return write_counts(self._routing.counts(targets)) if self._routing else base.NO_EVIDENCE

    @with_deadline
    def find(self, search: base.Search) -> base.Proof:
        """Find letters by the markers in the plan's queue: a transaction is committed with its marker, or not
        at all. What none names was not sent where the anchors of all runs prove that all markers are there.
        Where Artemis' counts do not say that a queue got all, what does not lie there is `unknown`, too."""
        with closing(self._sender()) as sender:
            trail = sender.trail(search.plan)
        seen = numbers_of(search.letters, trail.sent)
        there = [letter for letter in search.letters if letter.number in seen]
        why = self._why_unproven(trail, search.plan, search.before)
        lost = self._not_arrived(there, read_counts(search.before), None if why else len(trail.sent))
        return decide(search.letters, seen, [why] if why else [], lost)

    def _not_arrived(
        self, there: Sequence[base.Outgoing], before: Mapping[Count, int], committed: int | None
    ) -> Mapping[int, str]:
        """Numbers of those of these letters that may not have reached their target, and why that is said.
        `committed`: how many of the plan were; None: not all markers are there to tell."""
        if self._routing is None:
            return {}
        lost = self._routing.unproven(letters_by_target(there), before, committed)
        doubted = [o for o in there if o.target in lost]
        lying = numbers_of(doubted, self._routing.ids_in_queues(doubted))
        return {o.number: lost[o.target] for o in doubted if o.number not in lying}

    def _why_unproven(self, trail: Trail, plan: str, before: base.Evidence) -> str | None:
        queue = marker_queue(plan)
        runs = read_runs(before, queue)
        why = trail.why_unproven([run.anchor for run in runs], queue) or self.queues.why_dropped(queue)
        return why or self._why_elsewhere({run.node for run in runs}) or self._why_taken(queue)

    def _why_elsewhere(self, nodes: Collection[str]) -> str | None:
        """Return why this may be another node: a mirror of Artemis has anchors and markers, too, but may lack
        what a failover cut off. A store of Classic is known by its anchors: a bridge brings no marker."""
        if self._routing is None:
            return None
        here = self._routing.node
        if not here or "" in nodes:
            return _NODE_UNTOLD
        others = ", ".join(sorted({*nodes} - {here}))
        return _ELSEWHERE.format(here, others) if others else None

    def _why_taken(self, queue: str) -> str | None:
        """Say why letters were taken, by the broker's count if it tells one, which begins with the broker."""
        for _ in patience.tries(patience.COUNTED):
            facts = self.queues.facts(queue)
            if not (taken := facts.acknowledged if facts else None) or taken % PROBES == 0:
                return None
        return _TAKEN.format(queue, taken)

    def forget(self, request: base.SendRequest) -> None:
        """Take the markers out, and delete their empty queue where management may."""
        with closing(self._sender()) as sender:
            sender.forget(request.plan)
        self.queues.remove_empty(marker_queue(request.plan))

    def private(self, name: str) -> base.Private:
        """Return two queues. Raises ConfigError for Classic without Jolokia, which alone can take what died
        out of the queue for all dead letters."""
        if self.queues.management is not None:
            return ArtemisPrivate(self.queues.management, self._broker.name, name)
        if not self._broker.jolokia_url:
            raise ConfigError(
                f"brokers.{self._broker.name} is ActiveMQ Classic: to rehearse, set jolokia_url"
            )
        return ClassicPrivate(self._broker, name)

    def close(self) -> None:
        """Close the connection on which management is asked."""
        self.queues.close()


def _by_stomp(broker: ActiveMQBroker) -> tuple[str, str]:
    """Kind and version. Raises BrokerError."""
    with closing(Link(broker)) as link:
        return "artemis" if link.artemis else "activemq", link.version


def _by_greeting(broker: ActiveMQBroker) -> tuple[str, str]:
    """Return the same by OpenWire, which does not show Artemis' letters whole."""
    if broker.statistics_plugin:
        raise ConfigError(
            f"brokers.{broker.name}.statistics_plugin asks by STOMP, and url is of OpenWire; take it out"
        )
    with closing(OpenWireConnection(broker)) as connection:
        if connection.artemis:
            raise ConfigError(
                f"brokers.{broker.name}.url: this is Artemis; write it like stomp://host:61613, and this as "
                "openwire_url"
            )
        return "activemq", connection.version


def _queue_of(source: Source) -> str:
    """Return the source's queue by its bare name."""
    return bare_destination(source.queue)[1] or ""
