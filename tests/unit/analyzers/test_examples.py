"""The RabbitMQ letters of the interchange examples get the verdicts that stand beside them."""

from typing import Any

from support.analyzers.letters import imported

REJECTED = {"count": 1, "reason": "rejected", "queue": "orders", "time": "2026-11-02T03:12:09Z", "exchange": "shop"}  # fmt: skip
STACK = (
    "org.springframework.amqp.rabbit.support.ListenerExecutionFailedException: Listener threw exception\n"
    "\tat o.s.A.b(A.java:1)\n"
    "Caused by: com.shop.StockException: stock is negative\n\tat com.shop.Stock.take(Stock.java:42)\n"
)
LETTERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {
            "queue": "orders.dlq",
            "exchange": "dlx",
            "routing_key": "orders",
            "message_id": "m-1",
            "headers": {
                "x-death": [{**REJECTED, "routing-keys": ["order.created"]}], "x-first-death-queue": "orders",
                "x-first-death-reason": "rejected", "x-first-death-exchange": "shop",
            },
            "properties": {"content_type": "application/json", "delivery_mode": 2, "timestamp": 1762053120},
            "body_text": '{"order":{"id":17}}',
        },
        {"cause": "poison_ack", "mechanism": "reject", "origin": "orders", "attempts": 1, "exception_class": None},
    ),
    (
        {
            "queue": "orders.dlq",
            "headers": {
                "x-death": [
                    {"count": 3, "reason": "expired", "queue": "orders.wait", "time": "2026-11-02T03:12:10Z", "exchange": ""},
                    {**REJECTED, "count": 4},
                ],
                "x-first-death-queue": "orders",
                "x-first-death-reason": "rejected",
            },
            "body_base64": "AAEC/w==",
        },
        {"cause": "poison_ack", "mechanism": "retry_loop", "origin": "orders", "attempts": 4},
    ),
    (
        {
            "queue": "errors",
            "exchange": "errors",
            "routing_key": "error.order.created",
            "headers": {
                "x-original-exchange": "shop", "x-original-routingKey": "order.created",
                "x-exception-message": "stock is negative", "x-exception-stacktrace": STACK,
            },
        },
        {
            "cause": "application_error", "mechanism": "framework", "exception_class": "com.shop.StockException",
            "exception_message": "stock is negative",
        },
    ),
    (
        {
            "queue": "error",
            "headers": {
                "NServiceBus.FailedQ": "billing", "NServiceBus.ExceptionInfo.ExceptionType": "System.TimeoutException",
                "NServiceBus.ExceptionInfo.Message": "no answer", "NServiceBus.TimeOfFailure": "2026-11-02 03:12:09:000000 Z",
                "x-death": [{"count": 2, "reason": "expired", "queue": "billing.delay", "exchange": ""}],
            },
        },
        {"cause": "application_error", "mechanism": "framework", "origin": "billing", "exception_class": "System.TimeoutException"},
    ),
    ({"queue": "mystery.dlq", "headers": {}, "body_text": "?"},
     {"cause": "unknown", "mechanism": "none", "origin": None, "attempts": None}),
]  # fmt: skip


def test_every_example_gets_its_verdict(judge: Any) -> None:
    rows = judge(*(imported({"broker_kind": "rabbitmq", **letter}) for letter, _ in LETTERS))
    said = [{name: row[name] for name in expected} for row, (_, expected) in zip(rows, LETTERS, strict=True)]
    assert said == [expected for _, expected in LETTERS]
