"""Messages as Jolokia prints what the brokers' queues answer to `browse`."""

import json
from typing import Any

import pytest

from dlq.connectors.activemq.console.formats import artemis, classic
from dlq.connectors.jsonl.console_formats import Printed
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


def without(shown: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in shown.items() if name not in names}


def test_sections_of_amqp_are_taken_from_names_unless_that_makes_two_of_one() -> None:
    strings = {
        "extraProperties._AMQ_ORIG_QUEUE": "orders", "applicationProperties.a": "1", "extraProperties.a": "2",
        "messageAnnotations.x-opt-ORIG-QUEUE": "orders",
    }  # fmt: skip
    letter = record(artemis(json.dumps(ARTEMIS | {"StringProperties": strings})))
    assert letter.origin == "orders"
    assert letter.headers["applicationProperties.a"] == "1"
    assert letter.headers["extraProperties.a"] == "2"
    assert letter.headers["messageAnnotations.x-opt-ORIG-QUEUE"] == "orders"


@pytest.mark.parametrize("kind", ["classic", "artemis"])
def test_bytes_are_read_where_they_are_whole(kind: str) -> None:
    mine = {"BodyPreview": [-1, 0, 104], "BodyLength": 3}
    if kind == "classic":
        assert record(classic(json.dumps(without(CLASSIC, "Text") | mine))).body == b"\xff\x00h"
    else:
        assert record(artemis(json.dumps(without(ARTEMIS, "text") | mine | {"type": 4}))).body == b"\xff\x00h"


@pytest.mark.parametrize(("values", "reason"), [
    ({"Text": "null"}, "null"),
    ({"Text": None}, "Text must be text"),
    ({"Text": "\ud800"}, "no Unicode"),
    ({"JMSDestination": "topic://news"}, "no queue"),
    ({"JMSMessageID": 7}, "JMSMessageID must be text"),
    ({"StringProperties": "{a=b}"}, "StringProperties must be an object"),
    ({"StringProperties": {"a": [1]}}, "neither text nor number"),
])  # fmt: skip
def test_what_is_no_letter_of_classic_is_said_and_the_rest_is_read(
    values: dict[str, Any], reason: str
) -> None:
    found = classic(json.dumps([CLASSIC | values, CLASSIC]))
    assert len(found.letters) == 1
    assert reason in found.unread[0][1]


@pytest.mark.parametrize(("values", "reason"), [
    ({}, "does not hold the body"),
    ({"BodyLength": 400, "BodyPreview": [1] * 255}, "not whole: 255 bytes of 400"),
    ({"BodyLength": 1, "BodyPreview": [300]}, "no array of bytes"),
    ({"BodyLength": 1, "BodyPreview": "AQ=="}, "no array of bytes"),
    ({"ContentMap": "{a=1}"}, "does not hold the body"),
])  # fmt: skip
def test_a_body_that_jmx_does_not_show_whole_makes_no_letter(values: dict[str, Any], reason: str) -> None:
    ((_, why),) = classic(json.dumps(without(CLASSIC, "Text") | values)).unread
    assert reason in why


@pytest.mark.parametrize(("values", "reason"), [
    ({"text": "x" * 256 + ", + 12 more"}, "is cut"),
    ({"StringProperties": {"a": "x" * 256 + ", + 3 more"}}, "is cut"),
    ({"text": "[compressed]"}, "[compressed]"),
    ({"largeMessage": True}, "large message"),
    ({"messageID": None}, "messageID must be text"),
    ({"address": 7}, "address must be text"),
])  # fmt: skip
def test_what_artemis_cuts_or_leaves_out_makes_no_letter(values: dict[str, Any], reason: str) -> None:
    ((_, why),) = artemis(json.dumps(ARTEMIS | values)).unread
    assert reason in why


@pytest.mark.parametrize(("kind", "size", "reason"), [(4, 256, "may be cut"), (5, 3, "only the bodies")])
def test_bytes_of_artemis_that_may_be_cut_or_mean_something_else(kind: int, size: int, reason: str) -> None:
    shown = without(ARTEMIS, "text") | {"type": kind, "BodyPreview": [1] * size}
    ((_, why),) = artemis(json.dumps(shown)).unread
    assert reason in why


def test_an_answer_that_is_an_error_or_holds_something_else_is_said() -> None:
    answers = [
        {"status": 403, "error": "no"},
        {"status": 200, "value": 7},
        {"status": 200, "value": None},
        {"a": 1},
    ]
    found = classic("\n".join(map(json.dumps, answers)))
    assert found.letters == []
    assert [line for line, _ in found.unread] == [1, 2, 3, 4]
    assert "403" in found.unread[0][1]


@pytest.mark.parametrize("as_text", [True, False])
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
