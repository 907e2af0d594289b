"""An archive of generated dead letters, realistic enough to time an analysis on: Arrow, column by column.

The mix: rejected, retry loops, expired, overflow, delivery limits, Spring and NServiceBus with stack
traces, MassTransit, hand-written error headers, letters without evidence; three in a hundred are
duplicates. Bodies are about 500 bytes and differ.
"""

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from dlq.archive import manifests
from dlq.archive.manifests import Manifest
from dlq.archive.schema import to_table
from dlq.archive.segments import encode, segment_name
from dlq.archive.storage.store import Store
from dlq.core.record import Death, Record

ROWS = 10_000
START = 1_793_000_000_000_000
QUEUES = tuple(f"orders{n}" for n in range(20))
FAULTS = (
    ("com.shop.StockException", "stock is negative for article {n}", "com.shop.Stock.take(Stock.java:42)"),
    (
        "java.net.SocketTimeoutException",
        "Read timed out after {n} ms",
        "com.shop.Gateway.call(Gateway.java:{n})",
    ),
    (
        "org.postgresql.util.PSQLException",
        "ERROR: deadlock detected, process {n}",
        "com.shop.Ledger.book(Ledger.java:7)",
    ),
    (
        "com.fasterxml.jackson.core.JsonParseException",
        "Unexpected character at {n}",
        "com.shop.Reader.read(Reader.java:12)",
    ),
)


def _stack(n: int) -> tuple[str, str]:
    name, message, frame = FAULTS[n % len(FAULTS)]
    message = message.format(n=n)
    inner = "\n".join(
        f"\tat org.springframework.amqp.rabbit.Container.run{i}(Container.java:{i})" for i in range(12)
    )
    outer = (
        f"org.springframework.amqp.rabbit.support.ListenerExecutionFailedException: Listener threw\n{inner}"
    )
    return (
        message,
        f"{outer}\nCaused by: {name}: {message}\n{inner}\n\tat {frame.format(n=n % 90)}\n{inner}\n\t... 9 more",
    )


def _deaths(n: int, *entries: tuple[str, str, int]) -> dict[str, Any]:
    history = tuple(
        Death(reason, queue, "shop", ("order.created",), count, START + n, None)
        for reason, queue, count in entries
    )
    named = {
        "x-first-death-queue": history[-1].queue,
        "x-first-death-reason": history[-1].reason,
        "x-first-death-exchange": "shop",
    }
    return {
        "deaths": history,
        "headers": {"trace": f"t-{n}", **named, "x-death": json.dumps([d._asdict() for d in history])},
    }


def _spring(n: int) -> dict[str, Any]:
    message, stack = _stack(n)
    return {
        "headers": {
            "x-original-exchange": "shop",
            "x-original-routingKey": "order.created",
            "x-exception-message": message,
            "x-exception-stacktrace": stack,
        }
    }


def _nservicebus(n: int) -> dict[str, Any]:
    return {
        "headers": {
            "NServiceBus.FailedQ": QUEUES[n % 20],
            "NServiceBus.ExceptionInfo.ExceptionType": "System.TimeoutException",
            "NServiceBus.ExceptionInfo.Message": f"no answer after {n} ms",
            "NServiceBus.TimeOfFailure": "2026-11-02 03:12:09:000000 Z",
        }
    }


def _masstransit(n: int) -> dict[str, Any]:
    return {
        "headers": {
            "MT-Reason": "fault",
            "MT-Fault-ExceptionType": "Shop.PriceException",
            "MT-Fault-Message": f"price {n} is stale",
            "MT-Fault-InputAddress": f"rabbitmq://host/shop/{QUEUES[n % 20]}",
            "MT-Fault-RetryCount": "3",
        }
    }


KINDS = (
    *(lambda n: _deaths(n, ("rejected", QUEUES[n % 20], 1)),) * 40,
    *(lambda n: _deaths(n, ("expired", f"{QUEUES[n % 20]}.wait", 3), ("rejected", QUEUES[n % 20], 4)),) * 12,
    *(lambda n: _deaths(n, ("expired", QUEUES[n % 20], 1)),) * 10,
    *(lambda n: _deaths(n, ("maxlen", QUEUES[n % 20], 1)),) * 5,
    *(lambda n: _deaths(n, ("delivery_limit", QUEUES[n % 20], 1)),) * 6,
    *(_spring,) * 15,
    *(_nservicebus,) * 4,
    *(_masstransit,) * 3,
    *(
        lambda n: {
            "headers": {
                "x-error": f"bad article {n}",
                "x-original-queue": QUEUES[n % 20],
                "x-retry-count": "2",
            }
        },
    )
    * 2,
    *(lambda n: {"headers": {"trace": f"t-{n}"}},) * 3,
)


def letter(n: int) -> Record:
    """The n-th letter."""
    same = n - 1 if n % 33 == 0 and n else n
    body = (
        f'{{"order":{{"id":{same},"customer":"c-{same % 5000}"}},"lines":"' + f"{same:08x}" * 56 + '"}'
    ).encode()
    return Record(
        record_id=f"{n:032x}",
        source="orders",
        broker="shop",
        broker_kind="rabbitmq",
        broker_version="4.0.5",
        dead_letter_queue="orders.dlq",
        message_id=f"m-{same}",
        key=f"m-{same}",
        exchange="dlx",
        routing_key="orders",
        captured_at=START + n * 1000,
        dead_at=START + n * 900,
        body=body,
        body_size=len(body),
        body_sha256=sha256(body).hexdigest(),
        pull_id="bench",
        mode="drain",
        properties={"message_id": f"m-{same}", "content_type": "application/json", "delivery_mode": "2"},
        **KINDS[(n * 7919) % 100](same),
    )


def _suppressed(n: int) -> Record:
    """Of a failover: ActiveMQ's client took it for a duplicate."""
    consumer = f"ID:vm-33407-1795194807825-3:1:{n % 3}:1"
    return letter(n)._replace(
        source="legacy",
        broker="amq",
        broker_kind="activemq",
        broker_version="5.18.6",
        dead_letter_queue="ActiveMQ.DLQ",
        message_id=f"ID:shop-36041-1795195175398-1:75:1:1:{n}",
        key=None,
        origin_kind="queue",
        origin="orders",
        exchange=None,
        routing_key=None,
        deaths=(),
        dead_at=None,
        published_at=START + n * 1000,
        headers={"original-destination": "queue://orders"},
        failure_text=f"java.lang.Throwable: Suppressing duplicate delivery on connection, consumer {consumer}",
    )


def _half(n: int) -> Record:
    """Of RocketMQ's transactions: a half message and, one in three, the broker's note that it gave up."""
    topic = "TRANS_CHECK_MAX_TIME_TOPIC" if n % 3 == 0 else "RMQ_SYS_TRANS_HALF_TOPIC"
    key = f"T-{n // 3}"
    return letter(n)._replace(
        source="payments",
        broker="pay",
        broker_kind="rocketmq",
        broker_version="5.5.0",
        broker_node="broker-a",
        dead_letter_queue=topic,
        message_id=key,
        key=key,
        offset=n,
        deaths=(),
        headers={"queueOffset": str(n), "commitLogOffset": str(n * 100), "bornHost": "10.0.0.1:5"},
        properties={
            "UNIQ_KEY": key,
            "REAL_TOPIC": "orders",
            "PGROUP": "shop",
            "TRANSACTION_CHECK_TIMES": "15",
        },
        published_at=START + n * 1000,
    )


def fill_mixed(store: Store, first: int, end: int) -> None:
    """Letters [first, end) of three brokers, a segment each: RabbitMQ's, suppressed duplicates of ActiveMQ,
    transactions of RocketMQ."""
    third = (end - first) // 3
    makers = (letter, _suppressed, _half)
    for number, make in enumerate(makers):
        start = first + number * third
        last = end if make is makers[-1] else start + third
        _write(store, f"bench-mixed-{number}", [make(n) for n in range(start, last)], START)


def fill(store: Store, first: int, end: int) -> None:
    """Letters [first, end) as committed segments of ROWS rows each."""
    for start in range(first, end, ROWS):
        rows = [letter(n) for n in range(start, min(start + ROWS, end))]
        _write(store, f"bench-{start // ROWS:06d}", rows, START + start * 1_000_000)


def _write(store: Store, stem: str, rows: list[Record], at: int) -> None:
    source = rows[0].source
    name = segment_name(source, stem, START)
    store.put(name, memoryview(encode(to_table(rows))))
    created = datetime.fromtimestamp(at / 1e6, UTC).isoformat()
    manifests.write(store, Manifest(stem, "bench", source, "drain", name, len(rows), "", created))
