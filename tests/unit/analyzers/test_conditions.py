"""What a rule of the user's own may say, and that it means the same in each engine."""

import duckdb
import pytest
from support.analyzers.conditions import LETTER, REFUSED, SAME, rule
from support.rows import each_row

from dlq.analyzers.conditions import FUNCTIONS, condition
from dlq.analyzers.user_rules import check_rules
from dlq.core.errors import ConfigError


@each_row(
    "where",
    [
        "java_method('java.lang.System', 'exit', 0) is null", "REFLECT('a', 'b') = 'c'", "`reflect`('a', 'b') = 'c'",
        "try_reflect('a', 'b') = 'c'", "re/**/flect('a') = 'c'",
        "IDENTIFIER('ref' || 'lect')('java.lang.System', 'exit', 0) is null", "identifier('reflect')('a') = 'b'",
        "origin = (select reflect('a', 'b'))", "exists (select 1)", "exists(deaths, d -> reflect(d.reason, 'x') = 'y')",
        "transform(deaths, d -> d.reason) is null", "case when true then reflect('a', 'b') end = 'c'",
        "origin = 'a' or cast(reflect('a', 'b') as string) = 'c'", "raise_error('x') is null", "input_file_name() = 'x'",
        "ai_query('model', body_text) = 'x'", "http_get('http://x') = 'y'", "system.builtin.reflect('a') = 'b'", "count(*) > 1",
        "row_number() over (order by origin) = 1", "origin = 'a') or (reflect('x') = 'y'", "true; drop table x",
        "select reflect('a')", "from reflect('a')", "", "(" * 5000, "a" + ".b" * 2000, "a" + "::int" * 2000,
        "`${env:HOME}` = 'x'",
    ],
)  # fmt: skip
def test_what_is_on_no_list_is_refused_however_it_is_spelled(where: str) -> None:
    with pytest.raises(ConfigError, match="rule 'mine'"):
        condition(rule(where))


def test_spark_finds_no_variable_to_put_into_a_condition() -> None:
    made = condition(rule("origin = '${env:HOME}' or r'\\${system:user.home}' rlike \"[${x}]\""))
    assert "${" not in made
    assert made.count(r"\u0024{") == 3
    with pytest.raises(ConfigError) as refused:
        condition(rule("sha2(body, 256) = 'x'"))
    assert all(name in str(refused.value) for name in FUNCTIONS), "the refusal names what may be used"


def test_a_condition_means_the_same_in_duckdb() -> None:
    with duckdb.connect() as connection:
        connection.register("letters", LETTER)
        found = {
            where: connection.execute(f"SELECT {condition(rule(where), 'duckdb')} FROM letters").fetchall()[
                0
            ][0]
            for where in SAME
        }
    assert found == SAME
    check_rules([rule(where) for where in SAME])


@each_row("where", REFUSED)
def test_what_only_one_engine_would_understand_is_refused_in_one_line(where: str) -> None:
    with pytest.raises(ConfigError, match="rule 'mine'") as refused:
        check_rules([rule(where)])
    assert len(str(refused.value).splitlines()) == 1
