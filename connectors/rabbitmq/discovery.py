"""Which queues of a virtual host look like dead-letter queues, by its management API."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlq.connectors.base import DeadLetterPlace
from dlq.connectors.rabbitmq.description import RabbitBroker
from dlq.connectors.rabbitmq.management import Management, ManagementError, mapping
from dlq.core.errors import Unreachable, UsageError
from dlq.core.suggestions import suggest

Queue = Mapping[str, Any]

_NAMED = re.compile(
    r"(?: ^|[._-] ) (?: dlq | dl | dead | dead[._-]?letters? | errors? | failed | failures? | poison"
    r" | parking[._-]?lot | skipped ) (?: $|[._-] )",
    re.IGNORECASE | re.VERBOSE,
)
_COLUMNS = "name,type,arguments,effective_policy_definition,messages,consumers,head_message_timestamp"


def discover(broker: RabbitBroker) -> list[DeadLetterPlace]:
    """All that dead letters are sent to, or are named so. Raises UsageError without a management URL,
    Unreachable."""
    if not broker.management_url:
        raise UsageError(
            f"brokers.{broker.name} needs management_url: RabbitMQ lists its queues nowhere else"
        )
    management = Management(broker)
    try:
        queues = management.get_all("queues", management.vhost, columns=_COLUMNS)
        bindings = management.get_all("bindings", management.vhost)
    except ManagementError as error:
        raise Unreachable(f"brokers.{broker.name}.management_url: {error}") from error
    finally:
        management.close()
    return list(places(queues, bindings))


def meant(broker: RabbitBroker, queue: str) -> str:
    """`; did you mean 'orders.dlq'?` of a queue that is not there, where the management API can tell."""
    if not broker.management_url:
        return ""
    management = Management(broker)
    try:
        queues = management.get_all("queues", management.vhost, columns="name")
    except ManagementError:
        return ""
    finally:
        management.close()
    return suggest(queue, [str(one.get("name")) for one in queues])


def places(queues: Sequence[Queue], bindings: Sequence[Mapping[str, Any]]) -> Iterator[DeadLetterPlace]:
    """`queues` and `bindings` as the management API shows them."""
    fed = _fed(queues, bindings)
    for queue in sorted(queues, key=lambda queue: str(queue.get("name"))):
        name = str(queue.get("name"))
        because = f"dead letters of {fed[name]} go there" if name in fed else "its name says so"
        if queue.get("type") != "stream" and (name in fed or _NAMED.search(name)):
            oldest = queue.get("head_message_timestamp")
            yield DeadLetterPlace(
                name,
                {"queue": name},
                str(queue.get("type", "classic")),
                because,
                queue.get("messages"),
                queue.get("consumers"),
                oldest * 1_000_000 if isinstance(oldest, int) else None,
            )


def _fed(queues: Sequence[Queue], bindings: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A queue -> one whose dead letters it gets: bound to a dead-letter exchange by any key, or named by a
    routing key of the default exchange."""
    bound: dict[str, list[str]] = {}
    for binding in bindings:
        if binding.get("source") and binding.get("destination_type") == "queue":
            bound.setdefault(str(binding["source"]), []).append(str(binding.get("destination")))
    fed: dict[str, str] = {}
    for queue in queues:
        exchange, key = (_setting(queue, f"dead-letter-{name}") for name in ("exchange", "routing-key"))
        if exchange is not None:
            targets = bound.get(exchange, []) if exchange else [key or ""]
            fed |= {target: str(queue.get("name")) for target in targets if target not in fed}
    return fed


def _setting(queue: Queue, name: str) -> str | None:
    found = mapping(queue.get("arguments")).get(f"x-{name}")
    found = mapping(queue.get("effective_policy_definition")).get(name) if found is None else found
    return None if found is None else str(found)
