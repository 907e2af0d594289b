"""The cause rules: one table of named conditions, in order; the first that holds decides.

Rules are text: Spark SQL over a record's columns and the columns that are derived from them first.
So the table prints itself, a user's rule has the same form, and every expression runs inside Spark.
A new rule is one entry in its table; a new broker is one line in `MODULES`.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from dlq.analyzers import (
    exceptions,
    frameworks,
    rules_activemq,
    rules_artemis,
    rules_rabbitmq,
    rules_rocketmq,
)
from dlq.analyzers.rule import FIELDS, Rule, literal, of_kind
from dlq.analyzers.topology import Facts, with_facts
from dlq.core.errors import ConfigError
from dlq.core.settings import Rule as UserRule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Module(NamedTuple):
    """The rules of one broker (or of frameworks, on any broker), and the columns they read."""

    kinds: tuple[str, ...]
    """Broker kinds it is for; empty: all."""
    rules: tuple[Rule, ...]
    derived: Mapping[str, str] = {}


MODULES: tuple[Module, ...] = (
    Module((), frameworks.RULES, frameworks.DERIVED),
    Module(("rabbitmq", "memory"), rules_rabbitmq.RULES, rules_rabbitmq.DERIVED),
    Module(("activemq",), rules_activemq.RULES, rules_activemq.DERIVED),
    Module(("artemis",), rules_artemis.RULES, rules_artemis.DERIVED),
    Module(("rocketmq",), rules_rocketmq.RULES, rules_rocketmq.DERIVED),
)

UNKNOWN = Rule("unknown", "nothing above holds", "true", "unknown", "none")


def table(user_rules: tuple[UserRule, ...] = ()) -> Iterator[dict[str, str]]:
    """The rules in order, for people: rule, broker, cause, mechanism, when."""
    for mine in user_rules:
        yield {
            "rule": mine.name,
            "broker": "any",
            "cause": mine.cause or "",
            "mechanism": "",
            "when": mine.where,
        }
    for module in MODULES:
        for rule in module.rules:
            kinds = ", ".join(module.kinds) or "any"
            yield {
                "rule": rule.name,
                "broker": kinds,
                "cause": rule.cause,
                "mechanism": rule.mechanism,
                "when": rule.words,
            }
    yield {
        "rule": UNKNOWN.name,
        "broker": "any",
        "cause": "unknown",
        "mechanism": "none",
        "when": UNKNOWN.words,
    }


def digest(user_rules: tuple[UserRule, ...], facts: Facts) -> str:
    """Changes when any verdict of a single record could change."""
    modules = [[m.kinds, [asdict(rule) for rule in m.rules], dict(m.derived)] for m in MODULES]
    causes = [(rule.name, rule.where, rule.cause) for rule in user_rules]
    context = [rules_rocketmq.CONTEXT, frameworks.COORDINATED]
    text = json.dumps([modules, causes, exceptions.TEXT, context, facts.as_text()], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]


def wants_body() -> str:
    """The condition under which a rule has to look into the body."""
    return (
        " OR ".join(
            f"({text})" for text in sorted({r.body_if for m in MODULES for r in m.rules if r.body_if})
        )
        or "false"
    )


def decide(records: "DataFrame", facts: Facts, kinds: Collection[str] | None = None) -> "DataFrame":
    """Adds the column `verdict`, a struct of rule, cause, mechanism and FIELDS.

    Reads the record's columns and `body_text` (null where the body was not read). `kinds`: the broker
    kinds among the records, so that the rules of other brokers cost nothing.
    """
    from pyspark.sql import functions as F

    for derived in (*(m.derived for m in MODULES), rules_rabbitmq.DEATH_TEXT):
        records = records.withColumns({name: F.expr(text) for name, text in derived.items()})
    asked = _asked(kinds)
    numbered = with_facts(records, facts).withColumn("rule_number", F.expr(_first_that_holds(asked)))
    said = [_said_by([rule for _, rule in asked], name, kind) for name, kind in _SAID.items()]
    return numbered.withColumn("verdict", F.expr(f"named_struct({', '.join(said)})"))


_SAID = {"rule": "string", "cause": "string", "mechanism": "string", **FIELDS}


def _asked(kinds: Collection[str] | None) -> list[tuple[Module, Rule]]:
    """The rules in order, without those of brokers that are not there."""
    here = [m for m in MODULES if kinds is None or not m.kinds or not set(kinds).isdisjoint(m.kinds)]
    return [(module, rule) for module in here for rule in module.rules] + [(Module((), ()), UNKNOWN)]


def _first_that_holds(asked: Sequence[tuple[Module, Rule]]) -> str:
    cases = (
        f"WHEN {_for_kinds(module.kinds)}({rule.when}) THEN {number}"
        for number, (module, rule) in enumerate(asked)
    )
    return f"CASE {' '.join(cases)} END"


def _for_kinds(kinds: tuple[str, ...]) -> str:
    return f"{of_kind(*kinds)} AND " if kinds else ""


def _said_by(asked: Sequence[Rule], name: str, kind: str) -> str:
    """One field of the verdict, as SQL over `rule_number`; rules that say the same share a branch."""
    sayings: dict[str, list[str]] = {}
    for number, rule in enumerate(asked):
        sayings.setdefault(_saying(rule, name), []).append(str(number))
    sayings.pop("NULL", None)
    cases = (f"WHEN rule_number IN ({', '.join(ns)}) THEN {text}" for text, ns in sayings.items())
    chosen = f"CASE {' '.join(cases)} END" if sayings else "NULL"
    return f"{literal(name)}, CAST({chosen} AS {kind})"


def _saying(rule: Rule, name: str) -> str:
    """What a rule says of one field, as SQL. An origin is a queue unless the rule says what else."""
    own = {"rule": literal(rule.name), "cause": literal(rule.cause), "mechanism": literal(rule.mechanism)}
    origin = rule.fields.get("origin", "NULL")
    kind = "NULL" if origin == "NULL" else f"CASE WHEN ({origin}) IS NOT NULL THEN 'queue' END"
    return {"stale_evidence": "false", "origin_kind": kind, **own, **rule.fields}.get(name, "NULL")


def with_user_rules(verdicts: "DataFrame", user_rules: tuple[UserRule, ...]) -> "DataFrame":
    """Adds `user_rule`, the first of the user's rules that holds, and lets its cause win.

    Raises ConfigError naming the rule whose condition is no Spark SQL over these columns.
    """
    from pyspark.sql import functions as F

    for rule in user_rules:
        _check(verdicts, rule)
    first = F.lit(None).cast("string")
    cause = F.lit(None).cast("string")
    for rule in reversed(user_rules):
        holds = F.expr(f"({rule.where})")
        first = F.when(holds, F.lit(rule.name)).otherwise(first)
        cause = F.when(holds, F.lit(rule.cause)).otherwise(cause)
    chosen = verdicts.withColumns({"user_rule": first, "user_cause": cause})
    named = {
        "rule": F.when(F.col("user_cause").isNotNull(), F.col("user_rule")).otherwise(F.col("rule")),
        "cause": F.coalesce("user_cause", "cause"),
    }
    return chosen.withColumns(named).drop("user_cause")


def _check(verdicts: "DataFrame", rule: UserRule) -> None:
    from pyspark.errors import PySparkException

    try:
        verdicts.filter(f"({rule.where})")  # Spark resolves it at once
    except PySparkException as error:
        reason = (error.getMessage() or str(error)).splitlines()[0]
        raise ConfigError(
            f"rule {rule.name!r}: where = {rule.where!r} is no condition over a record's columns: {reason}"
        ) from error
