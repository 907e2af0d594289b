"""Step 3 of an analysis: all that was found between letters changes their verdicts, and the advice follows.

Only letters that something was found of, or that a rule of the user's speaks of, come here; the others have
their advice from step 1.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from dlq.analyzers.groups import bursts, duplicates
from dlq.analyzers.groups.advice import Known, advise
from dlq.analyzers.groups.stores import with_told
from dlq.analyzers.rules import LONGEST_EVIDENCE
from dlq.analyzers.spark.duplicates import IDENTITY
from dlq.analyzers.spark.rows import Row, Step, through_python
from dlq.archive.analyses import VERDICTS
from dlq.core.causes import proof_of
from dlq.core.settings import Rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHANGED = (
    "cause", "mechanism", "evidence", "proof", "also_possible", "transaction_state", "duplicate_group",
    "duplicate_kind", "incident_id", "advice", "advice_reason",
)  # fmt: skip
"""What is not as the letter by itself said."""
_CHANGE = pa.schema(
    [*((name, pa.string()) for name in IDENTITY), *(VERDICTS.field(name) for name in CHANGED)]
)


class Found(NamedTuple):
    """What was found of letters, as frames with the columns IDENTITY; None: nothing of the kind."""

    shared: "DataFrame | None" = None
    """`duplicates.shared`"""
    concluded: "DataFrame | None" = None
    """`transactions.concluded_letters`"""
    told: "DataFrame | None" = None
    """`stores.answers`"""
    standing: "DataFrame | None" = None
    """`bursts.standing`"""


class Letter(NamedTuple):
    """A letter, and what was found of it: structs of the frames' columns."""

    source: str
    record_id: str
    cause: str | None
    mechanism: str | None
    evidence: str | None
    also_possible: list[str] | None
    transaction_state: str | None
    exception_family: str | None
    laps: int
    message_id: str | None
    body_sha256: str | None
    user_rule: str | None
    is_coordinated: bool
    is_rocketmq: bool
    keys: str | None
    replayed: bool | None
    shared: dict[str, Any] | None
    concluded: dict[str, Any] | None
    told: dict[str, Any] | None
    standing: dict[str, Any] | None


def changes(letters: "DataFrame", found: Found, rules: Sequence[Rule], max_laps: int) -> "DataFrame":
    """IDENTITY and CHANGED of every letter that is not as it was by itself."""
    from pyspark.sql import functions as F

    further = {
        "is_coordinated": F.col("coordinator").isNotNull() | F.col("work").isNotNull(),
        "is_rocketmq": F.col("rocket").isNotNull(),
        "keys": F.col("rocket.keys"),
        "replayed": F.col("rocket.replayed"),
    }
    plain = (name for name in Letter._fields if name not in further and name not in Found._fields)
    asked = letters.select(*plain, *(column.alias(name) for name, column in further.items()))
    there = {name: frame for name, frame in found._asdict().items() if frame is not None}
    for name, frame in there.items():
        asked = _with(asked, name, frame)
    is_changed = [F.col(name).isNotNull() for name in (*there, "user_rule")]
    missing = (F.lit(None).cast("string").alias(name) for name in Found._fields if name not in there)
    changed = asked.filter(reduce(or_, is_changed)).select("*", *missing).select(*Letter._fields)
    return through_python(changed, _finish(rules, max_laps), _CHANGE)


def _with(letters: "DataFrame", name: str, frame: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    columns = [column for column in frame.columns if column not in IDENTITY]
    packed = frame.select(*IDENTITY, F.struct(*columns).alias(name))
    return letters.join(packed, on=list(IDENTITY), how="left")


def applied(letters: "DataFrame", changed: "DataFrame") -> "DataFrame":
    """Letters, and `changes` -> verdicts, and what they were told by."""
    from pyspark.sql import functions as F

    packed = changed.select(*IDENTITY, F.struct(*CHANGED).alias("change"))
    joined = letters.join(packed, on=list(IDENTITY), how="left")
    before = {
        name: F.col(name) if name in letters.columns else F.lit(None).cast("string") for name in CHANGED
    }
    now = {
        name: F.when(F.col("change").isNotNull(), F.col(f"change.{name}")).otherwise(column)
        for name, column in before.items()
    }
    return joined.withColumns(now).drop("change")


def _finish(rules: Sequence[Rule], max_laps: int) -> Step:
    def step(rows: Iterator[Row]) -> Iterator[Row]:
        return (_change(Letter(*row), rules, max_laps) for row in rows)

    return step


def _change(letter: Letter, rules: Sequence[Rule], max_laps: int) -> Row:
    known = _concluded(letter)
    duplicate, standing = _duplicate(letter), letter.standing
    told = letter.told or {}
    state = known.transaction_state or told.get("told_transaction")
    advice, reason = advise(
        Known(
            known.cause,
            max_laps,
            mechanism=known.mechanism,
            also_possible=tuple(known.also_possible or ()),
            exception_family=letter.exception_family,
            laps=letter.laps,
            user_rule=letter.user_rule,
            beside_the_letter=bool(letter.concluded and letter.concluded["beside_the_letter"]),
            transaction_state=state,
            store_state=told.get("store_state"),
            duplicate=duplicate,
            message_id=letter.message_id,
            keys=letter.keys,
            burst_reason=None if standing is None else bursts.reason(_standing(standing)),
        ),
        rules,
    )
    return (
        letter.source,
        letter.record_id,
        known.cause,
        known.mechanism,
        with_told(known.evidence, told.get("told")),
        proof_of(known.cause, known.also_possible or ()),
        known.also_possible or [],
        state,
        duplicate.duplicate_group if duplicate else None,
        duplicate.duplicate_kind if duplicate else None,
        None if standing is None else standing["burst_id"],
        advice,
        reason,
    )


def _concluded(letter: Letter) -> Letter:
    """The letter as its transaction makes it; a cause that the user names stays."""
    made = letter.concluded
    if made is None:
        return letter
    evidence = letter.evidence if made["evidence"] is None else made["evidence"]
    return letter._replace(
        cause=letter.cause if letter.user_rule is not None else made["cause"],
        mechanism=letter.mechanism if made["mechanism"] is None else made["mechanism"],
        evidence=None if evidence is None else evidence[:LONGEST_EVIDENCE],
        also_possible=[],
        transaction_state=made["transaction_state"],
    )


def _duplicate(letter: Letter) -> duplicates.Duplicate | None:
    if letter.shared is None:
        return None
    shared = [
        duplicates.Shared(*(one[n] for n in duplicates.Shared._fields)) for one in letter.shared["shared"]
    ]
    if letter.is_rocketmq:
        return duplicates.of_rocketmq_letter(letter.record_id, letter.body_sha256, letter.replayed, shared)
    return duplicates.of_letter(letter.record_id, letter.body_sha256, letter.is_coordinated, shared)


def _standing(known: dict[str, Any]) -> bursts.Standing:
    return bursts.Standing(*(known[name] for name in bursts.Standing._fields))
