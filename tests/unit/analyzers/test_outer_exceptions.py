"""The outermost exception of a chain is told beside the root cause, in each language."""

from typing import Any

import pytest
from support.analyzers.letters import imported, record
from support.rows import each_row

from dlq.analyzers.rules import Facts, Verdict, judge
from dlq.analyzers.rules.exceptions import explain
from dlq.reports.headline import failure

JAVA = """com.shop.OrderFailed: order 5
\tat com.shop.Orders.take(Orders.java:9)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.sql.SQLTimeoutException: no answer
\tat com.shop.Db.ask(Db.java:3)
\t... 1 more"""
PYTHON = """Traceback (most recent call last):
  File "/app/db.py", line 3, in ask
    raise TimeoutError("no answer")
TimeoutError: no answer

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/app/orders.py", line 9, in take
    raise OrderFailed("order 5") from error
shop.OrderFailed: order 5"""
NET = """Shop.OrderFailed: order 5
 ---> System.TimeoutException: no answer
   at Shop.Db.Ask() in /app/Db.cs:line 3
   --- End of inner exception stack trace ---
   at Shop.Orders.Take() in /app/Orders.cs:line 9"""
NODE = """OrderFailed: order 5
    at take (/app/orders.js:9:1) {
  [cause]: TimeoutError: no answer
      at ask (/app/db.js:3:1)
}"""
PINO = """OrderFailed: order 5
    at take (/app/orders.js:9:1)
caused by: TimeoutError: no answer
    at ask (/app/db.js:3:1)"""
LOGBACK = """java.sql.SQLTimeoutException: no answer
\tat com.shop.Db.ask(Db.java:3)
Wrapped by: com.shop.OrderFailed: order 5
\tat com.shop.Orders.take(Orders.java:9)"""
PHP = """TimeoutException: no answer in /app/db.php:3
Stack trace:
#0 /app/orders.php(9): ask()

Next OrderFailed: order 5 in /app/orders.php:10
Stack trace:
#0 {main}"""
SPRING = "com.shop.OrderFailed: order 5; nested exception is java.sql.SQLTimeoutException: no answer"
ORDER = "OrderFailed: order 5"


@each_row("text", [JAVA, PYTHON, NET, NODE, PINO, LOGBACK, PHP, SPRING])
def test_a_chain_tells_both_ends(text: str) -> None:
    headers = {"x-exception-stacktrace": text, "x-original-exchange": "shop"}
    verdict = judge(record(headers=headers), Facts())
    assert "Timeout" in (verdict.exception_class or "")
    assert verdict.exception_message == "no answer"
    assert ORDER in (verdict.outer_exception or "")
    assert "no answer" not in (verdict.outer_exception or "")


@pytest.mark.parametrize(
    "text",
    [None, "", "boom", "com.shop.Boom: no\n\tat com.shop.Pay.run(Pay.java:5)", "Caused by: ", " ---> "],
)
def test_what_is_no_chain_has_no_outer_end(text: str | None) -> None:
    assert explain(None, None, text).outer is None


def test_go_wraps_words_which_are_all_told_and_reports_tell_both() -> None:
    words = "take order 5: ask db: dial tcp 10.0.0.1:5432: connect: connection refused"
    verdict = judge(record(headers={"reason_poisoned": words, "topic_poisoned": "orders"}), Facts())
    assert (verdict.exception_message, verdict.outer_exception) == (words, None)
    row = {"exception_class": "a.Timeout", "exception_message": "no answer", "outer_exception": ORDER}
    assert failure(row) == ("a.Timeout", "no answer (in OrderFailed: order 5)")


KAFKA: dict[str, Any] = {
    "kafka_dlt-original-topic": "orders",
    "kafka_dlt-exception-fqcn": "com.shop.OrderFailed",
    "kafka_dlt-exception-cause-fqcn": "java.sql.SQLTimeoutException",
    "kafka_dlt-exception-message": "no answer",
}


def verdict_of(kind: str, headers: dict[str, Any]) -> Verdict:
    return judge(imported({"broker_kind": kind, "queue": "orders.dead", "headers": headers}), Facts())


@pytest.mark.parametrize(("kind", "headers"), [
    ("kafka", KAFKA),
    (
        "artemis",
        {
            "dead_letter_exception_class_name": "com.shop.OrderFailed",
            "dead_letter_cause_class_name": "java.sql.SQLTimeoutException", "dead_letter_reason": "order 5",
            "dead_letter_cause": "no answer",
        },
    ),
])  # fmt: skip
def test_headers_that_name_both_classes_tell_both(kind: str, headers: dict[str, Any]) -> None:
    verdict = verdict_of(kind, headers)
    assert verdict.exception_class == "java.sql.SQLTimeoutException"
    assert verdict.outer_exception == "com.shop.OrderFailed"
    one = {**KAFKA, "kafka_dlt-exception-fqcn": KAFKA["kafka_dlt-exception-cause-fqcn"]}
    assert verdict_of("kafka", one).outer_exception is None, "one class in two headers is one"
