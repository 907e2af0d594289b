"""dlq ls: the letters, one a line."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlq.cli import completion, selecting
from dlq.cli.context import Context
from dlq.core.errors import UsageError
from dlq.core.suggestions import suggest

if TYPE_CHECKING:
    import duckdb

NARROW = ("record_id", "dead_at", "source", "cause", "advice")
WIDE = (*NARROW, "exception_class", "attempts", "replay_state")
"""What fits on a terminal; machines get all columns of the design."""
_WIDE_FROM = 110
_IN_A_TABLE = 50
_EMPTY = "the archive is empty: dlq pull or dlq import fills it"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ls")(ls)


def ls(
    ctx: typer.Context,
    where: selecting.Where = None,
    source: selecting.Sources = None,
    since: selecting.Since = None,
    incident: selecting.Incident = None,
    failure: selecting.Failure = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="A,B",
            autocompletion=completion.columns,
            help="These columns, in this order.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=0, help="At most so many; 0 is all (default: 50 in a table).")
    ] = None,
) -> None:
    """List letters, the newest dead first.

    Columns: record_id, source, broker_kind, dead_letter_queue, origin, cause, mechanism, attempts,
    exception_class, fingerprint, incident_id, advice, message_id, key, published_at, dead_at, captured_at,
    body_size, laps, replay_state, analysis (the one that judged it, or preview); and every other column of
    the view letters.

    Example: dlq ls --where "cause = 'application_error' and dead_at > now() - interval 1 day"
    """
    from dlq.archive.user_sql import condition, run
    from dlq.archive.views import LS_COLUMNS, first_page, newest, on_page
    from dlq.cli.looking import add_preview, open_views

    context: Context = ctx.obj
    for_eyes = context.output == "table" and columns is None
    most = _IN_A_TABLE if limit is None and context.output == "table" else limit
    selection = selecting.Selection(where, source, since, incident, failure)
    connection = open_views(context)
    page = first_page(connection, most + 1) if most and selection.is_all else None
    note = add_preview(context, connection, page)
    checked = condition(selection.condition(context, connection))
    chosen = _chosen(columns) if columns is not None else _fitting(context, note) if for_eyes else LS_COLUMNS
    found = run(connection, newest(chosen, on_page(page) if page else checked, most + 1 if most else 0))
    first = next(found.rows, None)
    if first is None:
        context.say(
            "the archive is empty: dlq pull or dlq import fills it" if selection.is_all else "no letters"
        )
    every: Iterable[tuple[Any, ...]] = chain([first] if first else [], found.rows)
    shown = islice(every, most) if most else every
    if for_eyes:
        _draw(context, chosen, shown)
    else:
        context.emit_rows(chosen, shown)
    if most and next(found.rows, None):
        context.say(f"{most} of {_count(connection, checked)} letters shown; --limit 0 shows all")
    if note and context.output == "table":
        context.say(note)


def _fitting(context: Context, note: str | None) -> Sequence[str]:
    columns = WIDE if context.console.width >= _WIDE_FROM else NARROW
    return (*columns, "analysis") if note else columns


def _chosen(columns: str) -> Sequence[str]:
    from dlq.archive.views import LETTER_COLUMNS

    names = [name.strip() for name in columns.split(",")]
    for name in names:
        if name not in LETTER_COLUMNS:
            raise UsageError(f"unknown column {name!r} in --columns{suggest(name, LETTER_COLUMNS)}")
    return names


def _draw(context: Context, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from rich.table import Table

    from dlq.core.text import for_terminal

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, no_wrap=True, min_width=12 if name == "record_id" else None)
    for row in rows:
        texts = (
            "" if value is None else _SHORT.get(name, str)(value)
            for name, value in zip(columns, row, strict=True)
        )
        table.add_row(*map(for_terminal, texts))
    context.console.print(table)


_SHORT: Mapping[str, Callable[[Any], str]] = {
    "record_id": lambda record_id: record_id[:12],
    "dead_at": lambda moment: moment[:16].replace("T", " "),
    "exception_class": lambda name: name.rpartition(".")[2],
    "analysis": lambda name: name if name == "preview" else "",
}
"""For eyes: a prefix that still addresses its letter, minutes, the class without its package, and what is no
analysis."""


def _count(connection: "duckdb.DuckDBPyConnection", checked: str) -> str:
    from dlq.archive.user_sql import run

    (count,) = next(run(connection, f"SELECT count(*) FROM letters WHERE {checked}").rows)
    return f"{count:,}"
