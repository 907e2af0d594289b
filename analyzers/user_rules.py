"""The rules of the user's configuration, carried out in this process: conditions over a record's columns and
its verdict, which Spark understands the same (`spark.user_rules`)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dlq.analyzers.asked import Asked
from dlq.analyzers.conditions import condition
from dlq.archive import parquet, segments
from dlq.archive.schema import SEGMENT
from dlq.core.causes import proof_of
from dlq.core.errors import ConfigError
from dlq.core.settings import Rule

if TYPE_CHECKING:
    import duckdb

IDENTITY = ("source", "record_id")
BETTER = {"attempts": "attempts", "origin": "origin", "failure_text": "said"}
"""Column of a record -> that of its verdict, which says the same and more."""


def applied(letters: pa.Table, asked: Asked) -> pa.Table:
    """Letters after step 1, with `user_rule`, the first of the user's rules that holds, and its cause. Raises
    ConfigError naming the rule whose condition is none."""
    rules = asked.settings.rules
    if not rules:
        return letters.append_column("user_rule", pa.nulls(len(letters), pa.string()))
    with closing(_connected(letters)) as connection:
        number_of = _conditions(connection, rules)
        found = {identity: rules[number] for identity, number in _held(connection, number_of, asked)}
    names = zip(*(letters[name].to_pylist() for name in IDENTITY), strict=True)
    mine = [found.get(name) for name in names]
    for name, said in _SAID.items():
        before = zip(mine, letters[name].to_pylist(), strict=True)
        values = [said(rule) if rule and rule.cause else old for rule, old in before]
        place = letters.column_names.index(name)
        letters = letters.set_column(place, name, pa.array(values, letters.schema.field(name).type))
    return letters.append_column("user_rule", pa.array([rule and rule.name for rule in mine], pa.string()))


_SAID: Mapping[str, Callable[[Rule], Any]] = {
    "rule": lambda rule: rule.name,
    "cause": lambda rule: rule.cause,
    "proof": lambda rule: proof_of(rule.cause, ()),
    "also_possible": lambda _rule: [],
}
"""What a rule that names a cause says of a verdict."""


def _connected(letters: pa.Table) -> "duckdb.DuckDBPyConnection":
    import duckdb

    connection = duckdb.connect(config={"python_enable_replacements": False, "enable_external_access": False})
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("judged", letters)
    return connection


def _conditions(connection: "duckdb.DuckDBPyConnection", rules: Sequence[Rule]) -> str:
    """The number of the first rule that holds, as an expression."""
    import duckdb

    parts = []
    connection.register("records", SEGMENT.empty_table())
    for number, rule in enumerate(rules):
        where = condition(rule, "duckdb")
        try:
            connection.execute(_query(connection, f"({where})"))
        except duckdb.Error as error:
            reason = next(line for line in (*str(error).splitlines(), "no reason given") if line.strip())
            told = f"where = {rule.where!r} is no condition over a record's columns: {reason}"
            raise ConfigError(f"rule {rule.name!r}: {told}") from error
        parts.append(f"WHEN ({where}) THEN {number}")
    return f"CASE {' '.join(parts)} END"


def _query(connection: "duckdb.DuckDBPyConnection", number: str) -> str:
    said = [name for name in connection.table("judged").columns if name not in SEGMENT.names]
    plain = [f'r."{name}"' for name in SEGMENT.names if name not in BETTER]
    better = [
        f'coalesce(r."{name}", j."{other}") AS "{name}"'
        if name == "failure_text"
        else f'coalesce(j."{other}", r."{name}") AS "{name}"'
        for name, other in BETTER.items()
    ]
    columns = ", ".join(
        [*plain, *better, *(f'j."{name}"' for name in said), "try(decode(r.body)) AS body_text"]
    )
    inner = f"SELECT {columns} FROM records r JOIN judged j USING (source, record_id)"
    return f"SELECT source, record_id, {number} AS number FROM ({inner}) WHERE number IS NOT NULL"


def _held(
    connection: "duckdb.DuckDBPyConnection", number_of: str, asked: Asked
) -> Iterator[tuple[tuple[str, str], int]]:
    """Of each letter of which a rule holds its identity and the rule's number; one row group at a time."""
    for manifest in asked.chosen:
        with parquet.readable(manifest.segment):
            file = segments.opened(asked.store, manifest, SEGMENT.names)
            for number in range(file.num_row_groups):
                connection.register("records", file.read_row_group(number).cast(SEGMENT))
                found = connection.execute(_query(connection, number_of)).fetchall()
                yield from (((source, record_id), rule) for source, record_id, rule in found)
