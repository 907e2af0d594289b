"""Classic's statistics plugin, asked over STOMP: a queue's depth where there is no Jolokia.

A request to a broker without the plugin becomes a message in a real queue, so it is asked only where the
configuration says that the plugin is there; such a request is not persistent and expires by itself, by the
broker's own clock: a message to ourselves tells its time.
The answer needs XStream and Jettison on the broker's classpath (its distribution has them); without it: None.
"""

import re
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from dlq.connectors.activemq.look.jolokia import QueueFacts
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.stomp.codec import Frame, encode, headers_of
from dlq.connectors.activemq.stomp.link import Link
from dlq.connectors.net.web import NoAnswerError, document, whole
from dlq.core.errors import BrokerError
from dlq.core.runtime import patience

_MOMENT = re.compile(r"[0-9]{1,18}")
_REPLY = "/temp-queue/dlq.statistics"
_SHOWN = {
    "MemoryPercentUsage": "memoryPercentUsage",
    "ConsumerCount": "consumerCount",
    "DequeueCount": "dequeueCount",
}


def facts(broker: ActiveMQBroker, queue: str) -> QueueFacts | None:
    """Return what the plugin says of one queue; None when it does not answer: no such queue, or no plugin."""
    try:
        with closing(Link(broker)) as link:
            found = _ask(link, queue)
    except BrokerError:
        return None
    size, consumers, in_flight = (whole(found.get(one)) for one in ("size", "consumerCount", "inflightCount"))
    if size is None or consumers is None or in_flight is None:
        return None
    shown = {name: found[asked] for name, asked in _SHOWN.items() if asked in found}
    return QueueFacts(size, consumers, in_flight, shown)


def _ask(link: Link, queue: str) -> Mapping[str, Any]:
    subscription = {"id": link.token, "destination": _REPLY, "ack": "auto"}
    link.request("SUBSCRIBE", {**subscription, "transformation": "jms-map-json"})
    link.send(encode("SEND", {"destination": _REPLY}))
    told = _answer(link)
    sent_at = headers_of(told.head).get("timestamp", "") if told else ""
    if not _MOMENT.fullmatch(sent_at):
        return {}
    question = {
        "destination": f"/queue/ActiveMQ.Statistics.Destination.{queue}",
        "reply-to": _REPLY,
        "expires": str(int(sent_at) + round(patience.REPLY * 1000)),
    }
    link.send(encode("SEND", question))
    answer = _answer(link)
    return values_of(answer.body) if answer else {}


def _answer(link: Link) -> Frame | None:
    """Return what comes to our temporary queue."""
    for _ in patience.tries(patience.REPLY, 0.0):
        for frame in link.receive(0.02):
            return frame
    return None


def values_of(body: bytes) -> dict[str, Any]:
    """Return a map as XStream writes it in JSON: {"map": {"entry": [{"string": "size", "long": 3}, …]}}."""
    try:
        entries = [*document(body)["map"]["entry"]]
    except (NoAnswerError, KeyError, TypeError):
        return {}
    return dict(_entry(entry) for entry in entries if isinstance(entry, dict) and entry.get("string"))


def _entry(entry: Mapping[str, Any]) -> tuple[str, Any]:
    """Return a name and its value; a text has the type of its name, so that both are in one list."""
    if isinstance(entry["string"], list):
        return str(entry["string"][0]), entry["string"][-1]
    values = [value for kind, value in entry.items() if kind != "string"]
    return str(entry["string"]), values[0] if values else None
