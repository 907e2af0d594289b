"""What of a letter of RabbitMQ goes back, by which exchange and key, and what is said of it beforehand."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pika
import pytest
from support.rows import each_row

from dlq.connectors.amqp10.codec import message
from dlq.connectors.amqp10.codec.values import binary, described_value, mapping, sequence, string, symbol
from dlq.connectors.base import Outgoing, SendPreview, Target
from dlq.connectors.rabbitmq.amqp091.codec.table import Properties, decode
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rabbitmq.records.amqp10 import headers_of
from dlq.connectors.rabbitmq.records.envelope import Way, first_delivered
from dlq.connectors.rabbitmq.republish import (
    MAX_FRAME,
    block_to_send,
    edit_headers,
    message_to_send,
    preview,
    preview_offline,
    target_of,
)
from dlq.connectors.rabbitmq.send import Ways, exchange_to
from dlq.core.errors import UsageError
from dlq.core.record import Record

PROVENANCE = {"dlq_replay_id": "id", "dlq_replay_lap": "1", "dlq_replay_of": "record"}
ORDERS = Target("queue", "orders")
BROKER_OWNED = [
    "x-death", "x-first-death-queue", "x-last-death-reason", "x-delivery-count", "x-acquired-count",
    "x-opt-deaths", "x-stream-offset", "CC", "BCC",
]  # fmt: skip
OF_FRAMEWORKS = [
    "x-exception-message", "x-exception-stacktrace", "x-original-exchange", "x-error", "x-retry-count",
    "MT-Fault-Message", "MT-Reason", "NServiceBus.ExceptionInfo.Message", "NServiceBus.FailedQ",
    "NServiceBus.TimeOfFailure", "rbs2-error-details", "rbs2-source-queue", "x-shovelled-timestamp",
    "exception-type", "failed-at", "reason_poisoned",
    "X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\ErrorDetailsStamp",
]  # fmt: skip
OF_APPLICATIONS = [
    "tenant", "trace", "NServiceBus.MessageId", "rbs2-msg-id", "x-delay", "x-deathly", "cc", "attempts",
]  # fmt: skip


def letter(headers: Mapping[str, object] | None = None, **properties: object) -> Record:
    block = b"".join(pika.BasicProperties(headers=dict(headers or {}), **properties).encode())
    return Record("r", "s", "b", "rabbitmq", "orders.dlq", raw_properties=block, body_size=3)


def sent(record: Record, keep_headers: bool = False) -> Properties:
    return decode(block_to_send(record, PROVENANCE, keep_headers))


def previewed(record: Record, target: Target = ORDERS, keep_headers: bool = False) -> SendPreview:
    return preview(Outgoing(0, record, target, PROVENANCE, keep_headers))


@each_row("name", BROKER_OWNED)
@each_row("keep_headers", [False, True])
def test_what_the_broker_made_is_never_sent(name: str, keep_headers: bool) -> None:
    record = letter({name: "x", "tenant": 42})
    assert sent(record, keep_headers).headers == {"tenant": "42", **PROVENANCE}
    assert previewed(record, keep_headers=keep_headers).stripped == [name]


@each_row(("name", "is_kept"), [*((n, False) for n in OF_FRAMEWORKS), *((n, True) for n in OF_APPLICATIONS)])
def test_the_traces_of_a_failure_are_kept_only_on_request_and_headers_of_applications_always(
    name: str, is_kept: bool
) -> None:
    record = letter({name: "x"})
    assert (name in sent(record).headers) == is_kept
    assert sent(record, keep_headers=True).headers[name] == "x"


def test_a_second_lap_replaces_the_first() -> None:
    record = letter({"dlq_replay_id": "old", "dlq_replay_lap": "7"})
    assert sent(record, keep_headers=True).headers == PROVENANCE


def test_properties_that_would_harm_are_dropped_and_the_rest_is_kept() -> None:
    harmful = {"user_id": "app", "expiration": "60000", "reply_to": "amq.rabbitmq.reply-to.g1h2"}
    record = letter(priority=7, delivery_mode=1, message_id="m", **harmful)
    assert sent(record).properties == {"priority": "7", "delivery_mode": "2", "message_id": "m"}
    assert previewed(record).stripped == ["expiration", "user_id", "reply_to"]
    mentions = letter({"note": "amq.rabbitmq.reply-to"}, reply_to="answers")
    assert sent(mentions).properties["reply_to"] == "answers"


def test_a_letter_without_a_block_is_encoded_from_its_maps() -> None:
    record = Record(
        "r", "s", "b", "rabbitmq", "orders.dlq", message_id="m", headers={"tenant": "42", "x-death": "[]"},
        properties={"timestamp": "2025-11-02T03:12:09Z", "type": "order", "expiration": "5"},
    )  # fmt: skip
    found = sent(record)
    assert found.headers == {"tenant": "42", **PROVENANCE}
    assert found.properties == {
        "delivery_mode": "2", "message_id": "m", "timestamp": "1762053129", "type": "order",
    }  # fmt: skip
    assert "as text" in previewed(record).warnings[0]


@each_row(("record", "problem"), [
    (letter({"tenant": 1}), None),
    (letter({"stack": "x" * (MAX_FRAME - 500)}), None),
    (letter({"stack": "x" * (MAX_FRAME - 100)}), "with ours"),
    (letter({"stack": "x" * MAX_FRAME}), "with ours"),
    (Record("r", "s", "b", "rabbitmq", "q", properties={"priority": "high"}), "cannot be sent"),
    (letter()._replace(raw_properties=b"\x00\x53\x70\xd0\x00"), "cannot be sent"),
])  # fmt: skip
def test_what_cannot_be_encoded_or_does_not_fit_a_frame_is_a_problem(
    record: Record, problem: str | None
) -> None:
    found = previewed(record)
    assert found.problem is None if problem is None else problem in str(found.problem)
    assert problem or (list(found.stripped), list(found.warnings)) == ([], [])


@each_row(("record", "target", "text"), [
    (letter()._replace(body_size=17 * 2**20), ORDERS, "16 MiB"),
    (letter({"x-delay": 5}), Target("exchange", "late", "k"), "x-delay"),
    (letter({"x-deduplication-header": "o-1"}), ORDERS, "drops the letter, and the broker confirms it"),
    (letter(reply_to="answers"), ORDERS, "reply_to"),
])  # fmt: skip
def test_what_may_surprise_is_warned_of(record: Record, target: Target, text: str) -> None:
    assert [warning for warning in previewed(record, target).warnings if text in warning]


DIED = letter()._replace(
    origin_kind="queue", origin="orders", origin_exchange="shop", origin_routing_key="order.created",
    routing_key="dead",
)  # fmt: skip
UNROUTABLE = letter()._replace(
    origin_kind="exchange", origin="shop", exchange="shop", routing_key="no.such.key"
)


@each_row(("record", "to", "target"), [
    (DIED, "origin", Target("queue", "orders")),
    (DIED, "queue:other", Target("queue", "other")),
    (DIED, "exchange:shop/a/b", Target("exchange", "shop", "a/b")),
    (DIED, "exchange:shop/", Target("exchange", "shop", "")),
    (DIED, "exchange:shop", Target("exchange", "shop", "order.created")),
    (UNROUTABLE, "origin", Target("exchange", "shop", "no.such.key")),
    (UNROUTABLE._replace(origin_exchange="", origin_routing_key="k"), "origin", Target("exchange", "", "k")),
    (letter(), "origin", None),
    (letter(), "exchange:shop", None),
    (letter()._replace(origin_kind="group", origin="g"), "origin", None),
])  # fmt: skip
def test_targets(record: Record, to: str, target: Target | None) -> None:
    assert target_of(record, to) == target


@each_row("to", ["group:pay", "topic:orders", "queue:", "queue", "orders", "", "group"])
def test_a_target_that_rabbitmq_does_not_have_is_refused_in_words(to: str) -> None:
    with pytest.raises(UsageError, match="use origin, queue:NAME or exchange:NAME/KEY"):
        target_of(DIED, to)


def letter_of_1_0(body: bytes = b"body") -> Record:
    """With what the broker, its user and a framework have left on it."""
    annotations = [
        symbol(name) + string("v") for name in ("x-opt-deaths", "x-exchange", "x-cc", "x-opt-mine")
    ]
    sections = [
        described_value(message.HEADER, sequence([])),
        described_value(message.ANNOTATIONS, mapping(annotations)),
        described_value(message.PROPERTIES, sequence([string("id"), binary(b"me")])),
        described_value(
            message.APPLICATION, mapping([string(n) + string("v") for n in ("MT-Reason", "tenant")])
        ),
        described_value(message.DATA, binary(body)),
    ]
    block, found, _ = message.split(b"".join(sections))
    return Record("r", "s", "b", "rabbitmq", "d", raw_properties=block, body=found, body_size=len(found))


def test_a_letter_of_amqp_1_0_goes_back_without_what_the_broker_and_a_framework_left_on_it() -> None:
    what = letter_of_1_0()
    shown = previewed(what)
    assert shown.stripped == ["x-opt-deaths", "x-exchange", "x-cc", "MT-Reason", "user_id"]
    assert (shown.problem, "only AMQP 1.0 carries it" in shown.warnings[0]) == (None, True)
    block, body, _ = message.split(message_to_send(what, PROVENANCE, keep_headers=False))
    assert headers_of(message.parts(block)) == {"x-opt-mine": "v", "tenant": "v", **PROVENANCE}
    assert body == b"body"
    assert "MT-Reason" not in previewed(what, keep_headers=True).stripped


def test_headers_are_edited_in_the_form_that_a_letter_has() -> None:
    block = letter_of_1_0().raw_properties or b""
    edited = edit_headers(block, "x-cc".__eq__, {"tenant": "other"})
    assert message.is_block(edited)
    assert headers_of(message.parts(edited))["tenant"] == "other"
    block = letter({"tenant": "v"}).raw_properties or b""
    edited = edit_headers(block, lambda _name: False, {"tenant": "other"})
    assert decode(edited).headers == {"tenant": "other"}


def death(queue: str, exchange: str, *keys: str | bytes, second: int = 0, reason: str = "rejected") -> Any:
    when = datetime(2026, 11, 2, 3, 12, second, tzinfo=UTC)
    told = {"queue": queue, "reason": reason, "exchange": exchange, "routing-keys": [*keys]}
    return {**told, "count": 1, "time": when}


def dead(*deaths: Any, **headers: Any) -> Record:
    named = {name if name == "root_id" else name.replace("_", "-"): headers[name] for name in headers}
    return letter({"x-death": [*deaths], **named})


CAME: Mapping[str, tuple[Record, Way | None]] = {
    "as its death says": (dead(death("orders", "shop", "order.new", "cc")),
     Way("shop", "order.new", ("cc",))),
    "before it waited for a retry": (
        dead(
            death("wait", "", "wait", second=1, reason="expired"),
            death("orders", "", "orders", second=5, reason="expired"),
            death("orders", "shop", "order.new", second=1),
        ),
        Way("shop", "order.new"),
    ),
    "as a framework noted, which parked it elsewhere": (
        dead(
            death("carts", "shop", "cart.new"), x_original_exchange="shop",
            x_original_routingKey="order.new",
        ),
        Way("shop", "order.new"),
    ),
    "as it was published, of a queue where it never was": (
        dead(
            death("c", "dlx", "later"), death("a", "shop", "first", reason="maxlen"),
            death("b", "dlx", "then"), x_first_death_queue="a", x_first_death_reason="maxlen",
        ),
        Way("shop", "first"),
    ),
    "with nothing that tells": (dead(tenant="eu"), None),
    "with a key that is no text": (dead(death("orders", "shop", b"\xff")), None),
}  # fmt: skip


@each_row("how", CAME)
def test_a_letter_came(how: str) -> None:
    record, expected = CAME[how]
    assert first_delivered(record, "orders") == expected


TOPIC = dead(death("orders", "shop", "order.new", "cc"))
TASK = dead(death("orders", "shop", "order.new"), task="t", id="1", root_id="1")
BY_DEFAULT, OWN = Way("", "orders"), exchange_to("plan", "orders")
GOES = [
    (TOPIC, [ORDERS], Way(OWN, "order.new", ("cc",))),
    (TOPIC, [], BY_DEFAULT),  # the plan has no way of its own there
    (dead(death("orders", "shop", "orders", "cc")), [ORDERS], Way(OWN, "orders", ("cc",))),
    (dead(death("orders", "shop", "orders")), [ORDERS], BY_DEFAULT),
    (dead(), [ORDERS], BY_DEFAULT),
    (TASK, [ORDERS], BY_DEFAULT),  # of Celery, which finds that exchange again for retries
]


@each_row("record, private, way", GOES)
def test_only_what_the_default_exchange_would_change_goes_by_an_exchange_of_the_plans_own(
    record: Record, private: list[Target], way: Way
) -> None:
    assert (
        Ways(RabbitBroker("shop", "rabbitmq", url="amqp://u@h"), "plan", private).way_of(
            Outgoing(0, record, ORDERS, {})
        )
        == way
    )


def test_who_asks_no_broker_says_what_consumers_will_see() -> None:
    asked = preview_offline(Outgoing(0, dead(death("orders", "shop", "order.new")), ORDERS, {}))
    assert not asked.private
    assert "its name as the key, and no CC: the broker was not asked" in asked.warnings[-1]
    assert not preview_offline(Outgoing(0, dead(death("orders", "", "orders")), ORDERS, {})).warnings
