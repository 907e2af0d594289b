"""What frameworks leave on a letter, one row a signature."""

import json
from typing import Any

import pytest
from support.analyzers.letters import died, record

from dlq.core.record import Death

TRACEBACK = (
    'Traceback (most recent call last):\n  File "/app/shop/worker.py", line 12, in pay\n    gateway.send(order)\n'
    '  File "/usr/lib/python3/site-packages/requests/api.py", line 59, in get\n    return x\n'
    "requests.exceptions.ReadTimeout: timed out\n"
)
EASYNETQ = {
    "Exception": ("System.Exception: outer\r\n ---> Shop.PriceException: price 12 is stale\r\n   at Shop.Pricing.Get()"),
    "Queue": "prices",
}  # fmt: skip
SPRING = {"x-exception-message": "stock is negative", "x-original-exchange": "shop", "x-original-routingKey": "order.created"}  # fmt: skip
FAILED_AT = {"NServiceBus.FailedQ": "billing", "NServiceBus.TimeOfFailure": "2026-11-02 03:12:09:000000 Z"}
BEFORE, AFTER = 1_793_588_000_000_000, 1_793_590_000_000_000


def _rejected_at(micros: int, headers: dict[str, str]) -> Any:
    return record(deaths=[Death("rejected", "billing", "", (), 1, micros)], headers=headers)


def _body(queue: str, document: dict[str, Any], **columns: Any) -> Any:
    return record(dead_letter_queue=queue, body=json.dumps(document).encode(), **columns)


STAMP = "X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\"
FAILED = {f"{STAMP}SentToFailureTransportStamp": '[{"originalReceiverName":"async"}]'}
RETRIED = {
    f"{STAMP}ErrorDetailsStamp": json.dumps([
        {"exceptionClass": "Shop\\PriceException", "exceptionCode": 0, "exceptionMessage": "old"},
        {"exceptionClass": "Shop\\StockException", "exceptionCode": 0, "exceptionMessage": "stock is 0"},
    ]),
    f"{STAMP}RedeliveryStamp": '[{"retryCount":1},{"retryCount":3},{"retryCount":0}]',
}  # fmt: skip
SENT = (
    's:61:"Symfony\\Component\\Messenger\\Stamp\\SentToFailureTransportStamp";a:1:{i:0;'
    'O:61:"Symfony\\Component\\Messenger\\Stamp\\SentToFailureTransportStamp":1:{'
    's:83:"\0Symfony\\Component\\Messenger\\Stamp\\SentToFailureTransportStamp\0originalReceiverName";s:5:"async";}}'
)
_ERROR = "\0Symfony\\Component\\Messenger\\Stamp\\ErrorDetailsStamp\0"
_COUNT = 's:61:"\0Symfony\\Component\\Messenger\\Stamp\\RedeliveryStamp\0retryCount";i:{};'
RETRIED_TWICE = (
    f's:67:"{_ERROR}exceptionClass";s:13:"Shop\\Declined";s:69:"{_ERROR}exceptionMessage";s:10:"no "money"";'
    + "".join(_COUNT.format(count) for count in (1, 2, 0))
)


def _in_php(stamps: str, **columns: Any) -> Any:
    """A body as PHP's serializer writes it, with addslashes."""
    text = (
        f'O:36:"Symfony\\Component\\Messenger\\Envelope":2:{{s:44:"\0Symfony\\Component\\Messenger\\Envelope\0stamps";'
        f'a:2:{{{stamps}}}s:45:"\0Symfony\\Component\\Messenger\\Envelope\0message";O:5:"Order":0:{{}}}}'
    )
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\0", "\\0")
    return record(body=escaped.encode(), properties={"content_type": "text/plain"}, **columns)


NODE_ERROR = {"name": "Declined", "message": "no money", "stack": "Declined: no money\n    at Shop.handle (/srv/a.js:1:2)"}  # fmt: skip
TASK = {"task": "shop.pay", "id": "1", "args": [], "kwargs": {}, "retries": 2}
OF_KOMBU = {"correlation_id": "1", "content_encoding": "utf-8"}
RUBY = "[\"app/stock.rb:4:in 'take'\", \"app/orders.rb:9:in 'call'\"]"
WRAPPED = {
    "original_queue": "orders",
    "retry_count": 2,
    "error": {"class": "Shop::Declined", "message": "no money", "backtrace": json.loads(RUBY)},
    "payload": "e30=",
}
WOLVERINE = {
    "exception-type": "Shop.StockException", "exception-message": "stock is 0", "exception-stack": "   at Shop.Stock.Take()",
    "failed-at": "1793590000000",
}  # fmt: skip
SNEAKERS = {
    "error": "stock is 0", "num_attempts": 6, "failed_at": "2026-11-02T03:12:09+00:00", "error_class": "Shop::StockError",
    "error_message": "stock is 0", "backtrace": ["app/stock.rb:4:in `take'"],
}  # fmt: skip
REFUSED = {"error": "reject", "num_attempts": 3, "failed_at": "2026-11-02T03:12:09+00:00"}
BRIGHTER = {"rejectionReason": "DeliveryError", "originalTopic": "orders", "HandledCount": "2"}

UNREAD_BY_SPRING = (
    "a.b.Unread: no, headers={deliveryAttempt=3}\n"
    "\tat o.SimpleFunctionRegistry$FunctionInvocationWrapper.convertInputIfNecessary(S.java:1)"
)
FAULT = {
    "MT-Reason": "fault", "MT-Fault-ExceptionType": "Shop.PriceException", "MT-Fault-Message": "stale",
    "MT-Fault-InputAddress": "rabbitmq://host/shop/price%20checks?durable=true", "MT-Fault-RetryCount": "3",
}  # fmt: skip
LATE = "java.lang.Throwable: Message Expired. Expiration: 7"
REBUS = {
    "rbs2-error-details": "1 unhandled: Shop.PriceException: stale\n   at Shop.Pricing.Get()",
    "rbs2-source-queue": "prices", "rbs2-delivery-count": "4",
}  # fmt: skip


def _on_activemq(headers: dict[str, str]) -> Any:
    return record(broker_kind="activemq", headers=headers)


UNKNOWN = ("unknown", None, None, None, None)
# letter, (rule, origin, attempts, exception class, message)
TABLE: list[tuple[Any, tuple[Any, ...]]] = [
    (record(headers=SPRING), ("spring-amqp", None, None, None, "stock is negative")),
    (record(headers={**SPRING, "x-original-exchange": "", "x-original-routingKey": "orders"}),
     ("spring-amqp", "orders", None, None, "stock is negative")),
    (died(("expired", "orders.wait", 2), ("rejected", "orders", 2), headers=SPRING),
     ("spring-amqp", "orders", 3, None, "stock is negative")),
    (record(headers={**SPRING, "retry-count": "2", "x-exception-stacktrace": "E, headers={deliveryAttempt=3}"}),
     ("spring-cloud-stream", None, 3, None, "stock is negative")),
    (record(headers={**SPRING, "retry-count": "1", "x-exception-stacktrace": UNREAD_BY_SPRING}),
     ("spring-unread", None, 3, "a.b.Unread", "no, headers={deliveryAttempt=3}")),
    (record(headers={"MT-Reason": "fault"}, dead_letter_queue="prices_error"), ("masstransit-fault", "prices", 1, None, None)),
    # It had failed elsewhere before, was sent back, and then found no consumer.
    (record(headers={**FAULT, "MT-Reason": "dead-letter"}, dead_letter_queue="prices_skipped"),
     ("masstransit-skipped", "prices", None, None, None)),
    (record(headers={"MT-Reason": "Unspecified"}), UNKNOWN),
    (record(headers={**FAULT, "dlqDeliveryFailureCause": LATE}, failure_text=LATE, broker_kind="activemq"),
     ("masstransit-fault", "price checks", 4, "Shop.PriceException", "stale")),
    (record(broker_kind="activemq", headers={"MT-Reason": "dead-letter"}, dead_letter_queue="prices_skipped"),
     ("masstransit-skipped", "prices", None, None, None)),
    (record(headers={**FAILED_AT, "NServiceBus.ExceptionInfo.StackTrace": EASYNETQ["Exception"]}),
     ("nservicebus", "billing", None, "Shop.PriceException", "price 12 is stale")),
    (_rejected_at(BEFORE, FAILED_AT), ("nservicebus", "billing", 2, None, None)),
    # Refused after the framework had parked it: the newer death decides.
    (_rejected_at(AFTER, FAILED_AT), ("reject", "billing", 1, None, None)),
    (_body("errors", EASYNETQ, properties={"type": "EasyNetQ.SystemMessages.Error, EasyNetQ"}),
     ("easynetq", "prices", None, "Shop.PriceException", "price 12 is stale")),
    (record(headers=REBUS), ("rebus", "prices", 5, "Shop.PriceException", "stale")),
    (record(headers=WOLVERINE | {"original-destination": "rabbitmq://queue/orders", "attempts": "3"}),
     ("wolverine", "orders", 3, "Shop.StockException", "stock is 0")),
    (died(("rejected", "orders", 1), headers=WOLVERINE), ("wolverine", "orders", 2, "Shop.StockException", "stock is 0")),
    (record(headers={"exception-type": "Shop.StockException"}), ("hand-written-error", None, None, "Shop.StockException", None)),
    (record(headers={"reason_poisoned": "dial tcp: timeout", "topic_poisoned": "orders"}),
     ("watermill", "orders", None, None, "dial tcp: timeout")),
    (record(headers={"reason_poisoned": "bad apple"}), UNKNOWN),
    (record(headers=FAILED), ("symfony", None, None, None, None)),
    # It waits for its next retry, or nobody knows what.
    (record(headers=RETRIED), UNKNOWN),
    (record(headers={f"{STAMP}SentToFailureTransportStamp": "{"}), UNKNOWN),
    (_in_php(SENT + RETRIED_TWICE, dead_letter_queue="parked"), ("symfony-in-body", None, 3, "Shop\\Declined", 'no "money"')),
    (_in_php(RETRIED_TWICE, dead_letter_queue="parked"), UNKNOWN),
    (_in_php(RETRIED_TWICE, deaths=[Death("rejected", "orders", count=1)], dead_letter_queue="parked"),
     ("symfony-reject", "orders", 3, None, None)),
    (died(("rejected", "orders", 1), headers={f"{STAMP}RedeliveryStamp": '[{"retryCount":2}]'}),
     ("symfony-reject", "orders", 3, None, None)),
    (record(headers={"errors": json.dumps(NODE_ERROR)}, dead_letter_queue="shop.orders_dlq"),
     ("rabbit-queue", "shop.orders", None, "Declined", "no money")),
    (record(headers={"errors": '{"name": "no name"}'}), UNKNOWN),
    (_body("celery.dead", TASK, properties=OF_KOMBU), UNKNOWN),
    # Objects around the message.
    (_body("failures", WRAPPED), ("enveloped", "orders", 3, "Shop::Declined", "no money")),
    (_body("failures", {"originalMessage": "{}", "errorMessage": "no", "exceptionClass": "a.NoStock"}),
     ("enveloped", None, None, "a.NoStock", "no")),
    (_body("failures", {"metadata": {"sourceQueue": "orders"}, "reason": "bad-json", "payload": ""}),
     ("enveloped-unread", "orders", None, None, "bad-json")),
    (_body("failures", {"originalQueue": "orders", "retryCount": 2, "payload": ""}), ("enveloped", "orders", 3, None, None)),
    # What a business says of its errors, and what lies where it says that it came from.
    (_body("failures", {"attempts": 3, "errorMessage": "declined", "payment": 7}), UNKNOWN),
    (_body("failures", {"data": {"originalQueue": "orders", "error": "no"}}), UNKNOWN),
    # An application's queue that is called after another, which it sent the letter to itself.
    *(
        (record(headers={"x-error": "no"}, dead_letter_queue=f"orders{end}", exchange="", routing_key=f"orders{end}"),
         ("hand-written-error", "orders", None, None, "no"))
        for end in ("_dlq", ".DLQ", "-error", "_failed", ".parked")
    ),
    (record(headers={"x-error-class": "Shop::NoStock", "x-error-message": "no", "backtrace": RUBY}),
     ("hand-written-error", None, None, "Shop::NoStock", "no")),
    # Sent back from its error queue once, and failed again: the newest failure is first.
    (record(headers={"retry_info": json.dumps([SNEAKERS, REFUSED])}), ("sneakers", None, 6, "Shop::StockError", "stock is 0")),
    (record(headers={"retry_info": json.dumps(REFUSED)}, dead_letter_queue="stock-error"),
     ("sneakers-reject", "stock", 3, None, None)),
    (_body("stock-error", SNEAKERS | {"payload": "e30="}), ("sneakers", "stock", 6, "Shop::StockError", "stock is 0")),
    # What it says is older than the death.
    (died(("rejected", "stock", 2), headers={"retry_info": json.dumps(SNEAKERS)}), ("reject", "stock", 2, None, None)),
    (record(headers={"retry_info": "2"}), UNKNOWN),
    (record(broker_kind="rocketmq", properties=BRIGHTER | {"rejectionMessage": "stock is 0"}),
     ("brighter", "orders", 3, None, "stock is 0")),
    (record(broker_kind="rocketmq", properties=BRIGHTER), ("brighter", "orders", 3, None, None)),
    (record(broker_kind="rabbitmq", properties={"rejectionReason": "odd"}), UNKNOWN),
    (_body("jobs.XQ", {"options": {"traceback": TRACEBACK, "retries": 3}}, deaths=[Death("rejected", "jobs.DQ")]),
     ("dramatiq", "jobs", 4, "requests.exceptions.ReadTimeout", "timed out")),
    (_body("jobs.XQ", {"options": {}}, deaths=[Death("rejected", "jobs", count=1)]), ("dramatiq-reject", "jobs", 1, None, None)),
    (died(("rejected", "jobs", 1), headers={"laravel": '{"attempts":2}'}), ("laravel-reject", "jobs", 3, None, None)),
    # Its job is only late: nothing of Laravel's has failed.
    (died(("expired", "jobs", 1), headers={"laravel": '{"attempts":2}'}), ("ttl", "jobs", None, None, None)),
    (died(("rejected", "jobs", 1), headers={"laravel": "["}), ("reject", "jobs", 1, None, None)),
    (died(("rejected", "orders", 1), headers={"HandledCount": "2", "MessageType": "MT_COMMAND"}),
     ("brighter-reject", "orders", 3, None, None)),
    (died(("rejected", "orders", 1), headers={"HandledCount": "2", "MessageType": "order"}), ("reject", "orders", 1, None, None)),
    (record(headers={"HandledCount": "2", "MessageType": "MT_COMMAND"}), UNKNOWN),
    (record(headers={"CamelExceptionCaught": "java.net.ConnectException: Connection refused"}),
     ("camel", None, None, "java.net.ConnectException", "Connection refused")),
    (died(("rejected", "shop", 1), headers={"__TypeId__": "com.le.shine.EventMessage"}), ("shine-mq", "shop", None, None, None)),
    (record(headers={"x-exception-type": "ValueError", "x-exception-message": "bad"}),
     ("hand-written-error", None, None, "ValueError", "bad")),
    (record(headers={"X-Error-Code": "E42"}), ("hand-written-error", None, None, None, None)),
    # As Camel's JMS component writes names.
    (_on_activemq({"x_HYPHEN_error": "java.io.IOException: full", "x_HYPHEN_original_HYPHEN_queue": "orders"}),
     ("hand-written-error", "orders", None, "java.io.IOException", "full")),
    (_on_activemq({"NServiceBus_DOT_ExceptionInfo_DOT_Message": "late", "NServiceBus_DOT_FailedQ": "orders@m"}),
     ("nservicebus", "orders", None, None, "late")),
    # Names that applications make up; what tells of no error says nothing.
    (record(headers={"x-last-error": "RuntimeError", "x-original-queue": "orders", "x-retry-count": "3"}),
     ("hand-written-error", "orders", 4, "RuntimeError", None)),
    (record(headers={"x-shop-dead-letter-error": "boom"}), ("hand-written-error", None, None, None, "boom")),
    (record(headers={"x-death-reason": "rejected"}), UNKNOWN),
    # Names that a program prepares, and fills when something fails.
    (record(headers={"x-exception-message": "", "x-original-exchange": "", "x-original-routingKey": "orders"}), UNKNOWN),
    (record(headers={"x-last-error": " ", "x-retry-count": "0"}), UNKNOWN),
    # A class as the reason, beside a text; a word for it is no class.
    (record(headers={"x-dead-letter-reason": "ValueError", "x-dead-letter-error": "no id"}),
     ("hand-written-error", None, None, "ValueError", "no id")),
    # The queue in the broker's name, which a hand has kept; a history tells better.
    (record(headers={"x-first-death-queue": "jobs", "x-last-error": "late", "x-processing-attempt": "2"}),
     ("hand-written-error", "jobs", 2, None, "late")),
    (record(headers={"x-first-failure-time": "1", "failure": "x"}), UNKNOWN),
    (record(headers={"x-original-queue": "orders", "x-retry-count": "3"}), ("hand-written-retries", "orders", 4, None, None)),
    (record(headers={"task": "only"}), UNKNOWN),
    (record(), UNKNOWN),
]  # fmt: skip


def test_each_signature_is_known(judge: Any) -> None:
    rows = judge(*(letter for letter, _ in TABLE))
    names = ("rule", "origin", "attempts", "exception_class", "exception_message")
    assert [tuple(row[name] for name in names) for row in rows] == [expected for _, expected in TABLE]


MASSTRANSIT_UNREAD = "An error occured while deserializing the message envelope"
UNREAD: list[tuple[dict[str, str], str, str]] = [
    ({"MT-Reason": "fault", "MT-Fault-Message": MASSTRANSIT_UNREAD}, "masstransit-unread", "unreadable"),
    ({"MT-Fault-Message": "the message was deserialized late"}, "masstransit-fault", "application_error"),
    ({"NServiceBus.ExceptionInfo.ExceptionType": "NServiceBus.MessageDeserializationException"}, "nservicebus-unread",
     "unreadable"),
    ({"NServiceBus.ExceptionInfo.Message": "no logical message"}, "nservicebus", "application_error"),
    ({"x-dlq-reason": "deserialisation", "x-dlq-error": "no Avro"}, "hand-written-unread", "unreadable"),
    ({"x-error-type": "PARSE_ERROR", "x-error": "line 1"}, "hand-written-unread", "unreadable"),
    ({"x-error-code": "invalid_json", "x-error": "line 1"}, "hand-written-unread", "unreadable"),
    # What serializes fails, too; a class may be its listener's; a sentence is no word for it; others are none.
    ({"x-dlq-reason": "serialization"}, "hand-written-error", "application_error"),
    ({"x-error-type": "JsonParseException"}, "hand-written-error", "application_error"),
    ({"x-error": "parsing went well, then it failed"}, "hand-written-error", "application_error"),
    ({"x-dlq-reason": "sparse-data"}, "hand-written-error", "application_error"),
    ({"reason": "malformed-json"}, "unknown", "unknown"),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["rabbitmq", "activemq", "artemis"])
def test_what_was_never_read_is_no_failure_of_a_consumer(judge: Any, kind: str) -> None:
    rows = judge(*(record(broker_kind=kind, headers=headers) for headers, _, _ in UNREAD))
    assert [(row["rule"], row["cause"]) for row in rows] == [(rule, cause) for _, rule, cause in UNREAD]


def test_evidence_older_than_the_death_is_marked_stale(judge: Any) -> None:
    dramatiq = _body("jobs.XQ", {"options": {"traceback": TRACEBACK}})
    rows = judge(_rejected_at(BEFORE, FAILED_AT), _rejected_at(AFTER, FAILED_AT), dramatiq)
    assert [row["stale_evidence"] for row in rows] == [False, True, True]


def test_halves_of_characters_in_json_can_be_written(judge: Any) -> None:
    half = {"error_message": "\ud800", "error": "\ud800"}
    sneakers = record(headers={"retry_info": json.dumps(SNEAKERS | half)})
    stamps = json.dumps([{"exceptionMessage": "\ud800"}])
    symfony = record(headers=FAILED | {f"{STAMP}ErrorDetailsStamp": stamps})
    rows = judge(sneakers, symfony)
    assert [row["exception_message"] for row in rows] == ["?", "?"]
    assert [row["evidence"].isascii() for row in rows] == [True, True]
