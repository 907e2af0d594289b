"""Questions to a broker's Jolokia agent: depths, queue names, the class of one message.

All of it is optional (`queues` goes on without). A read needs no right to execute; where the
broker's policy forbids an operation (5.19.7 and 6.2.6 forbid all) the answer is None, and the caller says
what it could not learn. A question that the configuration insists on (`jolokia_details`) raises AccessDenied.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from dlq.connectors.activemq.link.sockets import address_of
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.local import credentials
from dlq.connectors.net import web
from dlq.core.errors import AccessDenied, ConfigError, Unreachable

_PORTS = {"http": 80, "https": 443}
_CLASSIC = "org.apache.activemq:type=Broker,brokerName=*,destinationType=Queue,destinationName=*"
_MEMORY = "MemoryPercentUsage"
_CLASSIC_READ = (
    "Name", "QueueSize", "InFlightCount", "ConsumerCount", "DequeueCount", _MEMORY,
    "CursorPercentUsage", "MaxPageSize", "DLQ", "Paused",
)  # fmt: skip
_ARTEMIS = (
    "org.apache.activemq.artemis:"
    "broker=*,component=addresses,address=*,subcomponent=queues,routing-type=*,queue=*"
)
_CLIENTS = (
    "org.apache.activemq:type=Broker,brokerName=*,connector=clientConnectors,"
    "connectorName=*,connectionViewType=clientId,connectionName=*"
)
_BRIDGES = "org.apache.activemq:type=Broker,brokerName=*,connector=networkConnectors,networkConnectorName=*"
_PREPARED = "org.apache.activemq:type=Broker,brokerName=*,transactionType=RecoveredXaTransaction,*"
_BRIDGED = re.compile(r".*_(?:outbound|inbound_.*)")
"""The client ids of other brokers' bridges (DemandForwardingBridgeSupport)."""
_BROKERS = {
    False: ("org.apache.activemq:type=Broker,brokerName=*", "Queues"),
    True: ("org.apache.activemq.artemis:broker=*", "QueueNames"),
}
"""Whether it is Artemis -> its brokers, and what they call the list of their queues."""
_NO_BROKER = "it shows no queue, and no broker that has none; is it this broker's?"
_SEVERAL = "its JVM has several brokers, and nothing shows which of them is this one; leave it out"
_BROKER_NAME = re.compile(r"\bbroker(?:Name)?=[^,]+")
_ARTEMIS_READ = (
    "Name", "MessageCount", "DeliveringCount", "ConsumerCount", "MessagesAcknowledged", "Address",
    "RoutingType", "Paused",
)  # fmt: skip


class QueueFacts(NamedTuple):
    """What the broker says of one queue."""

    depth: int
    consumers: int
    in_flight: int
    facts: Mapping[str, Any]

    @property
    def acknowledged(self) -> int | None:
        """Letters acknowledged since the broker's start; None where it does not tell."""
        told = self.facts.get("DequeueCount", self.facts.get("MessagesAcknowledged"))
        return web.whole(told)


_DEAD_LETTERS = re.compile(r"(?i:ActiveMQ\.DLQ|ExpiryQueue|(?:.*\.)?DLQ(?:\..*)?|.*dead.?letter.*)")


def why_dead_letters(name: str, facts: QueueFacts) -> str:
    """Return why a queue looks like one of dead letters; "" for one that does not
    (DestinationViewMBean.isDLQ)."""
    if facts.facts.get("DLQ") is True:
        return "the broker dead-lettered there"
    return "its name says so" if is_dead_letter_name(name) else ""


def is_dead_letter_name(name: str) -> bool:
    """Return whether a queue is called like those of dead letters."""
    return _DEAD_LETTERS.fullmatch(name) is not None


class Jolokia:
    """One agent, with the broker's own user and password."""

    def __init__(self, broker: ActiveMQBroker, artemis: bool) -> None:
        if not broker.jolokia_url:
            raise ConfigError(f"brokers.{broker.name} has no jolokia_url; add it")
        self._url, self._broker, self._artemis = broker.jolokia_url, broker, artemis
        place, example = f"brokers.{broker.name}.jolokia_url", "http://host:8161/api/jolokia"
        self._site = web.Site(broker, place, self._url, _PORTS, example)
        self._mbeans: dict[str, str] = {}

    def queues(self) -> dict[str, QueueFacts]:
        """Return all queues by name. Raises Unreachable, AccessDenied."""
        mbean, attributes = (_ARTEMIS, _ARTEMIS_READ) if self._artemis else (_CLASSIC, _CLASSIC_READ)
        found = self._read(mbean, attributes)
        if not found and not self._has_none():
            found = self._read(mbean, attributes)  # one may have come between the two questions
            if not found:
                raise Unreachable(f"{self._place}: {_NO_BROKER}")
        depth, flight = (
            ("MessageCount", "DeliveringCount") if self._artemis else ("QueueSize", "InFlightCount")
        )
        try:
            return {
                str(values["Name"]): QueueFacts(
                    _count(values[depth]), _count(values["ConsumerCount"]), _count(values[flight]), values
                )
                for values in found.values()
            }
        except (KeyError, ValueError) as error:
            raise self._no_jolokia() from error

    def _has_none(self) -> bool:
        """Return whether a broker says that it has none; another JVM's agent, and one that fails, do not."""
        brokers, names = _BROKERS[self._artemis]
        told = [values.get(names) for values in self._read(brokers, (names,)).values()]
        return bool(told) and all(one == [] for one in told)

    def bridges(self) -> list[str]:
        """Return the bridges to and from other brokers that a Classic broker has now, by their names."""
        clients = [str(one.get("ClientId")) for one in self._read(_CLIENTS, ("ClientId",)).values()]
        own = [str(one.get("Name")) for one in self._read(_BRIDGES, ("Name",)).values()]
        return sorted({*own, *(name for name in clients if _BRIDGED.fullmatch(name))})

    def count_prepared(self) -> int:
        """XA transactions that Classic found prepared when it started (RecoveredXATransactionView)."""
        return len(self._read(_PREPARED, ("FormatId",)))

    def exclusive_consumers(self, queue: str) -> int:
        """Return how many consumers of a Classic queue are exclusive: one of them gets all."""
        mbean = self.mbean_of(queue)
        if mbean is None:
            return 0
        consumers = self._read(f"{mbean},endpoint=Consumer,clientId=*,consumerId=*", ("Exclusive",))
        return sum(one.get("Exclusive") is True for one in consumers.values())

    def message(self, queue: str, message_id: str) -> Mapping[str, Any] | None:
        """Return one message of a Classic queue as JMX shows it; None: it may not or cannot be looked up."""
        mbean = self.mbean_of(queue)
        if mbean is None:
            return None
        asked = {"type": "exec", "mbean": mbean, "operation": "getMessage", "arguments": [message_id]}
        found = self.ask(asked)
        return found if isinstance(found, Mapping) else None

    def move(self, queue: str, selector: str, target: str) -> int | None:
        """Move those messages of a Classic queue that a selector means; how many these were, None where that
        is not allowed."""
        operation = "moveMatchingMessagesTo(java.lang.String,java.lang.String)"
        asked = {"type": "exec", "mbean": self.mbean_of(queue), "operation": operation}
        return web.whole(self.ask({**asked, "arguments": [selector, target]}))

    def memory_used(self, queue: str) -> int:
        """Return how many percent of its memory a Classic queue uses, or the broker, whichever is more."""
        own = self.queues().get(queue)
        told = [own.facts if own else {}, *self._read(_BROKERS[False][0], (_MEMORY,)).values()]
        return max(web.whole(one.get(_MEMORY)) or 0 for one in told)

    def remove_queue(self, queue: str) -> None:
        """Delete a Classic queue with all that is in it; nothing happens where that is not allowed."""
        mbean = self.mbean_of(queue)
        broker = _BROKER_NAME.search(mbean or "")
        if broker is not None:
            owner = f"org.apache.activemq:type=Broker,{broker[0]}"
            self.ask({"type": "exec", "mbean": owner, "operation": "removeQueue", "arguments": [queue]})

    def mbean_of(self, queue: str) -> str | None:
        """Return the object name of a Classic queue, in which some characters of the queue's own name are
        replaced; it stays while the broker lives."""
        if queue not in self._mbeans:
            found = self._read(_CLASSIC, ("Name",))
            self._mbeans = {str(values.get("Name")): mbean for mbean, values in found.items()}
        return self._mbeans.get(queue)

    def _read(self, mbeans: str, attributes: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Return the attributes of all objects that a pattern names, by object name."""
        found = self.ask({"type": "read", "mbean": mbeans, "attribute": list(attributes)}) or {}
        if not isinstance(found, dict) or not all(isinstance(values, dict) for values in found.values()):
            raise self._no_jolokia()
        if len({name[0] for one in found if (name := _BROKER_NAME.search(one))}) > 1:
            raise Unreachable(f"{self._place}: {_SEVERAL}")
        return found

    def ask(self, question: Mapping[str, Any]) -> Any:
        """Return the value of an answer; None when the agent refuses this question."""
        return credentials.log_in(self._broker, lambda: self._answer(question))

    def _answer(self, question: Mapping[str, Any]) -> Any:
        target = urlsplit(self._url)._replace(scheme="", netloc="", fragment="").geturl() or "/"
        try:
            answer = self._site.ask("POST", target, self._headers(), json.dumps(question).encode())
        except web.NoAnswerError as error:
            raise Unreachable(f"{self._place}: {error}") from error
        finally:
            self._site.close()
        if answer.status in (401, 403):
            raise AccessDenied(
                f"{self._place}: HTTP {answer.status}; check user, password and jolokia-access.xml"
                f"{credentials.blanks(self._broker)}"
            )
        if answer.status != 200:
            raise Unreachable(f"{self._place}: HTTP {answer.status}; is the path right?")
        try:
            document = web.document(fix_escapes(answer.content))
        except web.NoAnswerError as error:
            raise Unreachable(f"{self._place}: {error}; is the path right?") from error
        if not isinstance(document, dict) or "status" not in document:
            raise self._no_jolokia()
        needed = {"read": "to read the broker's queues"}
        if self._broker.jolokia_details:
            needed["getMessage"] = "getMessage, which jolokia_details needs"
        forbidden = needed.get(question.get("operation", question["type"]))
        if forbidden and document.get("status") == 403:
            raise AccessDenied(f"{self._place}: its jolokia-access.xml forbids {forbidden}")
        return document.get("value") if document.get("status") == 200 else None

    def _headers(self) -> dict[str, str]:
        parts = urlsplit(self._url)
        headers = {
            "Content-Type": "application/json",
            "Origin": f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}",
        }
        user, secret = address_of(self._broker).user, credentials.password(self._broker)
        if user and secret is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()
        return headers

    def _no_jolokia(self) -> Unreachable:
        return Unreachable(f"{self._place}: the answer does not come from Jolokia; is the path right?")

    @property
    def _place(self) -> str:
        return f"brokers.{self._broker.name}.jolokia_url ({urlsplit(self._url).netloc.rpartition('@')[2]})"


def _count(told: Any) -> int:
    """Read a count of letters or consumers, of which Classic may count a few too few. Raises ValueError."""
    counted = web.whole(max(0, told) if type(told) is int else None)
    if counted is None:
        raise ValueError("no count")
    return counted


_ESCAPE = re.compile(rb"\\(?:u00([01])([:-?])|.)")


def fix_escapes(answer: bytes) -> bytes:
    """Jolokia (seen with 2.6.0) writes ESC as `\\u001;`: for the digits a to f, what follows 9 in ASCII."""

    def fix(escape: re.Match[bytes]) -> bytes:
        first, digit = escape.groups()
        return b"\\u00%b%x" % (first, digit[0] - ord("0")) if digit else escape[0]

    return _ESCAPE.sub(fix, answer)


def body_class(shown: Mapping[str, Any]) -> str:
    """text, bytes, map, or other (stream, object, plain), by the columns JMX shows for the class."""
    for column, name in (("Text", "text"), ("ContentMap", "map"), ("BodyLength", "bytes")):
        if column in shown:
            return name
    return "other"


_TYPES = ("Boolean", "Byte", "Short", "Int", "Long", "Float", "Double")
TYPE_OF = "type of "
"""What a record's `properties` call the type of a user property, e.g. "type of amount" = "double"."""


PROPERTY = "property "
"""... and a user property that has the name of one of STOMP's headers."""


def details(shown: Mapping[str, Any]) -> dict[str, str]:
    """Return what STOMP hides of a message: its class, its group, the types of properties that are not text,
    and the ids of the brokers it came through over network bridges."""
    found = {"class": body_class(shown)}
    path = str(shown.get("BrokerPath") or "").strip("[]")
    if path.startswith("ID:"):
        found["broker path"] = path
    if shown.get("JMSXGroupID"):
        found |= {name: str(shown.get(name)) for name in ("JMSXGroupID", "JMSXGroupSeq")}
    for kind in _TYPES:
        values = shown.get(f"{kind}Properties")
        found |= {f"{TYPE_OF}{name}": kind.lower() for name in (values if isinstance(values, dict) else ())}
    return found
