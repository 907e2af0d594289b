"""What a user asks of a plan."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dlq.core.record import Record
from dlq.replay.edits import NO_EDITS, Edits

DEFAULT_TARGET = "failed"
"""`--to` unless told: back to the failed queue (its origin), or to RocketMQ's failed group alone, because a
topic would deliver again to every group that subscribes to it."""
_SAFE_TARGETS = {"rocketmq": "group"}
_NAMES_IDS = re.compile(
    r"[\s(]*\"?record_id\"?\s*(=\s*'[^']*'|in\s*\(\s*'[^']*'(\s*,\s*'[^']*')*\s*\))[\s)]*", re.IGNORECASE
)


def named(record_ids: Iterable[str]) -> str:
    """The condition that names these letters."""
    quoted = ("'{}'".format(record_id.replace("'", "''")) for record_id in sorted(record_ids))
    return f"record_id in ({', '.join(quoted)})"


@dataclass(frozen=True)
class Wanted:
    """What the user asked for. `rate` is messages a second."""

    where: str | None = None
    to: str = DEFAULT_TARGET
    rate: float | None = None
    limit: int | None = None
    any_advice: bool = False
    fixed: bool = False
    """The cause is mended: letters whose advice is fix_first go, too."""
    keep_headers: bool = False
    witness: bool = False
    edits: Edits = NO_EDITS

    def condition(self) -> str | None:
        """Which letters are looked at: those of `where`, and those that are edited."""
        if not self.edits.changed:
            return self.where
        edited = named(self.edits.changed)
        return edited if self.where is None else f"({self.where}\n) or {edited}"

    def takes(self, record_id: str) -> bool:
        """The user insists, or names this letter, also by editing it: advice does not leave it out."""
        is_named = record_id in self.edits.changed or bool(_NAMES_IDS.fullmatch(self.where or ""))
        return self.any_advice or is_named

    def to_for(self, record: Record) -> str:
        """`to` as this letter's broker reads it."""
        return _SAFE_TARGETS.get(record.broker_kind, "origin") if self.to == DEFAULT_TARGET else self.to
