"""The outermost exception of a chain is told beside the root cause, in each language."""

from typing import Any

import pytest
from support.analyzers.letters import imported, record
from support.rows import each_row

from dlq.analyzers.rules import Facts, Verdict, judge
from dlq.analyzers.rules.exceptions import explain
from dlq.reports.headline import failure

ROOT, ORDER = "java.sql.SQLTimeoutException: no answer", "OrderFailed: order 5"
TRACE = 'Traceback (most recent call last):\n  File "/app/a.py", line 3, in ask\n'
CHAINS = {
    "Java": f"com.shop.{ORDER}\n\tat com.shop.Orders.take(Orders.java:9)\nCaused by: {ROOT}\n\tat com.shop.Db.ask(Db.java:3)\n\t... 1 more",
    "Logback": f"{ROOT}\n\tat com.shop.Db.ask(Db.java:3)\nWrapped by: com.shop.{ORDER}\n\tat com.shop.Orders.take(Orders.java:9)",
    "Spring": f"com.shop.{ORDER}; nested exception is {ROOT}",
    "Python": f"{TRACE}TimeoutError: no answer\n\nThe above exception was the direct cause of the following exception:\n\n{TRACE}shop.{ORDER}",
    ".NET": f"Shop.{ORDER}\n ---> System.TimeoutException: no answer\n   at Shop.Db.Ask() in /app/Db.cs:line 3\n"
        "   --- End of inner exception stack trace ---\n   at Shop.Orders.Take() in /app/Orders.cs:line 9",
    "Node": f"{ORDER}\n    at take (/app/a.js:9:1) {{\n  [cause]: TimeoutError: no answer\n      at ask (/app/b.js:3:1)\n}}",
    "Pino": f"{ORDER}\n    at take (/app/a.js:9:1)\ncaused by: TimeoutError: no answer\n    at ask (/app/b.js:3:1)",
    "PHP": f"TimeoutException: no answer in /app/db.php:3\nStack trace:\n#0 /app/orders.php(9): ask()\n\n"
        f"Next {ORDER} in /app/orders.php:10\nStack trace:\n#0 {{main}}",
}  # fmt: skip


@each_row("text", CHAINS.values(), ids=CHAINS)
def test_a_chain_tells_both_ends(text: str) -> None:
    headers = {"x-exception-stacktrace": text, "x-original-exchange": "shop"}
    verdict = judge(record(headers=headers), Facts())
    assert "Timeout" in (verdict.exception_class or "")
    assert verdict.exception_message == "no answer"
    assert ORDER in (verdict.outer_exception or "")
    assert "no answer" not in (verdict.outer_exception or "")


@each_row(
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
