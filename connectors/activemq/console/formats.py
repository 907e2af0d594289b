"""Messages as Jolokia and the consoles above it print them: JMX composite data in JSON.

Classic's form is what `browse()` and `getMessage(id)` of a queue answer (broker/jmx/OpenTypeSupport.java in
activemq-broker), Artemis' what `browse` of a queue control answers (core/management/impl/openmbean/
OpenTypeSupport.java in artemis-server). Bare objects, arrays of them, and Jolokia's whole answers are read.
A message whose body the broker leaves out, or cuts for management, makes no letter.
"""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dlq.connectors.activemq.look.jolokia import PROPERTY, details, fix_escapes
from dlq.connectors.activemq.records.frames import bare_destination
from dlq.connectors.activemq.stomp.codec import OF_STOMP
from dlq.connectors.jsonl.console_formats import Printed, Unreadable, collect, objects, text_of
from dlq.connectors.jsonl.format import body_fields, to_text
from dlq.core.clock import from_iso

_Shown = Mapping[str, Any]
_SECTIONS = ("String", "Boolean", "Byte", "Short", "Int", "Long", "Float", "Double")
_CLASSIC = {
    "JMSMessageID": "message-id", "JMSCorrelationID": "correlation-id", "JMSReplyTo": "reply-to",
    "JMSType": "type", "JMSExpiration": "expires", "JMSPriority": "priority", "JMSRedelivered": "redelivered",
    "OriginalDestination": "original-destination", "JMSXGroupID": "JMSXGroupID", "JMSXUserID": "JMSXUserID",
}  # fmt: skip
_ARTEMIS = {
    "messageID": "message-id", "timestamp": "timestamp", "expiration": "expires", "priority": "priority",
    "durable": "persistent", "redelivered": "redelivered",
}  # fmt: skip
"""Column of the composite data -> the header that STOMP has for it."""
_PERSISTENT = {"PERSISTENT": "true", "NON-PERSISTENT": "false"}
_CUT = re.compile(r", \+ \d{1,19} more\Z")
_CUT_AT = 256
"""Artemis' management-message-attribute-size-limit, at which it cuts bytes without a word."""
_BYTES_TYPE = 4
_SECTION = re.compile(r"^(?:extraProperties\.|applicationProperties\.(?!_AMQ_ORIG_))")
"""Sections that Artemis puts before the names of an AMQP message's properties (AMQPMessage). Where it died
the broker says in the first alone."""


def classic(text: str) -> Printed:
    """Return messages of ActiveMQ Classic."""
    return _read(text, _classic)


def artemis(text: str) -> Printed:
    """Return messages of Artemis."""
    return _read(text, _artemis)


def _read(text: str, letter_of: Callable[[_Shown], dict[str, Any]]) -> Printed:
    whole = fix_escapes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
    return collect(_messages(whole), letter_of)


def _messages(text: str) -> Iterator[tuple[int, _Shown | Unreadable]]:
    """Yield the objects, and those in the value of an answer of Jolokia."""
    for line, found in objects(text):
        if isinstance(found, Unreadable) or "status" not in found:
            yield line, found
        elif found["status"] != 200:
            yield line, Unreadable(f"Jolokia's answer is an error: {found['status']}")
        else:
            for each in _messages_in(found.get("value")):
                yield line, each


def _messages_in(value: Any) -> Iterator[_Shown | Unreadable]:
    """Yield the messages in an answer's value; listMessagesAsJSON answers with a text."""
    if isinstance(value, str):
        yield from (each for _, each in objects(value))
        return
    for each in value if isinstance(value, list) else [value]:
        yield each if isinstance(each, dict) else Unreadable("no message in Jolokia's answer")


def _classic(shown: _Shown) -> dict[str, Any]:
    kind, queue = bare_destination(text_of(shown, "JMSDestination"))
    if kind != "queue":
        raise Unreadable("it lies in no queue")
    text_of(shown, "JMSMessageID")
    properties = _properties(shown)
    told = _take_shadows(properties)
    headers = properties | _headers(shown, _CLASSIC)
    if (sent := _millis(shown.get("JMSTimestamp"))) is not None:
        headers["timestamp"] = sent
    if shown.get("JMSDeliveryMode") in _PERSISTENT:
        headers["persistent"] = _PERSISTENT[shown["JMSDeliveryMode"]]
    letter = {"broker_kind": "activemq", "queue": queue, "headers": headers}
    hidden = {"properties": {**details(shown), **told}} if told else {}
    return {**letter, **hidden, **body_fields(_classic_body(shown))}


def _artemis(shown: _Shown) -> dict[str, Any]:
    """Return a message of Artemis; its address is told, mostly the name of the queue that it lies in."""
    if "messageID" in shown and "StringProperties" not in shown:
        raise Unreadable("listMessages leaves out bodies: let browse print them")
    text_of(shown, "messageID")
    properties = _strip_sections(_properties(shown))
    told = _take_shadows(properties) if "__AMQ_CID" in properties else {}
    headers = properties | _headers(shown, _ARTEMIS)
    texts = (*headers.values(), *told.values(), shown.get("text"))
    if any(isinstance(value, str) and _CUT.search(value) for value in texts):
        raise Unreadable("a text of it is cut (management-message-attribute-size-limit)")
    letter = {"broker_kind": "artemis", "queue": text_of(shown, "address"), "headers": headers}
    letter |= {"properties": told} if told else {}
    user_id = {"message_id": shown["userID"]} if shown.get("userID") else {}
    return {**letter, **user_id, **body_fields(_artemis_body(shown))}


def _take_shadows(properties: dict[str, Any]) -> dict[str, Any]:
    """Take out properties of the sender's that have names of STOMP's headers; return them as a record's
    `properties` have them."""
    return {f"{PROPERTY}{name}": properties.pop(name) for name in [*properties] if name in OF_STOMP}


def _headers(shown: _Shown, names: Mapping[str, str]) -> dict[str, Any]:
    return {header: to_text(shown[name]) for name, header in names.items() if shown.get(name) is not None}


def _properties(shown: _Shown) -> dict[str, Any]:
    """Return the user properties of all types. Jolokia writes name: value, or name: {key, value}."""
    found: dict[str, Any] = {}
    for section in _SECTIONS:
        values = shown.get(f"{section}Properties", {} if section != "String" else None)
        if not isinstance(values, dict):
            raise Unreadable(f"no message: {section}Properties must be an object")
        found |= {name: _value(value) for name, value in values.items()}
    return found


def _value(value: Any) -> str:
    if isinstance(value, dict) and value.keys() == {"key", "value"}:
        value = value["value"]
    if isinstance(value, dict | list):
        raise Unreadable("a property of it is neither text nor number")
    return to_text(value)


def _strip_sections(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names without AMQP's sections, but where that would make two of one name."""
    names = {name: _SECTION.sub("", name) for name in properties}
    taken = Counter(names.values())
    return {short if taken[short] == 1 else name: properties[name] for name, short in names.items()}


def _millis(value: Any) -> str | None:
    """Return a date as Jolokia writes it, in milliseconds."""
    if isinstance(value, str):
        micros = from_iso(value)
        return None if micros is None else str(micros // 1000)
    return to_text(value) if isinstance(value, int) else None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Unreadable("its text is no Unicode") from error


def _bytes(numbers: Any) -> bytes:
    try:
        return array("b", numbers).tobytes()
    except (TypeError, OverflowError) as error:
        raise Unreadable("BodyPreview is no array of bytes") from error


def _classic_body(shown: _Shown) -> bytes:
    if "Text" in shown:
        text = text_of(shown, "Text")
        if text == "null":
            raise Unreadable("its text is null: none at all, or the word")
        return _utf8(text)
    if "BodyLength" not in shown:
        raise Unreadable("the print does not hold the body of a message of this class")
    body = _bytes(shown.get("BodyPreview"))
    if len(body) != shown["BodyLength"]:
        raise Unreadable(f"the body is not whole: {len(body)} bytes of {shown['BodyLength']}")
    return body


def _artemis_body(shown: _Shown) -> bytes:
    if shown.get("largeMessage") is True:
        raise Unreadable("the print does not hold the body of a large message")
    if "text" in shown:
        text = text_of(shown, "text")
        if text in ("[compressed]", "[large message]"):
            raise Unreadable(f"the print does not hold its body: {text}")
        return _utf8(text)
    if shown.get("type") != _BYTES_TYPE:
        raise Unreadable("only the bodies of text and bytes messages are read")
    body = _bytes(shown.get("BodyPreview"))
    if len(body) >= _CUT_AT:
        raise Unreadable(
            f"{len(body)} bytes of body, which may be cut (management-message-attribute-size-limit)"
        )
    return body
