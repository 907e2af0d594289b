"""The conditions of a user's own rules: SQL of which only what is on a list may be used.

Rules are copied from others, and an engine's functions can run code, read files and ask other hosts, by many
names and spellings. So a condition is read, held against the list, and written anew: what an engine gets is
made of what was looked at and of nothing else. In each engine's words it means the same.
"""

from typing import TYPE_CHECKING

from dlq.core.errors import ConfigError
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


_SUBSTITUTED = "${"
"""Spark puts what the environment and its configuration say in the place of `${...}`, in literals, too."""


def condition(rule: Rule, dialect: str = "spark") -> str:
    """The rule's condition, which is Spark SQL, as an engine gets it. Raises ConfigError for one that cannot
    be read, or that uses what is on no list."""
    from sqlglot.errors import SqlglotError

    try:
        return _rewritten(rule, dialect)
    except (SqlglotError, RecursionError) as error:
        told = getattr(error, "errors", None) or [{}]
        why = told[0].get("description") or "it is too deep or no SQL"
        raise ConfigError(f"rule {rule.name!r}: where = {rule.where!r} is no condition: {why}") from error


def _rewritten(rule: Rule, dialect: str) -> str:
    from sqlglot import exp, parse_one

    parsed = parse_one(rule.where, dialect="spark")
    for node in parsed.walk():
        kind = type(node).__name__
        known = node.name.lower() in FUNCTIONS if isinstance(node, exp.Anonymous) else kind in _MAY
        if not known or (isinstance(node, exp.Identifier) and _SUBSTITUTED in node.name):
            used = node.name if isinstance(node, exp.Anonymous) else node.sql(dialect="spark")
            raise ConfigError(
                f"rule {rule.name!r}: where uses {used[:80]}; a rule may use comparisons, columns and "
                f"{', '.join(FUNCTIONS)}"
            )
    if dialect == "spark":
        return parsed.sql(dialect=dialect, comments=False).replace(_SUBSTITUTED, "\\u0024{")
    return parsed.transform(_without_exists).sql(dialect=dialect, comments=False)


def _without_exists(node: "exp.Expression") -> "exp.Expression":
    """`exists(list, x -> ...)` in words that every engine has."""
    from sqlglot import exp

    if not isinstance(node, exp.Exists):
        return node
    fulfilling = exp.ArrayFilter(this=node.this, expression=node.expression)
    return exp.GT(this=exp.ArraySize(this=fulfilling), expression=exp.Literal.number(0))
