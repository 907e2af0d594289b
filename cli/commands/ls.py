"""dlq ls: the letters, one a line."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Annotated, Any

import typer

from dlq.cli import completion, selecting
from dlq.cli.context import Context, say_what_is_not_classified
from dlq.core.causes import mark_doubt, word_for

_FOR_EYES = (
    "record_id", "dead_at", "source", "cause", "proof", "exception_class", "exception_message", "origin",
    "advice", "attempts", "replay_state", "broker_kind", "fingerprint", "still_queued",
)  # fmt: skip
"""What people are shown; machines get all columns of the design."""
_IN_A_TABLE = 50
_shown_how = partial(typer.Option, rich_help_panel="How they are shown")
_EMPTY = "the archive {} is empty: dlq pull or dlq import fills it"
_Columns = Annotated[
    str | None,
    _shown_how(
        "--columns", metavar="A,B", autocompletion=completion.columns, help="These columns, in this order."
    ),
]
_Sort = Annotated[
    str | None, _shown_how("--sort", metavar="COLUMN", help="By this column; -COLUMN: the largest first.")
]
_Limit = Annotated[
    int | None, _shown_how("--limit", metavar="N", min=0, help="At most N; 0: all (default: 50 in a table).")
]


def ls(
    ctx: typer.Context,
    where: selecting.Where = None,
    source: selecting.Sources = None,
    since: selecting.Since = None,
    incident: selecting.Incident = None,
    failure: selecting.Failure = None,
    text: selecting.Text = None,
    columns: _Columns = None,
    sort: _Sort = None,
    limit: _Limit = None,
) -> None:
    """List letters, the newest first.

    Without --sort, a table begins with letters of regressed and new failures, and ends with those of snoozed
    ones (dlq failures).

    Columns: record_id, source, broker_kind, dead_letter_queue, origin, cause, mechanism, attempts,
    exception_class, fingerprint, incident_id, advice, message_id, key, published_at, dead_at, captured_at,
    body_size, laps, replay_state, analysis (null: not classified yet). --columns also takes any other column
    of the view letters, such as still_queued.

    Example: dlq ls --where "cause = 'application_error' and dead_at > now() - interval 1 day"
    """
    from dlq.archive.views import LS_COLUMNS
    from dlq.operations.reading import letters
    from dlq.operations.reading.selecting import Selection

    context: Context = ctx.obj
    for_eyes = context.output == "table" and columns is None
    most = _IN_A_TABLE if limit is None and context.output == "table" else limit or 0
    selection = Selection(where, source, since, incident, failure, text)
    chosen = letters.read_columns(columns) if columns is not None else _FOR_EYES if for_eyes else LS_COLUMNS
    order = letters.read_order(sort) if sort else None
    wanted = letters.LettersWanted(selection, chosen, most, order=order)
    page = letters.list_letters(context.workspace, wanted)
    if (first := next(page.rows, None)) is None:
        context.say(_EMPTY.format(context.workspace.store.location) if selection.is_all else "no letters")
    shown = chain([first] if first else [], page.rows)
    if for_eyes:
        found = [dict(zip(_FOR_EYES, row, strict=True)) for row in shown]
        _show(context, found, found if order else letters.add_states(context.workspace, page, found))
    else:
        context.emit_rows(chosen, shown)
    if page.is_more:
        context.say(f"{most} of {page.count():,} letters shown; --limit 0 shows all")
    if context.output == "table":
        say_what_is_not_classified(context)


def _show(context: Context, found: list[dict[str, Any]], told: Sequence[Mapping[str, Any]]) -> None:
    _draw(context, told)
    if left := sum(letter["still_queued"] for letter in found):
        context.say(f"{left} of these still lie in their dead-letter queues: no pull has taken them out")


def _draw(context: Context, letters: Sequence[Mapping[str, Any]]) -> None:
    from dlq.cli.tables import draw
    from dlq.core.text import for_terminal

    left_out = {"state"} - set(letters[0] if letters else ())
    left_out |= set() if any(letter["replay_state"] for letter in letters) else {"replay_state"}
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
    "cause": lambda letter: mark_doubt(letter["cause"] or "", letter["proof"]),
    "failure": _failure,
    "replay_state": _plain("replay_state"),
    "state": _plain("state"),
    "advice": _plain("advice"),
    "attempts": _plain("attempts"),
}
"""For eyes, the most telling first: a prefix that still addresses its letter, a moment without its year, the
class without its package."""
_WHERE_WIDE = ("advice", "attempts")
_WIDE_FROM = 110
