"""What of a STOMP letter goes back, what is said beforehand, and what is never sent."""

from typing import Any

import pytest
from support.rows import each_row

from dlq.connectors.activemq.look.queues import pattern_of
from dlq.connectors.activemq.republish import preview, target_of, wire
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


@pytest.mark.parametrize(("expires", "taken"), [("0", []), ("1795655469792", ["expires"])])
@pytest.mark.parametrize("kind", ["activemq", "artemis"])
def test_an_expiry_that_a_letter_does_not_have_is_not_taken_away(
    kind: str, expires: str, taken: list[str]
) -> None:
    record = letter(kind=kind, headers={"expires": expires, "tenant": "42"})
    assert previewed(record).stripped == taken
    assert "expires" not in sent(record)[0]


def test_what_artemis_shows_of_an_amqp_message_stays_behind_and_classic_gets_it_back() -> None:
    own = {"JMS_AMQP_NATIVE": "true", "JMS_AMQP_HEADER": "true", "NATIVE_MESSAGE_ID": "ID:1", "tenant": "42"}
    assert (
        not (own.keys() - {"tenant"}) & sent(letter(kind="artemis", headers=own), keep_headers=True)[0].keys()
    )
    assert own.items() <= sent(letter(headers=own))[0].items()


def test_an_amqp_message_of_classic_goes_without_its_ttl_and_the_plan_says_so() -> None:
    amqp = {"JMS_AMQP_NATIVE": "true", "content-length": "14"}
    record = letter(b"\x00Sp\xc0\x05\x03A@R\x09", headers=amqp)
    assert sent(record)[1] == b"\x00Sp\xc0\x04\x03A@@"
    assert "ttl, absolute-expiry-time" in previewed(record).stripped
    plain = letter(record.body, headers={"content-length": "14"})
    assert (sent(plain)[1], previewed(plain).stripped) == (record.body, ["content-length"])


def test_a_replay_is_persistent_and_says_what_it_is() -> None:
    headers, body = sent(letter(b"body", headers={"priority": "7", "correlation-id": "a:b\nc"}))
    assert (headers["destination"], headers["persistent"], headers["transaction"]) == (
        "/queue/orders",
        "true",
        "t",
    )
    assert (headers["priority"], headers["correlation-id"]) == ("7", "a:b\nc")
    assert (PROVENANCE.items() <= headers.items(), body) == (True, b"body")


def test_a_bytes_message_keeps_its_length_and_a_text_has_none() -> None:
    assert sent(letter(b"x", headers={"content-length": "1"}))[0]["content-length"] == "1"
    assert "content-length" not in sent(letter(b"x"))[0]


def test_a_text_in_modified_utf8_goes_back_as_the_text_it_means() -> None:
    headers, body = sent(letter(b"nul\xc0\x80 \xed\xa0\xbd\xed\xb8\x80"))
    assert body.decode() == "nul\0 😀"
    assert (headers["amq-msg-type"], headers["content-length"]) == ("text", str(len(body)))


def test_a_group_goes_back_where_jolokia_or_artemis_told_it() -> None:
    assert sent(letter(properties={"JMSXGroupID": "g"}))[0]["JMSXGroupID"] == "g"
    assert sent(letter(kind="artemis", headers={"_AMQ_GROUP_ID": "h"}))[0]["JMSXGroupID"] == "h"


@pytest.mark.parametrize(("record", "words"), [
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
    ("boolean", "yes", False), ("char", "é", True), ("char", "ab", False), ("map", "{}", True),
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


def test_by_openwire_a_text_with_nul_goes_back() -> None:
    assert preview(Outgoing(0, letter(flags=FLAG_INNER_NUL), ORDERS, {}, False), typed=True).problem is None


@pytest.mark.parametrize("length", [{}, {"content-length": "1"}])
def test_the_headers_that_are_added_count(length: dict[str, str]) -> None:
    def of(number: int) -> Record:
        return letter(headers={**length, **{f"h{n}": "" for n in range(number)}})

    most = 1000 - len(sent(of(0))[0])
    assert previewed(of(most)).problem is None
    assert "more than 1000 headers" in (previewed(of(most + 1)).problem or "")


def test_the_plan_says_what_stomp_loses() -> None:
    said = " ".join(previewed(letter(headers={"amount": "7"}, persistent=False)).warnings)
    assert "sends every property as a string" in said
    assert "shows no group" in said
    assert "was not persistent" in said


def test_with_jolokia_the_plan_names_the_types_and_misses_no_group() -> None:
    told = {"class": "text", "JMSXGroupID": "g", "type of amount": "int"}
    [said] = previewed(letter(headers={"amount": "7"}, properties=told)).warnings
    assert said.endswith(": amount (int)")


def test_a_topic_reaches_every_subscriber_and_the_plan_says_so() -> None:
    record = letter(origin="news", origin_kind="topic")
    target = target_of(record, "origin")
    assert target == Target("topic", "news")
    preview = previewed(record, target)
    assert any("every subscriber gets it" in warning for warning in preview.warnings)
    assert "every subscriber gets it" in preview.unless_named["target"]
    assert "each gets it" in previewed(record, Target("queue", "a,b")).unless_named["target"]
    assert previewed(record, Target("queue", "a")).unless_named == {}


def test_artemis_reaches_the_queue_that_failed_alone() -> None:
    own = {"_AMQ_ORIG_ADDRESS": "news", "_AMQ_ORIG_QUEUE": "client.sub"}
    assert target_of(letter(kind="artemis", headers=own), "origin") == Target("queue", "news::client.sub")


def test_a_letter_of_unknown_origin_needs_a_target() -> None:
    lost = letter(origin=None, origin_kind=None)
    assert target_of(lost, "origin") is None
    assert target_of(lost, "queue:other") == Target("queue", "other")
    with pytest.raises(UsageError, match="origin, queue:NAME and topic:NAME"):
        target_of(lost, "exchange:x/y")


@pytest.mark.parametrize(("pattern", "meant", "not_meant"), [
    ("ActiveMQ.DLQ.>", ["ActiveMQ.DLQ.Queue.orders", "ActiveMQ.DLQ.x"], ["ActiveMQ.DLQ", "ActiveMQxDLQ.x"]),
    ("DLQ.*", ["DLQ.orders"], ["DLQ.orders.eu", "DLQ.", "XDLQ.orders"]),
    ("DLQ.*.eu", ["DLQ.orders.eu"], ["DLQ.orders.us", "DLQ.a.b.eu"]),
    ("DLQ.#", ["DLQ.orders.eu"], ["DLQ"]),
    ("plain+name", ["plain+name"], ["plainname"]),
])  # fmt: skip
def test_patterns_are_those_of_activemq(pattern: str, meant: list[str], not_meant: list[str]) -> None:
    found = pattern_of(pattern)
    assert [name for name in meant + not_meant if found.fullmatch(name)] == meant


@pytest.mark.parametrize("kind", ["activemq", "artemis"])
def test_a_letter_is_addressed_as_the_broker_that_is_connected_wants_it(kind: str) -> None:
    letter = Outgoing(0, Record("1", "s", "b", kind, "DLQ"), Target("queue", "orders"), PROVENANCE)
    assert b"\ndestination:orders\n" in wire(letter, "t", to_artemis=True)
    assert b"\n_AMQ_DUPL_ID:" in wire(letter, "t", to_artemis=True)
    assert b"\ndestination:/queue/orders\n" in wire(letter, "t", to_artemis=False)
    assert b"\n_AMQ_DUPL_ID:" not in wire(letter, "t", to_artemis=False)
