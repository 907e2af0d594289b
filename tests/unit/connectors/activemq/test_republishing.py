"""What of a STOMP letter goes back, what is said beforehand, and what is never sent."""

from contextlib import nullcontext
from itertools import product
from typing import Any
from unittest.mock import Mock

import pytest
from support.rows import each_row

from dlq.connectors.activemq.look.queues import pattern_of
from dlq.connectors.activemq.openwire.codec import commands
from dlq.connectors.activemq.openwire.send import OpenWireSender
from dlq.connectors.activemq.republish import preview, target_of, wire, without_expiry
from dlq.connectors.activemq.stomp.codec import headers_of
from dlq.connectors.base import Outgoing, SendPreview, Target
from dlq.core.errors import UsageError
from dlq.core.record import FLAG_INNER_NUL, Record

ORDERS = Target("queue", "orders")
PROVENANCE = {"dlq_replay_id": "id", "dlq_replay_lap": "1", "dlq_replay_of": "record"}
OF_THE_BROKER = [
    "original-destination", "dlqDeliveryFailureCause", "originalExpiration", "originalDeliveryMode", "ack",
    "browser", "redeliveryDelay", "scheduledJobId", "AMQ_SCHEDULED_DELAY", "transformation", "selector",
    "JMSXDeliveryCount", "JMSXUserID", "message-id", "subscription", "redelivered", "receipt", "expires",
    "_AMQ_ORIG_ADDRESS", "_AMQ_DUPL_ID", "_AMQ_ACTUAL_EXPIRY", "destination-type", "amq-msg-type",
    "dlq_replay_id",
]  # fmt: skip


def letter(body: bytes = b"x", kind: str = "activemq", headers: Any = None, **changes: Any) -> Record:
    own = {"persistent": True, "origin": "orders", "origin_kind": "queue", **changes}
    return Record("r", "s", "b", kind, "ActiveMQ.DLQ", headers=headers or {}, body=body, **own)


def sent(record: Record, target: Target = ORDERS, keep_headers: bool = False) -> tuple[dict[str, str], bytes]:
    head, _, rest = wire(Outgoing(0, record, target, PROVENANCE, keep_headers), "t").partition(b"\n\n")
    assert rest.endswith(b"\0")
    return headers_of(head.partition(b"\n")[2]), rest[:-1]


def previewed(record: Record, target: Target = ORDERS) -> SendPreview:
    return preview(Outgoing(0, record, target, PROVENANCE))


@each_row("name", OF_THE_BROKER)
def test_what_would_shadow_or_expire_the_replay_is_never_sent(name: str) -> None:
    record = letter(headers={name: "old", "tenant": "42"})
    assert "old" not in sent(record, keep_headers=True)[0].values()
    assert (sent(record)[0]["tenant"], previewed(record).stripped) == ("42", [name])


@each_row("kind", ["activemq", "artemis"])
def test_an_expiry_that_a_letter_does_not_have_is_not_taken_away(kind: str) -> None:
    for expires, taken in (("0", []), ("1795655469792", ["expires"])):
        record = letter(kind=kind, headers={"expires": expires, "tenant": "42"})
        assert previewed(record).stripped == taken
        assert "expires" not in sent(record)[0]


def test_a_group_of_artemis_goes_back_by_its_other_name_and_is_not_taken_away() -> None:
    record = letter(kind="artemis", headers={"_AMQ_GROUP_ID": "g", "_AMQ_ORIG_QUEUE": "orders"})
    assert (sent(record)[0]["JMSXGroupID"], previewed(record).stripped) == ("g", ["_AMQ_ORIG_QUEUE"])


def test_what_artemis_shows_of_an_amqp_message_stays_behind_and_classic_gets_it_back() -> None:
    own = {"JMS_AMQP_NATIVE": "true", "JMS_AMQP_HEADER": "true", "NATIVE_MESSAGE_ID": "ID:1", "tenant": "42"}
    of_artemis = sent(letter(kind="artemis", headers=own), keep_headers=True)[0]
    assert own.keys() & of_artemis.keys() == {"tenant"}
    assert own.items() <= sent(letter(headers=own))[0].items()


def test_an_amqp_message_of_classic_goes_without_its_ttl_and_the_plan_says_so() -> None:
    amqp = {"JMS_AMQP_NATIVE": "true", "content-length": "14"}
    record = letter(b"\x00Sp\xc0\x05\x03A@R\x09", headers=amqp)
    assert sent(record)[1] == b"\x00Sp\xc0\x04\x03A@@"
    assert "ttl, absolute-expiry-time" in previewed(record).stripped
    plain = letter(record.body, headers={"content-length": "14"})
    assert (sent(plain)[1], previewed(plain).stripped) == (record.body, ["content-length"])


def test_a_text_in_modified_utf8_goes_back_as_the_text_it_means() -> None:
    headers, body = sent(letter(b"nul\xc0\x80 \xed\xa0\xbd\xed\xb8\x80"))
    assert body.decode() == "nul\0 😀"
    assert (headers["amq-msg-type"], headers["content-length"]) == ("text", str(len(body)))


@each_row(("record", "words"), [
    (letter(headers={"note": "x" * 10_300}), "'note' has more than 10240 bytes"),
    (letter(headers={"note": ":" * 5_200}), "'note' has more than 10240 bytes"),
    (letter(headers={f"h{n}": "" for n in range(1000)}), "more than 1000 headers"),
    (letter(flags=FLAG_INNER_NUL), "still in its queue"),
])  # fmt: skip
def test_what_would_close_the_connection_is_a_problem(record: Record, words: str) -> None:
    assert words in (previewed(record).problem or "")


@each_row(("kind", "text", "holds"), [
    ("int", "5", True), ("int", "-2147483648", True), ("int", "5.0", False), ("int", "2147483648", False),
    ("byte", "128", False), ("short", "", False), ("long", "x", False), ("double", "1.0E10", True),
    ("double", "NaN", True), ("float", "much", False), ("float", "1e300", False), ("boolean", "true", True),
    ("boolean", "yes", False), ("char", "é", True), ("char", "ab", False), ("map", "{}", False),
    ("list", "[]", False), ("bytes", "ff", False), ("null", "acme", True),
    ("of no name that we know", "x", True), ("int", None, True),
])  # fmt: skip
def test_an_edit_that_the_type_of_a_property_cannot_hold_is_refused_by_name(
    kind: str, text: str | None, holds: bool
) -> None:
    headers = {} if text is None else {"tries": text}
    record = letter(headers=headers, properties={"type of tries": kind})
    problem = preview(Outgoing(0, record, ORDERS, {}, False), typed=True).problem
    told = f"its property 'tries' is of the type {kind}, which cannot hold {text!r}"
    assert problem == (None if holds else told)


@each_row("name", ["priority", "timestamp"])
def test_an_edit_that_makes_no_number_of_a_number_is_refused(name: str) -> None:
    told = {
        text: preview(Outgoing(0, letter(headers={name: text}), ORDERS, {}, False), typed=True).problem
        for text in ("7", "high")
    }
    assert told == {"7": None, "high": f"its {name} is 'high', which is no number"}


@each_row(("data", "shown"), [("00", "null"), ("0a00000001ff", "ff"), ("0b0000000100016b09000176", "{k=v}")])
def test_a_property_that_no_text_holds_goes_back_as_it_came_unless_its_text_was_edited(
    data: str, shown: str
) -> None:
    for text, expected in ((shown, bytes.fromhex(data)), ("acme", b"\x09\0\4acme")):
        record = letter(headers={"tenant": text}, properties={"value of tenant": data})
        outgoing = Outgoing(0, record, ORDERS, {}, False)
        command = OpenWireSender.letter(
            Mock(writer=commands.Writer("c"), max_frame_of_broker=None, artemis=False), outgoing, "1"
        )
        assert b"\0\6tenant" + expected in command


@each_row(("name", "text", "fits"), [
    *product(("correlation-id", "type", "_AMQ_GROUP_ID", "note"), ["x" * 0xFFFF], [True]),
    *product(("correlation-id", "type", "_AMQ_GROUP_ID"), ["x" * 0x10000, "é" * 0x8000], [False]),
    ("note", "x" * 0x10000, True), ("reply-to", "queue://" + "x" * 0x10000, False),
    ("n" * 0xFFFF, "x", True), ("n" * 0x10000, "x", False),
])  # fmt: skip
def test_what_openwire_has_no_room_for_is_a_problem_and_refused(name: str, text: str, fits: bool) -> None:
    outgoing = Outgoing(0, letter(headers={name: text}), ORDERS, {}, False)
    assert (preview(outgoing, typed=True).problem is None) == fits
    with nullcontext() if fits else pytest.raises(ValueError, match="longer than OpenWire can say"):
        OpenWireSender.letter(Mock(writer=commands.Writer("c"), max_frame_of_broker=None), outgoing, "1")


def test_by_openwire_a_text_with_nul_goes_back() -> None:
    assert preview(Outgoing(0, letter(flags=FLAG_INNER_NUL), ORDERS, {}, False), typed=True).problem is None


@each_row("length", [{}, {"content-length": "1"}])
def test_the_headers_that_are_added_count(length: dict[str, str]) -> None:
    def of(number: int) -> Record:
        return letter(headers={**length, **{f"h{n}": "" for n in range(number)}})

    most = 1000 - len(sent(of(0))[0])
    assert previewed(of(most)).problem is None
    assert "more than 1000 headers" in (previewed(of(most + 1)).problem or "")


def test_the_plan_says_what_stomp_loses() -> None:
    said = " ".join(previewed(letter(headers={"amount": "7"}, persistent=False)).warnings)
    for words in ("sends every property as a string", "shows no group", "was not persistent"):
        assert words in said


def test_with_jolokia_the_plan_names_the_types_and_misses_no_group() -> None:
    told = {"class": "text", "JMSXGroupID": "g", "type of amount": "int"}
    [said] = previewed(letter(headers={"amount": "7"}, properties=told)).warnings
    assert said.endswith(": amount (int)")


def test_a_topic_reaches_every_subscriber_and_the_plan_says_so() -> None:
    record = letter(origin="news", origin_kind="topic")
    target = target_of(record, "origin")
    assert target == Target("topic", "news")
    preview = previewed(record, target)
    for said in (" ".join(preview.warnings), preview.unless_named["target"]):
        assert "every subscriber gets it" in said
    assert "each gets it" in previewed(record, Target("queue", "a,b")).unless_named["target"]
    assert previewed(record, Target("queue", "a")).unless_named == {}


def test_a_letter_goes_to_the_queue_that_failed_and_one_of_unknown_origin_needs_a_target() -> None:
    own = {"_AMQ_ORIG_ADDRESS": "news", "_AMQ_ORIG_QUEUE": "client.sub"}
    assert target_of(letter(kind="artemis", headers=own), "origin") == Target("queue", "news::client.sub")
    lost = letter(origin=None, origin_kind=None)
    assert target_of(lost, "origin") is None
    assert target_of(lost, "queue:other") == Target("queue", "other")
    with pytest.raises(UsageError, match="origin, queue:NAME and topic:NAME"):
        target_of(lost, "exchange:x/y")


@each_row(("pattern", "meant", "not_meant"), [
    ("ActiveMQ.DLQ.>", ["ActiveMQ.DLQ.Queue.orders", "ActiveMQ.DLQ.x"], ["ActiveMQ.DLQ", "ActiveMQxDLQ.x"]),
    ("DLQ.*", ["DLQ.orders"], ["DLQ.orders.eu", "DLQ.", "XDLQ.orders"]),
    ("DLQ.*.eu", ["DLQ.orders.eu"], ["DLQ.orders.us", "DLQ.a.b.eu"]),
    ("DLQ.#", ["DLQ.orders.eu"], ["DLQ"]),
    ("plain+name", ["plain+name"], ["plainname"]),
])  # fmt: skip
def test_patterns_are_those_of_activemq(pattern: str, meant: list[str], not_meant: list[str]) -> None:
    found = pattern_of(pattern)
    assert [name for name in meant + not_meant if found.fullmatch(name)] == meant


HEADER = b"\x00Sp\xc0\x08\x03A@p\x00\x00\x01\x2c"
"""Durable, no priority, ttl 300."""
ANNOTATIONS = b"\x00Sr\xc1)\x04\xa3\x0ex-opt-jms-destQ\x00\xa3\x12x-opt-jms-msg-typeQ\x03"
BEFORE, AFTER = b"\xa1\x04ID:1@\xa1\x09queue://q@@@\xa3\x0atext/plain@", b"\x83\x00\x00\x01\xa1\xfe\x93D\x8b"
EXPIRY = b"\x83\x00\x00\x01\xa1\xfe\x93E\xb7"
BODY = b"\x00Su\xa0\x04late"


def properties(expiry: bytes, wide: bool = True) -> bytes:
    """Ten fields, as Qpid JMS writes them."""
    size = 4 if wide else 1
    items = BEFORE + expiry + AFTER
    begin = b"\x00Ss\xd0" if wide else b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x73\xc0"
    return begin + (len(items) + size).to_bytes(size) + (10).to_bytes(size) + items


@each_row("wide", [True, False])
def test_ttl_and_absolute_expiry_time_go_and_all_else_stays(wide: bool) -> None:
    message = HEADER + ANNOTATIONS + properties(EXPIRY, wide) + BODY
    header = b"\x00Sp\xc0\x04\x03A@@"
    assert without_expiry(message) == header + ANNOTATIONS + properties(b"@", wide) + BODY


@each_row(
    "message",
    [
        b"\x00Sp\xc0\x02\x01A" + ANNOTATIONS + b"\x00SsE" + BODY,
        HEADER.replace(b"p\x00\x00\x01\x2c", b"@").replace(b"\x08", b"\x04") + BODY, BODY, b"",
        b"plain bytes", HEADER[:-1], properties(EXPIRY)[:-20], b"\x00Ss\xd0\x00", bytes(range(256)),
    ],
    ids=[
        "shorter lists", "nulls", "a body alone", "nothing", "no AMQP", "cut", "cut lists", "cut sizes",
        "noise",
    ],
)  # fmt: skip
def test_what_has_no_expiry_or_is_no_amqp_message_stays_as_it_is(message: bytes) -> None:
    assert without_expiry(message) == message
