"""What our consumer's coming and going does to a queue, as a table of a broker's."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from dlq.connectors.base import Mode

_Traits = TypeVar("_Traits")
_Modes = tuple[Mode, ...]
BOTH: _Modes = ("copy", "drain")
COPY: _Modes = ("copy",)
DRAIN: _Modes = ("drain",)
HARMS, TELLS = True, False
"""Whether it takes insisting, or is only said."""
Effects = Mapping[tuple[_Modes, bool], Mapping[str, Callable[[_Traits], object]]]
"""(In which modes, whether it takes insisting) -> what happens, and when."""


def list_effects(table: Effects[_Traits], traits: _Traits, mode: Mode, harms: bool) -> list[str]:
    """Return what a pull in this mode would do to such a queue: what takes `--force`, or the rest."""
    parts = [part for (modes, insists), part in table.items() if mode in modes and insists == harms]
    return [said for part in parts for said, holds in part.items() if holds(traits)]
