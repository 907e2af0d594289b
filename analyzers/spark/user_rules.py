"""The rules of the user's configuration: Spark SQL over a record's columns and its verdict."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlq.analyzers.conditions import condition
from dlq.analyzers.spark.rows import IDENTITY
from dlq.analyzers.user_rules import check_rules
from dlq.core.errors import ConfigError
from dlq.core.settings import Rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def apply_rules(letters: "DataFrame", records: "DataFrame", rules: Sequence[Rule]) -> "DataFrame":
    """Letters after step 1, with `user_rule`, the first of the user's rules that holds, and its cause.

    `records`: the same letters as they lie in the archive. Raises ConfigError naming the rule whose condition
    is no Spark SQL over these columns.
    """
    from pyspark.sql import functions as F

    check_rules(rules)
    asked = _asked(letters, records)
    conditions = [_checked(asked, rule) for rule in rules]
    holding = F.coalesce(*(F.when(F.expr(where), F.lit(n)) for n, where in enumerate(conditions)))
    held = asked.select(*IDENTITY, holding.alias("number")).filter(F.col("number").isNotNull())
    names = F.array(*(F.lit(rule.name) for rule in rules))[F.col("number")]
    causes = F.array(*(F.lit(rule.cause) for rule in rules))[F.col("number")].cast("string")
    chosen = held.select(*IDENTITY, names.alias("user_rule"), causes.alias("user_cause"))
    joined = letters.join(chosen, on=list(IDENTITY), how="left")
    named = {
        "rule": F.when(F.col("user_cause").isNotNull(), F.col("user_rule")).otherwise(F.col("rule")),
        "proof": F.when(F.col("user_cause") == "unknown", F.lit(None))
        .when(F.col("user_cause").isNotNull(), F.lit("proven"))
        .otherwise(F.col("proof")),
        "also_possible": F.when(F.col("user_cause").isNotNull(), F.array().cast("array<string>")).otherwise(
            F.col("also_possible")
        ),
        "cause": F.coalesce("user_cause", "cause"),
    }
    return joined.withColumns(named).drop("user_cause")


def _asked(letters: "DataFrame", records: "DataFrame") -> "DataFrame":
    """A record's columns; where a verdict says the same and more, its word."""
    from pyspark.sql import functions as F

    said = [name for name in letters.columns if name not in records.columns]
    better = {"attempts": "attempts", "origin": "origin", "failure_text": "said"}
    both = letters.select(*IDENTITY, *said, *(F.col(b).alias(f"better_{n}") for n, b in better.items()))
    return records.join(both, on=list(IDENTITY), how="inner").withColumns(
        {
            "attempts": F.coalesce("better_attempts", "attempts"),
            "origin": F.coalesce("better_origin", "origin"),
            "failure_text": F.coalesce("failure_text", "better_failure_text"),
            "body_text": F.col("body").cast("string"),
        }
    )


def _checked(asked: "DataFrame", rule: Rule) -> str:
    from pyspark.errors import PySparkException

    where = f"({condition(rule)})"
    try:
        asked.filter(where).schema  # noqa: B018 - Spark resolves it now
    except PySparkException as error:
        reason = (error.getMessage() or str(error)).splitlines()[0]
        raise ConfigError(
            f"rule {rule.name!r}: where = {rule.where!r} is no condition over a record's columns: {reason}"
        ) from error
    return where
