"""dlq ls: the letters, one a line."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlq.cli import completion, selecting
from dlq.cli.context import Context
from dlq.core.causes import doubted, word_for
from dlq.core.errors import UsageError
from dlq.core.suggestions import suggest

if TYPE_CHECKING:
    import duckdb

FOR_EYES = (
    "record_id", "dead_at", "source", "cause", "proof", "exception_class", "exception_message", "origin",
    "advice", "attempts", "replay_state", "broker_kind", "fingerprint", "still_queued",
)  # fmt: skip
"""What people are shown; machines get all columns of the design."""
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

    A table shows how their failures stand, once somebody has said anything of one (dlq failures): letters of
    regressed and new ones on top, of snoozed ones last.

    Columns: record_id, source, broker_kind, dead_letter_queue, origin, cause, mechanism, attempts,
    exception_class, fingerprint, incident_id, advice, message_id, key, published_at, dead_at, captured_at,
    body_size, laps, replay_state, analysis (the one that judged it, or null: not judged yet); and every
    other column of the view letters, such as still_queued: it lies in its dead-letter queue, too.

    Example: dlq ls --where "cause = 'application_error' and dead_at > now() - interval 1 day"
    """
    from dlq.archive.user_sql import condition, run
    from dlq.archive.views import LS_COLUMNS, first_page, newest, on_page
    from dlq.cli.views import open_views, say_what_is_not_judged

    context: Context = ctx.obj
    for_eyes = context.output == "table" and columns is None
    most = _IN_A_TABLE if limit is None and context.output == "table" else limit
    selection = selecting.Selection(where, source, since, incident, failure)
    connection = open_views(context)
    page = first_page(connection, most + 1) if most and selection.is_all else None
    checked = condition(selection.condition(context, connection))
    chosen = _chosen(columns) if columns is not None else FOR_EYES if for_eyes else LS_COLUMNS
    found = run(connection, newest(chosen, on_page(page) if page else checked, most + 1 if most else 0))
    first = next(found.rows, None)
    if first is None:
        context.say(
            "the archive is empty: dlq pull or dlq import fills it" if selection.is_all else "no letters"
        )
    every: Iterable[tuple[Any, ...]] = chain([first] if first else [], found.rows)
    shown = islice(every, most) if most else every
    if for_eyes:
        letters = [dict(zip(FOR_EYES, row, strict=True)) for row in shown]
        is_more = most and next(found.rows, None)
        _draw(context, _standing(context, connection, letters))
        if left := sum(letter["still_queued"] for letter in letters):
            context.say(f"{left} of these still lie in their dead-letter queues: no pull has taken them out")
    else:
        context.emit_rows(chosen, shown)
        is_more = most and next(found.rows, None)
    if is_more:
        context.say(f"{most} of {_count(connection, checked)} letters shown; --limit 0 shows all")
    if context.output == "table":
        say_what_is_not_judged(context)


def _chosen(columns: str) -> Sequence[str]:
    from dlq.archive.views import LETTER_COLUMNS

    names = [name.strip() for name in columns.split(",")]
    for name in names:
        if name not in LETTER_COLUMNS:
            raise UsageError(f"unknown column {name!r} in --columns{suggest(name, LETTER_COLUMNS)}")
    return names


def _standing(
    context: Context, connection: "duckdb.DuckDBPyConnection", letters: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The letters with the `state` of their failures, what needs a person first, if anybody spoke of one."""
    from dlq.cli.views import events
    from dlq.core.clock import now
    from dlq.core.failures import ORDER
    from dlq.reports.failures import states

    if not (said := events(context)):
        return letters
    known = states(connection, said, now())
    told = [{**letter, "state": known.get(letter["fingerprint"], "new")} for letter in letters]
    return sorted(told, key=lambda letter: ORDER.index(letter["state"]))


def _draw(context: Context, letters: Sequence[Mapping[str, Any]]) -> None:
    from dlq.cli.tables import draw
    from dlq.core.text import for_terminal

    left_out = {"state"} - set(letters[0] if letters else ())
    left_out |= set(_WHERE_WIDE) if context.console.width < _WIDE_FROM else set()
    shown = {name: text for name, text in _SHOWN.items() if name not in left_out}
    texts = [[for_terminal(text(letter)) for text in shown.values()] for letter in letters]
    draw(context.console, list(shown), texts)


def _failure(letter: Mapping[str, Any]) -> str:
    if letter["exception_class"]:
        name = letter["exception_class"].rpartition(".")[2]
        return f"{name}: {letter['exception_message']}" if letter["exception_message"] else name
    word = word_for(letter["cause"], [letter["broker_kind"]])
    where = f"in {letter['origin']}" if letter["origin"] else ""
    return " ".join(part for part in (word, where) if part)


def _plain(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda letter: "" if letter[name] is None else str(letter[name])


_SHOWN: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "record_id": lambda letter: letter["record_id"][:12],
    "dead_at": lambda letter: (letter["dead_at"] or "")[5:16].replace("T", " "),
    "source": _plain("source"),
    "cause": lambda letter: doubted(letter["cause"] or "", letter["proof"]),
    "failure": _failure,
    "state": _plain("state"),
    "advice": _plain("advice"),
    "attempts": _plain("attempts"),
    "replay_state": _plain("replay_state"),
}
"""For eyes, the most telling first: a prefix that still addresses its letter, a moment without its year, the
class without its package."""
_WHERE_WIDE = ("advice", "attempts", "replay_state")
_WIDE_FROM = 110


def _count(connection: "duckdb.DuckDBPyConnection", checked: str) -> str:
    from dlq.archive.user_sql import run

    (count,) = next(run(connection, f"SELECT count(*) FROM letters WHERE {checked}").rows)
    return f"{count:,}"
