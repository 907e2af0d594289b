"""The incident of the demo: what one night may leave in a shop's dead-letter queue. Always the same."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

QUEUE = "orders.dlq"
WORK_QUEUE = "orders"

_NIGHT = datetime(2026, 11, 2, 3, 12, 9, tzinfo=UTC)
_SPRING = "org.springframework.amqp.rabbit.support.ListenerExecutionFailedException: Listener threw exception"


def letters() -> Iterator[dict[str, Any]]:
    """Yield JSONL objects (RabbitMQ), in the order in which they died."""
    yield from (_timed_out(number) for number in range(24))
    yield from (_out_of_stock(number) for number in range(24, 33))
    yield from (_expired_letter(number) for number in range(33, 45))
    yield _timed_out(7)
    yield _poison(45)


def _timed_out(number: int) -> dict[str, Any]:
    text = "payment-gateway:443 did not answer within 3000 ms"
    return _parked_letter(
        number, "java.net.SocketTimeoutException", text, "com.shop.payment.Gateway.charge(Gateway.java:88)"
    )


def _out_of_stock(number: int) -> dict[str, Any]:
    text = f"stock of SKU-{number % 3} would be negative"
    return _parked_letter(
        number, "com.shop.stock.NegativeStockException", text, "com.shop.stock.Stock.take(Stock.java:42)"
    )


def _order(number: int) -> dict[str, Any]:
    order = {"order": {"id": 4700 + number, "sku": f"SKU-{number % 3}", "total": 19.9 + number}}
    return {
        "broker_kind": "rabbitmq",
        "message_id": f"order-{4700 + number}",
        "properties": {
            "message_id": f"order-{4700 + number}",
            "content_type": "application/json",
            "delivery_mode": "2",
            "timestamp": str(int((_time_of(number) - timedelta(seconds=30)).timestamp())),
        },
        "body_text": json.dumps(order),
    }


def _time_of(number: int) -> datetime:
    return _NIGHT + timedelta(seconds=7 * number)


def _parked_letter(number: int, exception: str, message: str, frame: str) -> dict[str, Any]:
    """Return a letter that Spring's RepublishMessageRecoverer parked."""
    wrapped = f"{_SPRING}\n\tat o.s.amqp.Adapter.invoke(Adapter.java:1)\n"
    trace = f"{wrapped}Caused by: {exception}: {message}\n\tat {frame}\n"
    return _order(number) | {
        "exchange": "errors",
        "routing_key": "error.order.created",
        "headers": {
            "x-original-exchange": "shop",
            "x-original-routingKey": "order.created",
            "x-exception-message": message,
            "x-exception-stacktrace": trace,
            **_death("rejected", WORK_QUEUE, number),
        },
    }


def _expired_letter(number: int) -> dict[str, Any]:
    return _order(number) | {"headers": _death("expired", WORK_QUEUE, number)}


def _poison(number: int) -> dict[str, Any]:
    """Return binary rubbish on a JSON queue: refused at each of four deliveries of a retry loop."""
    wait = _death("expired", f"{WORK_QUEUE}.wait", number, count=3)["x-death"]
    refused = _death("rejected", WORK_QUEUE, number, count=4)
    return {
        "broker_kind": "rabbitmq",
        "headers": {**refused, "x-death": wait + refused["x-death"]},
        "properties": {"delivery_mode": "2", "content_type": "application/json"},
        "body_base64": "AAEC/w==",
    }


def _death(reason: str, queue: str, number: int, count: int = 1) -> dict[str, Any]:
    entry = {
        "count": count,
        "reason": reason,
        "queue": queue,
        "time": _time_of(number).isoformat(),
        "exchange": "shop",
        "routing-keys": ["order.created"],
    }
    return {
        "x-death": [entry],
        "x-first-death-queue": WORK_QUEUE,
        "x-first-death-reason": reason,
        "x-first-death-exchange": "shop",
    }
