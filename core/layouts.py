"""Blocks of bytes that are laid out alike: what was found of two holds for the next. No I/O.

Letters of one kind mostly have headers of the same names, and as long. What stands between their values,
names and lengths, is compared at once then, and nothing is walked through.
"""

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Generic, NamedTuple, TypeVar

_MOST = 256
_Span = tuple[int, int]
_T = TypeVar("_T")
_V = TypeVar("_V")


class _Known(NamedTuple, Generic[_T]):
    layout: _T
    unpack: Callable[[bytes], tuple[bytes, ...]]
    """By turns what stands between two values, and a value."""
    between: tuple[bytes, ...]


class Layouts(Generic[_T]):
    """Layouts of blocks, each the last one that two of its length had."""

    def __init__(self) -> None:
        self._seen: dict[int, _T] = {}
        """Layouts that were seen once; what has a length of its own is not worth more."""
        self._known: dict[int, _Known[_T]] = {}

    def find(self, block: bytes) -> tuple[_T, tuple[bytes, ...]] | None:
        """Return the layout of a block and its values; None where no other was laid out so."""
        known = self._known.get(len(block))
        if known is None:
            return None
        pieces = known.unpack(block)
        return (known.layout, pieces[1::2]) if pieces[::2] == known.between else None

    def note(self, block: bytes, layout: _T, spans: Callable[[bytes, _T], Iterable[_Span]]) -> None:
        """Note the layout of a block that was walked through; `spans`: where its values lie, in order."""
        size = len(block)
        if self._seen.get(size) == layout:
            form, at = "", 0
            for start, end in spans(block, layout):
                form, at = f"{form}{start - at}s{end - start}s", end
            unpack = Struct(f"{form}{size - at}s").unpack
            _keep(self._known, size, _Known(layout, unpack, unpack(block)[::2]))
        _keep(self._seen, size, layout)


def _keep(kept: dict[int, _V], size: int, value: _V) -> None:
    if size not in kept and len(kept) >= _MOST:
        kept.clear()
    kept[size] = value
