"""dlq failures: who works on which failure, and what may be forgotten."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlq.cli.connecting import warn_of_ledger
from dlq.cli.context import Context
from dlq.core.clock import iso, now
from dlq.core.errors import UsageError
from dlq.core.failures import ORDER, Action, Event, said, until_letters, until_time
from dlq.core.suggestions import suggest
from dlq.core.text import encodable

if TYPE_CHECKING:
    import duckdb

    from dlq.reports.failures import Row

Failure = Annotated[
    str, typer.Argument(metavar="FINGERPRINT", help="Of the failure, or the beginning of it.")
]
As = Annotated[
    str | None, typer.Option("--as", metavar="NAME", help="Who you are (default: your user at this host).")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why.")]
_LONGEST = 2_000
_EMPTY = "no failures: nothing is captured yet, or nothing of it is judged; dlq pull, then dlq analyze"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    commands = typer.Typer(invoke_without_command=True)
    commands.callback()(_about)
    for command in (ls, show, assign, note, snooze, resolve, reopen):
        commands.command()(command)
    app.add_typer(commands, name="failures")


def _about(ctx: typer.Context) -> None:
    """Who works on which failure: letters of one fingerprint are one failure, and have one life.

    It is new until somebody says something of it, then open, snoozed or resolved, and regressed when a letter
    of it dies after it was resolved. The ledger keeps all that was said. Without a command: ls.

    Example: dlq failures assign 1f0c2d3e
    """
    if ctx.invoked_subcommand is None:
        ls(ctx)


def ls(
    ctx: typer.Context,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="new, open, snoozed, resolved or regressed; may be repeated."),
    ] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Those that this person has.")] = None,
) -> None:
    """List failures: regressed and new ones first, then open, resolved, and what is snoozed.

    Example: dlq failures ls --state new --state regressed
    """
    from dlq.reports.failures import COLUMNS, gather

    context: Context = ctx.obj
    for one in state or ():
        if one not in ORDER:
            raise UsageError(f"--state {one}: no state{suggest(one, ORDER)}; known are {', '.join(ORDER)}")
    events = _events(context)
    with _views(context) as connection:
        found = [
            row
            for row in gather(connection, events, now())
            if (not state or row["state"] in state) and (owner is None or row["owner"] == owner)
        ]
    if context.output == "table":
        _draw(context, found)
    else:
        context.emit_rows(COLUMNS, ([row[name] for name in COLUMNS] for row in found))
    if not found:
        context.say(_EMPTY if state is None and owner is None else "no failures")


def show(ctx: typer.Context, fingerprint: Failure) -> None:
    """Show one failure, and all that was ever said of it.

    Example: dlq failures show 1f0c2d3e
    """
    context: Context = ctx.obj
    events = _events(context)
    with _views(context) as connection:
        _show(context, connection, fingerprint, events)


def assign(
    ctx: typer.Context,
    fingerprint: Failure,
    owner: Annotated[str | None, typer.Argument(help="Who works on it (default: you).")] = None,
    nobody: Annotated[bool, typer.Option("--nobody", help="Give it back.")] = False,
    reason: Reason = "",
    as_: As = None,
) -> None:
    """Say who works on a failure.

    Example: dlq failures assign 1f0c2d3e --reason "I know that gateway"
    """
    from dlq.replay.actor import actor

    if nobody and owner:
        raise UsageError("either an owner or --nobody")
    _say(ctx.obj, fingerprint, "assign", "" if nobody else owner or actor(as_), reason, as_)


def note(ctx: typer.Context, fingerprint: Failure, text: str, as_: As = None) -> None:
    """Write something down for the others.

    Example: dlq failures note 1f0c2d3e "the gateway's certificate ended; ticket 4711"
    """
    _say(ctx.obj, fingerprint, "note", "", _why(text, "a note says something"), as_)


def snooze(
    ctx: typer.Context,
    fingerprint: Failure,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="A time (ISO 8601), or for how long (3d).")
    ] = None,
    letters: Annotated[
        int | None, typer.Option("--letters", min=1, help="Until it has so many letters.")
    ] = None,
    reason: Reason = "",
    as_: As = None,
) -> None:
    """Let a failure raise no alarm until a time, or until it has so many letters.

    Example: dlq failures snooze 1f0c2d3e --until 3d --reason "the supplier mends it on Monday"
    """
    if (until is None) == (letters is None):
        raise UsageError("until when? Either --until TIME or --letters N")
    end = until_letters(letters) if letters is not None else until_time(_future(str(until)))
    _say(ctx.obj, fingerprint, "snooze", end, _why(reason, 'say why it may wait: --reason "…"'), as_)


def resolve(ctx: typer.Context, fingerprint: Failure, reason: Reason = "", as_: As = None) -> None:
    """Say that a failure is mended. A letter of it that dies from now on makes it regressed.

    Example: dlq failures resolve 1f0c2d3e --reason "fixed in 2.4.1, letters are replayed"
    """
    _say(ctx.obj, fingerprint, "resolve", "", _why(reason, 'say how it was mended: --reason "…"'), as_)


def reopen(ctx: typer.Context, fingerprint: Failure, reason: Reason = "", as_: As = None) -> None:
    """Open a failure that was snoozed or resolved, or has regressed.

    Example: dlq failures reopen 1f0c2d3e --reason "it was another cause"
    """
    _say(ctx.obj, fingerprint, "reopen", "", _why(reason, 'say why: --reason "…"'), as_)


def _why(reason: str, wanted: str) -> str:
    if not reason.strip():
        raise UsageError(wanted)
    return reason


def _future(text: str) -> int:
    """A time, or how long from now, in microseconds since the epoch."""
    from dlq.core.clock import from_iso
    from dlq.core.units import seconds

    at = from_iso(text)
    try:
        moment = at if at is not None else now() + round(seconds(text) * 1_000_000)
    except UsageError as error:
        raise UsageError(
            f"--until {text}: neither a time (2026-11-02T03:00:00Z) nor a duration (3d)"
        ) from error
    if moment <= now():
        raise UsageError(f"--until {text}: that is over")
    return moment


def _events(context: Context) -> list[Event]:
    from dlq.replay import ledger

    warn_of_ledger(context)
    return ledger.events(context.settings.ledger, context.store)


def _views(context: Context) -> "duckdb.DuckDBPyConnection":
    from dlq.cli.views import open_views, say_what_is_not_judged

    connection = open_views(context)
    if context.output == "table":
        say_what_is_not_judged(context)
    return connection


def _say(context: Context, prefix: str, action: Action, value: str, reason: str, as_: str | None) -> None:
    from dlq.replay import ledger
    from dlq.replay.actor import actor
    from dlq.reports.failures import find, gather

    given = [encodable(text.strip()) for text in (value, reason, actor(as_))]
    if any(len(text) > _LONGEST for text in given):
        raise UsageError(
            f"at most {_LONGEST:,} characters, please: put the rest into a ticket, and its address here"
        )
    value, reason, who = given
    warn_of_ledger(context)
    events = _events(context)
    with _views(context) as connection:
        before = find(gather(connection, events, now()), prefix)
        if action == "assign" and before["owner"] not in (None, value):
            context.complain(f"until now it was assigned to {before['owner']}")
        with ledger.opened(context.settings.ledger, context.store) as book:
            book.append([said(now(), who, before["fingerprint"], action, value, reason)])
            events = book.events()
        _show(context, connection, before["fingerprint"], events)


def _show(
    context: Context, connection: "duckdb.DuckDBPyConnection", prefix: str, events: Sequence[Event]
) -> None:
    from dlq.reports.failures import COLUMNS, find, gather

    row = find(gather(connection, events, now()), prefix)
    history = [
        {
            "at": iso(one.at),
            "actor": one.actor,
            "action": one.action,
            "value": one.value,
            "reason": one.reason,
        }
        for one in row["events"]
    ]
    document: dict[str, Any] = {**{name: row[name] for name in COLUMNS}, "history": history}
    context.emit(document, lambda: _draw_one(context, document))


def _draw(context: Context, rows: "Sequence[Row]") -> None:
    from dlq.reports.failures import what, where

    shown = [
        (
            row["fingerprint"][:12],
            row["state"],
            row["owner"],
            row["waiting"],
            row["letters"],
            _minute(row["first"]),
            _minute(row["last"]),
            _minute(row["oldest"]),
            what(row),
            where(row),
            row["note"],
        )
        for row in rows
    ]
    names = (
        "failure",
        "state",
        "owner",
        "waiting",
        "letters",
        "first",
        "last",
        "oldest",
        "what",
        "in",
        "note",
    )
    if shown:
        context.emit_rows(names, shown)


def _minute(moment: str | None) -> str:
    return (moment or "")[:16].replace("T", " ")


def _draw_one(context: Context, document: dict[str, Any]) -> None:
    from dlq.cli.tables import draw
    from dlq.core.text import for_terminal, lines_for_terminal

    facts = {n: said for n, said in document.items() if n != "history" and said not in (None, [])}
    for name, value in facts.items():
        text = ", ".join(value) if isinstance(value, list) else str(value)
        for number, line in enumerate(lines_for_terminal(text)):
            context.console.print(f"{'' if number else name:<18}{line}", soft_wrap=True)
    if document["history"]:
        context.console.print()
        names = list(document["history"][0])
        draw(context.console, names, [[for_terminal(v) for v in one.values()] for one in document["history"]])
    if step := _next_step(document):
        context.say(f"next: {step.format(document['fingerprint'][:12])}")


def _next_step(document: dict[str, Any]) -> str | None:
    """What one does with a failure that stands so."""
    if document["state"] in ("resolved", "snoozed"):
        return None
    if document["owner"] is None:
        return "dlq failures assign {}"
    if document["waiting"]:
        return "dlq ls --failure {0}, and once its cause is mended: dlq replay plan --failure {0} --fixed"
    return 'dlq failures resolve {} --reason "…"'
