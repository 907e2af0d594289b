"""What a broker tells of its queues: by Jolokia where configured, else over STOMP: Artemis by its management,
Classic by its statistics plugin where configured; else nothing.

Jolokia may be left out, so when it fails the next one is asked, and `trouble` is to be said. Only who wants
its details of each letter (`jolokia_details`), which nothing else tells, cannot do without it.
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dlq.connectors.activemq.look import statistics as activemq_statistics
from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.activemq.look.jolokia import Jolokia, QueueFacts
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.net.web import whole
from dlq.core.errors import BrokerError, NotFound, UsageError

TO_OTHER_NODES = "$.artemis.internal.sf."
"""What the names of the queues begin with in which letters wait for other nodes (ClusterConnectionImpl)."""
_Told = TypeVar("_Told")
_WILD = re.compile(r"[*>#]")


class Queues:
    """Depths and names of one broker's queues. Every question is asked anew."""

    def __init__(self, broker: ActiveMQBroker, kind: str, version: str = "") -> None:
        self._broker, self.artemis, self.version = broker, kind == "artemis", version
        self._jolokia = Jolokia(broker, self.artemis) if broker.jolokia_url else None
        self.trouble: BrokerError | None = None
        """Why Jolokia, though configured, is not asked any more."""
        self.management = Management(broker) if self.artemis else None
        self.asks_plugin = broker.statistics_plugin and not self.artemis

    def resolve_names(self, queue: str) -> list[str]:
        """Return the queues that a name or pattern means; a pattern needs a list of queues.

        Raises NotFound when the broker says that there is no such queue, UsageError or Jolokia's error when a
        pattern cannot be resolved.
        """
        names = self.names()
        if names is None:
            if is_pattern(queue):
                if self.trouble is not None:
                    raise self.trouble
                place = f"brokers.{self._broker.name}"
                raise UsageError(
                    f"{queue!r} is a pattern, and {place} gives no list of queues; set jolokia_url"
                )
            return [queue]
        address, full, own = queue.rpartition("::") if self.artemis else ("", "", queue)
        pattern = pattern_of(own)
        found = sorted(name for name in names if pattern.fullmatch(name) and self._is_at(address, name))
        if not found:  # a subscription to a name in full would make the queue
            raise NotFound(f"{self._broker.name} has no queue {queue!r}")
        return [f"{address}{full}{name}" for name in found]

    def _is_at(self, address: str, queue: str) -> bool:
        """Return whether a queue is at this address, as far as that is told; none is named by ""."""
        facts = self.facts(queue) if address else None
        return facts is None or facts.facts.get("Address") in (None, address)

    def names(self) -> list[str] | None:
        """Return all queues; None when the broker cannot be asked."""
        told = self._by_jolokia(Jolokia.queues)
        if told is not None:
            return list(told)
        return self.management.queues() if self.management else None

    def message(self, queue: str, message_id: str) -> Mapping[str, Any] | None:
        """Return one message of a Classic queue as JMX shows it; None when it cannot be looked up."""
        return None if self.artemis else self._by_jolokia(lambda jolokia: jolokia.message(queue, message_id))

    def _by_jolokia(self, question: Callable[[Jolokia], _Told]) -> _Told | None:
        """Return its answer; None when there is none to be had."""
        if self._jolokia is None:
            return None
        try:
            return question(self._jolokia)
        except BrokerError as error:
            if self._broker.jolokia_details:
                raise
            self._jolokia, self.trouble = None, error
            return None

    def facts(self, queue: str) -> QueueFacts | None:
        """Return what is known of one queue; None when nothing is."""
        name = queue.rpartition("::")[2]
        told = self._by_jolokia(Jolokia.queues)
        if told is not None:
            return told.get(name)
        if self.management is not None:
            return self.management.facts(name)
        return activemq_statistics.facts(self._broker, name) if self.asks_plugin else None

    def count_taken(self, queue: str) -> int | None:
        """Return letters acknowledged there since the broker's start; None where nothing tells."""
        if self._jolokia is None and self.management is not None:
            return whole(self.attribute(f"queue.{queue.rpartition('::')[2]}", "messagesAcknowledged"))
        facts = self.facts(queue)
        return facts.acknowledged if facts else None

    def ways_of_the_dead(self) -> Mapping[str, Any]:
        """Return what Artemis tells of how letters got there (`artemis.Management`); empty of others."""
        return self.management.ways_of_the_dead() if self.management else {}

    def bridges(self) -> list[str]:
        """Return a Classic broker's bridges to and from others, and of Artemis the other nodes of its
        cluster; empty where nothing tells."""
        if not self.artemis:
            return self._by_jolokia(Jolokia.bridges) or []
        return [name.rpartition(".")[2] for name in self.names() or () if name.startswith(TO_OTHER_NODES)]

    def count_prepared(self) -> int:
        """XA transactions that wait for their outcome; 0 where nothing tells."""
        return (
            self.management.count_prepared()
            if self.management
            else self._by_jolokia(Jolokia.count_prepared) or 0
        )

    def exclusive_consumers(self, queue: str) -> int:
        """Count the exclusive consumers of a Classic queue; 0 where nothing tells."""
        return 0 if self.artemis else self._by_jolokia(lambda one: one.exclusive_consumers(queue)) or 0

    def traits(self, queue: str) -> tuple[Mapping[str, str], Mapping[str, Any]] | None:
        """Return an Artemis queue's properties and its address' settings; None where nothing tells."""
        return self.management.traits(queue.rpartition("::")[2]) if self.management else None

    def attribute(self, resource: str, name: str) -> Any:
        """Ask Artemis' management for an attribute; None where nobody tells."""
        return self.management.attribute(resource, name) if self.management else None

    def why_dropped(self, queue: str) -> str | None:
        """Return why the broker may have dropped a message to this queue, and said that it took it; None
        where it does not. Classic drops none of a queue's."""
        return self.management.why_dropped(queue) if self.management else None

    def remove_empty(self, queue: str) -> None:
        """Delete a queue of our own, where that can be asked for; never raises a BrokerError."""
        with contextlib.suppress(BrokerError):
            facts = self.facts(queue)
            if facts is None or facts.depth:
                return
            if self.management is not None:
                self.management.destroy(queue)
            else:
                self._by_jolokia(lambda jolokia: jolokia.remove_queue(queue))

    def close(self) -> None:
        """Let go of connections; never raises."""
        if self.management is not None:
            self.management.close()


def is_pattern(queue: str) -> bool:
    """Return whether it means more than the queue of that name."""
    return _WILD.search(queue) is not None


def pattern_of(queue: str) -> re.Pattern[str]:
    """ActiveMQ's wildcards as a regular expression: `*` one word, `>` and `#` the rest."""
    parts = {"*": r"[^.]+", ">": ".+", "#": ".+"}
    return re.compile("".join(parts.get(c, re.escape(c)) for c in queue))


def subscription(queue: str, artemis: bool, facts: QueueFacts | None) -> Mapping[str, str]:
    """Return the destination headers of a SUBSCRIBE to `queue`. A MULTICAST one is named in full: a
    subscription to its address alone would be a new one."""
    if not artemis:
        return {"destination": f"/queue/{queue}"}
    known: Mapping[str, Any] = facts.facts if facts else {}
    address, routing = known.get("Address"), str(known.get("RoutingType") or "ANYCAST")
    is_multicast = routing == "MULTICAST"
    in_full = address and "::" not in queue and (address != queue or is_multicast)
    full = f"{address}::{queue}" if in_full else queue
    return {"destination": full, "subscription-type": "MULTICAST" if is_multicast else "ANYCAST"}
