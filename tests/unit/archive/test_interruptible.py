"""A question to the archive ends where Ctrl-C does, whatever DuckDB is at."""

import duckdb
import pytest
from support.rows import each_row

from dlq.archive.interruptible import Interruptible
from dlq.operations.time_limit import OutOfTime, time_limit

LONG = "SELECT count(*) FROM range(100_000) a, range(100_000_000) b WHERE a.range * b.range % 7 = 3"
STREAMED = "SELECT a.range FROM range(100_000) a, range(100_000_000) b WHERE a.range * b.range < 0"


@each_row("sql", [LONG, STREAMED, "SELECT max(md5(cast(range AS varchar))) FROM range(3_000_000_000)"])
def test_a_question_ends_with_the_time_and_the_next_one_is_answered(sql: str) -> None:
    with Interruptible(duckdb.connect()) as connection:
        with pytest.raises(OutOfTime), time_limit(0.2):
            connection.execute(sql).fetchmany(1)
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


@each_row("sql", [LONG, STREAMED])
def test_an_answer_that_is_read_in_batches_ends_so_too(sql: str) -> None:
    with Interruptible(duckdb.connect()) as connection:
        with pytest.raises(OutOfTime), time_limit(0.2):
            list(connection.sql(sql).to_arrow_reader(10))
        batches = list(connection.sql("SELECT unnest([1, 2]) AS n").to_arrow_reader(1))
        assert [row for batch in batches for row in batch.to_pylist()] == [{"n": 1}, {"n": 2}]


def test_an_error_of_a_question_is_that_of_duckdb() -> None:
    with Interruptible(duckdb.connect()) as connection, pytest.raises(duckdb.CatalogException):
        connection.execute("FROM nothing")
