"""What the user asked a plan for."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dlq.core.brokers import plugin_of
from dlq.core.headers.failure_headers import Keep
from dlq.core.record import Record
from dlq.core.text import sql_literal
from dlq.replay.plans.destinations import Destination
from dlq.replay.plans.edits import NO_EDITS, Edits
from dlq.replay.runs.ordering import InOrder

DEFAULT_TARGET = "failed"
"""`--to` unless told: back to what failed, the `default_target` of the letter's kind of broker."""
_NAMES_IDS = re.compile(
    r"[\s(]*\"?record_id\"?\s*(=\s*'[^']*'|in\s*\(\s*'[^']*'(\s*,\s*'[^']*')*\s*\))[\s)]*", re.IGNORECASE
)


def names_ids(where: str | None) -> bool:
    """Return whether a condition names letters by their ids, and does nothing else."""
    return _NAMES_IDS.fullmatch(where or "") is not None


def condition_of_ids(record_ids: Iterable[str]) -> str:
    """Return the condition that names these letters."""
    return f"record_id in ({', '.join(map(sql_literal, sorted(record_ids)))})"


@dataclass(frozen=True)
class Wanted:
    """What the user asked for. `rate` is messages a second."""

    where: str | None = None
    to: str = DEFAULT_TARGET
    rate: float | None = None
    limit: int | None = None
    any_advice: bool = False
    fixed: bool = False
    """Take in letters whose advice is fix_first: their cause is fixed."""
    keep_headers: Keep = False
    witness: bool = False
    edits: Edits = NO_EDITS
    again: bool = False
    """What was sent to another target, or may have been, goes to this one, too."""
    unwrap: bool = False
    """What remembers its failure in its body goes as the message in it; that names no letter."""
    check_superseded: bool | None = None
    """Whether newer messages of the letters' keys are looked for; see `superseded.Asked`."""
    in_order: InOrder | None = None
    """Letters of one key go one after the other; None: those of sources that are `in_order`."""
    place: Destination | None = None
    """Letters go nowhere else, by whatever routing key; None: anywhere."""
    actor: str | None = None
    reason: str | None = None

    def condition(self) -> str | None:
        """Return which letters are looked at: those of `where`, and those that are edited."""
        if not self.edits.changed:
            return self.where
        edited = condition_of_ids(self.edits.changed)
        return edited if self.where is None else f"({self.where}\n) or {edited}"

    def takes(self, record_id: str) -> bool:
        """Return whether the user insists, or names this letter: advice does not leave it out."""
        return self.any_advice or self.names(record_id)

    def names(self, record_id: str) -> bool:
        """Return whether the user means this letter, by its id or by editing it."""
        return self._names_ids or record_id in self.edits.changed

    @cached_property
    def _names_ids(self) -> bool:
        return names_ids(self.where)

    @cached_property
    def names_target(self) -> bool:
        """Whether the user names the very target."""
        return ":" in self.to

    def why_unnamed(self, unless_named: Mapping[Any, str], record_id: str) -> str | None:
        """Return why a letter is not sent, and what the user would have to name for it; None where that is
        named."""
        named = {"letter": self.names(record_id), "target": self.names_target}
        how = {"letter": "name it by its id", "target": "name the target with --to"}
        return next(
            (f"{why}; {how[what]} to send it" for what, why in unless_named.items() if not named[what]), None
        )

    def to_for(self, record: Record) -> str:
        """Return `to` as this letter's broker reads it."""
        return plugin_of(record.broker_kind).default_target if self.to == DEFAULT_TARGET else self.to
