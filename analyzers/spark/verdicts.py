"""Step 3 of an analysis: all that was found between letters changes their verdicts, and the advice follows.

Only letters that something was found of, or that a rule of the user's speaks of, come here; the others have
their advice from step 1.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from dlq.analyzers.groups import bursts, duplicates, stores, transactions
from dlq.analyzers.groups.conclusions import Change, conclude
from dlq.analyzers.groups.conclusions import Found as OfLetter
from dlq.analyzers.groups.judged import Judged
from dlq.analyzers.spark.rows import IDENTITY, Row, Step, judged_of, through_python
from dlq.archive.analyses import VERDICTS
from dlq.core.settings import Rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_Struct = dict[str, Any] | None
_judged = judged_of(Judged._fields)
_CHANGED = Change._fields
"""What is not as the letter by itself said."""
_CHANGE = pa.schema(
    [*((name, pa.string()) for name in IDENTITY), *(VERDICTS.field(name) for name in _CHANGED)]
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


def changes(letters: "DataFrame", found: Found, rules: Sequence[Rule], max_laps: int) -> "DataFrame":
    """IDENTITY and CHANGED of every letter that is not as it was by itself."""
    from pyspark.sql import functions as F

    asked = letters.select(*Judged._fields)
    there = {name: frame for name, frame in found._asdict().items() if frame is not None}
    for name, frame in there.items():
        asked = _with(asked, name, frame)
    is_changed = [F.col(name).isNotNull() for name in (*there, "user_rule")]
    missing = (F.lit(None).cast("string").alias(name) for name in Found._fields if name not in there)
    changed = asked.filter(reduce(or_, is_changed)).select("*", *missing)
    ordered = changed.select(*Judged._fields, *Found._fields)
    return through_python(ordered, _finish(rules, max_laps), _CHANGE)


def _with(letters: "DataFrame", name: str, frame: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    columns = [column for column in frame.columns if column not in IDENTITY]
    packed = frame.select(*IDENTITY, F.struct(*columns).alias(name))
    return letters.join(packed, on=list(IDENTITY), how="left")


def apply_changes(letters: "DataFrame", changed: "DataFrame") -> "DataFrame":
    """Letters, and `changes` -> verdicts, and what they were told by."""
    from pyspark.sql import functions as F

    packed = changed.select(*IDENTITY, F.struct(*_CHANGED).alias("change"))
    joined = letters.join(packed, on=list(IDENTITY), how="left")
    before = {
        name: F.col(name) if name in letters.columns else F.lit(None).cast("string") for name in _CHANGED
    }
    now = {
        name: F.when(F.col("change").isNotNull(), F.col(f"change.{name}")).otherwise(column)
        for name, column in before.items()
    }
    return joined.withColumns(now).drop("change")


def _finish(rules: Sequence[Rule], max_laps: int) -> Step:
    def step(rows: Iterator[Row]) -> Iterator[Row]:
        for *columns, shared, concluded, told, standing in rows:
            letter = _judged(columns)
            of_letter = _found(letter, shared, concluded, told, standing)
            yield (*letter.identity, *conclude(letter, of_letter, rules, max_laps))

    return step


def _found(letter: Judged, shared: _Struct, concluded: _Struct, told: _Struct, standing: _Struct) -> OfLetter:
    keys = shared and [
        duplicates.Shared(*(one[name] for name in duplicates.Shared._fields)) for one in shared["shared"]
    ]
    return OfLetter(
        duplicates.conclude(letter, keys) if keys else None,
        transactions.Conclusion(**concluded) if concluded else None,
        stores.Answer(**told) if told else None,
        bursts.Standing(*(standing[name] for name in bursts.Standing._fields)) if standing else None,
        standing["burst_id"] if standing else None,
    )
