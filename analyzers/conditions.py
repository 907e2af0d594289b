"""The conditions of a user's own rules: SQL of which only what is on a list may be used.

Rules are copied from others, and an engine's functions can run code, read files and ask other hosts, by many
names and spellings. So a condition is read, held against the list, and written anew: what an engine gets is
made of what was looked at and of nothing else. In each engine's words it means the same.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from typing import TYPE_CHECKING

from dlq.analyzers.patterns import in_java
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
    "rlike": "RegexpLike", "round": "Round", "size": "ArraySize", "split": "RegexpSplit",
    "startswith": "StartsWith", "substring": "Substring", "trim": "Trim", "upper": "Upper",
}  # fmt: skip
"""Functions that a condition may use -> the parser's name."""
_MAY = _WORDS | {kind for kind in FUNCTIONS.values() if kind != "Anonymous"}
_OF_OTHERS = (_MAY | {"Decode", "Split", "Try"}) - {"Replace"}
"""What others than the archive's owner may use in a condition: bodies as texts, too, and nothing that makes
long texts of short ones."""


_OF_TIME = re.compile(r"\b(?:now|today|yesterday|tomorrow|current_\w+)\b", re.IGNORECASE)
"""As functions, or as texts that become times."""
_ODD_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\(?![\\%_])")
"""In a pattern of `like`."""
_EMPTY_CHOICE = re.compile(r"\A\Z|(?<![^(|])\||(?<!\\)\|(?![^)|])")
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
        _check_part(rule, node)
    if dialect == "spark":
        for node in parsed.find_all(exp.RegexpLike, exp.RegexpSplit):
            if (pattern := _pattern(node)) is not None:
                node.set("expression", exp.Literal.string(in_java(pattern)))
        return parsed.sql(dialect=dialect, comments=False).replace(_SUBSTITUTED, "\\u0024{")
    return _in_duckdb(parsed).sql(dialect=dialect, comments=False)


def _check_part(rule: Rule, node: "exp.Expr") -> None:
    from sqlglot import exp

    if isinstance(node, exp.RegexpSplit):
        _check_split(rule, node)
    of_list = isinstance(node, exp.Lambda) and isinstance(node.parent, exp.Exists)
    if of_list and not _is_true_or_false(node):
        raise ConfigError(
            f"rule {rule.name!r}: {node.sql(dialect='spark')[:80]} is no condition"
            "; write one that is true or false"
        )
    is_like = isinstance(node, (exp.Like, exp.ILike)) and not isinstance(node.parent, exp.Escape)
    if is_like and _ODD_ESCAPE.search(node.expression.name):
        raise ConfigError(
            f"rule {rule.name!r}: a backslash in {node.sql(dialect='spark')[:80]} stands before neither %, _ "
            "nor another one; write it twice"
        )
    if not _is_known(node) or (isinstance(node, exp.Identifier) and _SUBSTITUTED in node.name):
        used = node.name if isinstance(node, exp.Anonymous) else node.sql(dialect="spark")
        raise ConfigError(
            f"rule {rule.name!r}: where uses {used[:80]}; a rule may use comparisons, columns and "
            f"{', '.join(FUNCTIONS)}"
            "; use those"
        )


def _check_split(rule: Rule, node: "exp.RegexpSplit") -> None:
    pattern = _pattern(node)
    if pattern is not None and _EMPTY_CHOICE.search(pattern):
        raise ConfigError(
            f"rule {rule.name!r}: {node.sql(dialect='spark')[:80]} splits where nothing stands, of which "
            "each engine makes something else; write [|] for the sign |"
        )


def _pattern(node: "exp.Expr") -> str | None:
    from sqlglot import exp

    of = node.expression
    return str(of.name) if isinstance(of, (exp.Literal, exp.RawString)) else None


def parts_of(rule: Rule) -> "Iterator[tuple[str, str, list[str]]]":
    """Yield what Spark asks of the types of a condition's parts: how they are used, in which words, and each
    part as DuckDB gets it. What lies within a lambda has no type of its own. Raises ConfigError."""
    from sqlglot import exp, parse_one

    condition(rule)
    for node in parse_one(rule.where, dialect="spark").walk():
        if node.find_ancestor(exp.Lambda) is None:
            for use, parts in _uses(node):
                made = [_in_duckdb(part.copy()) for part in parts if part is not None]
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
    elif isinstance(node, exp.Cast):
        kinds = exp.DataType
        to = {"time": ("date", "timestamp"), "number": kinds.NUMERIC_TYPES, "plain": kinds.TEXT_TYPES}
        yield from ((use, [node.this]) for use, types in to.items() if node.to.is_type(*types))


def _is_true_or_false(of: "exp.Expr") -> bool:
    from sqlglot import exp

    functions = (exp.RegexpLike, exp.Contains, exp.StartsWith, exp.EndsWith, exp.ArrayContains, exp.Exists)
    return isinstance(of.this.unnest(), (exp.Predicate, exp.Connector, exp.Not, exp.Boolean, *functions))


def _in_duckdb(parsed: "exp.Expr") -> "exp.Expr":
    """Write a condition of Spark's so that it means the same in DuckDB, its innermost parts first."""
    from sqlglot import exp

    whole = exp.Paren(this=parsed)
    for node in reversed([*parsed.walk()]):
        if rewrite := _IN_DUCKDB.get(type(node).__name__):
            node.replace(rewrite(node))
    made: exp.Expr = whole.this
    return made


def _guard(node: "exp.Expr") -> "exp.Expr":
    """Spark has null where DuckDB raises: for a text that is no number, no time, or no JSON."""
    from sqlglot import exp

    return exp.Try(this=node.copy())


def _rewrite_exists(node: "exp.Expr") -> "exp.Expr":
    """`exists(list, x -> ...)`: null where it is true of no element, and null of some."""
    from sqlglot import exp

    holds, unknown = node.expression, node.expression.copy()
    unknown.set("this", exp.Is(this=exp.Paren(this=unknown.this), expression=exp.Null()))
    found, doubtful = (
        exp.GT(
            this=exp.ArraySize(this=exp.ArrayFilter(this=node.this.copy(), expression=which)),
            expression=exp.Literal.number(0),
        )
        for which in (holds, unknown)
    )
    return exp.Paren(this=exp.or_(found, exp.Nullif(this=doubtful, expression=exp.true())))


def _add_escape(node: "exp.Expr") -> "exp.Expr":
    from sqlglot import exp

    if isinstance(node.parent, exp.Escape):
        return node
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


def _bound_lengths(node: "exp.Expr") -> "exp.Expr":
    """Spark takes a length below 0 for 0, and the start 0 for 1."""
    from sqlglot import exp

    made = node.copy()
    for name, strange, meant in (("start", exp.EQ, 1), ("length", exp.LT, 0), ("expression", exp.LT, 0)):
        if number := made.args.get(name):
            is_strange = strange(this=number.copy(), expression=exp.Literal.number(0))
            made.set(name, exp.case().when(is_strange, exp.Literal.number(meant)).else_(number.copy()))
    return made


def _rewrite_cast(node: "exp.Expr") -> "exp.Expr":
    """Spark cuts fractions off, reads whole numbers in one notation, and has another `decimal`."""
    from sqlglot import exp

    value, to = node.this.copy(), node.args["to"]
    if to.is_type(*exp.DataType.INTEGER_TYPES):
        words = exp.cast(value, "text"), exp.Literal.string(_WHOLE), exp.Literal.number(1)
        value = exp.Anonymous(this="regexp_extract", expressions=words)
    elif to.is_type("decimal") and not to.expressions:
        to = exp.DataType.build("decimal(10, 0)")
    return exp.TryCast(this=value, to=to.copy())


_WHOLE = r"^\s*([+-]?[0-9]+)(\.[0-9]*)?\s*$"
_IN_DUCKDB: Mapping[str, Callable[["exp.Expr"], "exp.Expr"]] = {
    "Exists": _rewrite_exists,
    **dict.fromkeys(("Like", "ILike"), _add_escape),
    **dict.fromkeys(("Left", "Right", "Substring"), _bound_lengths),
    **dict.fromkeys(("Cast", "TryCast"), _rewrite_cast),
    **dict.fromkeys(
        ("EQ", "NEQ", "GT", "GTE", "LT", "LTE", "NullSafeEQ", "NullSafeNEQ", "In", "Between", "Mod",
         "JSONExtractScalar"),
        _guard,
    ),
}  # fmt: skip
"""What means something else in DuckDB, by the parser's names -> how it is written anew."""
