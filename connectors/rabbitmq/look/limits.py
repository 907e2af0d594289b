"""What a queue does with letters beside keeping them: drops its oldest, ends them, goes with a connection."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dlq.connectors.base import Limits, Target, least
from dlq.connectors.net.web import whole
from dlq.connectors.rabbitmq.amqp091.link.questions import Questions, Refused, questions
from dlq.connectors.rabbitmq.look.consumers import fetch_queues, receivers
from dlq.connectors.rabbitmq.look.topology import VirtualHost, known_host, learn_apart
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.text import for_terminal

_LOCKED = 405
_LIVES_WITH = {"exclusive": "is exclusive", "auto_delete": "is auto-delete"}
_BEYOND = {
    "drop-head": "each one more drops its oldest",
    "reject-publish-dlx": "each one more is refused and dead-lettered again",
}
"""`overflow` -> what becomes of what finds no room. What is refused alone (reject-publish) is told."""


def limits(broker: RabbitBroker, targets: Sequence[Target]) -> Mapping[Target, Limits]:
    """See `Connector.limits`. An exchange's queues, and what consumers' connections own, are known from the
    management API alone."""
    reached = receivers(broker, targets)
    names = {name for queues in reached.values() for name in queues}
    shown = fetch_queues(broker, names)[0]
    exclusive = {name for name in names if shown.get(name, {}).get("exclusive")}
    with questions(broker) as asking:
        depths = {**dict.fromkeys(exclusive), **dict(_depths(asking, names - exclusive))}
    host = known_host(broker)
    known = {name: _of_queue(broker, name, depths[name], shown.get(name, {}), host) for name in sorted(names)}
    return {target: least([known[name] for name in queues]) for target, queues in reached.items()}


def _depths(asking: Questions, names: Iterable[str]) -> Iterable[tuple[str, int | None]]:
    """Yield ready letters by queue; None of an exclusive one, which another connection may not look at."""
    for name in names:
        try:
            yield name, asking.queue(name).message_count
        except Refused as refused:
            yield name, None if refused.code == _LOCKED else 0


def _of_queue(
    broker: RabbitBroker, name: str, depth: int | None, shown: Mapping[str, Any], host: VirtualHost | None
) -> Limits:
    shows = for_terminal(name)
    own = "is exclusive" if depth is None else None
    own = own or next((said for key, said in _LIVES_WITH.items() if shown.get(key)), None)
    if own:
        return Limits(temporary=f"queue {shows} {own}: it ends with its consumers")
    found = learn_apart(broker, name, "", host)
    overflow = found.overflow
    if found.setting("message-ttl") == 0:
        return Limits(0, None, f"queue {shows} ends what nobody takes at once (message-ttl 0)")
    most, size = found.setting("max-length"), found.setting("max-length-bytes")
    if overflow not in _BEYOND or not (isinstance(most, int) or isinstance(size, int)):
        return Limits()
    holds = max(depth or 0, whole(shown.get("messages")) or 0)
    is_told = "message_bytes" in shown and shown.get("messages") == holds
    # The statistics are late, or nobody tells: how much what lies there fills is not known.
    filled = whole(shown["message_bytes"]) if is_told else size if holds else 0
    takes = [f"{most:,} letters"] if isinstance(most, int) else []
    takes += [f"{size:,} bytes"] if isinstance(size, int) else []
    return Limits(
        max(0, most - holds) if isinstance(most, int) else None,
        max(0, size - (filled or 0)) if isinstance(size, int) else None,
        f"queue {shows} holds {holds:,} letters and takes {' or '.join(takes)} ({overflow}): "
        f"{_BEYOND[overflow]}",
        refused_die_again=overflow == "reject-publish-dlx",
    )
