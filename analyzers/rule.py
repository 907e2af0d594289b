"""What a cause rule is, and the few words of SQL that all rule tables are written with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

FIELDS: Mapping[str, str] = {
    "evidence": "string",
    "stale_evidence": "boolean",
    "attempts": "int",
    "origin_kind": "string",
    "origin": "string",
    "error_class": "string",
    "error_message": "string",
    "error_text": "string",
    "producer_id": "string",
    "producer_seq": "bigint",
    "consumer_id": "string",
    "connection_id": "string",
    "transaction_state": "string",
}
"""What a rule may say beside its cause, and the SQL type. `error_text` is a stack trace or whatever
text holds the exception; `exceptions` reads class and message from it, and falls back on
`error_class` and `error_message`."""


@dataclass(frozen=True)
class Rule:
    """One named condition and what it means.

    `when` and the values of `fields` are Spark SQL. `words` says `when` to a person. `body_if` says,
    without looking at the body, for which letters the rule needs the column `body_text`.
    """

    name: str
    words: str
    when: str
    cause: str
    mechanism: str
    fields: Mapping[str, str] = field(default_factory=dict)
    body_if: str = ""


def literal(text: str) -> str:
    """`text` as an SQL string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def header(name: str) -> str:
    """The SQL that reads a header: null when it is not there."""
    return f"headers[{literal(name)}]"


def first_header(*names: str) -> str:
    """The first of some headers that is there."""
    return f"coalesce({', '.join(map(header, names))})" if len(names) > 1 else header(names[0])


def count_header(*names: str) -> str:
    """A header as a whole number; null when it is none."""
    return f"try_cast({first_header(*names)} AS int)"


def part_of(text: str, pattern: str, group: int = 1) -> str:
    """What a group of a pattern finds in a text; null when it finds nothing.

    `nullif(regexp_extract(…), '')` would say the same, and search twice.
    """
    return f"filter(array(regexp_extract({text}, {literal(pattern)}, {group})), part -> part <> '')[0]"


def cut(column: str, characters: int) -> str:
    """The beginning of a text. Counting the characters of every short one would cost more than the rest."""
    return (
        f"CASE WHEN octet_length({column}) > {characters} THEN substring({column}, 1, {characters}) "
        f"ELSE {column} END"
    )


def of_kind(*kinds: str) -> str:
    """The condition that the record came from one of these broker kinds."""
    return f"broker_kind IN ({', '.join(map(literal, kinds))})"
