"""A long list by pages: the next one begins behind the last row of this, whatever has come meanwhile."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from dlq.web.console import PageRequest
from dlq.web.render import make_address

PAGE = 50
_Row = Mapping[str, Any]
_T = TypeVar("_T")


class _Part(NamedTuple):
    """A page of a list, and the addresses of the first and the next one; nothing where there is none."""

    rows: Sequence[Any]
    first: str
    following: str
    shown: str


def show_part(
    ask: PageRequest, rows: Sequence[_Row], key: Callable[[_Row], str], path: str, **query: Any
) -> dict[str, Any]:
    """Return what the page of a long list shows that the address asks for, its rows masked."""
    part = _cut(rows, key, ask.query.get("after", ""), path, **query)
    return {**part._asdict(), "rows": ask.mask_all(part.rows)}


def _cut(rows: Sequence[_T], key: Callable[[_T], str], after: str, path: str, **query: Any) -> _Part:
    """Return the page behind the row with the key `after`; the first where no row has it."""
    place = next((number for number, row in enumerate(rows, 1) if key(row) == after), 0) if after else 0
    shown = rows[place : place + PAGE]
    more = place + len(shown) < len(rows)
    following = make_address(path, **query, after=key(shown[-1])) if more and shown else ""
    told = f"{place + 1:,} to {place + len(shown):,} of {len(rows):,}" if shown else ""
    return _Part(shown, make_address(path, **query) if place else "", following, told)
