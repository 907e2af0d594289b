"""What frameworks of Node, over JMS and in Go leave; and texts that say less than their words."""

import json
from typing import Any

from support.analyzers.letters import imported, said
from support.rows import each_row

from dlq.analyzers.rules import Facts


def of(kind: str = "rabbitmq", queue: str = "dead", **headers: Any) -> Any:
    named = {"topic": queue} if kind == "kafka" else {"queue": queue}
    return imported({"broker_kind": kind, **named, "headers": headers})


RASCAL = {
    "originalQueue": "orders",
    "recovery": {"orders": {"republished": 3, "immediateNack": True}},
    "error": {"message": "no stock", "code": "E_STOCK"},
}
GO_PANIC = (
    "panic occurred: invalid order, stacktrace: \n"
    "goroutine 41 [running]:\nmain.(*Orders).Handle(0xc000, 0x1)\n\t/srv/app/orders.go:42 +0x1d\n"
    "github.com/ThreeDotsLabs/watermill/message.(*handler).handle(0xc0)\n\t/go/pkg/mod/w/router.go:7 +0x2\n"
)
STATE = "java.lang.IllegalStateException"
MOLECULER = {
    "x-original-channel": "order.created", "x-original-group": "billing", "x-redelivered-count": 2,
    "x-error-message": "no stock", "x-error-name": "StockError",
}  # fmt: skip
NOT_CONVERTED = {
    "x-exception-stacktrace": "o.s.ListenerExecutionFailedException: Failed to convert message\n"
    "Caused by: org.springframework.amqp.support.converter.MessageConversionException: no type",
    "x-original-exchange": "", "x-original-routingKey": "orders",
}  # fmt: skip
LETTERS = {
    "Rascal": (of(rascal=RASCAL),
     {"cause": "application_error", "origin": "orders", "attempts": 4, "exception_message": "no stock"}),
    "Moleculer over AMQP": (of(**MOLECULER),
     {"cause": "application_error", "origin": "billing.order.created", "attempts": 3, "exception_class": "StockError"}),
    "Moleculer over Kafka": (of("kafka", **MOLECULER),
     {"cause": "application_error", "origin": "order.created", "origin_kind": "topic"}),
    "Mats3, thrown": (of("activemq", "DLQ.mats.orders", mats_dlq_Exception=f"{STATE}: no stock\n\tat a.B.c(B.java:1)",
                         mats_dlq_DeliveryCount="7"),
     {"cause": "application_error", "attempts": 7, "origin": "mats.orders", "exception_class": STATE}),
    "Mats3, refused": (of("artemis", "DLQ.mats.orders", mats_dlq_Refused="true", mats_dlq_Exception="x.Refused: no"),
     {"cause": "poison_ack", "proof": "proven"}),
    "Mats3, on the receiving side": (of("activemq", "DLQ.mats.orders", mats_dlq_DeliveryCount="7"),
     {"cause": "redelivery_exhausted", "attempts": 7}),
    "SmallRye over JMS": (
        of(
            "artemis", dead_letter_exception_class_name="com.shop.Wrapper", dead_letter_reason="wrapped",
            dead_letter_cause_class_name="com.shop.NoStock", dead_letter_cause="no stock",
        ),
        {"cause": "application_error", "exception_class": "com.shop.NoStock", "exception_message": "no stock"},
    ),
    "Spring Cloud Stream, parked once, says nothing of deliveries": (of(**{"x-exception-message": "boom", "retry-count": 1}),
     {"cause": "application_error", "attempts": None}),
    "Spring, not convertible": (of(**NOT_CONVERTED),
     {"cause": "unreadable", "mechanism": "deserialization", "origin": "orders"}),
    "Watermill, not convertible": (of(reason_poisoned="cannot unmarshal message: invalid character 'x'", topic_poisoned="orders"),
     {"cause": "unreadable", "mechanism": "deserialization", "origin": "orders"}),
    "Watermill, a panic": (of(reason_poisoned=GO_PANIC, topic_poisoned="orders"),
     {"cause": "application_error", "exception_family": "bug", "exception_message": "panic occurred: invalid order"}),
    "Camel's documented header": (
        of("artemis", FailedBecause="java.net.ConnectException: Connection refused", originalQueue="orders"),
        {"cause": "application_error", "origin": "orders", "exception_class": "java.net.ConnectException"},
    ),
    "a class that ends like none, in a header by hand": (
        of("artemis", FailedBecause="com.shop.Orders$Declined: no money", originalQueue="orders"),
        {"exception_class": "com.shop.Orders$Declined", "exception_message": "no money"},
    ),
    "words before a colon are no class": (of("artemis", FailedBecause="no money: 7 EUR", originalQueue="orders"),
     {"exception_class": None, "exception_message": "no money: 7 EUR"}),
    "dots in place of a message": (of(**{"x-error-type": "...", "x-error-message": "...", "x-original-queue": "orders"}),
     {"exception_class": None, "exception_message": None, "origin": "orders"}),
    "a time where a class belongs": (of(**{"x-error-type": "2026-11-02T03:12:09Z", "x-error-message": "no stock"}),
     {"exception_class": None, "exception_message": "no stock"}),
    "a home-made count of deaths": (of(**{"x-death": [{"reason": "rejected", "queue": "orders"}], "x-death-count": 4}),
     {"cause": "poison_ack", "attempts": 4}),
}  # fmt: skip


@each_row(("letter", "expected"), LETTERS.values(), ids=LETTERS)
def test_each_is_read(judge: Any, letter: Any, expected: dict[str, Any]) -> None:
    [row] = judge(letter, facts=Facts())
    assert said(row, expected) == expected


def test_old_error_letters_of_easynetq_name_exchange_and_key(judge: Any) -> None:
    def error(**body: str) -> Any:
        document = {"Exception": "System.Exception: no stock", **body}
        line = {"broker_kind": "rabbitmq", "queue": "EasyNetQ_Default_Error_Queue"}
        return imported({**line, "headers": {}, "body_text": json.dumps(document)})

    direct, routed = judge(
        error(Exchange="", RoutingKey="orders"), error(Exchange="shop", RoutingKey="order.created")
    )
    assert direct["origin"] == "orders"
    assert (routed["origin"], routed["evidence"].partition(":")[0]) == (None, "published to shop/order.created")  # fmt: skip


FAMILIES = {
    "x-error-message": {
        "connection refused": "connection", "dial tcp 10.0.0.1:5432: connect: connection refused": "connection",
        "payment refused by the bank": "other", "the customer wants to connect a second line": "other",
        "item unavailable in size M": "other", "Service Unavailable": "connection",
        "order quota exceeded for customer 7": "other", "429 Too Many Requests": "throttled",
        "503 items are not in stock": "other", "504 pieces missing": "validation", "HTTP 504": "timeout",
        "503 Server Error:  for url: http://a/b": "connection", "goods unavailable, see http://a/b": "other",
        "http://a/b is unavailable": "connection", "appointment at 12:30 refused": "other",
        "parameter timeout is missing": "validation", "Cannot parse property request.timeout": "serialization",
        "unknown column 'timeout'": "other", "connection timeout must be positive": "other",
        "Payment gateway timeout": "timeout", "timeout of 1000ms exceeded": "timeout", "Timeout": "timeout",
        "canceling statement due to lock timeout": "timeout", "read tcp 10.0.0.1:3: i/o timeout": "timeout",
        "order:10432 refused by fraud check": "other", "redis-1:6379 is unavailable": "connection",
        "writing to redis:6379 was refused": "connection", "promo code 504 has expired": "other",
        "order status is 429": "other", "request failed with status code 503": "connection",
        "status: 503": "connection", '{"code":504}': "timeout", "lock timeout: expected a number": "other",
        "read timeout cannot be negative": "other",
    },
    "x-error-type": {
        "com.shop.PaymentRefusedException": "business", "com.shop.ItemUnavailableException": "business",
        "com.shop.CustomerQuotaException": "business", "com.shop.AnswerTimeoutException": "timeout",
        "java.net.ConnectException": "connection", "com.shop.ServiceUnavailableException": "connection",
        "org.apache.kafka.connect.errors.ConnectException": "business",
    },
}  # fmt: skip


@each_row(("header", "text", "family"), [(name, *one) for name, of in FAMILIES.items() for one in of.items()])
def test_words_of_the_business_are_no_network_errors(judge: Any, header: str, text: str, family: str) -> None:
    [row] = judge(of(**{"x-error-message": "no", "x-original-queue": "orders", header: text}))
    assert row["exception_family"] == family


def test_a_half_message_in_its_check_is_pending(judge: Any) -> None:
    half = {"broker_kind": "rocketmq", "topic": "orders", "properties": {"TRAN_MSG": "true", "PGROUP": "shop"}}  # fmt: skip
    asked, committed = judge(
        imported({**half, "headers": {"sysFlag": 0}}), imported({**half, "headers": {"sysFlag": 8}})
    )
    assert (asked["cause"], asked["transaction_state"]) == ("transaction_pending", "pending")
    assert committed["cause"] == "unknown"


def test_who_sent_it_is_told_by_its_client_or_application(judge: Any) -> None:
    line = {"broker_kind": "rabbitmq", "queue": "dead", "headers": {}, "properties": {"app_id": "shop"}}
    artemis = of("artemis", __HDR_PRODUCER_ID="ID:a-1:1:1")
    died = [{"reason": "rejected", "queue": "celery"}]
    celery = of(**{"x-death": died, "task": "pay", "id": "1", "retries": 3, "origin": "gen7@web-1"})
    rows = judge(imported(line), artemis, celery)
    assert [row["producer_id"] for row in rows] == ["shop", "ID:a-1:1:1", "gen7@web-1"]
