"""Proof of a replay that RabbitMQ itself keeps: a queue that gets whatever the target gets.

A plan publishes to a queue through an exchange of its own (`ways`) that is bound to that queue and to a
witness queue; routing to both is one step of the broker. So after a dead client or a cut connection the
witness holds exactly the letters that the target got (measured on 3.10 and 4.3). One kind of target may
lack some of them: see `_may_lack`. After a node restart, or where two of a cluster lost each other for a
while, the witness proves nothing: of unconfirmed letters either queue may then hold some that the other lost.
So another exchange of the plan says what the nodes were when it was made. What is not in a witness queue was
not sent only while that still begins with its anchor, and holds as many letters as the broker counts for it.

Letters for an exchange go without a witness: it would take even those that the exchange cannot
route, and the broker would confirm them instead of returning them. And so do letters for a classic queue of
a cluster: while its node is down the witness alone would get them, and the broker would confirm them (3.10).

A witness is read over 0-9-1; one with a letter that only AMQP 1.0 carries closes that connection (541), and
is read by AMQP 1.0 then.
"""

import json
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, suppress
from functools import partial
from typing import Any, NamedTuple

from pika import spec

from dlq.connectors import base
from dlq.connectors.amqp10.codec import frames, message
from dlq.connectors.amqp10.link.session import Session
from dlq.connectors.local.credentials import log_in
from dlq.connectors.net.links import LinkLostError
from dlq.connectors.proving import decide, numbers_of
from dlq.connectors.rabbitmq import send
from dlq.connectors.rabbitmq.amqp091.codec import edits
from dlq.connectors.rabbitmq.amqp091.link.channel import Link
from dlq.connectors.rabbitmq.amqp091.link.questions import Questions, questions
from dlq.connectors.rabbitmq.amqp091.send import connection_name
from dlq.connectors.rabbitmq.amqp10.send import RabbitTwoWays, address, open_session
from dlq.connectors.rabbitmq.link import connecting, parameters, refusal
from dlq.connectors.rabbitmq.look.management import Management, ManagementError, mapping
from dlq.connectors.rabbitmq.look.topology import version_of
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rabbitmq.prove import nodes
from dlq.connectors.rabbitmq.send import Ways, exchange_of, exchange_to, is_there, try_to_publish
from dlq.core.errors import BrokerError, ConnectionLost, DlqError, NotFound, PoisonMessage
from dlq.core.headers.provenance import REPLAY_ID
from dlq.core.runtime import patience
from dlq.core.text import for_terminal

_LISTED_SECONDS = 6
"""A new connection comes into the list up to 5 s late (rabbit_mgmt_metrics_collector; seen on 3.10, 4.3)."""
_AT_ONCE = 500
"""Letters that are asked for by AMQP 1.0."""
_INTERNAL_ERROR = 541
_ANCHOR = "dlq_witness"
"""The header of the witness queue's first message: its plan."""
_FAILED = "dlq_failed"
"""The key of a binding of the exchange: a queue has failed."""
_NODES = "dlq-nodes"
"""The argument of the exchange: its broker's nodes when it was made."""
_TRANSIENT = 1
_DROPPING = ("message-ttl", "expires", "max-length", "max-length-bytes")


def queue_of(plan: str) -> str:
    """Return the plan's witness queue."""
    return f"dlq.witness.{plan}"


class _WitnessedWays(Ways):
    """Each queue's letters go to the witness queue, too, as far as that is of use."""

    takes_any = True
    hint = "a witness needs the right to write to it, too: grant it, or plan with witness = false"

    def __init__(self, broker: RabbitBroker, plan: str, private: Collection[base.Target]) -> None:
        super().__init__(broker, plan, private)
        self.witnessed: set[str] = set()
        """Queues whose letters leave proof."""

    def bind(self, queue: str, exchange: str) -> None:
        """Bind a queue. One that is not there has no witness, so that the broker returns its letters."""
        try:
            with questions(self.broker) as asking:
                asking.ask(spec.Queue.Bind(queue=queue, exchange=exchange, routing_key=queue))
            has_witness = not self._may_vanish(queue)
        except NotFound:
            has_witness = False
        witness = queue_of(self.plan)
        with questions(self.broker) as asking:
            change = spec.Queue.Bind if has_witness else spec.Queue.Unbind
            asking.ask(change(queue=witness, exchange=exchange, routing_key=witness))
        if has_witness:
            self.witnessed.add(queue)

    def _may_vanish(self, queue: str) -> bool:
        """Return whether it goes with one node of several. Without management a witness proves nothing
        anyway."""
        if not self.broker.management_url:
            return False
        with closing(Management(self.broker)) as management:
            nodes = management.get_all("nodes")
            found = management.get("queues", management.vhost, queue) or {}
        return len(nodes) > 1 and found.get("type") != "quorum"

    def note_failure(self, queue: str) -> None:
        """Note it on the broker, by a binding: the witness holds what the queue may have lost."""
        if queue not in self.witnessed:
            return
        self.witnessed.remove(queue)
        witness, exchange = queue_of(self.plan), exchange_of(self.plan)
        with suppress(BrokerError), questions(self.broker) as asking:
            asking.ask(spec.Queue.Bind(queue=witness, exchange=exchange, routing_key=_FAILED))

    def remove(self) -> None:
        """Leave what is a part of the proof for `find`."""


class WitnessedPublisher(RabbitTwoWays):
    """What `RabbitTwoWays` is, whose letters for queues leave proof, which stays for `find`."""

    def __init__(
        self,
        broker: RabbitBroker,
        plan: str,
        window: int,
        private: Collection[base.Target] = (),
        unsent_seconds: float = base.UNSENT_SECONDS,
    ) -> None:
        """Declare the plan's exchange and witness queue, and connect. Raises BrokerError."""
        self._broker, self._plan = broker, plan
        self._own_ways = _WitnessedWays(broker, plan, private)
        _prepare(broker, plan)
        super().__init__(broker, plan, window, self._own_ways, unsent_seconds)

    def publish(
        self, outgoing: Iterator[base.Outgoing], writing: base.Writing = base.keep_no_mark
    ) -> Iterator[base.Sent]:
        """See `Publisher.publish`. Raises NotFound when a target queue was deleted in the middle."""
        yield from super().publish(outgoing, writing)
        for queue in self._own_ways.witnessed:
            self._check(queue)

    def _check(self, queue: str) -> None:
        """Check a queue: a deleted one loses its binding, and the witness alone makes the broker confirm."""
        try:
            with questions(self._broker) as asking:
                asking.queue(queue)
        except NotFound as error:
            raise NotFound(
                f"queue {for_terminal(queue)} was deleted while letters were sent to it: some that were "
                f"confirmed lie in the witness queue {queue_of(self._plan)} alone"
            ) from error


def _prepare(broker: RabbitBroker, plan: str) -> None:
    """Make the plan's exchange, its witness queue, and an anchor at its head: what expires, is purged, is
    dropped for want of room or taken by others goes from the head, and it does not outlive its node. Where
    the exchange is there a run was here before, and a queue that is made anew gets none."""
    is_first = not is_there(broker, exchange_of(plan))
    told = _told_of_nodes(broker) if is_first else {}
    exchange, witness = exchange_of(plan), queue_of(plan)
    with questions(broker) as asking:
        if is_first:
            asking.ask(spec.Exchange.Declare(exchange=exchange, type="direct", durable=True, arguments=told))
        kind = {"x-queue-type": "classic"}
        asking.ask(spec.Queue.Declare(queue=witness, durable=True, arguments=kind))
        if is_first:
            asking.ask(spec.Queue.Bind(queue=witness, exchange=exchange, routing_key=_ANCHOR))
            anchor = spec.BasicProperties(headers={_ANCHOR: plan}, delivery_mode=_TRANSIENT)
            asking.publish_surely(exchange, _ANCHOR, b"".join(anchor.encode()))


def _told_of_nodes(broker: RabbitBroker) -> dict[str, str]:
    """Return what the nodes are; nothing where it is not told: the witness proves nothing then."""
    if not broker.management_url:
        return {}
    with closing(Management(broker)) as management:
        try:
            return {_NODES: json.dumps(nodes.describe_nodes(management))}
        except ManagementError:
            return {}


def forget(broker: RabbitBroker, plan: str, queues: Iterable[str]) -> None:
    """Delete the plan's exchanges, of which some lead to these queues, and its witness queue, if they are
    there. Raises BrokerError."""
    send.forget(broker, plan, queues)
    with questions(broker) as asking:
        asking.ask(spec.Exchange.Delete(exchange=exchange_of(plan)))
        asking.ask(spec.Queue.Delete(queue=queue_of(plan)))


def find(broker: RabbitBroker, plan: str, letters: Sequence[base.Outgoing]) -> base.Proof:
    """See `Connector.find`: exact for queues where nothing speaks against the witness, else unknown."""
    if not is_there(broker, exchange_of(plan)):
        return decide(letters, (), [_NO_WITNESS])
    if not broker.management_url:
        return decide(letters, (), [_NO_MANAGEMENT])
    with closing(Management(broker)) as management:
        try:
            proof = _ask_witness(broker, management, plan, letters)
            limits = _in_a_cluster(management)
        except ManagementError as error:
            return decide(letters, (), [f"{error}; {_NO_PROOF}"])
    return base.Proof(proof.shown, [*proof.doubts, *limits])


def _ask_witness(
    broker: RabbitBroker, management: Management, plan: str, letters: Sequence[base.Outgoing]
) -> base.Proof:
    """Return what it shows of letters for queues; of others it shows nothing."""
    if against := list(_doubts(management, plan)):
        return decide(letters, (), against)
    asked = {letter.number: letter.target.name for letter in letters if letter.target.kind == "queue"}
    lacking = _may_lack(management, {*asked.values()})
    seen = _read_witness(broker, plan, {letter.provenance[REPLAY_ID] for letter in letters})
    management.close()  # while that was read, the other side may have lost its patience
    has_changed = _has_changed(management, plan, seen is not None and seen.is_anchored)
    changed = [_CHANGED] if has_changed else []
    if seen is None:
        return decide(letters, (), [*changed, _GONE])
    missing = why_missing(seen.is_anchored, seen.ours, count_arrivals(management, plan))
    if changed:
        return decide(letters, (), [*changed, *missing])
    there, bound = numbers_of(letters, seen.replays), _copied_queues(management, plan, {*asked.values()})
    unsure = {n: lacking[name] for n, name in asked.items() if n in there and name in lacking}
    unbound = (one.number for one in letters if asked.get(one.number) not in bound)
    unsure |= {number: "" for number in unbound if number not in there}
    return decide(letters, there, missing, unsure)


def why_missing(is_anchored: bool, number: object, came: object) -> list[str]:
    """Return what shows that a witness queue has lost letters, or does not rule it out. `number`: how many of
    the plan's messages it has; `came`: how many the broker counted. That may be too few:
    rabbit_core_metrics_gc forgets, every two minutes, what a dead channel had counted and nobody had
    collected yet (seen on 4.3)."""
    why = [] if is_anchored else [_UNANCHORED]
    if came is None:
        return [*why, "the management API does not count what came into the witness queue"]
    counted = (
        f"the witness queue has {number} messages, and {came} came there, by the management API's count, "
        "which leaves out what comes by AMQP 1.0, and sometimes the last that a client sent before it died"
    )
    return why if came == number else [*why, counted]


def check_rights(broker: RabbitBroker) -> list[str]:
    """Return what would keep a witness from proving anything: there is no management API, it does not tell of
    nodes, or the user may not leave one."""
    if not broker.management_url:
        return [_NO_MANAGEMENT]
    with closing(Management(broker)) as management:
        try:
            nodes.describe_nodes(management)
        except ManagementError as error:
            return [f"{error}; {_NO_PROOF}"]
    return _missing_rights(broker)


_NO_WITNESS = "without a witness (witness = true, or --witness) RabbitMQ cannot be asked afterwards"
_NO_PROOF = "nothing shows whether a node restarted, and then the witness proves nothing"
_NO_MANAGEMENT = f"without management_url {_NO_PROOF}"
_GONE = "the witness queue is not there any more, or did not give all that it has"
_CHANGED = (
    "a node restarted, or lost another one, since the first letter was sent or just before: the witness "
    "proves nothing then"
)
_REFUSES = (
    "a queue that refuses what comes when it is full (overflow), or may, as its policies are not shown, may "
    "lack letters that the witness holds"
)
_OF_OLD = "before RabbitMQ 4.0 a quorum queue may lack the last letters that the witness holds"
_UNANCHORED = (
    "the witness queue has lost its first message: its node restarted, it was purged or made anew, or "
    "letters expired or were taken"
)


def _copied_queues(management: Management, plan: str, queues: Set[str]) -> set[str]:
    """Return those of the queues of which the witness has a copy of all that they get."""
    return {queue for queue in queues if _leads_to(management, plan, queue) >= {queue, queue_of(plan)}}


def _leads_to(management: Management, plan: str, queue: str) -> set[str]:
    """Return what the plan's exchange to a queue is bound to; dlq of 2026 had one for all of them."""
    bindings = management.get_bindings_of(exchange_to(plan, queue))
    bindings = bindings or management.get_bindings_of(exchange_of(plan))
    return {str(one.get("destination")) for one in bindings if one.get("destination_type") == "queue"}


def _missing_rights(broker: RabbitBroker) -> list[str]:
    """Try with names that nothing has: the broker looks at the rights first, and nothing changes."""
    name = f"rights-{uuid.uuid4()}"
    with questions(broker) as asking:
        missing = [right for right, step in _RIGHTS.items() if not asking.is_let(partial(step, name))]
    return [f"the user may not {', '.join(missing)}"] if missing else []


_RIGHTS: Mapping[str, Callable[[str, Questions], object]] = {
    "configure exchanges dlq.replay.*": lambda plan, asking: asking.ask(
        spec.Exchange.Delete(exchange=exchange_of(plan))
    ),
    "configure queues dlq.witness.*": lambda plan, asking: asking.ask(
        spec.Queue.Delete(queue=queue_of(plan))
    ),
    "bind dlq.witness.* to dlq.replay.* (write to the one, read the other)": lambda plan, asking: asking.ask(
        spec.Queue.Bind(queue=queue_of(plan), exchange=exchange_of(plan))
    ),
    "write to dlq.replay.*": lambda plan, asking: try_to_publish(exchange_of(plan), asking),
    "read dlq.witness.*": lambda plan, asking: asking.ask(spec.Basic.Get(queue=queue_of(plan))),
}


def _doubts(management: Management, plan: str) -> Iterator[str]:
    """Yield what speaks against all that the witness of a plan holds, and lacks."""
    if not wait_for_the_end_of(connection_name(plan), management):
        yield "the connection that sent is still there, so that letters may still arrive: ask again later"
    witness = management.get("queues", management.vhost, queue_of(plan))
    if witness is None:
        yield "the management API does not show the witness queue, nor its policy"
    elif any(name in mapping(witness.get("effective_policy_definition")) for name in _DROPPING):
        yield "a policy removes letters from the witness queue"
    bindings = management.get_bindings_of(exchange_of(plan))
    if any(one.get("routing_key") == _FAILED for one in bindings):
        yield "a queue failed with letters that it had not answered: the witness holds those, too"


def _has_changed(management: Management, plan: str, is_anchored: bool) -> bool:
    """Return whether a node may have restarted, or lost another one, since the plan's exchange was made. One
    that is alone has not while the anchor is there."""
    exchange = management.get("exchanges", management.vhost, exchange_of(plan)) or {}
    before, now = mapping(exchange.get("arguments")).get(_NODES), nodes.describe_nodes(management)
    return not (is_anchored and len(now) == 1) and not nodes.are_as_before(before, now)


def count_arrivals(management: Management, plan: str) -> object:
    """Return how many messages the broker counts for the plan's exchanges; None where it does not. What went
    to a queue without a witness is counted, too: then this is too many, and nothing is proven."""
    listed = management.get_all("exchanges", management.vhost, columns="name,message_stats")
    counts = {str(one.get("name")): mapping(one.get("message_stats")).get("publish_in") for one in listed}
    own = exchange_of(plan)
    if counts.get(own) is None:
        return None
    return sum(count or 0 for name, count in counts.items() if f"{name}.".startswith(f"{own}."))


def _in_a_cluster(management: Management) -> list[str]:
    without = "in a cluster letters for classic queues go without a witness"
    return [without] if len(nodes.describe_nodes(management)) > 1 else []


def _may_lack(management: Management, queues: set[str]) -> Mapping[str, str]:
    """Return those of the queues that may lack a letter that the witness holds, and why.

    A full queue that refuses more has not what the witness has, and the answer that said so may be lost.
    Before 4.0 a quorum queue may hear of a publisher's death before it takes what came last from it, and then
    drops that as out of sequence (rabbitmq/ra issue 393; fixed in ra 2.14 of 4.0.5; one of 14,801 letters
    seen on 3.10.8).
    """
    shown = {name: management.get("queues", management.vhost, name) or {} for name in queues}
    of_old = [name for name, queue in shown.items() if queue.get("type") == "quorum"]
    found = dict.fromkeys(of_old if _version(management) < (4,) else [], _OF_OLD)
    return found | {name: _REFUSES for name, queue in shown.items() if _may_refuse(queue)}


def _may_refuse(queue: Mapping[str, Any]) -> bool:
    """Return whether a queue, as it is shown, may refuse what comes; by a policy that is not shown, too."""
    policy = queue.get("effective_policy_definition")
    said = mapping(queue.get("arguments")).get("x-overflow"), mapping(policy).get("overflow")
    return policy is None or any(str(how).startswith("reject-publish") for how in said)


def _version(management: Management) -> tuple[int, ...]:
    return version_of(str((management.get("overview") or {}).get("rabbitmq_version", "")))


def wait_for_the_end_of(connection: str, management: Management) -> bool:
    """Wait: while an alarm lasts the broker still holds what a dead client has sent, and may take it."""
    began = time.monotonic()
    for _ in patience.tries(patience.GONE, patience.YIELD):
        asked = time.monotonic()
        listed = management.get_all("connections")
        names = [mapping(known.get("client_properties")).get("connection_name") for known in listed]
        if asked - began >= _LISTED_SECONDS and connection not in names:
            return True
    return False


class _Contents(NamedTuple):
    """What lies in a witness queue: the wanted replays, how many messages there are in all and of ours, and
    whether the anchor is first."""

    replays: set[str]
    number: int
    ours: int
    is_anchored: bool


def _read_witness(broker: RabbitBroker, plan: str, wanted: Set[str]) -> _Contents | None:
    """Return what lies in the witness queue; None when there is none, or not all of it came.

    It is read without an acknowledgement and goes back when the connection ends.
    """
    queue = queue_of(plan)
    try:
        with closing(_connect(broker)) as link:
            number = int(link.find_queue(queue).message_count)
            try:
                found = _contents(read_headers(link, queue, number), plan, wanted)
            except PoisonMessage:
                with closing(open_session(broker)) as session:
                    found = _contents(read_by_1_0(session, queue, number), plan, wanted)
    except NotFound:
        return None
    except LinkLostError as error:
        raise ConnectionLost(
            f"{broker.name}: the connection ended while the witness was read: {error}"
        ) from error
    return None if found.number < number else found


def _contents(messages: Iterator["_Header"], plan: str, wanted: Set[str]) -> _Contents:
    replays: set[str] = set()
    number, ours, is_anchored = 0, 0, False
    for number, header in enumerate(messages, 1):
        is_anchored = is_anchored or (number == 1 and header(_ANCHOR) == plan)
        if (replay_id := header(REPLAY_ID)) is not None:
            ours += 1
            replays |= {replay_id} & wanted
    return _Contents(replays, number, ours + is_anchored, is_anchored)


def _connect(broker: RabbitBroker) -> Link:
    def refused(code: int, text: str) -> DlqError:
        error = refusal(code, text, broker)
        return PoisonMessage(str(error)) if code == _INTERNAL_ERROR else error

    with connecting(broker):
        return log_in(broker, lambda: Link(parameters(broker), refused))


_Header = Callable[[str], str | None]
"""A message, as the function from the name of a header to its text."""


def read_headers(link: Link, queue: str, left: int) -> Iterator[_Header]:
    link.call(spec.Basic.Consume(queue=queue, consumer_tag="dlq"), spec.Basic.ConsumeOk)
    silent, until = 0, time.monotonic() + patience.LOOK
    while left > 0 and silent < patience.CAUGHT_UP and time.monotonic() < until:
        deliveries = link.take_deliveries(10_000)
        yield from (partial(edits.text_header, delivery.block) for delivery in deliveries)
        left -= len(deliveries)
        silent = 0 if deliveries or link.receive(1.0) else silent + 1


def read_by_1_0(session: Session, queue: str, left: int) -> Iterator[_Header]:
    source = session.attach(frames.RECEIVER, address("", queue))
    silent, until = 0, time.monotonic() + patience.LOOK
    while left > 0 and silent < patience.CAUGHT_UP and time.monotonic() < until:
        session.ask(source, _AT_ONCE)
        session.wait_until(lambda: source.drained)
        letters = session.take()
        yield from (partial(_property, one.message) for one in letters)
        left -= len(letters)
        silent = 0 if letters or session.turn(1.0) else silent + 1


def _property(encoded: bytes, wanted: str) -> str | None:
    """Return a property of a message that we have sent; None for one of others."""
    try:
        sent = message.parts(message.split(encoded)[0]).application
    except ValueError:
        return None
    return next((str(value.value) for name, value in sent if name.value == wanted), None)
