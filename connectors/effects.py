"""What our consumer's coming and going does to a queue, as a table of a broker's."""

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from dlq.connectors.base import Mode

_Traits = TypeVar("_Traits")
BOTH: tuple[Mode, ...] = ("copy", "drain")


class Effect(NamedTuple, Generic[_Traits]):
    """When it happens, in which modes, whether it takes insisting, and what happens."""

    holds: Callable[[_Traits], object]
    modes: tuple[Mode, ...]
    harms: bool
    said: str


def list_effects(table: Iterable[Effect[_Traits]], traits: _Traits, mode: Mode, harms: bool) -> list[str]:
    """Return what a pull in this mode would do to such a queue: what takes `--force`, or the rest."""
    return [one.said for one in table if mode in one.modes and one.harms == harms and one.holds(traits)]
