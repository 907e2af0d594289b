"""The command of RabbitMQ's own that is the next step for a death that is lost. No I/O."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from dlq.connectors.rabbitmq.look.definitions import Definitions
from dlq.connectors.rabbitmq.look.management import mapping

_NEW_ADMIN = (4,)
"""Since then `rabbitmqadmin` is the one with double dashes."""
_UNROUTABLE = "unroutable"
"""The exchange, and the queue behind it, that gets what no exchange can route."""


def dead_letter_policy(known: Definitions, queue: str) -> str:
    """Give a queue a way for its dead letters, straight to a queue."""
    own = _own(known, known.queues[queue])
    to = {"dead-letter-exchange": "", "dead-letter-routing-key": _keeper(known, queue)}
    return _policy(known, queue, "queues", {**own, **to})


def policy_without(known: Definitions, queue: str, *settings: str) -> str:
    """Take these settings from a queue; empty where they do not come from a policy."""
    own = _own(known, known.queues[queue])
    left = {name: value for name, value in own.items() if name not in settings}
    return _policy(known, queue, "queues", left) if left and left != own else ""


def alternate(known: Definitions, exchange: str) -> str:
    """Give an exchange another one for what it cannot route; empty for that one itself."""
    if exchange == _UNROUTABLE:
        return ""
    own = _own(known, known.exchanges[exchange])
    return _policy(known, exchange, "exchanges", {**own, "alternate-exchange": _UNROUTABLE})


def _own(known: Definitions, place: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a policy says of a place; where policies are not shown, an operator's is among it."""
    if known.policies is None:
        return mapping(place.get("effective_policy_definition"))
    return mapping(known.policies.get(str(place.get("policy")), {}).get("definition"))


def route(known: Definitions, exchange: str, key: str, queue: str) -> str:
    """Make what is missing on the way from an exchange with a key."""
    if not exchange:
        return _admin(known, "queue", name=key, durable="true")
    if exchange not in known.exchanges:
        return _admin(known, "exchange", name=exchange, type="fanout", durable="true")
    keeper = _keeper(known, queue)
    if keeper not in known.queues:
        return _admin(known, "queue", name=keeper, durable="true")
    to = {"destination_type": "queue", "destination": keeper}
    return _admin(known, "binding", source=exchange, **to, routing_key=key)


def _keeper(known: Definitions, queue: str) -> str:
    """Return a queue for dead letters: its own, which may have to be made, or else the only one that there
    is. Of several each may be another application's. One that sends its letters on may send them back: that
    would be a circle, in which RabbitMQ drops what expires."""
    own, others = f"{queue}.dlq" if queue else _UNROUTABLE, known.for_dead_letters
    if own in known.queues or len(others) != 1 or queue in others:
        return own
    [only] = others
    return only if known.topology(only).setting("dead-letter-exchange") is None else own


def _policy(known: Definitions, name: str, kind: str, definition: Mapping[str, Any]) -> str:
    """Return one for this place alone, with what held there before: of several policies one holds."""
    priorities = [one.get("priority") for one in (known.policies or {}).values()]
    above = max((n for n in priorities if isinstance(n, int)), default=0) + 1
    words = ["rabbitmqctl", "set_policy", "-p", known.vhost, "--priority", str(above), "--apply-to", kind]
    return shlex.join([*words, f"coverage {name}", f"^{re.escape(name)}$", json.dumps(definition)])


def _admin(known: Definitions, what: str, **settings: str) -> str:
    if known.version >= _NEW_ADMIN:
        words = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", value)]
        return shlex.join(["rabbitmqadmin", "--vhost", known.vhost, "declare", what, *words])
    said = [f"{name}={value}" for name, value in settings.items()]
    return shlex.join(["rabbitmqadmin", "-V", known.vhost, "declare", what, *said])
