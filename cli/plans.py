"""The plans there are: how far each is, where its letters go, how old it is."""

from collections.abc import Iterator, Mapping
from typing import Any

from dlq.cli.context import Context
from dlq.core.clock import from_iso, now
from dlq.core.errors import DlqError
from dlq.core.text import shorten
from dlq.core.units import human_seconds
from dlq.replay import ledger, planfile, status
from dlq.replay.ledger.contract import Ledger
from dlq.replay.planfile import Header
from dlq.replay.states import STATES

_FOR_EYES = ("plan", "age", "letters", "progress", "targets", "where")
_LONG = 120


def show(context: Context) -> None:
    """All plans that hold letters, oldest first. Raises the error of one that can't be read when the others
    are shown."""
    damaged: list[DlqError] = []
    with ledger.opened_if_any(context.settings.ledger, context.store) as book:
        if book is not None:
            book.expire()
        headers = sorted(_headers(context, damaged), key=lambda header: header.created_at)
        rows = [_row(context, book, header) for header in headers if header.letters]
    columns = _FOR_EYES if context.output == "table" else _COLUMNS
    context.emit_rows(columns, [[row[name] for name in columns] for row in rows])
    if damaged:
        raise damaged[0]


def sent_of_all(context: Context, letters: dict[str, int]) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Plan -> letters in each state, as the ledger alone tells. `letters`, how many each plan has, is filled
    here: a plan never changes."""
    with ledger.opened_if_any(context.settings.ledger, context.store) as book:
        if any(plan not in letters for plan in planfile.ids(context.store)):
            letters |= {header.plan: header.letters for header in _headers(context, [])}
        for plan, size in letters.items():
            own = book.counts(plan) if book else {}
            known = {str(state): own.get(state, 0) for state in STATES}
            yield plan, {**known, "planned": known["planned"] + size - sum(known.values())}


_COLUMNS = ("plan", "created_at", "letters", *STATES, "targets", "to", "where")


def _headers(context: Context, damaged: list[DlqError]) -> Iterator[Header]:
    for plan in planfile.ids(context.store):
        try:
            yield planfile.load(context.store, plan)
        except DlqError as error:
            damaged.append(error)


def _row(context: Context, book: Ledger | None, header: Header) -> Mapping[str, Any]:
    states = status.counts(context.store, book, header)
    made = from_iso(header.created_at)
    where = header.where
    if where is not None and context.output == "table":
        where = shorten(" ".join(where.split()), _LONG)
    return {
        "plan": header.plan,
        "created_at": header.created_at,
        "age": "" if made is None else human_seconds(max(0, now() - made) / 1_000_000),
        "letters": header.letters,
        "progress": ", ".join(f"{count:,} {state}" for state, count in states.items() if count),
        **{str(state): count for state, count in states.items()},
        "targets": ", ".join(header.targets),
        "to": header.to,
        "where": where,
    }
