"""Which queues of a virtual host look like dead-letter queues, by its management API."""

import re
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from dlq.connectors.base import DeadLetterPlace
from dlq.connectors.net.web import whole
from dlq.connectors.rabbitmq.look.management import Management, ManagementError
from dlq.connectors.rabbitmq.look.routes import Routes, list_routes, queues_reached
from dlq.connectors.rabbitmq.look.topology import alternate_exchanges, dead_letters, setting_of
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rabbitmq.read.wildcards import literally
from dlq.core.errors import Unreachable, UsageError
from dlq.core.values.suggestions import suggest

_Queue = Mapping[str, Any]
_Node = tuple[str, str]
"""("queue" or "exchange", its name)."""
_Ways = Mapping[_Node, Sequence[_Node]]
_NONE: Mapping[str, str] = {}

_NAMED = re.compile(
    r"(?: ^|[._-] ) (?: dlq | dl | dead | dead[._-]?letters? | errors? | failed | failures? | poison"
    r" | parked | parking | parking[._-]?lot | quarantine | unrout(?:ed|able) | skipped ) (?: $|[._-] )",
    re.IGNORECASE | re.VERBOSE,
)
_WAITING = re.compile(
    r"(?: ^|[._-] ) (?: wait | waiting | retry | retries | delay | delays | delayed | backoff | later"
    r" | schedule | scheduled ) (?: $|[._-]|\d )",
    re.IGNORECASE | re.VERBOSE,
)
"""In the names of queues where letters wait for their time, such as nsb.v2.delay-level-07."""
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
"""Where words of camelCase meet."""
_OF_A_QUEUE, _OF_AN_EXCHANGE = "dead letters of {} go there", "what {} cannot route goes there"
_COLUMNS = "name,type,arguments,effective_policy_definition,messages,consumers,head_message_timestamp"


def discover(broker: RabbitBroker) -> list[DeadLetterPlace]:
    """Return all that dead letters are sent to, or are named so. Raises UsageError without a management URL,
    Unreachable."""
    if not broker.management_url:
        raise UsageError(
            f"brokers.{broker.name} needs management_url: RabbitMQ lists its queues nowhere else; add it"
        )
    with closing(Management(broker)) as management:
        try:
            queues = management.get_all("queues", management.vhost, columns=_COLUMNS)
            bindings = management.get_all("bindings", management.vhost)
            alternates = alternate_exchanges(management)
            exchanges = management.get_all("exchanges", management.vhost, columns="name,type")
        except ManagementError as error:
            raise Unreachable(str(error)) from error
    return list(places(queues, bindings, alternates, exchanges))


def suggest_queue(broker: RabbitBroker, queue: str) -> str:
    """Return `; did you mean 'orders.dlq'?` of a queue that is not there, where the API can tell."""
    if broker.management_url:
        with closing(Management(broker)) as management, suppress(ManagementError):
            queues = management.get_all("queues", management.vhost, columns="name")
            return suggest(queue, [str(one.get("name")) for one in queues])
    return ""


def places(
    queues: Sequence[_Queue],
    bindings: Sequence[Mapping[str, Any]],
    alternates: Mapping[str, str] = _NONE,
    exchanges: Sequence[Mapping[str, Any]] = (),
) -> Iterator[DeadLetterPlace]:
    """Find them among `queues`, `bindings` and `exchanges` as the management API shows them; `alternates`:
    alternate exchange -> an exchange that has it."""
    known = {str(queue.get("name")): queue for queue in queues}
    fed = _why_fed(known, _ways(known, bindings, exchanges), alternates)
    for name, queue in sorted(known.items()):
        if name in fed or (queue.get("type") != "stream" and names_dead_letters(name)):
            oldest = whole(queue.get("head_message_timestamp"))
            yield DeadLetterPlace(
                name,
                {"queue": literally(name)},
                str(queue.get("type", "classic")),
                fed.get(name, "its name says so"),
                whole(queue.get("messages")),
                whole(queue.get("consumers")),
                None if oldest is None else oldest * 1_000_000,
            )


def names_dead_letters(queue: str) -> bool:
    """Return whether its name says that it is for dead letters."""
    return _says(_NAMED, queue)


def _says(words: re.Pattern[str], name: str) -> bool:
    return words.search(_HUMPS.sub(".", name)) is not None


def _ways(
    queues: Mapping[str, _Queue],
    bindings: Sequence[Mapping[str, Any]],
    exchanges: Sequence[Mapping[str, Any]],
) -> _Ways:
    """Return where dead letters of a queue go, and what comes to an exchange; to all that are bound to it
    where the letter's own key decides, or nothing tells more."""
    bound: dict[_Node, list[_Node]] = {}
    for binding in bindings:
        if source := binding.get("source"):
            to = "queue" if binding.get("destination_type") == "queue" else "exchange"
            bound.setdefault(("exchange", str(source)), []).append((to, str(binding.get("destination"))))
    routes = list_routes(exchanges, bindings)
    return bound | {("queue", name): _way(queue, bound, routes) for name, queue in queues.items()}


def _way(queue: _Queue, ways: _Ways, routes: Routes) -> Sequence[_Node]:
    exchange, key = (dead_letters(queue, what) for what in ("exchange", "routing-key"))
    own = "queue", str(queue.get("name"))
    if not exchange:
        return [("queue", key)] if key and exchange is not None else []
    if key is None and own in ways.get(("exchange", exchange), ()):
        return [own]  # with the key that it came with it goes to those alone that got it the first time
    if key is None or exchange not in routes:
        return [("exchange", exchange)]
    return [("queue", name) for name in sorted(queues_reached(routes, exchange, key))]


def _why_fed(queues: Mapping[str, _Queue], ways: _Ways, alternates: Mapping[str, str]) -> dict[str, str]:
    """Return why letters come to queues and stay: they died in another queue, or nothing else took them.

    Letters that go in circles are alive: after a while a consumer gets them again. So are those that come
    from a queue where they only waited for their time.
    """
    onward = {name for name in queues if ways["queue", name]}
    idle = {name for name, queue in queues.items() if not queue.get("consumers")}
    waiting = {name for name in onward & idle if _says(_WAITING, name)}
    # Letters only wait in these, too, or they are work queues with a TTL whose consumers are away.
    doubtful = {
        name for name in onward & idle if setting_of(queues[name], "message-ttl") is not None
    } - waiting
    alive = waiting | {name for kind, name in _find_circles(ways) if kind == "queue"}
    fed: dict[str, str] = {}
    seen: set[_Node] = set()

    def follow(ahead: Iterable[tuple[_Node, str]], places: Container[str] = queues) -> None:
        left = deque(ahead)
        while left:
            (kind, name), because = left.popleft()
            is_queue = kind == "queue"
            if (kind, name) in seen or (is_queue and (name in alive or name not in places)):
                continue
            seen.add((kind, name))
            if is_queue:
                fed[name], because = because, _OF_A_QUEUE.format(name)
            left.extend((node, because) for node in ways.get((kind, name), ()))

    def of(names: Iterable[str]) -> list[tuple[_Node, str]]:
        return [(node, _OF_A_QUEUE.format(name)) for name in names for node in ways["queue", name]]

    follow(of(name for name in queues if name not in waiting | doubtful))
    follow((("exchange", one), _OF_AN_EXCHANGE.format(before)) for one, before in alternates.items())
    follow(of(name for name in queues if name in doubtful), idle - onward)
    return fed


def _find_circles(ways: _Ways) -> set[_Node]:
    """Return those from which letters come to a circle, in time that grows with the number of ways."""
    before: dict[_Node, list[_Node]] = {}
    for node, targets in ways.items():
        for target in set(targets):
            before.setdefault(target, []).append(node)
    left = {node: len(set(targets)) for node, targets in ways.items()}
    ended = [node for node in {*ways, *before} if not left.get(node)]
    while ended:
        for node in before.get(ended.pop(), ()):
            left[node] -= 1
            if not left[node]:
                ended.append(node)
    return {node for node, number in left.items() if number}
