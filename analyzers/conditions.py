"""The conditions of a user's own rules: SQL of which only what is on a list may be used.

Rules are copied from others, and an engine's functions can run code, read files and ask other hosts, by many
names and spellings. So a condition is read, held against the list, and written anew: what an engine gets is
made of what was looked at and of nothing else. In each engine's words it means the same.
"""

import re
from collections.abc import Collection, Iterator, Set
from typing import TYPE_CHECKING

from dlq.core.errors import ConfigError, UsageError
from dlq.core.settings import Rule

if TYPE_CHECKING:
    from sqlglot import exp

_WORDS = frozenset({
    "Add", "And", "Between", "Boolean", "Bracket", "Case", "Cast", "Column", "DPipe", "DataType",
    "DataTypeParam", "Div", "Dot", "EQ", "Escape", "GT", "GTE", "HexString", "ILike", "Identifier", "If",
    "In", "Interval", "Is", "JSONPath", "JSONPathKey", "JSONPathRoot", "JSONPathSubscript", "LT", "LTE",
    "Lambda", "Like", "Literal", "Mod", "Mul", "NEQ", "Neg", "Not", "Null", "NullSafeEQ", "NullSafeNEQ", "Or",
    "Paren", "RawString", "Sub", "TryCast", "Tuple", "Var",
})  # fmt: skip
"""What is no function, by the parser's names."""
FUNCTIONS = {
    "abs": "Abs", "array_contains": "ArrayContains", "ceil": "Ceil", "coalesce": "Coalesce",
    "concat": "Concat", "contains": "Contains", "current_date": "CurrentDate",
    "current_timestamp": "CurrentTimestamp", "date_trunc": "TimestampTrunc", "endswith": "EndsWith",
    "exists": "Exists", "floor": "Floor", "get_json_object": "JSONExtractScalar", "greatest": "Greatest",
    "instr": "StrPosition", "least": "Least", "left": "Left", "length": "Length", "lower": "Lower",
    "map_keys": "MapKeys", "now": "Anonymous", "nullif": "Nullif", "replace": "Replace", "right": "Right",
    "rlike": "RegexpLike", "round": "Round", "size": "ArraySize", "split": "Split",
    "startswith": "StartsWith", "substring": "Substring", "trim": "Trim", "upper": "Upper",
}  # fmt: skip
"""Functions that a condition may use -> the parser's name."""
_MAY = _WORDS | {kind for kind in FUNCTIONS.values() if kind != "Anonymous"}
_OF_OTHERS = (_MAY | {"Decode", "Try"}) - {"Replace"}
"""What others than the archive's owner may use in a condition: bodies as texts, too, and nothing that makes
long texts of short ones."""


_OF_TIME = re.compile(r"\b(?:now|today|yesterday|tomorrow|current_\w+)\b", re.IGNORECASE)
"""As functions, or as texts that become times."""
_SUBSTITUTED = "${"
"""Spark puts what the environment and its configuration say in the place of `${...}`, in literals, too."""


def condition(rule: Rule, dialect: str = "spark") -> str:
    """Return the rule's condition, which is Spark SQL, as an engine gets it. Raises ConfigError for one that
    cannot be read, or that uses what is on no list."""
    from sqlglot.errors import SqlglotError

    try:
        return _rewritten(rule, dialect)
    except (SqlglotError, RecursionError) as error:
        told = getattr(error, "errors", None) or [{}]
        why = told[0].get("description") or "it is too deep or no SQL"
        raise ConfigError(
            f"rule {rule.name!r}: where = {rule.where!r} is no condition: {why}; correct it"
        ) from error


def check_columns(where: str, columns: Collection[str]) -> str:
    """Return a condition in DuckDB's words, written anew, that asks for these columns alone: by no other
    name, row or query, and makes no long texts of short ones. Raises UsageError."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        parsed = parse_one(where, dialect="duckdb")
        for node in parsed.walk():
            is_other = isinstance(node, exp.Column) and (node.table or node.name not in columns)
            if is_other or not _is_known(node, _OF_OTHERS):
                told = node.sql(dialect="duckdb")[:80]
                raise UsageError(
                    f"the condition uses {told}: it may use {', '.join(columns)}, and no queries; use those"
                )
        return parsed.sql(dialect="duckdb", comments=False)
    except (SqlglotError, RecursionError) as error:
        raise UsageError("the condition is too deep, or no SQL; make it simpler") from error


def _is_known(node: "exp.Expr", words: Set[str] = _MAY) -> bool:
    from sqlglot import exp

    return node.name.lower() in FUNCTIONS if isinstance(node, exp.Anonymous) else type(node).__name__ in words


def asks_for_time(rule: Rule) -> bool:
    """Return whether a condition may say something else of the same letter later. Raises ConfigError."""
    return _OF_TIME.search(condition(rule)) is not None


def _rewritten(rule: Rule, dialect: str) -> str:
    from sqlglot import exp, parse_one

    parsed = parse_one(rule.where, dialect="spark")
    for node in parsed.walk():
        of_list = isinstance(node, exp.Lambda) and isinstance(node.parent, exp.Exists)
        if of_list and not _is_true_or_false(node):
            raise ConfigError(
                f"rule {rule.name!r}: {node.sql(dialect='spark')[:80]} is no condition"
                "; write one that is true or false"
            )
        if not _is_known(node) or (isinstance(node, exp.Identifier) and _SUBSTITUTED in node.name):
            used = node.name if isinstance(node, exp.Anonymous) else node.sql(dialect="spark")
            raise ConfigError(
                f"rule {rule.name!r}: where uses {used[:80]}; a rule may use comparisons, columns and "
                f"{', '.join(FUNCTIONS)}"
                "; use those"
            )
    if dialect == "spark":
        return parsed.sql(dialect=dialect, comments=False).replace(_SUBSTITUTED, "\\u0024{")
    return parsed.transform(_without_exists).sql(dialect=dialect, comments=False)


def parts_of(rule: Rule) -> "Iterator[tuple[str, str, list[str]]]":
    """Yield what Spark asks of the types of a condition's parts: how they are used, in which words, and each
    part as DuckDB gets it. What lies within a lambda has no type of its own. Raises ConfigError."""
    from sqlglot import exp, parse_one

    condition(rule)
    for node in parse_one(rule.where, dialect="spark").walk():
        if node.find_ancestor(exp.Lambda) is None:
            for use, parts in _uses(node):
                made = [part.copy().transform(_without_exists) for part in parts if part is not None]
                yield use, node.sql(dialect="spark"), [part.sql(dialect="duckdb") for part in made]


def _uses(node: "exp.Expr") -> "Iterator[tuple[str, list[exp.Expr]]]":
    from sqlglot import exp

    if isinstance(node, (exp.And, exp.Or)):
        yield "condition", [node.this, node.expression]
    elif isinstance(node, (exp.Not, exp.If)):
        yield "condition", [node.this]
    elif isinstance(node, (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ)):
        yield "compared", [node.this, node.expression]
    elif isinstance(node, exp.In):
        yield "compared", [node.this, *node.expressions]
    elif isinstance(node, exp.Between):
        yield "compared", [node.this, node.args["low"], node.args["high"]]
    elif isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean):
        yield "condition", [node.this]
    elif isinstance(node, (exp.Contains, exp.StartsWith, exp.EndsWith, exp.JSONExtractScalar)):
        yield "text", [node.this]
    elif isinstance(node, exp.Bracket):
        yield "nested", [node.this]
    elif isinstance(node, exp.Cast) and node.to.is_type("date", "timestamp"):
        yield "time", [node.this]


def _is_true_or_false(of: "exp.Expr") -> bool:
    from sqlglot import exp

    functions = (exp.RegexpLike, exp.Contains, exp.StartsWith, exp.EndsWith, exp.ArrayContains, exp.Exists)
    return isinstance(of.this.unnest(), (exp.Predicate, exp.Connector, exp.Not, exp.Boolean, *functions))


def _without_exists(node: "exp.Expression") -> "exp.Expression":
    """`exists(list, x -> ...)` in words that every engine has."""
    from sqlglot import exp

    if not isinstance(node, exp.Exists):
        return node
    fulfilling = exp.ArrayFilter(this=node.this, expression=node.expression)
    return exp.GT(this=exp.ArraySize(this=fulfilling), expression=exp.Literal.number(0))
