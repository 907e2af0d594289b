"""What a user asks of a plan."""

import re
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


@dataclass(frozen=True)
class Wanted:
    """What the user asked for. `rate` is messages a second."""

    where: str | None = None
    to: str = DEFAULT_TARGET
    rate: float | None = None
    limit: int | None = None
    any_advice: bool = False
    keep_headers: bool = False
    witness: bool = False
    edits: Edits = NO_EDITS

    def takes_all(self) -> bool:
        """The user insists, or names the letters one by one: advice does not leave them out."""
        return self.any_advice or bool(_NAMES_IDS.fullmatch(self.where or ""))

    def to_for(self, record: Record) -> str:
        """`to` as this letter's broker reads it."""
        return _SAFE_TARGETS.get(record.broker_kind, "origin") if self.to == DEFAULT_TARGET else self.to
