"""What a queue of Artemis, or its address, does with letters beside keeping them (2.56.0)."""

from dlq.connectors.activemq.look.artemis import ADDRESS_FULL, PAGE_FULL, policy_that_drops
from dlq.connectors.activemq.look.effects import Traits
from dlq.connectors.activemq.look.queues import Queues
from dlq.connectors.activemq.prove.routing import Routing
from dlq.connectors.base import Limits, Target, least
from dlq.connectors.net.web import whole


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
    drops, address = policy_that_drops(of.settings), f"address.{of.queue.get('address')}"
    letters, most = of.limit_of("maxSizeMessages"), of.limit_of("maxSizeBytes")
    if drops == PAGE_FULL:
        paged, most = of.limit_of("pageLimitMessages"), of.limit_of("pageLimitBytes")
        letters = None if paged is None else paged + (letters or 0)
    if not drops or letters is most is None:
        return Limits()
    holds, filled = whole(queues.attribute(address, "messageCount")), _bytes_in_use(queues, address, drops)
    free = [
        None if bound is None else 0 if used is None else max(0, bound - used)
        for bound, used in ((letters, holds), (most, filled))
    ]
    takes = [f"{letters:,} letters"] if letters is not None else []
    takes += [f"{most:,} bytes"] if most is not None else []
    told = ["an unknown number of" if one is None else f"{one:,}" for one in (holds, filled)]
    said = f"{address} holds {told[0]} letters in {told[1]} bytes and takes {' or '.join(takes)}"
    return Limits(free[0], free[1], f"{said} ({drops} DROP): what is more is dropped")


def _bytes_in_use(queues: Queues, address: str, drops: str) -> int | None:
    """Return the bytes of what lies in its memory or, where these have the bound, in its pages; None where
    that is not told."""
    if drops == ADDRESS_FULL:
        return whole(queues.attribute(address, "addressSize"))
    pages, size = (whole(queues.attribute(address, one)) for one in ("numberOfPages", "numberOfBytesPerPage"))
    return None if pages is None or size is None else pages * size
