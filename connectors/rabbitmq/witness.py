"""Proof of a replay that RabbitMQ itself keeps: a queue that gets whatever the target gets.

A plan publishes through an exchange of its own that is bound to the target queue and to a witness
queue; routing to both is one step of the broker. So after a dead client or a cut connection the
witness holds exactly the letters that the target got (measured on 3.10 and 4.3). One kind of target may
lack some of them: see `_may_lack`. After a node restart the witness proves nothing: of unconfirmed letters
either queue may then hold some that the other lost. The same is so after a cluster's nodes lost each other
for a while, which nothing tells of later. What is not in a witness queue was not sent only while that still
begins with its anchor.

Letters for an exchange go without a witness: it would take even those that the exchange cannot
route, and the broker would confirm them instead of returning them. And so do letters for a classic queue of
a cluster: while its node is down the witness alone would get them, and the broker would confirm them (3.10).

A witness is read over 0-9-1; one with a letter that only AMQP 1.0 carries closes that connection (541), and
is read by AMQP 1.0 then.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from functools import partial
from typing import Any

import pika
from pika import exceptions, spec

from dlq.connectors.amqp10 import frames, message
from dlq.connectors.amqp10.session import Session
from dlq.connectors.base import UNSENT_SECONDS, Outgoing, Presence, Sent, Target, Writing, unmarked
from dlq.connectors.links import LinkLostError
from dlq.connectors.rabbitmq.amqp import edits
from dlq.connectors.rabbitmq.amqp.link import Link
from dlq.connectors.rabbitmq.amqp10_publisher import address, opened, two_ways
from dlq.connectors.rabbitmq.connection import (
    as_our_error,
    connect,
    may,
    open_connection,
    parameters,
    refusal,
)
from dlq.connectors.rabbitmq.description import RabbitBroker
from dlq.connectors.rabbitmq.management import Management, ManagementError, mapping
from dlq.connectors.rabbitmq.publisher import connection_name
from dlq.connectors.rabbitmq.republishing import address_of
from dlq.connectors.rabbitmq.topology import version_of
from dlq.core.clock import now
from dlq.core.errors import AccessDenied, ConnectionLost, DlqError, NotFound, PoisonMessage
from dlq.core.provenance import REPLAY_ID
from dlq.core.text import for_terminal

_CLOCKS_DIFFER_BY = 5_000_000
"""Microseconds. A node that started this shortly before the first send counts as restarted."""
_SILENT_SECONDS = 10
_LISTED_SECONDS = 6
"""A new connection comes into the list up to 5 s late (rabbit_mgmt_metrics_collector; seen on 3.10, 4.3)."""
_GONE_SECONDS = 15
_ANSWER_SECONDS = 60.0
_AT_ONCE = 500
"""Letters that are asked for by AMQP 1.0."""
_INTERNAL_ERROR = 541
_ANCHOR = "dlq_witness"
"""The header of the witness queue's first message: its plan."""
_TRANSIENT = 1
_DROPPING = ("message-ttl", "expires", "max-length", "max-length-bytes")


def exchange_of(plan: str) -> str:
    """The plan's exchange."""
    return f"dlq.replay.{plan}"


def queue_of(plan: str) -> str:
    """The plan's witness queue."""
    return f"dlq.witness.{plan}"


class WitnessedPublisher:
    """What `two_ways` gives, whose letters for queues leave proof."""

    def __init__(
        self, broker: RabbitBroker, plan: str, window: int, unsent_seconds: float = UNSENT_SECONDS
    ) -> None:
        """Declare the plan's exchange and witness queue, and connect. Raises BrokerError."""
        self._broker, self._plan = broker, plan
        self._bound: dict[Target, tuple[str, str]] = {}
        _prepare(broker, plan)
        self._inner = two_ways(broker, plan, window, self._route, unsent_seconds)

    def _route(self, target: Target) -> tuple[str, str]:
        if target.kind == "exchange":
            return address_of(target)
        if target not in self._bound:
            self._bound[target] = self._bind(target.name)
        return self._bound[target]

    def _bind(self, target: str) -> tuple[str, str]:
        """A queue that is not there is published to directly, so that the broker returns its letters."""
        try:
            with _Channel(self._broker) as channel:
                if self._may_vanish(target):
                    channel.queue_unbind(target, exchange_of(self._plan), target)
                    return "", target
                for queue in (target, queue_of(self._plan)):
                    channel.queue_bind(queue, exchange_of(self._plan), target)
        except NotFound:
            return "", target
        except AccessDenied as error:
            hint = "a witness needs the right to write to it, too: grant it, or plan with witness = false"
            raise AccessDenied(f"{error}; {hint}") from error
        return exchange_of(self._plan), target

    def _may_vanish(self, queue: str) -> bool:
        """Whether it goes with one node of several. Without management a witness proves nothing anyway."""
        if not self._broker.management_url:
            return False
        with closing(Management(self._broker)) as management:
            nodes = management.get_all("nodes")
            found = management.get("queues", management.vhost, queue) or {}
        return len(nodes) > 1 and found.get("type") != "quorum"

    def publish(self, outgoing: Iterator[Outgoing], writing: Writing = unmarked) -> Iterator[Sent]:
        """See `Publisher.publish`. Raises NotFound when a target queue was deleted in the middle."""
        yield from self._inner.publish(outgoing, writing)
        for target, (exchange, _) in self._bound.items():
            if exchange:
                self._check(target.name)

    def _check(self, queue: str) -> None:
        """A deleted queue loses its binding, and the witness alone makes the broker confirm."""
        try:
            with _Channel(self._broker) as channel:
                channel.queue_declare(queue, passive=True)
        except NotFound as error:
            raise NotFound(
                f"queue {for_terminal(queue)} was deleted while letters were sent to it: some that were "
                f"confirmed lie in the witness queue {queue_of(self._plan)} alone"
            ) from error

    def close(self) -> None:
        """Close the publisher within; the exchange and the witness queue stay for `find`."""
        self._inner.close()


def _prepare(broker: RabbitBroker, plan: str) -> None:
    """The plan's exchange, its witness queue, and at the head of that an anchor: what expires, is purged, is
    dropped for want of room or taken by others goes from the head, and it does not outlive its node. Where
    the exchange is there a run was here before, and a queue that is made anew gets none."""
    is_first = not _is_there(broker, exchange_of(plan))
    with _Channel(broker) as channel:
        channel.exchange_declare(exchange_of(plan), "direct", durable=True)
        channel.queue_declare(queue_of(plan), durable=True, arguments={"x-queue-type": "classic"})
        if is_first:
            channel.confirm_delivery()
            channel.queue_bind(queue_of(plan), exchange_of(plan), _ANCHOR)
            anchor = pika.BasicProperties(headers={_ANCHOR: plan}, delivery_mode=_TRANSIENT)
            channel.basic_publish(exchange_of(plan), _ANCHOR, b"", anchor, mandatory=True)


def _is_there(broker: RabbitBroker, exchange: str) -> bool:
    try:
        with _Channel(broker) as channel:
            channel.exchange_declare(exchange, passive=True)
    except NotFound:
        return False
    return True


def _is_anchored(broker: RabbitBroker, plan: str) -> bool:
    """Whether the witness queue still begins with its anchor, so that it has lost nothing. It stays there."""
    with _Channel(broker) as channel:
        _, properties, _ = channel.basic_get(queue_of(plan))
        return properties is not None and (properties.headers or {}).get(_ANCHOR) == plan


def forget(broker: RabbitBroker, plan: str) -> None:
    """Delete the plan's exchange and witness queue, if they are there. Raises BrokerError."""
    with _Channel(broker) as channel:
        channel.exchange_delete(exchange_of(plan))
        channel.queue_delete(queue_of(plan))


def find(broker: RabbitBroker, plan: str, outgoing: Sequence[Outgoing], since: int) -> Mapping[int, Presence]:
    """See `Connector.find`: exact for queues where nothing speaks against the witness, else unknown."""
    found: dict[int, Presence] = {letter.number: "unknown" for letter in outgoing}
    asked = [letter for letter in outgoing if letter.target.kind == "queue"]
    if not broker.management_url:
        return found
    with closing(Management(broker)) as management:
        try:
            # Without a witness the wait for the end of the connection would be for nothing.
            left = management.get("queues", management.vhost, queue_of(plan)) is not None
            if not left or any(_against(management, plan, since, _LISTED_SECONDS)):
                return found
            doubtful = _may_lack(management, {letter.target.name for letter in asked})
            bound = _bound(management, plan)
        except ManagementError:
            return found
    seen = _seen(broker, plan, {letter.provenance[REPLAY_ID] for letter in asked})
    if seen is not None:
        bound = bound if _is_anchored(broker, plan) else set()
        for letter in asked:
            there: Presence = "unknown" if letter.target.name in doubtful else "sent"
            absent: Presence = "not_sent" if letter.target.name in bound else "unknown"
            found[letter.number] = there if letter.provenance[REPLAY_ID] in seen else absent
    return found


def obstacles(broker: RabbitBroker, witness: bool, plan: str = "", since: int = 0) -> list[str]:
    """What keeps the witness from proving anything: there is none, there is no management API, the user may
    not leave one, or a node restarted."""
    if not witness:
        return ["without a witness (witness = true, or --witness) RabbitMQ cannot be asked afterwards"]
    if not broker.management_url:
        return [f"without management_url {_NO_PROOF}"]
    with closing(Management(broker)) as management:
        try:
            nodes = management.get_all("nodes")
        except ManagementError as error:
            return [f"{error}; {_NO_PROOF}"]
        if not all(isinstance(node.get("uptime"), int) for node in nodes) or not nodes:
            return [f"the management API does not tell how long its nodes are up: {_NO_PROOF}"]
        try:
            if plan:
                limits = _IN_A_CLUSTER if len(nodes) > 1 else ()
                against = [*_against(management, plan, since, 0), *_unanchored(broker, plan)]
                return [*against, *_of_old_versions(management), *limits]
        except ManagementError as error:
            return [str(error)]
    return _missing_rights(broker)


_IN_A_CLUSTER = ("in a cluster letters for classic queues go without a witness",)
_NO_PROOF = "nothing tells whether a node restarted, and then the witness proves nothing"


def _bound(management: Management, plan: str) -> set[str]:
    """The queues of which the witness has a copy of all that they get."""
    bindings = management.get_all("exchanges", management.vhost, exchange_of(plan), "bindings", "source")
    return {str(one.get("destination")) for one in bindings if one.get("destination_type") == "queue"}


def _missing_rights(broker: RabbitBroker) -> list[str]:
    """Tried with names that nothing has: the broker looks at the rights first, and nothing changes."""
    name = f"rights-{uuid.uuid4()}"
    with open_connection(broker) as connection:
        missing = [
            right for right, step in _RIGHTS.items() if not may(connection.channel, partial(step, name))
        ]
    return [f"the user may not {', '.join(missing)}"] if missing else []


def _try_to_publish(plan: str, channel: Any) -> None:
    """The answer to the next question tells what became of it."""
    channel.basic_publish(exchange_of(plan), "", b"")
    channel.basic_qos(prefetch_count=1)


_RIGHTS: Mapping[str, Callable[[str, Any], object]] = {
    "configure exchanges dlq.replay.*": lambda plan, channel: channel.exchange_delete(exchange_of(plan)),
    "configure queues dlq.witness.*": lambda plan, channel: channel.queue_delete(queue_of(plan)),
    "bind dlq.witness.* to dlq.replay.* (write to the one, read the other)": lambda plan, channel: (
        channel.queue_bind(queue_of(plan), exchange_of(plan), "")
    ),
    "write to dlq.replay.*": _try_to_publish,
    "read dlq.witness.*": lambda plan, channel: channel.basic_get(queue_of(plan)),
}


def _against(management: Management, plan: str, since: int, late: int) -> Iterator[str]:
    """What speaks against the witness of a plan whose first letter was sent at `since`."""
    if not _wait_for_the_end_of(connection_name(plan), management, late):
        yield "the connection that sent is still there, so that letters may still arrive: ask again later"
    nodes = management.get_all("nodes")
    if not nodes or not all(_was_up(node, since) for node in nodes):
        yield "a node restarted, or is down, since the first letter was sent: the witness proves nothing then"
    witness = management.get("queues", management.vhost, queue_of(plan)) or {}
    if any(name in mapping(witness.get("effective_policy_definition")) for name in _DROPPING):
        yield "a policy removes letters from the witness queue"


def _unanchored(broker: RabbitBroker, plan: str) -> list[str]:
    try:
        kept = _is_anchored(broker, plan)
    except NotFound:
        return ["the witness queue is not there any more"]
    lost = "the witness queue has lost its first message: its node restarted, it was purged or made anew, or"
    return [] if kept else [f"{lost} letters expired or were taken"]


def _of_old_versions(management: Management) -> list[str]:
    old = "before RabbitMQ 4.0 a quorum queue may lack the last letters that the witness holds"
    return [old] if _version(management) < (4,) else []


def _was_up(node: Mapping[str, Any], since: int) -> bool:
    uptime = node.get("uptime")
    return (
        bool(node.get("running"))
        and isinstance(uptime, int)
        and now() - uptime * 1000 < since - _CLOCKS_DIFFER_BY
    )


def _may_lack(management: Management, queues: set[str]) -> set[str]:
    """Those of the queues that may lack a letter that the witness holds.

    Before 4.0 a quorum queue may hear of a publisher's death before it takes what came last from it, and then
    drops that as out of sequence (rabbitmq/ra issue 393; mended in ra 2.14 of 4.0.5; one of 14,801 letters
    seen on 3.10.8).
    """
    if _version(management) >= (4,):
        return set()
    described = {name: management.get("queues", management.vhost, name) or {} for name in queues}
    return {name for name, queue in described.items() if queue.get("type") == "quorum"}


def _version(management: Management) -> tuple[int, ...]:
    return version_of(str((management.get("overview") or {}).get("rabbitmq_version", "")))


def _wait_for_the_end_of(connection: str, management: Management, late: int) -> bool:
    """While an alarm lasts the broker still holds what a dead client has sent, and may take it later."""
    for second in range(_GONE_SECONDS):
        listed = management.get_all("connections")
        names = [mapping(known.get("client_properties")).get("connection_name") for known in listed]
        if second >= late and connection not in names:
            return True
        time.sleep(1)
    return False


def _seen(broker: RabbitBroker, plan: str, wanted: Set[str]) -> set[str] | None:
    """The wanted replays that lie in the witness queue; None when there is none, or not all of it came.

    They are read without an acknowledgement and go back when the connection ends.
    """
    queue = queue_of(plan)
    try:
        with closing(_linked(broker)) as link:
            left = _depth(link, queue)
            try:
                return _read(link, queue, left, wanted)
            except PoisonMessage:
                with closing(opened(broker)) as session:
                    return _read_by_1_0(session, queue, left, wanted)
    except NotFound:
        return None
    except LinkLostError as error:
        raise ConnectionLost(
            f"{broker.name}: the connection ended while the witness was read: {error}"
        ) from error


def _linked(broker: RabbitBroker) -> Link:
    def refused(code: int, text: str) -> DlqError:
        error = refusal(code, text, broker)
        return PoisonMessage(str(error)) if code == _INTERNAL_ERROR else error

    try:
        return Link(parameters(broker), refused)
    except (OSError, LinkLostError) as error:
        raise as_our_error(error, broker) from error


def _depth(link: Link, queue: str) -> int:
    asked = spec.Queue.Declare(queue=queue, passive=True)
    return int(link.call(asked, spec.Queue.DeclareOk).message_count)


def _read(link: Link, queue: str, left: int, wanted: Set[str]) -> set[str] | None:
    link.call(spec.Basic.Consume(queue=queue, consumer_tag="dlq"), spec.Basic.ConsumeOk)
    seen: set[str] = set()
    silent = 0
    while left > 0 and silent < _SILENT_SECONDS:
        deliveries = link.take_deliveries(10_000)
        for delivery in deliveries:
            replay_id = edits.text_header(delivery.block, REPLAY_ID)
            if replay_id is not None and replay_id in wanted:
                seen.add(replay_id)
        left -= len(deliveries)
        silent = 0 if deliveries or link.receive(1.0) else silent + 1
    return None if left > 0 else seen


def _read_by_1_0(session: Session, queue: str, left: int, wanted: Set[str]) -> set[str] | None:
    source = session.attach(frames.RECEIVER, address("", queue))
    seen: set[str] = set()
    silent = 0
    while left > 0 and silent < _SILENT_SECONDS:
        session.ask(source, _AT_ONCE)
        while not source.drained:
            session.turn(_ANSWER_SECONDS, must=True)
        letters = session.take()
        seen |= wanted & {replay_id for one in letters if (replay_id := _replay_id(one.message))}
        left -= len(letters)
        silent = 0 if letters or session.turn(1.0) else silent + 1
    return None if left > 0 else seen


def _replay_id(encoded: bytes) -> str | None:
    """Of a message that we have sent; None for one of others."""
    try:
        sent = message.parts(message.split(encoded)[0]).application
    except ValueError:
        return None
    return next((str(value.value) for name, value in sent if name.value == REPLAY_ID), None)


class _Channel:
    """A channel on a connection of its own, for a few declarations; errors are ours."""

    def __init__(self, broker: RabbitBroker) -> None:
        self._broker = broker
        self._connection = connect(broker)

    def __enter__(self) -> Any:
        return self._connection.channel()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._connection.is_open:
            self._connection.close()
        if isinstance(error, exceptions.AMQPError):
            raise as_our_error(error, self._broker) from error
