"""What `doctor` says of a RabbitMQ source, and what a pull's mode would change there."""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pika import spec

from dlq.connectors.base import Inspection, Mode
from dlq.connectors.rabbitmq.amqp091.link.questions import Questions, questions
from dlq.connectors.rabbitmq.look.discovery import names_dead_letters
from dlq.connectors.rabbitmq.look.effects import RETURNS, SINGLE_ACTIVE, effects, harm
from dlq.connectors.rabbitmq.look.topology import (
    SERVING,
    Topology,
    VirtualHost,
    lasting_depth,
    learn,
    version_of,
)
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.errors import NoLeader
from dlq.core.text import for_terminal
from dlq.core.values.units import human_bytes, human_seconds

_DRAIN = "drain removes the messages, each only after it is durable in the archive"
_ORDER = {
    "classic": "they keep their place",
    "quorum": "they go to the back of the queue, behind messages that came later",
}
_UNREADABLE = "the user may not read this queue: no pull is possible"
_READY = "letters ready"
_MAY_LACK_A_LEADER = (
    "it shows no letters, and neither does a quorum queue without a leader; only management_url shows more"
)
_HELD = "a consumer holds this queue exclusively: no pull gets a message while it runs"
NO_DRAIN = (
    "this is a stream, from which nothing can be taken: --mode copy reads what is new each time; use it"
)
_HIDES_DEATHS = (
    "RabbitMQ before 3.13.3 shows no x-death of a stream's letters over AMQP 0-9-1: what they died of, and "
    "where, stays unknown, and a replay needs --to"
)
_NO_STATISTICS = (
    "the management API has no statistics of this queue: it is new (look again in 10 s), or they are "
    "switched off (management_agent.disable_metrics_collector); what consumers hold, and have "
    "acknowledged, stays unknown"
)


_PUBLISHED = (
    "publishers have sent {} messages to this queue, past any dead-letter exchange: is it a work queue? "
    "A drain takes these messages, too"
)
_SHOWS_DEATHS = (3, 13, 3)
_COUNTS_FAILURES_ALONE = (4, 3)
"""Before, whatever goes back to a quorum queue counts towards its limit."""
_ENOUGH_DELIVERIES = 10
"""A limit that leaves room for some more."""


_AT_LEAST_ONCE = "those of an at-least-once quorum queue wait in it until there is room"
_REFUSED = {
    "reject-publish": "it refuses what comes: publishers get a nack, dead letters of other queues may vanish "
    f"and {_AT_LEAST_ONCE}",
    "reject-publish-dlx": "it refuses what comes: publishers get a nack, what is refused {}, and of dead "
    f"letters {_AT_LEAST_ONCE}",
}
"""Overflow -> what becomes of letters beyond the limit (https://www.rabbitmq.com/docs/maxlength). Dead
letters are sent at most once where `dead-letter-strategy` does not say otherwise."""


def may_release(topology: Mapping[str, Any], version: tuple[int, ...]) -> bool:
    """Return whether all letters of a queue (`Topology.document`) may be taken and given back without
    harm."""
    if version >= _COUNTS_FAILURES_ALONE or topology.get("queue_type") == "classic":
        return True
    limit = topology.get("delivery_limit")
    return limit >= _ENOUGH_DELIVERIES if isinstance(limit, int) else bool(topology.get("policies_known"))


def _change_by_copy(topology: Topology, version: str) -> str:
    """Return what a copy changes in the queue, in one sentence."""
    if topology.kind == "stream":
        return "nothing"
    order = _ORDER.get(topology.kind or "", "their place may change")
    if topology.kind == "quorum" and (topology.delivery_limit is not None or version_of(version) >= (4, 3)):
        order = "they keep their order"
    counted = (
        ", the delivery count grows by one"
        if topology.kind == "quorum" and version_of(version) < (4, 3)
        else ""
    )
    return (
        "copy holds the messages until it ends, then gives them back: they are marked "
        f"redelivered{counted}, {order}, and other consumers do not see them meanwhile"
    )


def notes_on_stream(version: str) -> list[str]:
    """Return sentences for the user of a copy of a stream."""
    return [_HIDES_DEATHS] if version_of(version) < _SHOWS_DEATHS else []


def notes_on(topology: Topology, mode: str, version: str, consumers: int) -> list[str]:
    """Return sentences for the user of a pull."""
    notes = [_change_by_copy(topology, version)] if mode == "copy" else []
    if consumers:
        notes.append(f"{_consumers(consumers)} messages from this queue too")
    if topology.setting("single-active-consumer"):
        notes.append(SINGLE_ACTIVE)
    if topology.returns_by:
        notes.append(RETURNS.format(onward=", ".join(topology.returns_by)))
    return [*notes, *_notes_on_hidden(topology)]


def _notes_on_hidden(topology: Topology) -> Iterator[str]:
    """Yield notes on letters that no consumer gets for now."""
    if topology.delayed:
        yield f"{topology.delayed} more messages were given back and are hidden for a while (delayed-retry)"
    if topology.waiting:
        number, places = sum(topology.waiting.values()), ", ".join(topology.waiting)
        yield (
            f"{number} more messages wait in {places} for room in this queue (at-least-once dead-lettering): "
            "they come once it has some, up to three minutes later; pull again"
        )


def _consumers(number: int) -> str:
    return "1 other consumer takes" if number == 1 else f"{number} other consumers take"


def inspect(broker: RabbitBroker, queue: str) -> Inspection:
    """Look at a queue without taking a message. Raises BrokerError when the queue, or its leader, is not
    there."""
    with questions(broker) as asking:
        return Look(broker, asking).inspect(queue)


class Look:
    """A look at several queues by one connection, which an error may end. `host` is what is known of all of
    them, and `since` when the first look began."""

    def __init__(
        self,
        broker: RabbitBroker,
        asking: Questions,
        host: VirtualHost | None = None,
        since: float | None = None,
    ) -> None:
        self._broker, self._asking, self._host, self._since = broker, asking, host, since
        self._may_write: bool | None = None

    def inspect(self, queue: str) -> Inspection:
        """See `inspect`. A quorum queue that lacks a leader seems to be empty. Raises Refused, LinkLostError,
        NoLeader."""
        asking = self._asking
        version, declared = asking.version, asking.queue(queue)
        topology = learn(self._broker, queue, version, lambda: asking, self._host)
        depth = declared.message_count
        if topology.kind == "quorum":
            depth = lasting_depth(lambda: int(asking.queue(queue).message_count), self._since)
        if self._may_write is None:
            self._may_write = asking.is_let(_try_to_write)
        rights = {
            "read": asking.is_let(partial(_try_to_read, queue)),
            "write to the default exchange": self._may_write,
        }
        found = _inspection(queue, topology, version, depth, declared.consumer_count, rights)
        if depth or declared.consumer_count or topology.kind not in (None, "quorum"):
            return found
        return _doubt(found, queue, topology.state)


def _doubt(found: Inspection, queue: str, state: str) -> Inspection:
    """Return what is known where nobody may have answered but the node. Raises NoLeader."""
    if state in SERVING:
        return found
    if state:
        raise NoLeader(for_terminal(f"the queue {queue} is {state}: what lies there is not known"))
    facts = {name: value for name, value in found.facts.items() if name != _READY}
    return replace(found, depth=None, facts=facts, warnings=[*found.warnings, _MAY_LACK_A_LEADER])


def _delivery_limit(topology: Topology) -> dict[str, int | str]:
    """Return the limit; the default is none where a policy, which is not seen, may set another."""
    limit, unseen = topology.delivery_limit, not topology.policies_known
    if limit is None:
        unseen = unseen and topology.kind in (None, "quorum")
        return {"delivery limit": "not known" if unseen else "none known"}
    in_force = f"{limit}, or lower by a policy that is not seen"
    return {"delivery limit": limit, **({"delivery limit in force": in_force} if unseen else {})}


def _inspection(
    queue: str, topology: Topology, version: str, depth: int, consumers: int, rights: Mapping[str, bool]
) -> Inspection:
    facts = {
        "version": version,
        "queue type": topology.kind or "unknown",
        _READY: depth,
        "letters held by consumers": topology.unacknowledged,
        "consumers": consumers,
        **_delivery_limit(topology),
        **_retention(topology),
        "dead letters go on to": topology.setting("dead-letter-exchange"),
        "bindings": ", ".join(topology.bindings) or None,
        "alternate exchanges that lead here": ", ".join(topology.alternate_exchanges) or None,
        "rights": ", ".join(name for name, given in rights.items() if given) or "none",
    }
    return Inspection(
        version=version,
        depth=depth,
        facts={name: value for name, value in facts.items() if value is not None},
        changes={"copy": _change_by_copy(topology, version), "drain": _DRAIN},
        harm=_harm(topology, depth, rights),
        warnings=[
            *_warnings(queue, topology, version, depth, consumers, rights),
            *effects(topology, depth, "drain", harms=False),
            *_notes_on_hidden(topology),
            *topology.notes,
        ],
    )


def _harm(topology: Topology, depth: int, rights: Mapping[str, bool]) -> dict[str, str]:
    if not rights["read"]:
        return dict.fromkeys(("copy", "drain"), _UNREADABLE)
    if topology.held:
        return dict.fromkeys(("copy", "drain"), _HELD)
    if topology.kind == "stream":
        return {"drain": NO_DRAIN}
    modes: tuple[Mode, ...] = ("copy", "drain")
    return {mode: why for mode in modes if (why := harm(topology, depth, mode))}


def _retention(topology: Topology) -> dict[str, Any]:
    ttl, expires = topology.setting("message-ttl"), topology.setting("expires")
    length, size = topology.setting("max-length"), topology.setting("max-length-bytes")
    return {
        "message TTL": _milliseconds(ttl),
        "queue expires when unused for": _milliseconds(expires),
        "max length": length,
        "max size": human_bytes(size) if isinstance(size, int) else None,
        "overflow": topology.setting("overflow"),
    }


def _milliseconds(value: Any) -> str | None:
    return human_seconds(value / 1000) if isinstance(value, int) else None


def _warnings(
    queue: str, topology: Topology, version: str, depth: int, consumers: int, rights: Mapping[str, bool]
) -> list[str]:
    length = topology.setting("max-length")
    onward = "are dead-lettered again" if topology.setting("dead-letter-exchange") is not None else "vanish"
    beyond = _REFUSED.get(topology.overflow, f"the oldest {onward}").format(onward)
    found = {
        "set management_url to see policies, bindings and other queues' limits": not topology.policies_known
        and not topology.notes,
        f"the queue holds {depth} of at most {length} letters; beyond that {beyond}": isinstance(length, int)
        and depth >= 0.8 * length,
        f"{_consumers(consumers)} messages from this queue": consumers > 0,
        _PUBLISHED.format(topology.published): topology.published > 0 and not names_dead_letters(queue),
        _UNREADABLE: not rights["read"],
        "the user may not write to the default exchange: no replay to a queue is possible": not rights[
            "write to the default exchange"
        ],
        _HIDES_DEATHS: topology.kind == "stream" and version_of(version) < _SHOWS_DEATHS,
        _NO_STATISTICS: topology.policies_known and topology.unacknowledged is None,
    }
    return [text for text, holds in found.items() if holds]


def _try_to_read(queue: str, asking: Questions) -> None:
    """Try to read: a consume is refused for its arguments (406) where not for lack of rights (403)."""
    asking.ask(spec.Basic.Consume(queue=queue, arguments={"x-priority": "none"}))


def _try_to_write(asking: Questions) -> None:
    """Try to write: a message to an absent queue comes back where it may be sent, and leaves no trace."""
    asking.publish("", f"dlq-rights-{uuid.uuid4()}")
    asking.ask(spec.Basic.Qos(prefetch_count=1))
