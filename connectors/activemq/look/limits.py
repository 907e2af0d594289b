"""What a queue of Artemis, or its address, does with letters beside keeping them (2.56.0)."""

from dlq.connectors.activemq.look.effects import Traits
from dlq.connectors.activemq.look.queues import Queues
from dlq.connectors.activemq.prove.routing import Routing
from dlq.connectors.base import Limits, Target, least
from dlq.connectors.net.web import whole

_DROP = "DROP"


def limits(routing: Routing, queues: Queues, target: Target) -> Limits | None:
    """See `Connector.limits`; None where nobody tells."""
    found = routing.traits(target)
    if not found:
        return None
    of = found[0]
    is_one_queue = target.kind == "queue" or "::" in target.name
    if is_one_queue and (of.has("temporary") or of.queue.get("durable") == "false"):
        return Limits(temporary=f"queue {of.queue.get('name')} is temporary: it ends with its consumers")
    return least([*map(_of_ring, found), _of_address(queues, of)])


def _of_ring(of: Traits) -> Limits:
    size, holds = of.number("ringSize"), max(0, of.number("messageCount"))
    if size < 0:
        return Limits()
    said = f"queue {of.queue.get('name')} holds {holds:,} letters and is a ring of {size:,}"
    return Limits(max(0, size - holds), None, f"{said}: each one more drops its oldest")


def _of_address(queues: Queues, of: Traits) -> Limits:
    """Return the room of an address that drops what got a receipt. What is not told of it counts as taken."""
    most, letters = (whole(of.settings.get(name)) or 0 for name in ("maxSizeBytes", "maxSizeMessages"))
    if of.settings.get("addressFullMessagePolicy") != _DROP or max(most, letters) <= 0:
        return Limits()
    address = f"address.{of.queue.get('address')}"
    filled, holds = (queues.attribute(address, name) for name in ("addressSize", "messageCount"))
    free = [
        None if bound <= 0 else max(0, bound - used) if isinstance(used, int) else 0
        for bound, used in ((letters, holds), (most, filled))
    ]
    takes = [f"{letters:,} letters"] if letters > 0 else []
    takes += [f"{most:,} bytes"] if most > 0 else []
    said = f"{address} holds {holds} letters in {filled} bytes and takes {' or '.join(takes)}"
    return Limits(free[0], free[1], f"{said} (address-full-policy {_DROP}): what is more is dropped")
