"""Class, message and family of exceptions, the outermost one of a chain, and fingerprints that last."""

from typing import Any

import pytest
from support.analyzers.letters import imported, record
from support.rows import each_row

from dlq.analyzers.rules import Facts, Verdict, judge
from dlq.analyzers.rules.exceptions import ReadException, explain, fingerprint
from dlq.reports.headline import failure

JAVA = (
    "org.springframework.amqp.ListenerExecutionFailedException: Listener threw\n"
    "\tat org.springframework.A.b(A.java:1)\n"
    "Caused by: java.lang.IllegalStateException: cannot book\n"
    "\tat com.shop.Order.book(Order.java:7)\n\t... 3 more\n"
    "Caused by: com.shop.StockException: stock of article 17 is -3\n\tat java.util.List.of(List.java:1)\n"
    "\tat com.shop.Stock.take(Stock.java:42)\n\t... 9 more"
)
DOTNET = (
    "System.AggregateException: One or more errors occurred.\r\n"
    " ---> (Inner Exception #0) System.TimeoutException: no answer\r\n"
    "   at Shop.Gateway.Call(Order o) in /src/Gateway.cs:line 12\r\n"
    "   --- End of inner exception stack trace ---\r\n   at System.Threading.Tasks.Task.Wait()"
)
PYTHON = (
    'Traceback (most recent call last):\n  File "/app/shop/work.py", line 3, in pay\n    send()\n'
    "  File \"/venv/site-packages/x/y.py\", line 9, in send\n    raise KeyError(name)\nKeyError: 'price'\n"
)
NODE = (
    "TypeError: Cannot read properties of undefined (reading 'id')\n"
    "    at takeStock (/app/stock.js:10:5)\n    at node:internal/x:1:2"
)
CAMEL = "Error occurred during processing. Exchange[4711]."

# text, (class, message, family)
TABLE: list[tuple[str | None, tuple[str | None, str | None, str | None]]] = [
    (None, (None, None, None)),
    (JAVA, ("com.shop.StockException", "stock of article 17 is -3", "business")),
    (DOTNET, ("System.TimeoutException", "no answer", "timeout")),
    (PYTHON, ("KeyError", "'price'", "not_found")),
    (NODE, ("TypeError", "Cannot read properties of undefined (reading 'id')", "bug")),
    (
        "org.apache.camel.InvalidPayloadException: No body. Caused by: [org.apache.camel.TypeConversionException"
            ' - not the type due to java.lang.NumberFormatException: For input string: "ten"]',
        ("java.lang.NumberFormatException", 'For input string: "ten"', "serialization"),
    ),
    (f"{CAMEL} Caused by: [com.shop.NoStock - sold out: 3 - left]", ("com.shop.NoStock", "sold out: 3 - left", "business")),
    (f"{CAMEL} Caused by: [NoStock - null]", ("NoStock", None, "other")),
    ("a.BException: a\n\tat x.Y.z(A.java:1)\nCaused by: Declined: sold out\n\tat s.P.q(P.java:3)",
     ("Declined", "sold out", "other")),
    ("a.BException: a\nCaused by: shop.Orders$Inner: sold out", ("shop.Orders$Inner", "sold out", "business")),
    ("Error: a\n    at f (/a.js:1:2) {\n  [cause]: Declined: sold out\n      at g (/a.js:3:4)\n}",
     ("Declined", "sold out", "other")),
    ("it failed. Caused by: Database: it is down", (None, "Database: it is down", "other")),
    ("a.BException: a\nCaused by: something: it is down", (None, "something: it is down", "other")),
    ("java.lang.IllegalStateException: [1, 2]", ("java.lang.IllegalStateException", "[1, 2]", "bug")),
    ("a.B: x; nested exception is java.sql.SQLException: no table", ("java.sql.SQLException", "no table", "database")),
    ("com.shop.BadException: two\nlines\n\tat com.shop.A.b(A.java:1)", ("com.shop.BadException", "two\nlines", "business")),
    ("Shop.DbException: Violation of UNIQUE constraint", ("Shop.DbException", "Violation of UNIQUE constraint", "duplicate")),
    ("a.PayException: HTTP/1.1 504 from the gateway", ("a.PayException", "HTTP/1.1 504 from the gateway", "timeout")),
    ("status code: 503, try later", (None, "status code: 503, try later", "connection")),
    ("com.shop.StockException: no stock of article 504", ("com.shop.StockException", "no stock of article 504", "business")),
]  # fmt: skip


# text, (class, message) of other languages and runtimes
OTHERS: list[tuple[str, tuple[str | None, str | None]]] = [
    ("System.Net.Sockets.SocketException (125): Operation canceled", ("System.Net.Sockets.SocketException", "Operation canceled")),
    ("Npgsql.PostgresException (0x80004005): 53300: too many", ("Npgsql.PostgresException", "53300: too many")),
    ("RangeError [ERR_OUT_OF_RANGE]: too large\n    at f (/a.js:1:1)", ("RangeError", "too large")),
    ("App\\StockException: x in /app/Stock.php:7\nStack trace:\n#0 {main}", ("App\\StockException", "x")),
    ("Net::SMTPFatalError: 550 no\n/app/a.rb:1:in `b'", ("Net::SMTPFatalError", "550 no")),
    ("/app/a.rb:1:in 'A#b': no id (NoMethodError)\n\tfrom /app/c.rb:2:in 'd'", ("NoMethodError", "no id")),
    ("panic: x\n\ngoroutine 7 [running]:\na.B(0x1)\n\t/a.go:7", (None, "panic: x\n")),
    ("a.BadException: x\n   bei Shop.A.B() in C:\\A.cs:Zeile 1.", ("a.BadException", "x")),
]  # fmt: skip


def read(text: str | None) -> ReadException:
    return explain(None, None, text)


def printed(text: str | None) -> str:
    return fingerprint("application_error", "framework", "orders", read(text))


@each_row(("text", "expected"), [*TABLE, *OTHERS])
def test_class_message_and_family_are_of_the_root_cause(text: str | None, expected: tuple[str, ...]) -> None:
    assert read(text)[: len(expected)] == expected


def test_a_verdict_s_own_class_and_message_count_where_the_text_has_none() -> None:
    assert explain("a.PayException", "no money", "some words")[:3] == ("a.PayException", "no money", "business")  # fmt: skip
    assert explain("a.PayException", "no money", JAVA)[:2] == read(JAVA)[:2]
    assert explain("a.PayException", "no money", "   ")[:2] == ("a.PayException", "no money")
    assert explain("", "java.lang.Error: x", None)[:2] == ("java.lang.Error", "x")


def test_a_place_is_the_first_own_frame_or_the_message_s_template() -> None:
    places = [read(text).place for text in (JAVA, DOTNET, PYTHON, NODE)]
    assert places == ["com.shop.Stock.take", "Shop.Gateway.Call", "work.py pay", "stock takeStock"]
    assert read("order 4711 of 'Ann' failed: 7f3a9c1e").place == "order ? of ? failed: ?"
    assert read("nom « x » 12ms\nat 7").place == "nom ? ?"
    assert read("ORA-00001: 'O'Neill' on 10.0.0.7:1521").place == "ORA-00001: ? on ?"
    assert read("status code 503 after 3 tries").place == "status code 503 after ? tries"


def test_words_end_where_they_did_for_java() -> None:
    """Letters of all alphabets belong to a word, and accents to their letter; `²` does not."""
    families = [
        read(text).exception_family for text in ("sql", "²sql", "ésql", "ſql", "HTTP 504²", "HTTP 504é")
    ]
    assert families == ["database", "database", "other", "other", "timeout", "other"]


def test_a_fingerprint_joins_what_differs_only_in_numbers_and_lines() -> None:
    texts = [
        JAVA,
        JAVA.replace("17", "99").replace(":42", ":51"),  # another article, another release
        JAVA.replace("Stock.take", "Stock.give"),  # another place
        JAVA.replace("StockException", "PriceException"),  # another class
        "order 4711 of 'Ann' at 2026-11-02T03:12:09Z failed: 7f3a9c1e",
        "order 12 of 'Bob' at 2026-11-03T09:00:00Z failed: 00aa11bb",
        "order 12 of 'Bob' was refused",
    ]
    go = "runtime error: {} [running]:\\na.B(0x1)\\n\\t/a.go:7"  # no class: the words tell them apart
    assert len({printed(go.format(said)) for said in ("nil pointer 1", "nil pointer 2", "out of range")}) == 2
    prints = [printed(text) for text in texts]
    assert prints[0] == prints[1]
    assert prints[4] == prints[5]
    assert len(set(prints)) == 5
    assert printed(JAVA) == "6507857c9e219d48", "in every run"


def test_without_an_exception_a_fingerprint_says_where_letters_of_this_cause_died() -> None:
    nothing = read(None)
    here = fingerprint("expired", "ttl", "orders", nothing)
    assert here == fingerprint("expired", "ttl", "orders", read("  "))
    others = [("expired", "ttl", "bills"), ("expired", None, "orders"), ("expired", None, None)]
    assert len({here, *(fingerprint(*other, nothing) for other in others)}) == 4


TIMEOUT, ORDER = "java.sql.SQLTimeoutException: no answer", "OrderFailed: order 5"
TRACE = 'Traceback (most recent call last):\n  File "/app/a.py", line 3, in ask\n'
CHAINS = {
    "Java": f"com.shop.{ORDER}\n\tat com.shop.Orders.take(Orders.java:9)\nCaused by: {TIMEOUT}\n\tat com.shop.Db.ask(Db.java:3)\n\t... 1 more",
    "Logback": f"{TIMEOUT}\n\tat com.shop.Db.ask(Db.java:3)\nWrapped by: com.shop.{ORDER}\n\tat com.shop.Orders.take(Orders.java:9)",
    "Spring": f"com.shop.{ORDER}; nested exception is {TIMEOUT}",
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


OF_KAFKA: dict[str, Any] = {
    "kafka_dlt-original-topic": "orders",
    "kafka_dlt-exception-fqcn": "com.shop.OrderFailed",
    "kafka_dlt-exception-cause-fqcn": "java.sql.SQLTimeoutException",
    "kafka_dlt-exception-message": "no answer",
}


def verdict_of(kind: str, headers: dict[str, Any]) -> Verdict:
    return judge(imported({"broker_kind": kind, "queue": "orders.dead", "headers": headers}), Facts())


@pytest.mark.parametrize(("kind", "headers"), [
    ("kafka", OF_KAFKA),
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
    one = {**OF_KAFKA, "kafka_dlt-exception-fqcn": OF_KAFKA["kafka_dlt-exception-cause-fqcn"]}
    assert verdict_of("kafka", one).outer_exception is None, "one class in two headers is one"
