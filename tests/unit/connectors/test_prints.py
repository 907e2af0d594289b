"""Messages as consoles and clients print them, and what of a print is no letter; what whole ones come to is
in `golden/import_of_prints.json`. The first of RocketMQ is one of a public log of 4.x."""

import json
import time
from typing import Any

from support.rows import each_row

from dlq.connectors.activemq.console.formats import artemis, classic
from dlq.connectors.jsonl.console_formats import Printed, Reader
from dlq.connectors.jsonl.format import check_document, fit, record_of
from dlq.connectors.rabbitmq.console.formats import management
from dlq.connectors.rocketmq.console.formats import messages
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


def without(shown: dict[str, Any], name: str) -> dict[str, Any]:
    return {each: value for each, value in shown.items() if each != name}


BODILESS = without(CLASSIC, "Text")
BYTES = without(ARTEMIS, "text") | {"type": 4}
DEATH = {
    "count": 2, "exchange": "shop", "queue": "orders", "reason": "rejected", "routing-keys": ["order.new"],
    "time": 1_700_000_000,
}  # fmt: skip


def got() -> dict[str, Any]:
    return {
        "payload_bytes": 2, "redelivered": True, "exchange": "dlx", "routing_key": "order.new",
        "message_count": 4, "properties": {"message_id": "m1", "headers": {"x-death": [DEATH]}},
        "payload": "{}", "payload_encoding": "string",
    }  # fmt: skip


ONE, PRETTY = json.dumps([got()]), json.dumps([got(), got()], indent=2)
TABLE = """
+-------------+----------+---------------+---------+---------------+------------------+-------------+
| routing_key | exchange | message_count | payload | payload_bytes | payload_encoding | redelivered |
+-------------+----------+---------------+---------+---------------+------------------+-------------+
| orders.dlq  |          | 0             | {}      | 2             | string           | False       |
+-------------+----------+---------------+---------+---------------+------------------+-------------+
"""
HEAD = (
    "MessageExt [queueId=0, storeSize=180, queueOffset=113, sysFlag=0, bornTimestamp=1669729922426, "
    "bornHost=/172.27.80.1:61263, storeTimestamp=1669729922426, storeHost=/172.27.80.1:10911, "
    "msgId=AC1B500100002A9F0000000000013E16, commitLogOffset=81430, bodyCRC=1655802458, reconsumeTimes=0, "
    "preparedTransactionOffset=0, toString()="
)
REAL = (
    HEAD + "Message{topic='TopicTest', flag=0, properties={MIN_OFFSET=0, MAX_OFFSET=250, "
    "CONSUME_START_TIME=1669730050849, UNIQ_KEY=76FBC10A4DDC60E53B9394E3457A01C5, WAIT=true, TAGS=TagA}, "
    "body=[72, 101, 108, 108, 111, 32, 82, 111, 99, 107, 101, 116, 77, 81, 32, 52, 53, 51], "
    "transactionId='null'}]"
)
OLD = (
    HEAD + "Message [topic=PushTopic, flag=0, properties={MIN_OFFSET=0, MAX_OFFSET=2, KEYS=3, WAIT=true, "
    "TAGS=push}, body=14]]"
)


def printed(properties: str, body: str = "[72]") -> str:
    message = f"Message{{topic='%DLQ%orders', flag=0, properties={properties}, body={body}"
    return f"{HEAD}{message}, transactionId='null'}}]"


BY_ID = "OffsetID:            0A\nTopic:               T\nMessage Body Path:   /tmp/rocketmq/msgbodys/0A\n\n"


def record(found: Printed) -> Record:
    assert found.unread == []
    ((_, letter),) = found.letters
    return record_of(check_document(fit(letter)), "import", "import", "1.1", key_reader("message_id"))


ANSWERS = [
    {"status": 403, "error": "no"},
    {"status": 200, "value": 7},
    {"status": 200, "value": None},
    {"a": 1},
]
LISTED = [{"messageID": 33, "type": 3, "address": "DLQ", "_AMQ_ORIG_QUEUE": "orders"}, {"messageID": 40}]
NO_BODIES = "listMessages leaves out bodies: let browse print them"
WHOLE = f"MSGID: A {OLD} BODY: fourteen bytes\n"


def quoting(body: str) -> str:
    """A message with such a body."""
    return WHOLE.replace("body=14]", f"body={len(body)}]").replace("fourteen bytes", body)


PRINTS: list[tuple[Reader, str, list[int], list[tuple[int, str]]]] = [
    (management, f"{ONE}\n[]\n{PRETTY}\n{ONE}", [1, 4, 30, 57], []),
    (management, f"{PRETTY[:-40]}\n{ONE}\n", [2, 52], [(28, "no JSON")]),
    (management, TABLE, [], [(1, "-f raw_json")]),
    (management, '7\n"x"\nHTTP/1.1 200 OK\n{"broker_kind": "rabbitmq", "queue": "q"}\n', [],
     [(line, "") for line in (1, 2, 3, 4)]),
    (classic, "\n".join(map(json.dumps, ANSWERS)), [], [(1, "403"), (2, ""), (3, ""), (4, "")]),
    *[(artemis, json.dumps({"status": 200, "value": listed}), [], [(1, NO_BODIES)] * 2)
      for listed in (LISTED, json.dumps(LISTED))],
    (messages, f"a log line\n[{REAL}, {REAL}]\n\n{REAL}\n", [2, 2, 4], []),
    (messages, f"MSGID: A {OLD} BODY: fourteen bytes\n", [1], []),
    (messages, OLD, [], [(1, "only the length of its body, 14 bytes")]),
    (messages, f"MSGID: A {OLD} BODY: NOT PRINT BODY", [], [(1, "only the length")]),
    (messages, f"MSGID: A {OLD} BODY: a body\nof two l.\nMSGID: B {OLD} BODY: too short\n", [],
     [(1, ""), (3, "")]),
    (messages, WHOLE * 3, [1, 2, 3], []),
    (messages, quoting(f"failed on\n{WHOLE}") + WHOLE, [1, 4], []),
    (messages, quoting(f"a, body=3]]\n{WHOLE}") + WHOLE, [4],
     [(1, "what follows up to line 3 may be a value of it, and is not read")]),
    (messages, BY_ID * 2, [], [(1, "let printMsg print the message"), (5, "")]),
    (messages, printed(f"{{ERROR=failed on {REAL}, A=1}}") + f"\n{REAL}", [2],
     [(1, "what follows up to line 1 may be a value of it")]),
]  # fmt: skip


@each_row(("read", "text", "letters", "unread"), PRINTS)
def test_what_is_whole_is_read_and_the_rest_is_said_with_its_line(
    read: Reader, text: str, letters: list[int], unread: list[tuple[int, str]]
) -> None:
    found = read(text)
    assert [line for line, _ in found.letters] == letters
    assert [line for line, _ in found.unread] == [line for line, _ in unread]
    for (_, said), (_, words) in zip(found.unread, unread, strict=True):
        assert words in said


FORGED = printed("{Z=1").partition(", body=")[0]
"""The beginning of a message that the end of another one completes."""
FAKE_END = "x}, body=[1], transactionId='null'}]"


def died_with(value: str, more: str = "", transaction: str = "null") -> str:
    """A message with such a value of its sender's, and the size that the broker has stored."""
    size = 91 + len("%DLQ%orders") + len("A  ") + len(value.encode()) + len(more) + 1
    sized = printed(f"{{A={value}{more}}}").replace("storeSize=180", f"storeSize={size}")
    return sized.replace("Id='null'}]", f"Id='{transaction}'}}]") if transaction != "null" else sized


@each_row("text", [
    died_with(f"x\n{FORGED}"),
    died_with(f"x\n{REAL}\n{FORGED}"),
    died_with(f"{FAKE_END}, {FORGED}"),
    died_with(f"{FAKE_END}\n{FORGED}"),
    died_with(f"x}}, body=6]] BODY: a body\n{FORGED}"),
    died_with(FAKE_END + REAL, ", TRAN_MSG=true", FAKE_END + REAL),
    quoting(f"a\r\nb{REAL}".replace("\n", "\n" * 600)).replace("\n", "\r\n"),
])  # fmt: skip
def test_no_value_of_a_message_becomes_another_one(text: str) -> None:
    found = messages(f"{text}\n" + f"{REAL}\n" * 40)
    real = record(messages(REAL))
    assert found.unread
    assert {letter["body_text"] for _, letter in found.letters} == {real.body.decode()}
    assert {letter["topic"] for _, letter in found.letters} == {real.dead_letter_queue}
    first = min(line for line, _ in found.letters)
    assert first > text.count("\n") + 1


def test_a_body_whose_line_ends_a_shell_may_have_changed_is_not_guessed() -> None:
    for text in (quoting("a\r\nb"), quoting("a\nb").replace("\n", "\r\n")):
        assert messages(text).letters == []


def test_json_whose_line_breaks_are_not_escaped_is_not_read_on() -> None:
    """A shell's `echo` makes line breaks of what was escaped."""
    text = json.dumps([got() | {"payload": f"x\n{ONE}"}]).replace("\\n", "\n").replace('\\"', '"')
    assert management(text).letters == []
    text = '[{"payload": "x\n' + ONE
    assert management(text).letters == []


@each_row("read, text", [
    (management, ONE.replace('"message_id": "m1"', '"message_id": "m1", "message_id": "m2"')),
    (management, ONE.replace('"m1"', '"\udce9"')),
    (messages, printed("{A=\udce9}")),
])  # fmt: skip
def test_a_key_that_repeats_and_bytes_that_are_no_text_are_refused(read: Reader, text: str) -> None:
    found = read(f"{text}\n{ONE if read is management else REAL}")
    assert [line for line, _ in found.letters] == [2]
    ((line, why),) = found.unread
    assert (line, "twice" in why or "UTF-8" in why) == (1, True)


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
    (got() | {"payload_bytes": 400}, "not whole: 2 bytes of 400"),
    (without(got(), "payload_bytes"), "no payload_bytes"),
    (got() | {"payload_bytes": True}, "no payload_bytes"),
    (got() | {"payload_bytes": 10**400}, "not whole"),
    (without(got(), "payload_encoding"), "it has no payload_encoding"),
    (got() | {"payload_encoding": "hex"}, "unknown payload_encoding 'hex'"),
    (got() | {"payload_encoding": "base64"}, "no base64"),
    (got() | {"payload": "\ud800"}, "no string"),
    (got() | {"payload": 7}, "payload must be text"),
    (got() | {"properties": "p"}, "properties must be an object"),
    (got() | {"properties": {"headers": "h"}}, "headers must be an object"),
    (without(got(), "exchange"), "it has no exchange"),
])  # fmt: skip
def test_what_is_cut_or_no_letter_is_said_and_the_rest_is_read(shown: dict[str, Any], reason: str) -> None:
    readers = (
        ("payload", management, got()),
        ("messageID", artemis, ARTEMIS),
        ("JMSMessageID", classic, CLASSIC),
    )
    [(read, whole)] = [(read, whole) for name, read, whole in readers if name in shown]
    found = read(json.dumps([shown, whole]))
    assert len(found.letters) == 1
    ((line, why),) = found.unread
    assert (line, reason in why) == (1, True)


@each_row(("text", "reason"), [
    (REAL[:200], "cut"),
    (REAL[:500], "no end"),
    (REAL[:-30], "no end"),
    (printed("{A=1, B=2}", "[1, 2, ...]"), "no end"),
    (printed("{A=1, B=2}", "[128]"), "no array of bytes"),
    (printed("{A=1, B=2}", "[1,, 2]"), "no array of bytes"),
    (printed("{A=1, B=2}", "[" + "9" * 5000 + "]"), "no array of bytes"),
    (printed("{A=1, A=2}"), "twice"),
    (printed("{A={x=1, y=2}, B=3}"), "within a bracket"),
    (printed("{A=one, two three=3}"), "two meanings at 'two three=3'"),
    (printed("{A=1,\n B=2}"), "wrapped"),
    (printed("{no equals}"), "two meanings"),
    (printed("{A=x}, body=[1], transactionId='null'}], B=2}"), "two ends"),
    (printed("{A=1, B=2"), "cut"),
])  # fmt: skip
def test_what_rocketmq_cuts_or_is_ambiguous_is_said_and_not_guessed(text: str, reason: str) -> None:
    ((_, why),) = messages(text).unread
    assert (messages(text).letters, reason in why) == ([], True)


@each_row("text", ['{"a":[' * 20_000, '{"a":\n' * 10_000, "9" * 65_536])
def test_no_text_runs_away_or_breaks_it(text: str) -> None:
    start = time.process_time()
    found = management(text)
    assert time.process_time() - start < 1.0
    assert found.letters == []


@each_row("read, shown, shadowed", [
    (classic, CLASSIC | {"OriginalDestination": None}, {"original-destination", "reply-to", "type"}),
    (artemis, ARTEMIS, {"reply-to", "type", "priority"}),
])  # fmt: skip
def test_a_property_does_not_pass_for_a_header_of_its_name(
    read: Reader, shown: dict[str, Any], shadowed: set[str]
) -> None:
    own = dict.fromkeys(shadowed, "queue://payments")
    strings = {**shown["StringProperties"], **own, "__AMQ_CID": "c"}
    letter, before = (
        record(read(json.dumps(shown | {"StringProperties": strings}))),
        record(read(json.dumps(shown))),
    )
    assert letter.headers == {**before.headers, "__AMQ_CID": "c"}
    assert (letter.origin, letter.priority) == (before.origin, before.priority)
    assert {name: letter.properties[f"property {name}"] for name in own} == own


def test_sections_of_amqp_are_taken_from_names_unless_that_makes_two_of_one() -> None:
    strings = {
        "extraProperties._AMQ_ORIG_QUEUE": "orders", "applicationProperties.a": "1", "extraProperties.a": "2",
        "messageAnnotations.x-opt-ORIG-QUEUE": "orders",
    }  # fmt: skip
    letter = record(artemis(json.dumps(ARTEMIS | {"StringProperties": strings})))
    assert letter.origin == "orders"
    forged = {"applicationProperties._AMQ_ORIG_QUEUE": "x", "applicationProperties._AMQ_ORIG_ADDRESS": "x"}
    assert record(artemis(json.dumps(ARTEMIS | {"StringProperties": forged}))).origin is None
    assert {name: letter.headers[name] for name in [*strings][1:]}.items() <= strings.items()


@each_row("read, shown", [(classic, BODILESS), (artemis, BYTES)])
def test_bytes_are_read_where_they_are_whole(read: Reader, shown: dict[str, Any]) -> None:
    body = {"BodyPreview": [-1, 0, 104], "BodyLength": 3}
    assert record(read(json.dumps(shown | body))).body == b"\xff\x00h"


def test_bodies_of_rocketmq_are_bytes_below_zero_or_text_and_were_unpacked_before_they_were_printed() -> None:
    packed = printed("{}", "[-28, -67, -96]").replace("sysFlag=0", "sysFlag=257")
    letter = record(messages(packed))
    assert (letter.body, letter.headers["sysFlag"]) == ("你".encode(), "0")
    assert record(messages(f"MSGID: A {OLD} BODY: fourteen bytes\n")).body == b"fourteen bytes"


def test_values_may_hold_commas_json_and_control_characters() -> None:
    text = printed('{NOTE=one, two, JSON={"a": 1, "b": [2]}, BELL=\x07, X=a=b==}')
    ((_, letter),) = messages(text).letters
    values = {"NOTE": "one, two", "JSON": '{"a": 1, "b": [2]}', "BELL": "\x07", "X": "a=b=="}
    assert letter["properties"] == values


def test_control_characters_and_numbers_beyond_all_columns_do_no_harm() -> None:
    strings = {"a\x1b[2J": "\x1b]0;x\x07", "b": "\ud800"}
    letter = record(classic(json.dumps(CLASSIC | {"JMSPriority": 10**30, "StringProperties": strings})))
    assert (letter.priority, letter.headers["priority"]) == (None, str(10**30))
    assert letter.headers["b"] == "\\ud800"
    letter = record(messages(REAL.replace("reconsumeTimes=0", f"reconsumeTimes={10**19}")))
    assert (letter.attempts, letter.headers["reconsumeTimes"]) == (None, str(10**19))
    # Jolokia 2.6 writes ESC like this:
    assert record(classic(json.dumps(CLASSIC | {"Text": "ESC"}).replace("ESC", "\\u001;"))).body == b"\x1b"
