"""The contract: what every broker must do for the rest of the program, and what it may rely on.

A *reading* scans one source once, from a snapshot taken at its start:

    reading = connector.read(ReadRequest(...))
    for batch in reading.batches():          # records, in the order the broker gave them
        ...make batch.records durable...
        reading.acknowledge(batch.position)  # never called in mode copy
        reading.settled_position()           # how far the broker has *answered* that
    reading.close()                          # gives back everything that was not acknowledged, once

Positions count the letters of one reading from 1, so "up to and including position 300" means the
same for AMQP's multiple ack, STOMP's cumulative ack and RocketMQ, which acknowledges nothing.
Driver errors never leave a connector: they are translated into `dlq.core.errors`, with their cause.
The suites `tests/support/connector_contract.py` and `sending_contract.py` run over every connector: they are
the contract's other half.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from dlq.connectors.newer import NewerProof, NewerSearch
from dlq.core.errors import UsageError
from dlq.core.headers.failure_headers import Keep, strip_failure
from dlq.core.keys import KeyReader, key_reader
from dlq.core.record import Record
from dlq.core.settings import Source

Mode = Literal["copy", "drain", "import"]
Checkpoint = Mapping[str, int]
"""Where to continue, e.g. {"%DLQ%pay@broker-a:0": 4711}; empty for brokers that remember by themselves."""

Evidence = Mapping[str, int]
"""What was noted of a broker before letters of a plan went there, as it stands in the plan's file. Each
broker writes and reads its own; what is noted twice under one name stays as it was first."""

NO_CHECKPOINT: Checkpoint = MappingProxyType({})
NO_EVIDENCE: Evidence = NO_CHECKPOINT

_BATCH_BYTES = 16 * 2**20
_BATCH_ROWS = 2_000


class Skipped(NamedTuple):
    """A letter that this protocol cannot carry without loss: it stays in its queue, unacknowledged."""

    physical_id: str
    reason: str
    passed: "Gap | None" = None
    """Where it lies in a log, if the checkpoint goes past it: no later pull looks there, so that it stays in
    the books as lost until it is dismissed."""


class Gap(NamedTuple):
    """Letters that were there once and are gone (retention, a replaced broker): offsets [first, end); without
    an end nobody knows how many."""

    place: str
    first: int
    end: int | None
    log: str = ""
    """Tells apart logs that lay at this place one after another: the key of its checkpoint."""
    is_counted: bool = False
    """Whether the reading's snapshot counts them."""

    def __str__(self) -> str:
        """Return the words for a person."""
        if self.end is None:
            return f"{self.place}: what came after offset {self.first - 1} is gone"
        return f"{self.place}: offsets {self.first} to {self.end - 1} are gone"


class Batch(NamedTuple):
    """Some letters in a row. May be empty: a reading yields at least once a second, so that its
    caller can look at the clock. `position` is that of the last letter delivered so far; what comes as
    evidence beside the snapshot has none. `records` are the caller's from then on; `core.columns.Columns` are
    the cheapest."""

    records: Sequence[Record]
    position: int
    checkpoint: Checkpoint = NO_CHECKPOINT
    skipped: Sequence[Skipped] = ()
    gaps: Sequence[Gap] = ()
    stays: bool = False
    """Archived letters that no acknowledgement covers: a whole reading gives them the last positions."""


@dataclass(frozen=True)
class ReadRequest:
    """What to read, and what the records are to carry of this pull."""

    source: Source
    mode: Mode
    pull_id: str
    limit: int | None = None
    resume: Checkpoint = field(default_factory=dict)
    """Where earlier pulls in this mode have come to; a copy goes on from there where nothing else can be done
    with its letters (a stream), else it shows all."""
    force: bool = False
    include_empty: bool = False
    batch_rows: int = _BATCH_ROWS
    batch_bytes: int = _BATCH_BYTES
    careful: bool = False
    """After a poisoned connection: read so that no neighbour is harmed. What poisoned it is read by another
    protocol where there is one; else a drain asks for one letter at a time."""

    def key_reader(self) -> KeyReader:
        """Return the source's business key as a function."""
        return key_reader(self.source.key)


class Reading(Protocol):
    """One scan of a source. Not safe for several threads."""

    snapshot: int | None
    """Letters that were there at the start (None: the broker cannot say). Never more are read. It shrinks
    while places of a log come by that hold no letter."""

    complete: bool
    """After `batches` ended: everything of the snapshot was shown. False: a capped browse, other
    consumers, or letters that are held back; the caller reports both numbers."""

    unique_ids: bool
    """True: a record id names one letter forever (RocketMQ offsets, lines of a file), so an id that the
    archive holds is that letter. False: ids are made of content, and an equal one may be another letter."""

    marks_redelivered: bool
    """True: ids are made of content alone, and a letter without the mark `redelivered` was never delivered
    before, whatever was killed, cut or restarted meanwhile (a quorum queue)."""

    alike: bool
    """Set by the caller where letters have come that nothing tells apart. Where ids are made of content, none
    is delivered from then on while others are acknowledged and not settled."""

    settles_at_once: bool
    """True: the broker is told of no acknowledgement, the checkpoint in the manifest is it (Kafka, RocketMQ).
    False: what is drained is settled by what the broker answers afterwards."""

    resumes: bool
    """True: a copy, too, goes on behind what is durable (a stream)."""

    topology: Mapping[str, Any]
    """What could be learned of the source: queue type, limits, TTL, bindings, retention (JSON-able)."""

    notes: Sequence[str]
    """Plain sentences for the user about this reading (what it changes, what it cannot prove), and after
    `close` why it is not complete, and what the broker's counts say against it, where that is known."""

    def batches(self) -> Iterator[Batch]:
        """Return the letters in order, in batches of at most `batch_rows` and about `batch_bytes`.

        A generator: to close it ends the scan, behind which all acknowledgements may go. Buffers no more than
        one batch beyond what it yielded, whatever the depth. Raises
        ConnectionLost when the connection ends, PoisonMessage when a letter kills it.
        """

    def acknowledge(self, position: int) -> None:
        """Tell that every letter up to `position` is durable: the broker may forget them.

        A connector may hold acknowledgements back (RabbitMQ does, to stop exactly at the snapshot)
        as long as the last call of a finished reading brings them all out.
        """

    def settled_position(self) -> int:
        """Ask the broker something after the acknowledgements; the position that its answer covers.

        Costs a round trip. What is beyond that position will be, or may be, delivered again.
        """

    def close(self) -> None:
        """End the reading; what was not acknowledged goes back once, unrejected. Never raises."""


class Target(NamedTuple):
    """Where a replayed message goes. `kind` is queue, topic, exchange or group."""

    kind: str
    name: str
    routing_key: str = ""

    def __str__(self) -> str:
        """Return the target as `--to` writes it: queue:orders, exchange:shop/order.created."""
        return (
            f"{self.kind}:{self.name}/{self.routing_key}"
            if self.kind == "exchange"
            else f"{self.kind}:{self.name}"
        )


class SendPreview(NamedTuple):
    """What publishing a letter would do, known without a connection."""

    stripped: Sequence[str] = ()
    """Names of headers and properties that are not sent again."""
    problem: str | None = None
    """Why it must not be sent as it is (it would kill the channel, it is no message any more)."""
    warnings: Sequence[str] = ()
    unless_named: Mapping[Literal["letter", "target"], str] = MappingProxyType({})
    """What the user must name for it to be sent (the letter, by its id; the target, as in topic:NAME) -> why
    it is not sent otherwise."""
    private: bool = False
    """Whether the plan counts on a way of its own to the target; see `SendRequest`."""


class Outgoing(NamedTuple):
    """One letter on its way back. `number` is the caller's, and returns in `Sent`."""

    number: int
    record: Record
    target: Target
    provenance: Mapping[str, str]
    """What the replay leaves on it (`dlq.core.headers.provenance`)."""
    keep_headers: Keep = False
    """What of its failure's headers goes along (`dlq.core.headers.failure_headers`)."""


class Limits(NamedTuple):
    """What a target would do with letters beside keeping them."""

    letters: int | None = None
    """So many more find room; None: all."""
    size: int | None = None
    """So many more bytes do; None: all."""
    why: str = ""
    """What becomes of the others, or through them, with figures."""
    temporary: str = ""
    """Why it ends with somebody's connection; empty: it does not."""
    refused_die_again: bool = False
    """What it refuses is a dead letter once more, so that a refusal proves no absence."""


def least(some: Sequence[Limits]) -> Limits:
    """Return the limits of a target that reaches several places, of which the narrowest counts."""
    narrow = min(some, key=lambda one: (not one.why, one.letters is None, one.letters or 0), default=Limits())
    return narrow._replace(
        size=min((one.size for one in some if one.size is not None), default=None),
        temporary=next((one.temporary for one in some if one.temporary), ""),
        refused_die_again=any(one.refused_die_again for one in some),
    )


class Reached(NamedTuple):
    """How far a group is in one partition or queue of a log."""

    at: int
    """The offset that it has committed."""
    end: int
    start: int = 0

    @property
    def waiting(self) -> int:
        """Messages that the group has not read, and that are there."""
        return self.end - max(self.at, self.start)


class Consumption(NamedTuple):
    """How far the consumers of one queue or group are with its letters."""

    receiver: str
    waiting: int
    """Letters that no consumer has acknowledged or, where the broker does not tell that, has taken."""
    consumers: int | None = None
    """None: the broker does not tell."""
    acknowledged: int | None = None
    """Letters acknowledged since some moment in the past; None: the broker does not tell."""
    age: float = 0.0
    """Seconds that the broker's numbers may be old."""
    unacknowledged: int | None = None
    """Letters that no consumer has acknowledged, by such old numbers; None: `waiting` counts them now."""
    logs: Mapping[str, Reached] | None = None
    """Each partition or queue of a log that is shown, by its name; None: it is no log."""


def consumption_of(
    receiver: str, logs: Mapping[str, Reached], consumers: int | None, age: float
) -> Consumption:
    """Return how far a group is with the logs of one topic."""
    waiting, read = sum(one.waiting for one in logs.values()), sum(one.at for one in logs.values())
    return Consumption(receiver, waiting, consumers, read, age, logs=logs)


class Gauge(NamedTuple):
    """How full a source is now; None: the broker does not tell."""

    depth: int | None
    """Letters that are ready."""
    consumers: int | None = None
    acknowledged: int | None = None
    """Letters that consumers, pulls among them, have taken for good since some moment in the past."""
    oldest: int | None = None
    """When the letter in front was sent or stored, microseconds since the epoch."""
    note: str = ""
    """What keeps the broker from telling more, a right that is missing."""


def gauge_of(queues: Sequence[Consumption], oldest: Sequence[int] = ()) -> Gauge:
    """Sum the depths of a source that reads several queues; a number that one does not tell is not known."""
    consumers = [one.consumers for one in queues if one.consumers is not None]
    acknowledged = [one.acknowledged for one in queues if one.acknowledged is not None]
    return Gauge(
        sum(one.waiting for one in queues),
        sum(consumers) if len(consumers) == len(queues) else None,
        sum(acknowledged) if len(acknowledged) == len(queues) else None,
        min(oldest, default=None),
    )


Outcome = Literal["confirmed", "returned", "refused", "in_doubt", "unsent"]
"""Unsent: the broker has nothing of it and refused nothing of it, so it may be sent later."""


class Sent(NamedTuple):
    """What became of one `Outgoing`: confirmed only if the broker took it and routed it."""

    number: int
    outcome: Outcome
    detail: str | None = None


UNSENT_SECONDS = 60.0
"""How long the kernel may hold what the other side does not acknowledge, unless somebody waits for less."""


@dataclass(frozen=True)
class SendRequest:
    """How the way back is to be opened for a plan."""

    plan: str
    window: int = 1000
    """Letters that may be open at once."""
    witness: bool = False
    """Leave proof (see `Connector.find`) where the broker can only prove by what is left beforehand."""
    unsent_seconds: float = UNSENT_SECONDS
    """What the broker's host has not acknowledged after so long must not reach the broker any more, nor what
    it has not when the connection is closed or this process ends (`outbound.guard`)."""
    private: Collection[Target] = ()
    """Targets to which the plan has a way of its own, made for it and removed after it, by which letters keep
    what they were first delivered with. For `forget`: those to which there may be one."""


Writing = Callable[[Sequence[int]], None]
"""Told the numbers of letters that may reach the broker from now on; see `Publisher.publish`."""


def keep_no_mark(_numbers: Sequence[int]) -> None:
    """Keep no mark: the `Writing` of a caller that needs none."""


class Publisher(Protocol):
    """A pipelined way into a broker."""

    anchor: Evidence
    """What this run has left on the broker to be found by; empty where `find` needs none."""

    def publish(self, outgoing: Iterator[Outgoing], writing: Writing = keep_no_mark) -> Iterator[Sent]:
        """Send all of them, several in flight, and yield one `Sent` for each, in any order.

        Takes from `outgoing` only what it sends at once, at most `window` ahead of the answers, so a
        caller that stops giving stops the sending. When the connection dies or an answer does not
        come in time, everything in flight is yielded as `in_doubt`, then ConnectionLost is raised. What was
        taken and is not sent, or was provably not taken, is `unsent`.

        `writing` is told of letters immediately before something goes to a socket, or to a library that
        sends by itself, with which the broker may keep them: their own bytes, or in a transaction its
        commit. It is asked again, with no numbers, before any further part of them goes to a socket: when it
        raises, nothing may be written any more. Whatever ends the process, a letter that `writing` was not
        told of is not at the broker, and one that is only held in a buffer was not told of. What is sent
        again is told again.
        """

    def close(self) -> None:
        """Let go of the connection; by then `publish` has accounted for every message. Never raises."""


Presence = Literal["sent", "not_sent", "unknown"]


class Search(NamedTuple):
    """Letters that may have reached the broker, to be found there."""

    plan: str
    letters: Sequence[Outgoing]
    since: int
    """When the first of them was sent (microseconds)."""
    before: Evidence = NO_EVIDENCE
    """What `Connector.bounds` said of the plan's targets before anything was sent, and the anchors of all its
    runs; empty where that is lost."""


@dataclass(frozen=True)
class Proof:
    """What a broker shows of the letters that were searched for."""

    shown: Mapping[int, Presence]
    """The number of each letter -> whether the broker holds, or held, that replay."""
    doubts: Sequence[str] = ()
    """Why letters are `unknown`, in words: a setting or a right that is missing, what has happened since they
    were sent. Empty where nothing more is known than that the broker does not show them."""
    is_another: bool = False
    """Another answers than the broker that was sent to, which may lack what that one had confirmed, too."""


@dataclass(frozen=True)
class Inspection:
    """What `dlq doctor` says of one source."""

    version: str
    depth: int | None
    facts: Mapping[str, Any]
    """Name -> value, in the order to be shown: consumers, queue type, limits, rights, retention."""
    changes: Mapping[str, str]
    """Mode -> what it would change there, in one sentence."""
    harm: Mapping[str, str] = field(default_factory=dict)
    """Mode -> why it is refused without --force."""
    warnings: Sequence[str] = ()
    leaves_out: Mapping[str, str] = field(default_factory=dict)
    """Mode -> the queues of a pattern that it cannot take, and why; it takes the others."""


class DeadLetterPlace(NamedTuple):
    """What looks like a place of dead letters. `source` is what a source of it says in the configuration:
    {"queue": name}, {"group": name} or {"transactions": True}; `oldest` in microseconds since the epoch; None
    is not known."""

    name: str
    source: Mapping[str, str | bool]
    kind: str
    because: str
    depth: int | None = None
    consumers: int | None = None
    oldest: int | None = None


NIGHT = 12 * 3600.0
"""Seconds. What keeps letters for less has lost them before somebody looks in the morning."""


class Fate(NamedTuple):
    """Where one kind of death leads, by definitions alone: nothing was sent to find out."""

    kind: str
    """Of the place where the message dies: queue, topic, group, exchange or broker."""
    name: str
    death: str
    """reject, expiry, overflow, delivery limit, discard, unroutable, or give-up."""
    verdict: Literal["kept", "lost", "unknown"]
    """Unknown: nothing that can be seen tells."""
    leads_to: tuple[str, ...] = ()
    """Where it lies in the end; empty where nobody has it, or that is not known."""
    why: str = ""
    fix: str = ""
    """The command of the broker's own, or the setting of ours, that would change the verdict."""

    def add_remark(self, remark: str, death: str = "") -> "Fate":
        """Return the same with a remark before the reason; of another death where one is named."""
        said = "; ".join(text for text in (remark, self.why) if text)
        return self._replace(why=said, death=death or self.death)


def not_seen(broker: str, setting: str, example: str) -> Fate:
    """Return the fate at a broker whose definitions cannot be asked for, as a setting is missing."""
    why = f"its definitions cannot be seen without {setting}"
    return Fate("broker", broker, "any", "unknown", (), why, f'[brokers.{broker}] {setting} = "{example}"')


@dataclass
class Private:
    """Places that a rehearsal has to itself. They are named, and nothing is asked, until they are made."""

    target: Target
    """Where its copies go, and the consumer under test reads."""
    place: Mapping[str, str]
    """What a source of that place says in the configuration."""
    dead: Mapping[str, str]
    """The same of where what dies there comes back."""
    point: Sequence[str] = ()
    """How to point consumers there, a line each."""
    makes_dead: bool = True
    """Whether `make` makes the place of the dead, too; else the first that dies does."""

    def make(self) -> None:
        """Make them, which are not there. Raises BrokerError."""

    def collect(self) -> Sequence[Record]:
        """Bring to `dead` what died, where the broker's own settings led it elsewhere, and return what cannot
        be brought there. Raises BrokerError."""
        return []

    def remove(self) -> None:
        """Remove what there is of them, with all that lies there. Raises BrokerError."""


class Connector(Protocol):
    """One broker. Connecting is done on construction, or lazily; either raises BrokerError. A class that
    inherits it overrides what its broker can tell; what has a default here may be left as it is."""

    window: int
    """Letters of a replay that may be open at once, unless the user says otherwise. Those that were written
    are in doubt when the replay is killed, all when its host goes down: many where `find` can prove each,
    fewer where a person may have to."""

    changes: Mapping[str, str] = MappingProxyType({})
    """Mode -> what a pull in it changes at a source, in one sentence; where `inspect` says no more."""

    def inspect(self, source: Source) -> Inspection:
        """Look without changing anything."""
        return Inspection("", self.gauge(source).depth, {}, self.changes)

    def gauge(self, source: Source) -> Gauge:
        """Return how many letters a source has now; asked again and again, so it costs few questions."""

    def members(self, source: Source) -> Mapping[str, int | None]:
        """Return the queues that a source's pattern means -> how many letters each has, where a drain removes
        them; empty of a source that names one queue."""
        return {}

    def discover(self) -> Sequence[DeadLetterPlace]:
        """Return what looks like a place of dead letters there, without changing anything. Raises UsageError
        where the configuration lacks what it takes to ask."""
        return []

    def coverage(self) -> Sequence[Fate]:
        """Return where each kind of death leads from each place that the user may see. Reads definitions
        alone, and changes nothing. Where they cannot be asked for by what is configured, one that is unknown
        says what to configure. Raises BrokerError."""
        return []

    def read(self, request: ReadRequest) -> Reading:
        """Start a reading. Raises HarmRefused when `request.mode` would harm and `force` is not set."""

    def target_of(self, record: Record, to: str) -> Target | None:
        """Return where `record` goes for `--to` (origin, group, queue:NAME, ...); None: nothing says where.

        `record.origin` and `origin_kind` are the verdict's where there is one. Raises UsageError for
        a target that this broker does not have.
        """
        kind, _, name = to.partition(":")
        if kind in ("queue", "topic") and name:
            return Target(kind, name)
        if to != "origin":
            raise UsageError(f"--to {to}: write origin, queue:NAME or topic:NAME")
        return Target(record.origin_kind, record.origin) if record.origin_kind and record.origin else None

    def preview(self, letter: Outgoing) -> SendPreview:
        """Return what publishing it would strip, warn of, or fail on. It is asked for each letter, so the
        broker is asked once for a target, if at all, and one that does not answer is no error."""
        return SendPreview(strip_failure(letter.record.headers, letter.keep_headers)[1])

    def consumers(self, targets: Sequence[Target]) -> Mapping[Target, Sequence[str]]:
        """Return who would receive it, proven from bindings or subscriptions; others are absent."""
        return {}

    def missing_targets(self, targets: Sequence[Target]) -> Mapping[Target, str]:
        """Return why nothing can be sent to targets; those that are there, or can come to be, are absent."""
        return {}

    def limits(self, targets: Sequence[Target]) -> Mapping[Target, Limits]:
        """Return what targets that are there would drop, end or take along; those of which nothing is known
        are absent."""
        return {}

    def consumption(self, targets: Sequence[Target]) -> Mapping[Target, Sequence[Consumption]]:
        """Return how far the receivers of each target are; those of which nothing is told are absent."""
        return {}

    def newer(self, search: NewerSearch) -> NewerProof | None:
        """Look for newer messages of the letters' keys in the logs that these came from. It only reads, joins
        no group, and ends at the search's bound. None: the broker has no log. Raises BrokerError."""
        return None

    def publisher(self, request: SendRequest) -> Publisher:
        """Open the way in for one plan. Raises BrokerError."""

    def bounds(self, targets: Iterable[Target]) -> Evidence:
        """Return where the targets end now. It is asked before the first letter is sent to them, and kept for
        `find`; empty for a broker that finds without."""
        return NO_EVIDENCE

    def check_witness(self) -> Sequence[str] | None:
        """Return what would keep a witness from proving anything, in words: a setting or a right that is
        missing. None where `find` needs no witness."""
        return None

    def find(self, search: Search) -> Proof:
        """Find for reconcile what became of each letter of the search, and why that is not known of some."""
        return Proof({letter.number: "unknown" for letter in search.letters})

    def forget(self, request: SendRequest) -> None:
        """Remove what a publisher of a plan left on the broker, a witness or markers, when nothing of the
        plan is open any more. Nothing may be there; a broker on which it leaves nothing is not asked."""

    def private(self, name: str) -> Private:
        """Name the places of a rehearsal. Raises UsageError where this broker can have none."""
        raise UsageError("a rehearsal is not possible on this broker; use dlq replay apply --ramp")

    def close(self) -> None:
        """Let go of all connections. Never raises."""
