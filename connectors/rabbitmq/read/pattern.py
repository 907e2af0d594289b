"""A source that is a pattern over the queues of a RabbitMQ virtual host, which its management API lists."""

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from dlq.connectors.base import Inspection
from dlq.connectors.chain import QueueScan
from dlq.connectors.net.links import LinkLostError
from dlq.connectors.rabbitmq.amqp091.link.questions import Refused, questions
from dlq.connectors.rabbitmq.look import doctor
from dlq.connectors.rabbitmq.look.topology import VirtualHost, virtual_host
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rabbitmq.prove.witness import queue_of
from dlq.connectors.rabbitmq.read.wildcards import matches
from dlq.core.errors import DlqError, NoLeader, NotFound
from dlq.core.text import for_terminal

_SUMMED = ("letters ready", "letters held by consumers", "consumers")
_OF_THE_HOST = ("delivery_limits", "dead_letter_exchanges", "dead_letter_keys", "routes")
"""What `Topology.document` says of all queues of the virtual host, by queue."""


class _Found(NamedTuple):
    """The queues that a pattern means, and a sentence about those that it matches but that are not read."""

    names: Sequence[str]
    notes: Sequence[str]
    host: VirtualHost


def resolve(broker: RabbitBroker, pattern: str) -> _Found:
    """Return the matching queues, by name. Raises NotFound where there is none, ManagementError."""
    host = virtual_host(broker)
    return _Found(*choose(broker, pattern, host.queues), host)


def choose(
    broker: RabbitBroker, pattern: str, queues: Mapping[str, Mapping[str, Any]]
) -> tuple[Sequence[str], Sequence[str]]:
    """Return those of a virtual host's queues that a pattern means, by name, and a sentence about those left
    out. Raises NotFound where there is none."""
    found = {name: one for name, one in queues.items() if matches(name, pattern)}
    left_out = {name: reason for name, one in found.items() if (reason := _why_not(name, one))}
    names = sorted(found.keys() - left_out.keys())
    said = ", ".join(for_terminal(f"{name} ({reason})") for name, reason in sorted(left_out.items()))
    notes = [f"left out of {pattern!r}: {said}"] if left_out else []
    if not names:
        raise NotFound("; ".join([f"brokers.{broker.name} has no queue that matches {pattern!r}", *notes]))
    return names, notes


def _why_not(name: str, queue: Mapping[str, Any]) -> str | None:
    reasons = {
        "a stream": queue.get("type") == "stream",
        "exclusive": queue.get("exclusive") is True,
        "of a replay": name.startswith(queue_of("")),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def of_the_host(scans: Iterable[QueueScan]) -> dict[str, Any]:
    """Return what the queues' topologies say of the virtual host as a whole."""
    told = ({name: scan.topology[name] for name in _OF_THE_HOST if name in scan.topology} for scan in scans)
    return next(told, {})


def without_the_host(scan: QueueScan) -> QueueScan:
    """Return its topology without that: kept once for each queue, it would be larger than can be read
    again."""
    own = {name: told for name, told in scan.topology.items() if name not in _OF_THE_HOST}
    return replace(scan, topology=own)


def inspect(broker: RabbitBroker, pattern: str) -> Inspection:
    """Look at all queues of a pattern. Raises NotFound, BrokerError."""
    names, notes, host = resolve(broker, pattern)
    seen, unread = _looked_at(broker, names, host)
    if not seen:
        raise next(iter(unread.values()))
    first = next(iter(seen.values()))
    return Inspection(
        version=first.version,
        depth=sum(one.depth or 0 for one in seen.values()),
        facts={"version": first.version, "queues": ", ".join(names), **_facts(list(seen.values()))},
        changes={mode: _distinct(one.changes[mode] for one in seen.values()) for mode in first.changes},
        harm=_harm(seen),
        leaves_out=_left_out(seen, unread),
        warnings=[*_warnings(seen), *notes],
    )


def _looked_at(
    broker: RabbitBroker, names: Iterable[str], host: VirtualHost
) -> tuple[dict[str, Inspection], dict[str, DlqError]]:
    """Return what each queue shows, and why others do not; one of these may have ended the connection. Raises
    BrokerError where there is none."""
    left, started = deque(names), time.monotonic()
    seen: dict[str, Inspection] = {}
    unread: dict[str, DlqError] = {}
    while left:
        with questions(broker) as asking:
            look = doctor.Look(broker, asking, host, started)
            while left and asking.is_open:
                name = left.popleft()
                try:
                    seen[name] = look.inspect(name)
                except (Refused, LinkLostError) as error:
                    unread[name] = asking.translate(error)
                except NoLeader as error:
                    unread[name] = error
    return seen, unread


def _facts(seen: Sequence[Inspection]) -> dict[str, Any]:
    """Sum numbers of letters and consumers; of the rest name each value once."""
    facts: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in seen for name in one.facts if name != "version"):
        values = [one.facts[name] for one in seen if one.facts.get(name) is not None]
        facts[name] = sum(values) if name in _SUMMED else _distinct(map(str, values))
    return facts


def _distinct(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def _harm(seen: Mapping[str, Inspection]) -> dict[str, str]:
    """Return the modes that every queue refuses, and why."""
    first = next(iter(seen.values()))
    return {mode: why for mode, why in first.harm.items() if all(mode in one.harm for one in seen.values())}


def _left_out(seen: Mapping[str, Inspection], unread: Mapping[str, DlqError]) -> dict[str, str]:
    """Return what a pull in each mode reads the others without."""
    found: dict[str, list[str]] = {mode: [] for one in seen.values() for mode in one.changes}
    for mode, said in found.items():
        said += [f"{for_terminal(name)}: {one.harm[mode]}" for name, one in seen.items() if mode in one.harm]
        said += [f"{for_terminal(name)}: {why}" for name, why in unread.items()]
    refused = _harm(seen)
    return {mode: "; ".join(said) for mode, said in found.items() if said and mode not in refused}


def _warnings(seen: Mapping[str, Inspection]) -> list[str]:
    queues: dict[str, list[str]] = {}
    for name, one in seen.items():
        for warning in one.warnings:
            queues.setdefault(warning, []).append(name)
    return [
        text if len(names) == len(seen) else f"{', '.join(names)}: {text}" for text, names in queues.items()
    ]
