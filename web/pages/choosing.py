"""Which letters an address or a form means: the filters of the list, as one selection of `dlq ls`.

To be told which letters fulfil a condition is to be told what they hold, a guess at a time. So who sees
letters masked asks by what `dlq` says of them, for whole values that are not masked, and for texts as they
are shown.
"""

import re
from collections.abc import Callable, Mapping

from dlq.archive.views import LS_COLUMNS
from dlq.core.errors import UsageError
from dlq.core.text import sql_literal
from dlq.operations.reading.agent_query import check_condition
from dlq.operations.reading.selecting import Selection
from dlq.web.console import PageRequest
from dlq.web.look import this_minute

_OF_SELECTION = ("source", "since", "incident", "failure", "where")
"""Filters with an option of their own."""
_BY_OPTION = ("fingerprint", "incident_id", "source")
EQUAL = tuple(name for name in LS_COLUMNS if name not in _BY_OPTION)
"""Columns of `dlq ls` of which one value may be chosen."""
NOTHING = "none"
"""Stands for null: no verdict, say, or no replay."""
_SHOWN_IN_PARTS = ("exception_class", "exception_message")
"""What is searched for a text where letters are masked."""
_HEX = re.compile("[0-9a-f]+")
_FILTERS = (*_OF_SELECTION, *EQUAL, "text")


def read_filters(ask: PageRequest, read: Callable[[str], str]) -> dict[str, str]:
    """Return the filters that are given; `read` gives the text of one, or none. Raises UsageError for what
    this person may not ask."""
    found = {name: text for name in _FILTERS if (text := read(name).strip())}
    for name in () if ask.sees_all else found.keys() & {*EQUAL}:
        if ask.mask({name: found[name]}) != {name: found[name]}:
            raise UsageError(
                f"{name}: leave it out, as what is masked is not searched for. {ask.barrier('unmask')}"
            )
    return found


def select(chosen: Mapping[str, str], also: str | None = None, sees_all: bool = True) -> Selection:
    """Return the letters that fulfil all of these filters, and the condition `also`, as who sees all may ask
    it, or not. Nobody may use every function of SQL: some make gigabytes in one step, which nothing ends.
    Raises UsageError."""
    parts = [_equals(name, chosen[name]) for name in EQUAL if name in chosen]
    if "text" in chosen and not sees_all:
        parts.append(_shows(chosen["text"]))
    where = chosen.get("where")
    written = [where if where is None else check_condition(where, sees_all), also]
    conditions = [f"({one})" if parts or also else one for one in written if one]
    return Selection(
        " and ".join([*parts, *conditions]) or None,
        [chosen["source"]] if "source" in chosen else None,
        chosen.get("since"),
        chosen.get("incident"),
        chosen.get("failure"),
        chosen.get("text") if sees_all else None,
    )


def name(selection: Selection) -> tuple[str, int]:
    """Return the name under which a page keeps what is read of a selection. `since` may say how long ago."""
    return selection.options(), this_minute() if selection.since else 0


def select_to_change(ask: PageRequest, chosen: Mapping[str, str]) -> Selection:
    """Return the same for what is done to them by others than the page, who know no text as it is shown.
    Raises UsageError."""
    if "text" in chosen and not ask.sees_all:
        raise UsageError(
            "text: masked letters are not chosen by it; choose a failure, or tick those that are meant"
        )
    return select(chosen, sees_all=ask.sees_all)


def _equals(name: str, value: str) -> str:
    return f"{name} is null" if value == NOTHING else f"{name} = {sql_literal(value)}"


def _shows(text: str) -> str:
    """Return letters that have a text in what is shown of them masked, or whose id begins so. Only texts that
    have it are masked, which takes time, as to read a million ids does."""
    wanted = sql_literal(text.lower())
    parts = [
        f"case when contains(lower({name}), {wanted}) then contains(lower(masked({name})), {wanted}) end"
        for name in _SHOWN_IN_PARTS
    ]
    if _HEX.fullmatch(text.lower()):
        parts.append(f"starts_with(record_id, {wanted})")
    return f"({' or '.join(parts)})"
