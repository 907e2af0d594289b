"""What is recognised as an envelope of a failure; the message in it is taken out, or stays as it is."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
from support.archives import letter
from support.planning import Planning, ids
from support.replaying import Replaying, fill, judge
from support.rows import each_row

from dlq.connectors.rabbitmq.amqp091.codec import edits as amqp_edit
from dlq.connectors.rabbitmq.amqp091.codec import table
from dlq.core.errors import UsageError
from dlq.core.headers.failure_headers import strip_failure
from dlq.core.record import Record
from dlq.operations.replays.plans import LEFT_OUT
from dlq.replay.plans import edits, planfile
from dlq.replay.plans.unwrapping import memory_in_body, unwrap, why_cut
from dlq.replay.plans.wanted import Wanted

ORDER = '{"id": 7,  "price": 1.10}'
FAILURE = {"originalTopic": "orders", "retryCount": 2, "error": {"type": "Declined", "message": "no"}}
TASK = b'{"task": "pay", "id": "1", "args": [{"retries": 5}], "kwargs": {},  "retries" : 3, "eta": null}'
PROPERTIES = {
    "ContentType": "application/json", "DeliveryMode": 2, "Priority": 0, "Type": "Shop.Order, Shop",
    "AppId": "", "UserId": "shop", "CorrelationId": "stale", "CorrelationIdPresent": False,
    "Headers": {
        "$type": "Dictionary", "tenant": base64.b64encode(b"acme").decode(),
        "region": {"$type": "System.Byte[], mscorlib", "$value": base64.b64encode(b"eu").decode()},
        "tries": 3, "x-death": [{"count": 1}],
    },
}  # fmt: skip
ERROR = {
    "RoutingKey": "orders", "Exchange": "shop", "Queue": "orders", "Exception": "System.Exception: no",
    "Message": ORDER, "DateTime": "2026-11-29T02:46:49Z", "BasicProperties": PROPERTIES,
}  # fmt: skip


OF_EASYNETQ = {"type": "EasyNetQ.SystemMessages.Error, EasyNetQ"}


STAMPED = (
    rb"O:36:\"Symfony\\Component\\Messenger\\Envelope\":2:{s:44:\"\0Symfony\\Component\\Messenger\\Envelope\0stamps\";"
    rb"s:67:\"\0Symfony\\Component\\Messenger\\Stamp\\%b\";%b}"
)
FAILED = STAMPED % (rb"ErrorDetailsStamp\0exceptionClass", rb"s:15:\"DomainException\";")
RETRIED = STAMPED % (rb"RedeliveryStamp\0retryCount", b"i:2;")
BY_HAND = {
    **FAILURE, "originalPartition": 0, "payload": "e30=", "headers": {"tenant": "7"},
}  # fmt: skip
RETRIES = {"task": "charge", "id": "1", "args": [], "kwargs": {}, "retries": 3}


def remembered(body: bytes | Mapping[str, Any], headers: Mapping[str, str] | None = None) -> str | None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return memory_in_body(Record("", "", "", "", "")._replace(body=data, headers=headers or {}))


@each_row("body, what", [
    (BY_HAND, "around the message"),
    ({"original_queue": "q", "attempts": 3, "exception": "E", "original_message": {"a": 1}}, "around"),
    (RETRIES, "3 retries"),
    (RETRIED, "Symfony"),
    (base64.b64encode(FAILED), "Symfony"),
])  # fmt: skip
def test_a_failure_that_a_body_remembers_is_told(body: Any, what: str) -> None:
    assert what in (remembered(body) or "")


@each_row(
    "body",
    [
        b"", b"{", b"Tz!", b"O:8:\"stdClass\":0:{}",
        STAMPED % (rb"BusNameStamp\0busName", rb's:3:\"bus\";'), {"error": "declined", "amount": 7},
        {"payload": {"retries": 2}, "return": "x"}, {"orderId": 1, "message": "thanks", "originalPrice": 5},
        {"message": "gift", "attempts": 1, "origin": "shop"}, {**RETRIES, "retries": 0},
    ],
)  # fmt: skip
def test_an_order_is_no_envelope(body: Any) -> None:
    assert remembered(body) is None


def test_an_envelope_whose_names_are_escaped_is_one_and_a_task_is_mended_by_its_headers() -> None:
    body = b'{"sourceTopic": "orders", "\\u0065rror": "no stock", "payload": "e30="}'
    assert "around the message" in (remembered(body) or "")
    assert remembered(RETRIES, {"task": "charge", "id": "1", "retries": "3"}) is None
    headers = {"tenant": "7", "asyncRetry": '{"ttl":1795920029269,"top":"orders","att":2}'}
    assert strip_failure(headers) == ({"tenant": "7"}, ["asyncRetry"]), "that of kafkajs does not go back"


def enveloped(payload: Any = None, **more: Any) -> bytes:
    return json.dumps({**FAILURE, "payload": {"id": 7} if payload is None else payload, **more}).encode()


def of(body: bytes, **columns: Any) -> Record:
    return letter(1, body=body, headers={"h": "v"}, **columns)


def taken(record: Record) -> Record:
    return edits.change(record, json.loads(unwrap(record)))


@pytest.mark.parametrize(("body", "message"), [
    (enveloped(ORDER), ORDER.encode()),
    (enveloped("paid: <7>"), b"paid: <7>"),
    (enveloped(base64.b64encode(ORDER.encode()).decode()), ORDER.encode()),
    (enveloped({"id": 7}), b'{"id": 7}'),
    (b'{"payload" :  {"id":1.10, "n":12345678901234567890}, "originalTopic":"o","error":"no"}',
     b'{"id":1.10, "n":12345678901234567890}'),
    (enveloped(failedAt=1.5, consumerGroup="g", firstFailedAt=1, metadata={"host": "a"}), b'{"id": 7}'),
    (json.dumps({"original_queue": "q", "exception": "E", "original_message": ORDER}).encode(),
     ORDER.encode()),
    (TASK, TASK.replace(b'"retries" : 3', b'"retries" : 0')),
    (json.dumps(ERROR).encode(), ORDER.encode()),
    (json.dumps({**ERROR, "Message": base64.b64encode(ORDER.encode()).decode()}).encode(), ORDER.encode()),
])  # fmt: skip
def test_the_message_is_taken_out_and_keeps_its_bytes(body: bytes, message: bytes) -> None:
    found = taken(of(body))
    assert (found.body, found.body_size) == (message, len(message))
    assert memory_in_body(found) is None


def test_the_headers_are_those_of_the_envelope_where_it_has_some() -> None:
    headers = {"tenant": "7", "tries": 2, "x-death": [{"count": 1}]}
    assert taken(of(enveloped(headers=headers))).headers == {"tenant": "7", "tries": "2"}
    assert taken(of(enveloped())).headers == {"h": "v"}
    block = amqp_edit.edit(amqp_edit.EMPTY, set_properties=OF_EASYNETQ)
    found = taken(letter(1, body=json.dumps(ERROR).encode(), raw_properties=block, properties=OF_EASYNETQ))
    assert found.raw_properties is not None
    assert table.decode(found.raw_properties) == (
        {"content_type": "application/json", "delivery_mode": "2", "type": "Shop.Order, Shop"},
        {"tenant": "acme", "region": "eu", "tries": "3"},
    )
    for body, properties in ((json.dumps(ERROR).encode(), {}), (b"{", OF_EASYNETQ)):
        assert "EasyNetQ" in (memory_in_body(of(body, properties=properties)) or "")


DEEP = b"[" * 40 + b"]" * 40
HALF: tuple[Any, ...] = ("half \ud800", float("nan"))


def of_error(**more: Any) -> bytes:
    return json.dumps({**ERROR, **more}).encode()


def told(payload: bytes) -> bytes:
    return b'{"originalTopic": "o", "error": "no", "payload": ' + payload + b"}"


HOSTILE: dict[str, list[bytes]] = {
    "neither a text nor an object": [*map(enveloped, (7, [1], True))],
    "Buffer of Node": [enveloped({"type": "Buffer", "data": [123, 125]})],
    "may be encoded": [
        *map(enveloped, ("", "test", "7b2022", "eyJhIjoxfQ", "b'{\"a\": 1}'", "[B@1b2c3d", "caf\ufffd: 7")),
        *(enveloped(base64.b64encode(packed).decode()) for packed in (b"\x08\x96\x01", DEEP)),
    ],
    "no well-formed JSON": [*map(enveloped, HALF), enveloped(headers={"h": "half \ud800"})],
    "stands there twice": [
        enveloped()[:-1] + b', "payload": {}}', told(b'{"a": 1, "a": 2}'), TASK[:-1] + b', "retries": 4}',
    ],
    "no key, or several": [enveloped(body={}), json.dumps({**FAILURE, "order": {}}).encode()],
    "its key 'amount' is for": [enveloped(amount=7)],
    "its key 'metadata' is for": [enveloped(metadata={"headers": {"a": "b"}})],
    "a key that is not the letter's own": [enveloped(key="k")],
    "headers are no object": [
        enveloped(headers=[{"Key": "a", "Value": "Yg=="}]), of_error(BasicProperties={"Headers": 7}),
    ],
    "its header 'a' may be encoded": [
        enveloped(headers={"a": told}) for told in ("YWNtZQ==", {"type": "Buffer", "data": [1]})
    ],
    "remembers a failure, too": [enveloped(enveloped().decode())],
    "Message is no text": [of_error(Message={"a": 1})],
    "BasicProperties are no object": [of_error(BasicProperties=[])],
    "no text and no number": [of_error(BasicProperties={"Type": ["a"]})],
    "header 'a' is no text": [of_error(BasicProperties={"Headers": {"a": [1]}})],
    "no message in such a body": [
        b'O:36:"Symfony\\Component\\Messenger\\Envelope":0:{}', told(DEEP), told(b'"%b"' % (b"x" * 2**20)),
        b"{", b"", enveloped().decode().encode("utf-16-le"),
    ],
}  # fmt: skip


@each_row("body, why", [(body, why) for why, bodies in HOSTILE.items() for body in bodies])
def test_what_has_several_readings_stays_and_says_why(body: bytes, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        unwrap(of(body))


NUMBER = amqp_edit.edit(amqp_edit.EMPTY, set_headers={"h": 42})


@each_row("kind, block, headers", [("rabbitmq", NUMBER, {"h": "paid"}), ("artemis", None, {"a": None})])
def test_headers_that_cannot_be_sent(kind: str, block: bytes | None, headers: Mapping[str, Any]) -> None:
    with pytest.raises(UsageError, match="header"):
        unwrap(of(enveloped(headers=headers), broker_kind=kind, raw_properties=block))


# --- In a plan ---

SMALL = b'{"originalTopic": "o", "error": "no", "payload": {"id": 7}}'
ODD = b'{"originalTopic": "o", "error": "no", "payload": 7}'


def test_a_plan_sends_the_message_counts_it_and_shows_it(plan: Planning) -> None:
    [first, _] = fill(plan.store, 2, body=SMALL)
    assert plan(Wanted()).left_out == {"risky": 2}
    header = plan(Wanted(unwrap=True))
    assert (header.letters, header.unwrapped, header.left_out) == (2, 2, {})
    changes = edits.load(plan.store, header)
    assert changes.apply(first).body == b'{"id": 7}'
    shown = list(edits.differences(plan.store, header, changes))
    assert shown[:2] == [first.record_id, f"  body: {len(SMALL)} -> 9 bytes"]


CUT = "dlq.value.truncated"


@each_row("name, value, is_told", [
    (CUT, "true", True), (CUT, "false", False), ("x-body-truncated", "1", True),
    ("messageTruncated", "True", True), ("dlq-truncated", "yes", True), ("truncated", "true", False),
    ("dlq.error.message.truncated", "true", False),
])  # fmt: skip
def test_a_mark_says_that_a_body_is_cut(name: str, value: str, is_told: bool) -> None:
    for marked in ({"headers": {name: value}}, {"properties": {name: value}}):
        assert bool(why_cut(Record("", "", "", "", "", **marked))) is is_told


def test_half_a_message_goes_back_only_if_it_is_named_or_edited_and_without_the_mark(plan: Planning) -> None:
    [one] = fill(plan.store, 1, headers={CUT: "true", "dlq.value.original.size": "9", "tenant": "7"})
    for wanted in (Wanted(), Wanted(unwrap=True)):
        header = plan(wanted)
        assert header.left_out == {"risky": 1}
        assert "only the beginning of the message, as dlq.value.truncated says" in " ".join(header.warnings)
    whole = {"broker_kind": one.broker_kind, "record": {"record_id": one.record_id}, "body_text": "whole"}
    edit = edits.parse([json.dumps(whole).encode()], "a test")
    for wanted in (Wanted(where=f"record_id = '{one.record_id}'"), Wanted(edits=edit)):
        assert ids(plan, plan(wanted)) == [one.record_id]
    assert strip_failure(one.headers)[0] == {"tenant": "7"}


def test_what_is_not_known_stays_risky_with_its_reason_whoever_names_it(plan: Planning) -> None:
    [one] = fill(plan.store, 1, body=ODD)
    for where in (None, f"record_id = '{one.record_id}'"):
        header = plan(Wanted(where=where, unwrap=True))
        assert (header.letters, header.unwrapped, header.edits) == (0, 0, None)
        [said] = header.warnings
        assert "--unwrap leaves it: its message is neither a text nor an object" in said


@pytest.mark.parametrize("advice", ["check_first", "fix_first", "never", "hold"])
def test_unwrapping_passes_no_advice_by(plan: Planning, advice: str) -> None:
    assert advice in LEFT_OUT
    [one, other] = fill(plan.store, 2, body=SMALL)
    judge(plan.store, {one.record_id: advice, other.record_id: "replay"})
    header = plan(Wanted(unwrap=True))
    assert (ids(plan, header), header.left_out) == ([other.record_id], {advice: 1})


def test_an_edit_by_hand_goes_before(plan: Planning) -> None:
    [one, other] = fill(plan.store, 2, body=SMALL)
    record = {"record_id": one.record_id}
    by_hand = {"broker_kind": one.broker_kind, "record": record, "body_text": "mine"}
    edit = edits.parse([json.dumps(by_hand).encode()], "a test")
    header = plan(Wanted(where="true", edits=edit, unwrap=True))
    changes = edits.load(plan.store, header)
    assert (header.letters, header.unwrapped) == (2, 1)
    assert [changes.apply(x).body for x in (one, other)] == [b"mine", b'{"id": 7}']


def test_an_apply_sends_what_was_unwrapped_and_refuses_what_was_changed_since(replay: Replaying) -> None:
    fill(replay.store, 2, body=SMALL)
    plan = replay.plan(unwrap=True)
    name = planfile.edits_name(plan)
    kept = replay.store.get(name)
    replay.store.put(name, kept.replace(b"7", b"8"))
    with pytest.raises(UsageError, match="edits of plan"):
        replay.apply(plan)
    replay.store.put(name, kept)
    replay.apply(plan)
    assert len(replay.queue.arrived()) == 2


def test_unwrapping_is_bounded(plan: Planning, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(plan.store, 2, body=SMALL)
    monkeypatch.setattr("dlq.replay.plans.plan.LARGEST", 200)
    with pytest.raises(UsageError, match="take fewer letters"):
        plan(Wanted(unwrap=True))
