"""Questions to Artemis's management address over STOMP: queues, their depth, address and routing type.

The answer comes to a queue of our own that Artemis makes on subscribing. A user without the right `manage`
gets no answer: None.
"""

import contextlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from dlq.connectors import deadline
from dlq.connectors.activemq.link.sockets import Unanswered
from dlq.connectors.activemq.look.jolokia import QueueFacts
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.stomp.codec import encode, headers_of
from dlq.connectors.activemq.stomp.link import Link
from dlq.connectors.net.web import NoAnswerError, document, whole
from dlq.core.clock import now
from dlq.core.errors import BrokerError
from dlq.core.runtime import patience

NO_MANAGEMENT = (
    "the broker's management does not answer this user: it wants permissions send and manage on "
    "activemq.management, and to make queues dlq.reply.#"
)
ADDRESS_FULL, PAGE_FULL = "address-full-policy", "page-full-policy"
MOST_ASKED = 50
"""Addresses whose settings, and queues whose counts are asked for one by one."""
_MOST_LISTED = 10_000
"""Queues whose properties are asked for at once."""
_TOGETHER = 20
"""Questions that are asked before the first one's answer."""
_Question = tuple[dict[str, str], str]
"""What is asked for, as headers, and parameters."""
_BROKER = "broker"
_ATTRIBUTES = {
    "MessageCount": "messageCount",
    "Address": "address",
    "RoutingType": "routingType",
    "ConsumerCount": "consumerCount",
    "DeliveringCount": "deliveringCount",
    "MessagesAcknowledged": "messagesAcknowledged",
    "Paused": "paused",
    "ScheduledCount": "scheduledCount",
}


class Management:
    """One connection for questions, made when the first is asked."""

    def __init__(self, broker: ActiveMQBroker) -> None:
        self._broker = broker
        self._link: Link | None = None
        self._reply = ""
        self.silences = 0
        """Questions that were not answered: None tells as much of them as of what is not there."""
        self.trouble: BrokerError | None = None
        """Why the last of them was not."""

    def attribute(self, resource: str, name: str) -> Any:
        """Return the value of an attribute; None when there is no such resource or right."""
        return self._ask_all([_attribute(resource, name)])[0]

    def attributes(self, wanted: Iterable[tuple[str, str]]) -> list[Any]:
        """Return the same for several, by resource and name, which are asked for together: to wait for each
        of them would hold up a replay longer than the broker's disk."""
        return self._ask_parts([_attribute(resource, name) for resource, name in wanted])

    def _ask_parts(self, questions: Sequence[_Question]) -> list[Any]:
        parts = [questions[at : at + _TOGETHER] for at in range(0, len(questions), _TOGETHER)]
        return [told for part in parts for told in self._ask_all(part)]

    def facts(self, queue: str) -> QueueFacts | None:
        """Return what is known of a queue; None when it is not there, or any of its counts is not told."""
        told = self.attributes((f"queue.{queue}", asked) for asked in _ATTRIBUTES.values())
        facts = dict(zip(_ATTRIBUTES, told, strict=True))
        counts = ("MessageCount", "ConsumerCount", "DeliveringCount")
        depth, consumers, in_flight = (whole(facts[name]) for name in counts)
        if depth is None or consumers is None or in_flight is None:
            return None
        return QueueFacts(depth, consumers, in_flight, facts)

    def queues(self) -> list[str] | None:
        """Return the names of all queues; None when the user may not ask."""
        names = self.attribute("broker", "queueNames")
        return [str(name) for name in names] if isinstance(names, list) else None

    def ways_of_the_dead(self) -> dict[str, Any]:
        """`diverts`, and `settings_of` all addresses. Empty where one of them is not told; where there are
        too many addresses, of none of them."""
        diverts, addresses = (self.attribute("broker", name) for name in ("divertNames", "addressNames"))
        if not (isinstance(diverts, list) and isinstance(addresses, list)):
            return {}
        return {"diverts": diverts, **self.settings_of(addresses if len(addresses) <= MOST_ASKED else [])}

    def settings_of(self, addresses: Iterable[str]) -> dict[str, dict[str, Any]]:
        """`places_of_the_dead`: address -> where it sends what dies, and what expires, and
        `max_delivery_attempts`: address -> after how many it dies, where that is configured."""
        settings = {str(address): self.address_settings(str(address)) for address in addresses}
        places = {a: [s.get("deadLetterAddress"), s.get("expiryAddress")] for a, s in settings.items() if s}
        attempts = {a: s["maxDeliveryAttempts"] for a, s in settings.items() if "maxDeliveryAttempts" in s}
        return {"places_of_the_dead": places, "max_delivery_attempts": attempts}

    def killed_none(self, queues: Iterable[str]) -> dict[str, int]:
        """Return those of these queues, made by hand, that have killed nothing since the broker started ->
        when that was, in microseconds by our clock. Those that the broker makes by itself go, and begin to
        count anew."""
        up = self.attribute("broker", "uptimeMillis")
        if not isinstance(up, int):
            return {}
        listed = {name: self._properties_of(name) or {} for name in queues}
        wanted = {"autoCreated": "false", "messagesKilled": "0"}
        quiet = [name for name, one in listed.items() if wanted.items() <= one.items()]
        return dict.fromkeys(quiet, now() - up * 1000)

    def messages(self, queue: str, selector: str) -> list[dict[str, Any]] | None:
        """Return what is listed of the messages that a selector means, without bodies: of those among the
        first 200 of the queue that are not in flight. None where the user may not ask."""
        told = _in_text(self.operate("listMessagesAsJSON", selector, of=_resource_of(queue)))
        return [one for one in told if isinstance(one, dict)] if isinstance(told, list) else None

    def count_prepared(self) -> int:
        """XA transactions that are prepared and wait for their outcome; 0 where the user may not ask."""
        told = self.operate("listPreparedTransactions")
        return len(told) if isinstance(told, list) else 0

    def copy(self, queue: str, message_id: int, target: str) -> bool:
        """Copy one message to another queue; False where it is not there, or the user may not."""
        return self.operate("copyMessage", message_id, target, of=_resource_of(queue)) is True

    def empty(self, queue: str) -> None:
        """Remove all that is in a queue of our own."""
        self.operate("removeMessages", "", of=f"queue.{queue}")

    def address_settings(self, address: str) -> Mapping[str, Any]:
        """Return the settings that hold for an address, by Artemis' names; empty: the user may not ask."""
        told = _in_text(self.operate("getAddressSettingsAsJSON", address))
        return told if isinstance(told, dict) else {}

    def traits(self, queue: str) -> tuple[Mapping[str, str], Mapping[str, Any]] | None:
        """Return a queue's properties, and the settings of its address; None when it is not there, or the
        user may not ask."""
        properties = self._properties_of(queue)
        if properties is None:
            return None
        return properties, self.address_settings(properties.get("address", queue))

    def _properties_of(self, queue: str) -> Mapping[str, str] | None:
        """Return what the list of queues says of one; None when it is not there, or the user may not ask."""
        found = self.list_queues("NAME", queue)
        return found[0] if len(found) == 1 else None

    def list_queues(self, field: str, value: str) -> list[Mapping[str, str]]:
        """Return the properties of the queues of which NAME or ADDRESS is so; none: the user may not ask."""
        wanted = json.dumps(
            {"field": field, "operation": "EQUALS", "value": value, "sortField": "name", "sortOrder": "asc"}
        )
        found: list[Mapping[str, str]] = []
        try:
            for page in count(1):
                told = _in_text(self.operate("listQueues", wanted, page, _MOST_LISTED))
                found += [{str(name): str(value) for name, value in one.items()} for one in told["data"]]
                if not told["data"] or len(found) >= told["count"]:
                    break
        except (TypeError, ValueError, KeyError, AttributeError):
            return []
        return found

    def definitions(
        self,
    ) -> "tuple[list[Mapping[str, str]], dict[str, Any], dict[str, list[dict[str, Any]]]] | None":
        """Return all queues, the settings of all addresses, and diverts by address; None where one of these
        is not told."""
        names, diverts = self.attribute("broker", "addressNames"), self._diverts()
        queues = self.list_queues("", "")  # that of our answers is there
        if not isinstance(names, list) or diverts is None or not queues:
            return None
        addresses = sorted(map(str, names))
        told = self._ask_parts([_operation(_BROKER, "getAddressSettingsAsJSON", name) for name in addresses])
        settings = {name: _in_text(one) or {} for name, one in zip(addresses, told, strict=True)}
        return queues, settings, diverts

    def _diverts(self) -> dict[str, list[dict[str, Any]]] | None:
        """Return them by address; None where one is not told."""
        found: dict[str, list[dict[str, Any]]] = {}
        names = self.attribute("broker", "divertNames")
        if not isinstance(names, list):
            return None
        for name in names:
            what = ("address", "forwardingAddress", "exclusive", "filter")
            told = self.attributes((f"divert.{name}", one) for one in what)
            if None in told[:-1]:  # a divert may have no filter
                return None
            one = dict(zip(what, told, strict=True))
            found.setdefault(str(one["address"]), []).append(one)
        return found

    def why_dropped(self, address: str) -> str | None:
        """Return why a message to this address may be dropped with a receipt; None where it is never."""
        settings = self.address_settings(address)
        if settings.get("addressFullMessagePolicy") is None:
            return f"what becomes of messages to {address} when it is full is not known: {NO_MANAGEMENT}"
        by = policy_that_drops(settings)
        return f"{address} drops messages when it is full ({by} DROP)" if by else None

    def operate(self, operation: str, *parameters: Any, of: str = _BROKER) -> Any:
        """Ask a resource for an operation; None where it has no result, or the user may not."""
        return self._ask_all([_operation(of, operation, *parameters)])[0]

    def destroy(self, queue: str) -> None:
        """Delete a queue with all that is in it, and its address; nothing happens without the right."""
        self.operate("destroyQueue", queue, True, True)

    def delivered_classes(self, queue: str) -> dict[int, Any] | None:
        """Message id -> number of its class (`Message.getType`) for all that consumers hold unacknowledged;
        None when the user may not ask. Of an AMQP message the number may be a property of its producer's."""
        told = self.operate("listDeliveringMessagesAsJSON", of=_resource_of(queue))
        found: dict[int, Any] = {}

        def keep(pairs: list[tuple[str, Any]]) -> None:
            """Keep nothing but this of each letter, as there may be many thousands."""
            shown = dict(pairs)
            if "messageID" in shown:
                found[shown["messageID"]] = shown.get("type")

        if not isinstance(told, str):
            return None
        try:
            json.loads(told, object_pairs_hook=keep)
        except (ValueError, TypeError, RecursionError):
            return None
        return found

    def _ask_all(self, questions: Sequence[_Question]) -> list[Any]:
        """Return the answers, in the order of the questions; None to each where one is not answered."""
        deadline.check(self._broker.name)
        try:
            link = self._connect()
            asked = [({"reply-to": self._reply, **headers}, parameters) for headers, parameters in questions]
            self._send(link, asked)
            return self._answers(link, len(asked))
        except BrokerError as error:  # on another connection no late answer is that to another question
            self.trouble, self.silences = error, self.silences + 1
            self.close()
            return [None] * len(questions)

    def _send(self, link: Link, questions: Sequence[_Question]) -> None:
        """Send each question with its number, by which its answer is known."""
        receipt = link.new_receipt()
        frames = [
            _question({**headers, "correlation-id": str(number)}, parameters)
            for number, (headers, parameters) in enumerate(questions[:-1])
        ]
        headers, parameters = questions[-1]
        numbered = {**headers, "correlation-id": str(len(frames)), "receipt": receipt}
        link.send(b"".join([*frames, _question(numbered, parameters)]))
        link.wait_for(receipt)

    def _connect(self) -> Link:
        if self._link is None:
            self._link = Link(self._broker)
            self._reply = f"dlq.reply.{self._link.token}"
            subscription = {"id": self._link.token, "destination": self._reply, "ack": "auto"}
            self._link.request("SUBSCRIBE", {**subscription, "subscription-type": "ANYCAST"})
        return self._link

    def _answers(self, link: Link, count: int) -> list[Any]:
        """Return those to questions 0 to `count`. Raises Unanswered."""
        told: dict[str, Any] = {}
        deadline = time.monotonic() + patience.REPLY
        while len(told) < count and time.monotonic() < deadline:
            for frame in link.receive(0):  # which soon asks for what makes the last one's end certain
                headers = headers_of(frame.head)
                succeeded = headers.get("_AMQ_OperationSucceeded") == "true"
                told[headers.get("correlation-id", str(len(told)))] = (
                    first_of(frame.body) if succeeded else None
                )
                deadline = time.monotonic() + patience.REPLY
        try:
            return [told[str(number)] for number in range(count)]
        except KeyError:
            silent = f"{link.place}: its management gave no answer within {patience.REPLY:g} s"
            raise Unanswered(silent) from None

    def close(self) -> None:
        """Leave, and take the queue of the answers away: in Artemis' default configuration it would stay,
        as auto-delete-queues is off. Never raises."""
        if self._link is not None:
            with contextlib.suppress(BrokerError):
                self._link.request("UNSUBSCRIBE", {"id": self._link.token})
                self._send(self._link, [_operation(_BROKER, "destroyQueue", self._reply, True, True)])
            self._link.close()
            self._link = None


def policy_that_drops(settings: Mapping[str, Any]) -> str:
    """Return which setting makes an address drop, with a receipt, what comes while it is full: while its
    memory is, or the pages behind that; "" where it doesn't."""
    policy = settings.get("addressFullMessagePolicy")
    if policy == "DROP":
        return ADDRESS_FULL
    has_limit = any(whole(settings.get(one)) is not None for one in ("pageLimitMessages", "pageLimitBytes"))
    drops = policy == "PAGE" and settings.get("pageFullMessagePolicy") == "DROP"
    return PAGE_FULL if drops and has_limit else ""


def _resource_of(queue: str) -> str:
    """Return what management calls a queue, which may be named in full."""
    return f"queue.{queue.rpartition('::')[2]}"


def _attribute(resource: str, name: str) -> _Question:
    return {"_AMQ_ResourceName": resource, "_AMQ_Attribute": name}, ""


def _operation(resource: str, name: str, *parameters: Any) -> _Question:
    return {"_AMQ_ResourceName": resource, "_AMQ_OperationName": name}, json.dumps(parameters)


def _question(headers: Mapping[str, str], parameters: str) -> bytes:
    """Encode a question as a text message, so without a length: Artemis reads no parameters from a
    BytesMessage."""
    frame = encode("SEND", {"destination": "activemq.management", **headers})
    return frame[:-1] + parameters.encode() + b"\0"


def first_of(body: bytes) -> Any:
    """Return the one value of the JSON array in an answer's body."""
    values = _read(body)
    return values[0] if isinstance(values, list) and values else None


def _in_text(told: Any) -> Any:
    """Return what an answer holds that is JSON in a text; None where it is none."""
    return _read(told.encode(errors="replace")) if isinstance(told, str) else None


def _read(data: bytes) -> Any:
    try:
        return document(data)
    except NoAnswerError:
        return None
