"""A letter tells where it was published and consumed; one that names no queue finds its way back by the one
binding that its exchange and key have."""

from typing import Any

import pytest
from support.analyzers.letters import imported, record
from support.rows import each_row

from dlq.analyzers.rules import Facts, judge
from dlq.analyzers.rules.origin_inference import find_one_queue
from dlq.connectors.rabbitmq.look.routes import list_routes

SPRING = {"x-exception-message": "boom", "x-original-exchange": "shop", "x-original-routingKey": "order.new"}
BY_HAND = {"x-error": "boom", "original_exchange": "shop", "original_routing_key": "order.new"}


def origin_of(headers: dict[str, str], routes: dict[str, dict[str, tuple[str, ...]]]) -> str | None:
    return judge(record(headers=headers), Facts(routes={"orders": routes})).origin


@pytest.mark.parametrize("headers", [SPRING, BY_HAND])
def test_one_binding_tells_the_queue(headers: dict[str, str]) -> None:
    assert origin_of(headers, {"shop": {"order.*": ("work",), "mail.*": ("mails",)}}) == "work"
    assert origin_of(headers, {"shop": {"order.*": ("work",), "#": ("audit",)}}) is None
    assert origin_of(headers, {"shop": {"order.new": ("work", "audit")}}) is None
    assert origin_of(headers, {"shop": {"order.*": ("orders.dlq",)}}) is None
    assert origin_of(headers, {}) is None


def test_what_the_letter_names_wins_and_the_default_exchange_routes_by_name() -> None:
    assert origin_of({**BY_HAND, "x-original-queue": "named"}, {"shop": {"#": ("work",)}}) == "named"
    assert origin_of({**BY_HAND, "original_exchange": "", "original_routing_key": "work"}, {}) == "work"


@pytest.mark.parametrize(("key", "exchange"), [("work", ""), ("again", "shop"), (None, "shop")])
def test_a_retry_queue_tells_where_it_sends_on(key: str | None, exchange: str) -> None:
    waited = [{"reason": "expired", "queue": "work.retry", "exchange": "", "routing-keys": ["k"], "count": 3}]
    line: dict[str, Any] = {"broker_kind": "rabbitmq", "queue": "parked", "headers": {"x-death": waited, "x-error": "boom"}}  # fmt: skip
    facts = Facts(
        dead_letter_exchanges={"orders": {"work.retry": exchange}},
        dead_letter_keys={"orders": {"work.retry": key}} if key else {},
        routes={"orders": {"shop": {"again": ("work",), "k": ("work",)}}},
    )
    assert judge(imported(line), facts).origin == "work"


@each_row(("pattern", "key", "is_met"), [
    ("a.*", "a.b", True), ("a.*", "a.b.c", False), ("a.*", "a", False), ("#", "a.b", True), ("#", "", True), ("a.#", "a", True),
    ("a.#.z", "a.b.c.z", True), ("#.#.#.z", "a.b.y", False), ("*.*", "a.b", True), ("a+b", "a+b", True), ("a.b", "a.b.c", False),
    ("*", "", True),
])  # fmt: skip
def test_keys_meet_patterns_as_the_broker_says(pattern: str, key: str, is_met: bool) -> None:
    found = find_one_queue({"shop": {pattern: ("work",)}}, "shop", key)
    assert found == ("work" if is_met else None)


def test_exchanges_whose_bindings_do_not_tell_all_tell_nothing() -> None:
    types = {"d": "direct", "t": "topic", "f": "fanout", "h": "headers", "e": "topic", "x": "x-random"}
    exchanges = [{"name": name, "type": kind} for name, kind in types.items()]
    bindings = [
        {"source": name, "destination": "q", "destination_type": "queue", "routing_key": "k"}
        for name in (*types, "")
    ]
    bindings.append({"source": "e", "destination": "t", "destination_type": "exchange", "routing_key": "#"})
    assert list_routes(exchanges, bindings) == {"d": {"k": ["q"]}, "t": {"k": ["q"]}, "f": {"#": ["q"]}}


TRACE = "o.s.MessagingException: boom; failedMessage=[headers={amqp_consumerQueue=shop.orders, x=1}]"
NOTED: list[tuple[dict[str, Any], tuple[str | None, str | None, str | None]]] = [
    ({"x-exception-message": "boom", "x-original-exchange": "shop", "x-original-routingKey": "order.created"},
     (None, "shop", "order.created")),
    ({"x-exception-stacktrace": TRACE, "x-original-exchange": "shop", "x-original-routingKey": "order.created"},
     ("shop.orders", "shop", "order.created")),
    ({"x-error": "boom", "original_exchange": "shop", "original_routing_key": "order.created"}, (None, "shop", "order.created")),
    (
        {
            "rascal": {
                "originalQueue": "orders", "originalExchange": "shop", "originalRoutingKey": "order.created",
                "error": {"message": "boom"},
            },
        },
        ("orders", "shop", "order.created"),
    ),
    ({"reason_poisoned": "boom", "topic_poisoned": "orders"}, ("orders", None, None)),
    ({}, (None, None, None)),
]  # fmt: skip


@each_row(("headers", "expected"), NOTED)
def test_where_it_came_from_is_told(judge: Any, headers: dict[str, Any], expected: tuple[Any, ...]) -> None:
    [row] = judge(imported({"broker_kind": "rabbitmq", "queue": "dead", "headers": headers}))
    assert (row["origin"], row["origin_exchange"], row["origin_routing_key"]) == expected
    assert row["origin_kind"] in (None, "queue")
