"""Class, message and family of exceptions, and fingerprints that last."""

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dlq.analyzers.exceptions import explain
from dlq.analyzers.rule import FIELDS

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

# text, (class, message, family)
TABLE: list[tuple[str | None, tuple[str | None, str | None, str | None]]] = [
    (None, (None, None, None)),
    ("", (None, None, None)),
    (JAVA, ("com.shop.StockException", "stock of article 17 is -3", "business")),
    (DOTNET, ("System.TimeoutException", "no answer", "timeout")),
    (PYTHON, ("KeyError", "'price'", "not_found")),
    (NODE, ("TypeError", "Cannot read properties of undefined (reading 'id')", "bug")),
    ("stock is negative: -3", (None, "stock is negative: -3", "other")),
    ("Note: nothing", (None, "Note: nothing", "other")),
    ("java.net.ConnectException", ("java.net.ConnectException", None, "connection")),
    (
        "a.B: x; nested exception is java.sql.SQLException: no table",
        ("java.sql.SQLException", "no table", "database"),
    ),
    (
        "com.shop.BadException: two\nlines\n\tat com.shop.A.b(A.java:1)",
        ("com.shop.BadException", "two\nlines", "business"),
    ),
    (
        "org.postgresql.util.PSQLException: ERROR: deadlock detected",
        ("org.postgresql.util.PSQLException", "ERROR: deadlock detected", "database"),
    ),
    (
        "Shop.DbException: Violation of UNIQUE constraint",
        ("Shop.DbException", "Violation of UNIQUE constraint", "duplicate"),
    ),
    (
        "com.fasterxml.jackson.core.JsonParseException: Unexpected",
        ("com.fasterxml.jackson.core.JsonParseException", "Unexpected", "serialization"),
    ),
    ("System.UnauthorizedAccessException: no", ("System.UnauthorizedAccessException", "no", "auth")),
    (
        "a.PayException: HTTP/1.1 504 from the gateway",
        ("a.PayException", "HTTP/1.1 504 from the gateway", "timeout"),
    ),
    ("status code: 503, try later", (None, "status code: 503, try later", "connection")),
    (
        "com.shop.StockException: no stock of article 504",
        ("com.shop.StockException", "no stock of article 504", "business"),
    ),
    ("<script>alert(1)</script>", (None, "<script>alert(1)</script>", "other")),
]


def explained(spark: SparkSession, texts: list[Any], partitions: int = 1) -> list[Any]:
    rows = [(n, text, "orders", "application_error") for n, text in enumerate(texts)]
    made = spark.createDataFrame(rows, "n int, error_text string, dead_letter_queue string, cause string")
    fields = {
        **{name: F.lit(None).cast(kind) for name, kind in FIELDS.items()},
        "error_text": F.col("error_text"),
    }
    fields |= {"cause": F.col("cause"), "mechanism": F.lit("framework")}
    verdict = F.struct(*(value.alias(name) for name, value in fields.items()))
    decided = made.repartition(partitions).withColumn("verdict", verdict).drop("error_text", "cause")
    return sorted(explain(decided).collect(), key=lambda row: int(row.n))


def test_class_message_and_family_are_those_of_the_root_cause(spark: SparkSession) -> None:
    rows = explained(spark, [text for text, _ in TABLE])
    said = [(row.exception_class, row.exception_message, row.exception_family) for row in rows]
    assert said == [expected for _, expected in TABLE]


def test_a_fingerprint_joins_what_differs_only_in_numbers_and_lines(spark: SparkSession) -> None:
    texts = [
        JAVA,
        JAVA.replace("17", "99").replace(":42", ":51"),  # another article, another release
        JAVA.replace("Stock.take", "Stock.give"),  # another place
        JAVA.replace("StockException", "PriceException"),  # another class
        "order 4711 of 'Ann' at 2026-11-02T03:12:09Z failed: 7f3a9c1e",
        "order 12 of 'Bob' at 2026-11-03T09:00:00Z failed: 00aa11bb",
        "order 12 of 'Bob' was refused",
    ]
    prints = [row.fingerprint for row in explained(spark, texts)]
    assert prints[0] == prints[1]
    assert prints[4] == prints[5]
    assert len(set(prints)) == 5


def test_a_fingerprint_is_the_same_in_every_partition_and_run(spark: SparkSession) -> None:
    prints = {row.fingerprint for row in explained(spark, [JAVA] * 8, partitions=4)}
    assert prints == {"2662373bf8eeba17"}


@pytest.mark.timeout(120)
def test_a_hostile_text_costs_no_more_than_its_length(spark: SparkSession) -> None:
    hostile = [
        "a." * 200_000,
        "A" * 400_000,
        "\n at " * 100_000,
        "Caused by: " * 50_000,
        "(" * 300_000,
        "x: " * 100_000,
    ]
    assert len(explained(spark, hostile)) == len(hostile)
