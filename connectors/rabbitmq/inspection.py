"""What `doctor` says of a RabbitMQ source, and what a pull's mode would change there."""

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from dlq.connectors.base import Inspection
from dlq.connectors.rabbitmq.connection import may, open_connection
from dlq.connectors.rabbitmq.description import RabbitBroker
from dlq.connectors.rabbitmq.topology import Topology, VirtualHost, lasting, learn, version_of
from dlq.core.units import human_bytes, human_seconds

_DRAIN = "drain removes the letters, each only after it is durable in the archive"
_ORDER = {
    "classic": "they keep their place",
    "quorum": "they go to the back of the queue, behind letters that came later",
}
_UNKNOWN = (
    "the queue's type is not known, and on a quorum queue looking counts as a delivery, which can remove "
    "letters; set management_url, use --mode drain, or insist with --force"
)
_LIMITED = (
    "a quorum queue counts deliveries and removes a letter after {limit}: a copy that is cut off counts for "
    "every letter that it holds; use --mode drain, or insist with --force"
)
_PERHAPS_LIMITED = (
    "this quorum queue may have a delivery limit by policy, and looking counts as a delivery; "
    "set management_url so that dlq can see it, use --mode drain, or insist with --force"
)
_NO_ROOM = (
    "its delivery limit of {limit} leaves no room: whatever interrupts a drain (a kill, a lost connection) "
    "kills the letters that it holds; raise the limit by a policy first, or insist with --force"
)
_UNREADABLE = "the user may not read this queue: no pull is possible"
_HELD = "a consumer has this queue for itself alone: no pull gets a letter while it is there"
NO_DRAIN = "this is a stream, from which nothing can be taken: --mode copy reads what is new each time"
_HIDES_DEATHS = (
    "RabbitMQ before 3.13.3 shows no x-death of a stream's letters over AMQP 0-9-1: what they died of, and "
    "where, stays unknown, and a replay needs --to"
)
_NO_STATISTICS = (
    "the management API has no statistics of this queue: it is new (look again in 10 s), or they are "
    "switched off (management_agent.disable_metrics_collector); what consumers hold, and have "
    "acknowledged, stays unknown"
)


_SHOWS_DEATHS = (3, 13, 3)
_COUNTS_FAILURES_ALONE = (4, 3)
"""Before, whatever goes back to a quorum queue counts towards its limit."""
_ENOUGH_DELIVERIES = 10
"""A limit that leaves room for some more."""


def harm_of_copy(topology: Topology) -> str | None:
    """Why looking at the queue may kill letters; None: it cannot."""
    if topology.kind is None:
        return _UNKNOWN
    if topology.delivery_limit is not None:
        return _LIMITED.format(limit=topology.delivery_limit)
    if topology.kind == "quorum" and not topology.policies_known:
        return _PERHAPS_LIMITED
    return None


def harm_of_drain(topology: Topology) -> str | None:
    """Why a drain that is interrupted may kill letters at once; None: there is room for failures."""
    if topology.kind == "quorum" and topology.delivery_limit is not None and topology.delivery_limit < 2:
        return _NO_ROOM.format(limit=topology.delivery_limit)
    return None


def may_release(topology: Mapping[str, Any], version: tuple[int, ...]) -> bool:
    """Whether all letters of a queue (`Topology.document`) may be taken and given back without harm."""
    if version >= _COUNTS_FAILURES_ALONE or topology.get("queue_type") == "classic":
        return True
    limit = topology.get("delivery_limit")
    return limit >= _ENOUGH_DELIVERIES if isinstance(limit, int) else bool(topology.get("policies_known"))


def change_by_copy(topology: Topology, version: str) -> str:
    """What a copy changes in the queue, in one sentence."""
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
        "copy holds the letters until its end and gives them back once: they are marked "
        f"redelivered{counted}, {order}, and other consumers do not see them meanwhile"
    )


def notes_on_stream(version: str) -> list[str]:
    """Sentences for the user of a copy of a stream."""
    return [_HIDES_DEATHS] if version_of(version) < _SHOWS_DEATHS else []


def notes_on(topology: Topology, mode: str, version: str, consumers: int) -> list[str]:
    """Sentences for the user of a pull."""
    notes = [change_by_copy(topology, version)] if mode == "copy" else []
    if consumers:
        notes.append(f"{_consumers(consumers)} letters from this queue too")
    if topology.setting("single-active-consumer"):
        notes.append("the queue has a single active consumer; while another one is active, nothing comes")
    return notes


def _consumers(number: int) -> str:
    return "1 other consumer takes" if number == 1 else f"{number} other consumers take"


def inspect(
    broker: RabbitBroker, queue: str, host: VirtualHost | None = None, since: float | None = None
) -> Inspection:
    """Look at a queue without taking a message. Where it is one of many, `host` is known and the look
    began at `since`. Raises BrokerError when the queue is not there."""
    with open_connection(broker) as connection:
        version = str(connection._impl.server_properties["version"])
        declared = connection.channel().queue_declare(queue, passive=True).method
        topology = learn(broker, queue, version, connection.channel, host)
        depth = declared.message_count
        if topology.kind == "quorum":
            channel = connection.channel()
            depth = lasting(
                lambda: int(channel.queue_declare(queue, passive=True).method.message_count), since
            )
        rights = {
            "read": may(connection.channel, _try_to_read(queue)),
            "write to the default exchange": may(connection.channel, _try_to_write),
        }
    return _inspection(topology, version, depth, declared.consumer_count, rights)


def _inspection(
    topology: Topology, version: str, depth: int, consumers: int, rights: Mapping[str, bool]
) -> Inspection:
    facts = {
        "version": version,
        "queue type": topology.kind or "unknown",
        "letters ready": depth,
        "letters held by consumers": topology.unacknowledged,
        "consumers": consumers,
        "delivery limit": topology.delivery_limit if topology.delivery_limit is not None else "none known",
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
        changes={"copy": change_by_copy(topology, version), "drain": _DRAIN},
        harm=_harm(topology, rights),
        warnings=[*_warnings(topology, version, depth, consumers, rights), *topology.notes],
    )


def _harm(topology: Topology, rights: Mapping[str, bool]) -> dict[str, str]:
    if not rights["read"]:
        return dict.fromkeys(("copy", "drain"), _UNREADABLE)
    if topology.held:
        return dict.fromkeys(("copy", "drain"), _HELD)
    if topology.kind == "stream":
        return {"drain": NO_DRAIN}
    found = {"copy": harm_of_copy(topology), "drain": harm_of_drain(topology)}
    return {mode: harm for mode, harm in found.items() if harm}


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
    topology: Topology, version: str, depth: int, consumers: int, rights: Mapping[str, bool]
) -> list[str]:
    ttl, expires = topology.setting("message-ttl"), topology.setting("expires")
    length = topology.setting("max-length")
    onward = "are dead-lettered again" if topology.setting("dead-letter-exchange") is not None else "vanish"
    found = {
        "set management_url to see policies, bindings and other queues' limits": not topology.policies_known
        and not topology.notes,
        f"letters older than {_milliseconds(ttl)} {onward}: pull in time": ttl is not None,
        f"the queue itself goes, with its letters, when unused for {_milliseconds(expires)}": expires
        is not None,
        f"the queue holds {depth} of at most {length} letters; beyond that the oldest {onward}": isinstance(
            length, int
        )
        and depth >= 0.8 * length,
        f"{_consumers(consumers)} letters from this queue": consumers > 0,
        _UNREADABLE: not rights["read"],
        "the user may not write to the default exchange: no replay to a queue is possible": not rights[
            "write to the default exchange"
        ],
        _HIDES_DEATHS: topology.kind == "stream" and version_of(version) < _SHOWS_DEATHS,
        _NO_STATISTICS: topology.policies_known and topology.unacknowledged is None,
    }
    return [text for text, holds in found.items() if holds]


def _try_to_read(queue: str) -> Callable[[Any], None]:
    """A consume that is refused for its arguments (406) where it is not for lack of rights (403)."""

    def attempt(channel: Any) -> None:
        channel.basic_consume(queue, lambda *_: None, arguments={"x-priority": "none"})

    return attempt


def _try_to_write(channel: Any) -> None:
    """A message to a queue that does not exist comes back where it may be sent, and leaves no trace."""
    channel.basic_publish("", f"dlq-rights-{uuid.uuid4()}", b"", mandatory=True)
    channel.basic_qos(prefetch_count=1)
