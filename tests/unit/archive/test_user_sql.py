import duckdb
import pytest

from dlq.archive.user_sql import condition, run, single_select
from dlq.core.errors import UsageError


@pytest.mark.parametrize(("sql", "quoted"), [
    ("select offset from records", '"offset"'),
    ("select max(r.OFFSET), count(*) from records r where offset > 1", '"offset"'),
    ("select cause, end from incidents", '"end"'),
])  # fmt: skip
def test_a_column_that_is_a_keyword_is_told_to_be_quoted(sql: str, quoted: str) -> None:
    with pytest.raises(UsageError, match=f"write {quoted} in double quotes"):
        single_select(sql)


def test_another_mistake_gets_no_hint_and_what_is_right_stays_as_it_is() -> None:
    with pytest.raises(UsageError, match='write "offset" in double quotes'):
        condition("offset > 5")
    for sql in ("selct offset from records", "select end end from"):
        with pytest.raises(UsageError, match=r"^(?!.*double quotes)"):
            single_select(sql)
    sql = 'select "offset", case when true then 1 end from records limit 5 offset 1'
    assert single_select(sql) == sql


@pytest.mark.parametrize("value", ["to_days(1000000000)", "[interval 2000000000 month]"])
def test_an_interval_that_python_does_not_know_is_a_mistake_in_a_line(value: str) -> None:
    with duckdb.connect() as connection, pytest.raises(UsageError, match="larger than can be shown"):
        list(run(connection, f"select {value}").rows)
