"""A verdict says where a letter was first published, and where it was consumed, as far as the letter tells."""

from typing import Any

from support.analyzers.letters import imported
from support.rows import each_row

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
