"""Markers: proof of which transactions of a replay were committed, and of which were not.

Each transaction carries, beside its letters, one marker into a queue of the plan's own, whose body lists the
replay ids. A transaction is committed whole or not at all, also when the broker is killed between COMMIT
and RECEIPT, so a marker that is there proves its letters sent. The queue is read by taking everything and
giving it back: a selector or a browser would see only its first pages.

A marker that is missing proves something only where it would still be there. Markers can expire, be purged,
be consumed by somebody else, be lost with their queue, or lie on another broker. So the markers are a trail:

- Before its first letter each run leaves an anchor, which the plan's archive remembers. Whatever takes
  markers takes the oldest first, an anchor. All anchors must be there.
- Each marker names the one before it, so what was taken out of the middle is noticed. No later one names the
  last of a run, so each goes with a link, in the same transaction: of the two each names the other.
- Where the broker counts what was taken from the queue, that must be the probes of all scans: the last marker
  may have been taken with its link, too.
- A marker may have a time to live only where the anchors, which are older, have one, too.
- The end of a scan is never taken from silence: probes of our own go to the end of the queue, and what comes
  before them is everything. They are several, so that another consumer would be given some. Where that
  happens the anchors are taken away, and no later scan believes what is left.

- A mirror of Artemis holds them, too, but perhaps not the last: who looks is told which broker it was.

On Classic the scan is the queue's only consumer meanwhile.
"""

import contextlib
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.republish import destination
from dlq.connectors.activemq.stomp.codec import Frame, encode, headers_of
from dlq.connectors.activemq.stomp.link import Link
from dlq.connectors.activemq.stomp.read import ack_id, nudge
from dlq.connectors.base import Target
from dlq.core.errors import BrokerError, ConfigError, ConnectionLost, name_rights
from dlq.core.runtime import patience

PROBES = 11
"""A prime: whoever else has taken some, always two for each transaction, makes the broker's count of all that
was taken no multiple of it."""
_SCANS = 3
"""Times that the queue is looked through while somebody gives back what was held."""
MOST_BYTES, _OBJECT = 2**29, 128
"""Of the markers of a plan, with what each takes beside its content: those of ten million letters."""
OF_THIS_STORE = "JMSActiveMQBrokerPath = 'null'"
"""Selects on Classic what came over no bridge of a network of brokers, which may have left some behind."""
_CLASSIC = {
    "activemq.prefetchSize": str(2**31 - 1),
    "activemq.exclusive": "true",
    "selector": OF_THIS_STORE,
}
_ARTEMIS = {"consumer-window-size": "-1", "subscription-type": "ANYCAST"}

_RIGHTS_ON_CLASSIC = '<authorizationEntry queue="dlq.replay.>" read="GROUP" write="GROUP" admin="GROUP"/>'
_RIGHTS_ON_ARTEMIS = (
    '<security-setting match="dlq.replay.#"> with send, consume, createAddress, createDurableQueue'
)
_HEAD, _PROBE = "#", "?"
"""What the first line of a marker and of a probe begins with; no replay id does."""
_GONE = "proof that was left in {} before the first letter is not there any more: purged, expired or consumed"
_TORN = "markers are missing from the middle of {}: consumed or removed"
_MORTAL = (
    "the broker gives what is sent to {} a time to live, so proof can die; let its configuration give none "
    "to dlq.replay.*"
)
_SHARED = "another consumer takes from {}, or has just done so; ask again when it is gone"


class Trail(NamedTuple):
    """What a scan of the markers has shown."""

    sent: frozenset[str] = frozenset()
    """Replay ids of the committed transactions."""
    lasting: frozenset[str] = frozenset()
    """Names of the markers and anchors that have no time to live."""
    mortal: frozenset[str] = frozenset()
    """Of those that have one."""
    named: frozenset[str] = frozenset()
    """Names that others give as there, too."""
    probes_die: bool = False
    """What is sent now has a time to live."""
    shared: bool = False
    """Somebody else was given what was sent meanwhile."""

    def why_unproven(self, anchors: Collection[str], queue: str) -> str | None:
        """Return why what is not `sent` may have been sent after all; None where it was not."""
        there = self.lasting | self.mortal
        if self.shared:
            return _SHARED.format(queue)
        if not anchors or not there.issuperset(anchors):
            return _GONE.format(queue)
        if not there.issuperset(self.named):
            return _TORN.format(queue)
        if (self.mortal or self.probes_die) and not self.mortal.issuperset(anchors):
            return _MORTAL.format(queue)
        return None


class Marked(NamedTuple):
    """A message of a marker queue, and the name by which it is acknowledged."""

    body: bytes
    dies: bool
    name: bytes


def marker_queue(plan: str) -> str:
    """Return the name of a plan's marker queue."""
    return f"dlq.replay.{plan}"


def new_run() -> str:
    """Return the name of a run's anchor."""
    return f"{secrets.token_hex(8)}/0"


def marker_body(name: str, before: str = "", replay_ids: Sequence[str] = ()) -> bytes:
    """Return what a marker says: its name, those that must be there, too (apart by blanks), and what its
    transaction sent. An anchor has but a name."""
    return "\n".join([f"{_HEAD}{name} {before}", *replay_ids]).encode()


def marker_bodies(name: str, before: str, replay_ids: Sequence[str]) -> list[bytes]:
    """Return a link and a marker, in the order in which they are sent."""
    link = f"{name}+"
    return [marker_body(link, name), marker_body(name, f"{before} {link}", replay_ids)]


def trail_of(found: Iterable[Marked]) -> Trail:
    """Return what these messages say together."""
    sent: set[str] = set()
    names: dict[bool, set[str]] = {True: set(), False: set()}
    named: set[str] = set()
    for body, dies, _ in found:
        head, *replay_ids = body.decode("utf-8", "replace").split("\n")
        if not head.startswith(_HEAD):  # of a dlq that left no anchors
            sent.update([head, *replay_ids])
            continue
        name, *others = head.removeprefix(_HEAD).split()
        names[dies].add(name)
        named.update(others)
        sent.update(replay_ids)
    return Trail(frozenset(sent), frozenset(names[False]), frozenset(names[True]), frozenset(named))


class Scanning(NamedTuple):
    """How one protocol looks through a marker queue that it has subscribed to."""

    send: Callable[[Sequence[bytes]], None]
    """Messages of these bodies to the queue's end."""
    receive: Callable[[], list[Marked]]
    """What has come within a moment."""
    acknowledge: Callable[[Marked], None]
    wake: Callable[[], None]
    """Classic pages in at events alone."""
    patience: float
    place: str


def scan_markers(scanning: Scanning, queue: str) -> tuple[Trail, list[Marked]]:
    """Return what the queue's messages say, and those that are still there. Raises ConnectionLost when the
    broker does not show all of them, BrokerError."""
    token = f"{_PROBE}{secrets.token_hex(8)}".encode()
    awaited = {b"%b %d" % (token, n) for n in range(PROBES)}
    scanning.send(sorted(awaited))
    kept: list[Marked] = []
    probes_die = is_end_near = False
    size, began = 0, time.monotonic()
    heard = began
    while awaited and time.monotonic() - heard < (patience.CAUGHT_UP if is_end_near else scanning.patience):
        if size > MOST_BYTES or time.monotonic() - began > patience.LOOK:
            raise ConnectionLost(f"{scanning.place}: the markers in {queue} do not come to an end")
        arrived = scanning.receive()
        if not arrived:
            scanning.wake()
            continue
        heard = time.monotonic()
        for one in arrived:
            size += len(one.body) + len(one.name) + _OBJECT
            if not one.body.startswith(_PROBE.encode()):
                kept.append(one)
                continue
            scanning.acknowledge(one)  # one of a scan that was killed, too
            is_end_near = is_end_near or one.body in awaited
            probes_die = probes_die or one.dies
            awaited.discard(one.body)
    if awaited:
        kept = _without_anchors(scanning, kept)
    if not is_end_near:
        raise ConnectionLost(f"{scanning.place}: the markers in {queue} were not shown to their end")
    return trail_of(kept)._replace(probes_die=probes_die, shared=bool(awaited)), kept


def remove_all(scanning: Scanning, plan: str) -> None:
    """Take away what a scan finds. Raises BrokerError."""
    for one in scan_markers(scanning, marker_queue(plan))[1]:
        scanning.acknowledge(one)


def _without_anchors(scanning: Scanning, kept: Sequence[Marked]) -> list[Marked]:
    """Whoever else reads the queue may have a marker that we shall never see."""
    with contextlib.suppress(BrokerError):
        for one in kept:
            if _is_anchor(one.body):
                scanning.acknowledge(one)
    return [one for one in kept if not _is_anchor(one.body)]


def _is_anchor(body: bytes) -> bool:
    return body.startswith(_HEAD.encode()) and body.endswith(b"/0 ")


def marker(plan: str, body: bytes, transaction: str, receipt: str, artemis: bool) -> bytes:
    """Return the SEND frame of a marker, a link or an anchor, which is in no transaction. Without `receipt`
    none is asked for."""
    asked = (("receipt", receipt), ("transaction", transaction))
    headers = {
        **destination(Target("queue", marker_queue(plan)), artemis),
        "persistent": "true",
        **{name: value for name, value in asked if value},
    }
    return encode("SEND", headers, body)


def leave_anchor(link: Link, plan: str, name: str) -> None:
    """Leave an anchor before the first letter. Raises AccessDenied, which names the right that is missing."""
    receipt = link.new_receipt()
    link.send(marker(plan, marker_body(name), "", receipt, link.artemis))
    with name_rights(rights_to_mark(link.artemis)):
        link.wait_for(receipt)


def rights_to_mark(artemis: bool) -> str:
    """Return what the broker's configuration lacks where markers may not be written."""
    entry = _RIGHTS_ON_ARTEMIS if artemis else _RIGHTS_ON_CLASSIC
    proof = "a replay leaves proof of what it sent in queues named dlq.replay.PLAN"
    return f"{proof}, so the broker's configuration needs {entry}"


def trail(link: Link, plan: str) -> Trail:
    """Return what the markers of a plan say; changes nothing. Raises BrokerError."""
    queue = marker_queue(plan)
    for _ in range(_SCANS):
        with _scanning(link, plan) as scanning:
            found, kept = scan_markers(scanning, queue)
            if found.shared or not (link.artemis and _holds_more(link, queue, len(kept))):
                return found
    return found._replace(shared=True)


def _holds_more(link: Link, queue: str, kept: int) -> bool:
    """Return whether Artemis counts more messages than we have been given: a consumer that goes gives back
    what it held one by one, behind our back. Where management may not be asked, `find` proves nothing."""
    link.ping()
    with contextlib.closing(Management(link.broker)) as management:
        return all(
            management.attribute(f"queue.{queue}", "messageCount") not in (kept, None)
            for _ in patience.tries(patience.COUNTED)
        )


def remove(link: Link, plan: str) -> None:
    """Take the markers away. Raises BrokerError."""
    with _scanning(link, plan) as scanning:
        remove_all(scanning, plan)


def trail_by_stomp(broker: ActiveMQBroker, plan: str) -> Trail:
    """Return the same over a connection of its own, for those who sent by another protocol."""
    with contextlib.closing(Link(broker)) as link:
        return trail(link, plan)


def remove_by_stomp(broker: ActiveMQBroker, plan: str) -> None:
    """Take the markers away over a connection of its own. Raises BrokerError."""
    with contextlib.closing(Link(broker)) as link:
        remove(link, plan)


def check_anchor(
    broker: ActiveMQBroker,
    plan: str,
    anchor: str,
    sent_to: str,
    setting: str,
    is_other: Callable[[], bool] = lambda: False,
) -> None:
    """Check that STOMP finds an anchor that was sent to a node by another protocol, to which `setting` of the
    broker leads, and that nothing else (`is_other`) shows another broker. Raises ConfigError, BrokerError."""
    with contextlib.closing(Link(broker)) as link:
        found = trail(link, plan)
        is_there = found.shared or anchor in found.lasting | found.mortal
        if not is_there or is_other():
            raise ConfigError(
                f"brokers.{broker.name}.{setting}: {sent_to} is another broker than {link.node} of url; what "
                "is sent there is not found here; leave it out, or name this broker"
            )


@contextlib.contextmanager
def _scanning(link: Link, plan: str) -> Iterator[Scanning]:
    place = destination(Target("queue", marker_queue(plan)), link.artemis)
    how = _ARTEMIS if link.artemis else _CLASSIC
    subscribe = {"destination": place["destination"], "id": link.token, "ack": "client-individual", **how}
    link.request("SUBSCRIBE", subscribe)
    wake = b"" if link.artemis else nudge({"destination": place["destination"]}, link.token)
    put = {**place, "persistent": "true"}
    yield Scanning(
        lambda bodies: link.send(b"".join([encode("SEND", put, body) for body in bodies])),
        lambda: [_read_marker(frame) for frame in link.receive(patience.PAUSE)],
        lambda one: link.send(b"ACK\nid:%b\n\n\0" % one.name),
        lambda: link.send(wake),
        link.patience,
        link.place,
    )
    link.request("UNSUBSCRIBE", {"id": link.token})


def _read_marker(frame: Frame) -> Marked:
    return Marked(frame.body, headers_of(frame.head).get("expires", "0") != "0", ack_id(frame.head))
