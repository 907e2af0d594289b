"""The rules of the user's configuration, carried out in this process: conditions over a record's columns and
its verdict, which Spark understands the same (`spark.user_rules`)."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dlq.analyzers.asked import Asked
from dlq.analyzers.classification import CLASSIFIED
from dlq.analyzers.conditions import condition, parts_of
from dlq.analyzers.groups.classified import Identity
from dlq.archive import segments
from dlq.archive.manifests import Manifest
from dlq.archive.schema import SEGMENT
from dlq.archive.storage import parquet
from dlq.archive.storage.store import Store
from dlq.core.errors import ConfigError
from dlq.core.settings import Rule

if TYPE_CHECKING:
    import duckdb

BETTER = {"attempts": "attempts", "origin": "origin", "failure_text": "said"}
"""Column of a record -> that of its verdict, which says the same and more."""


def find(letters: pa.Table, asked: Asked, of: Sequence[Manifest]) -> dict[Identity, Rule]:
    """Find for letters after step 1 the first of the user's rules that holds. `of`: the segments that they
    lie in. Raises ConfigError naming the rule whose condition is none."""
    rules = asked.settings.rules
    if not rules:
        return {}
    with closing(_connect(letters)) as connection:
        number_of = _conditions(connection, rules)
        return {identity: rules[number] for identity, number in _find(connection, number_of, asked.store, of)}


def check_rules(rules: Sequence[Rule]) -> None:
    """Raise ConfigError naming the first rule whose condition this engine does not understand, so that the
    other one refuses it, too."""
    with closing(_connect(CLASSIFIED.empty_table())) as connection:
        _conditions(connection, rules)


def _connect(letters: pa.Table) -> "duckdb.DuckDBPyConnection":
    import duckdb

    connection = duckdb.connect(config={"python_enable_replacements": False, "enable_external_access": False})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")
    connection.register("classified", letters)
    return connection


def _conditions(connection: "duckdb.DuckDBPyConnection", rules: Sequence[Rule]) -> str:
    """Return the number of the first rule that holds, as an expression."""
    import duckdb

    parts = []
    connection.register("records", SEGMENT.empty_table())
    for number, rule in enumerate(rules):
        where = condition(rule, "duckdb")
        told = f"rule {rule.name!r}: where = {rule.where!r} is no condition over a record's columns: "
        try:
            found = connection.sql(_query(connection, f"({where})"))
            found.fetchall()  # what no pattern is shows only now
        except duckdb.Error as error:
            reason = next(line for line in (*str(error).splitlines(), "no reason given") if line.strip())
            raise ConfigError(f"{told}{reason}; correct it") from error
        if found.types[-1] != "BOOLEAN":
            raise ConfigError(
                f"{told}it is neither true nor false, but {found.types[-1]}; write a comparison"
            )
        _check_parts(connection, rule, told)
        parts.append(f"WHEN TRY(({where})) THEN {number}")
    return f"CASE {' '.join(parts)} END"


def _check_parts(connection: "duckdb.DuckDBPyConnection", rule: Rule, told: str) -> None:
    """Refuse what only one engine understands: DuckDB makes any type of any other, Spark does not."""
    for use, said, parts in parts_of(rule):
        families = {_family(connection.sql(_query(connection, f"({part})")).types[-1]) for part in parts}
        if not _FITS[use](families - {None}):
            raise ConfigError(
                f"{told}{said[:80]} takes or compares what is of another type; cast it, or name body_text"
            )


def _family(kind: Any) -> str | None:
    """Return the family of a type of DuckDB; None where it fits any."""
    name = str(kind)
    if name.startswith(("MAP", "STRUCT")) or name.endswith("]"):
        return "nested"
    return next((family for start, family in _FAMILIES.items() if name.startswith(start)), "number")


_FAMILIES = {
    '"NULL"': None, "VARCHAR": "text", "BLOB": "bytes", "BOOLEAN": "condition", "TIMESTAMP": "time",
    "DATE": "time", "INTERVAL": "interval",
}  # fmt: skip
_FITS: Mapping[str, Callable[[Set[str | None]], bool]] = {
    "condition": lambda families: families <= {"condition"},
    "compared": lambda families: len(families - {"text"}) <= 1 and families != {"nested", "text"},
    "text": lambda families: families <= {"text"},
    "nested": lambda families: families <= {"nested"},
    "time": lambda families: families <= {"time", "text"},
    "number": lambda families: families <= {"number", "text"},
    "plain": lambda families: families.isdisjoint({"bytes", "nested"}),
}
"""How parts of a condition are used -> whether they may be of these families of types together."""


def _query(connection: "duckdb.DuckDBPyConnection", number: str) -> str:
    said = [name for name in connection.table("classified").columns if name not in SEGMENT.names]
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
    inner = f"SELECT {columns} FROM records r JOIN classified j USING (source, record_id)"
    return f"SELECT source, record_id, {number} AS number FROM ({inner}) WHERE number IS NOT NULL"


def _find(
    connection: "duckdb.DuckDBPyConnection", number_of: str, store: Store, of: Sequence[Manifest]
) -> Iterator[tuple[Identity, int]]:
    """Yield for each letter of which a rule holds its identity and the rule's number; one row group at a
    time."""
    for manifest in of:
        with parquet.readable(manifest.segment):
            file = segments.open_segment(store, manifest, SEGMENT.names)
            for number in range(file.num_row_groups):
                connection.register("records", file.read_row_group(number).cast(SEGMENT))
                found = connection.execute(_query(connection, number_of)).fetchall()
                yield from (((source, record_id), rule) for source, record_id, rule in found)
