"""Messages as Jolokia prints what the brokers' queues answer to `browse`."""

import json
from typing import Any

from support.rows import each_row

from dlq.connectors.activemq.console.formats import artemis, classic
from dlq.connectors.jsonl.console_formats import Printed, Reader
from dlq.connectors.jsonl.format import check_document, fit, record_of
from dlq.core.keys import key_reader
from dlq.core.record import Record

CAUSE = "java.lang.Throwable: Delivery[7] exceeds redelivery policy limit:RedeliveryPolicy {...}, cause:null"
CLASSIC: dict[str, Any] = {
    "JMSCorrelationID": "c1", "JMSDestination": "queue://ActiveMQ.DLQ",
    "JMSMessageID": "ID:host-1-2-1:1:1:1:1",
    "JMSReplyTo": None, "JMSType": "", "JMSDeliveryMode": "PERSISTENT", "JMSExpiration": 0, "JMSPriority": 4,
    "JMSRedelivered": False, "JMSTimestamp": "2026-01-02T03:04:05Z", "JMSXGroupID": None, "JMSXGroupSeq": 0,
    "JMSXUserID": None, "BrokerPath": "null", "OriginalDestination": "queue://orders",
    "PropertiesText": "{dlqDeliveryFailureCause=...}", "StringProperties": {"dlqDeliveryFailureCause": CAUSE},
    "BooleanProperties": {"vip": True}, "ByteProperties": {}, "ShortProperties": {},
    "IntProperties": {"n": 7},
    "LongProperties": {"big": {"key": "big", "value": 10**18}}, "FloatProperties": {}, "DoubleProperties": {},
    "Text": "hello",
}  # fmt: skip
ARTEMIS: dict[str, Any] = {
    "address": "DLQ", "messageID": "77", "userID": "ID:0f-1", "type": 3, "durable": True, "expiration": 0,
    "priority": 4, "redelivered": False, "timestamp": 1_767_323_045_000, "largeMessage": False,
    "persistentSize": 300, "PropertiesText": "{}", "text": "hello",
    "StringProperties": {"_AMQ_ORIG_QUEUE": "orders", "_AMQ_ORIG_ADDRESS": "orders"}, "BooleanProperties": {},
    "ByteProperties": {}, "ShortProperties": {}, "IntProperties": {},
    "LongProperties": {"_AMQ_ORIG_MESSAGE_ID": 5},
    "FloatProperties": {}, "DoubleProperties": {},
}  # fmt: skip


def record(found: Printed) -> Record:
    assert found.unread == []
    ((_, letter),) = found.letters
    return record_of(check_document(fit(letter)), "import", "import", "1.1", key_reader("message_id"))


def without(shown: dict[str, Any], name: str) -> dict[str, Any]:
    return {each: value for each, value in shown.items() if each != name}


def test_sections_of_amqp_are_taken_from_names_unless_that_makes_two_of_one() -> None:
    strings = {
        "extraProperties._AMQ_ORIG_QUEUE": "orders", "applicationProperties.a": "1", "extraProperties.a": "2",
        "messageAnnotations.x-opt-ORIG-QUEUE": "orders",
    }  # fmt: skip
    letter = record(artemis(json.dumps(ARTEMIS | {"StringProperties": strings})))
    assert letter.origin == "orders"
    assert {name: letter.headers[name] for name in [*strings][1:]}.items() <= strings.items()


BODILESS = without(CLASSIC, "Text")
BYTES = without(ARTEMIS, "text") | {"type": 4}


@each_row("read, shown", [(classic, BODILESS), (artemis, BYTES)])
def test_bytes_are_read_where_they_are_whole(read: Reader, shown: dict[str, Any]) -> None:
    assert (
        record(read(json.dumps(shown | {"BodyPreview": [-1, 0, 104], "BodyLength": 3}))).body == b"\xff\x00h"
    )


@each_row(("shown", "reason"), [
    (CLASSIC | {"Text": "null"}, "null"),
    (CLASSIC | {"Text": None}, "Text must be text"),
    (CLASSIC | {"Text": "\ud800"}, "no Unicode"),
    (CLASSIC | {"JMSDestination": "topic://news"}, "no queue"),
    (CLASSIC | {"JMSMessageID": 7}, "JMSMessageID must be text"),
    (CLASSIC | {"StringProperties": "{a=b}"}, "StringProperties must be an object"),
    (CLASSIC | {"StringProperties": {"a": [1]}}, "neither text nor number"),
    (BODILESS, "does not hold the body"),
    (BODILESS | {"BodyLength": 400, "BodyPreview": [1] * 255}, "not whole: 255 bytes of 400"),
    (BODILESS | {"BodyLength": 1, "BodyPreview": [300]}, "no array of bytes"),
    (BODILESS | {"BodyLength": 1, "BodyPreview": "AQ=="}, "no array of bytes"),
    (BODILESS | {"ContentMap": "{a=1}"}, "does not hold the body"),
    (ARTEMIS | {"text": "x" * 256 + ", + 12 more"}, "is cut"),
    (ARTEMIS | {"StringProperties": {"a": "x" * 256 + ", + 3 more"}}, "is cut"),
    (ARTEMIS | {"text": "[compressed]"}, "[compressed]"),
    (ARTEMIS | {"largeMessage": True}, "large message"),
    (ARTEMIS | {"messageID": None}, "messageID must be text"),
    (ARTEMIS | {"address": 7}, "address must be text"),
    (BYTES | {"BodyPreview": [1] * 256}, "may be cut"),
    (BYTES | {"BodyPreview": [1] * 3, "type": 5}, "only the bodies"),
])  # fmt: skip
def test_what_is_cut_or_no_letter_is_said_and_the_rest_is_read(shown: dict[str, Any], reason: str) -> None:
    read, whole = (artemis, ARTEMIS) if "messageID" in shown else (classic, CLASSIC)
    found = read(json.dumps([shown, whole]))
    assert len(found.letters) == 1
    assert reason in found.unread[0][1]


def test_an_answer_that_is_an_error_or_holds_something_else_is_said() -> None:
    values: list[dict[str, Any]] = [{"value": 7}, {"value": None}]
    answers = [{"status": 403, "error": "no"}, *({"status": 200, **value} for value in values), {"a": 1}]
    found = classic("\n".join(map(json.dumps, answers)))
    assert found.letters == []
    assert [line for line, _ in found.unread] == [1, 2, 3, 4]
    assert "403" in found.unread[0][1]


@each_row("as_text", [True, False])
def test_what_list_messages_prints_has_no_bodies_and_is_said_message_by_message(as_text: bool) -> None:
    listed = [{"messageID": 33, "type": 3, "address": "DLQ", "_AMQ_ORIG_QUEUE": "orders"}, {"messageID": 40}]
    value = json.dumps(listed) if as_text else listed
    found = artemis(json.dumps({"status": 200, "value": value}))
    assert found.letters == []
    assert [why for _, why in found.unread] == ["listMessages leaves out bodies: let browse print them"] * 2


def test_control_characters_and_numbers_beyond_all_columns_do_no_harm() -> None:
    strings = {"a\x1b[2J": "\x1b]0;x\x07", "b": "\ud800"}
    letter = record(classic(json.dumps(CLASSIC | {"JMSPriority": 10**30, "StringProperties": strings})))
    assert letter.priority is None
    assert letter.headers["priority"] == str(10**30)
    assert letter.headers["b"] == "\\ud800"
    # Jolokia 2.6 writes ESC like this:
    assert record(classic(json.dumps(CLASSIC | {"Text": "ESC"}).replace("ESC", "\\u001;"))).body == b"\x1b"
