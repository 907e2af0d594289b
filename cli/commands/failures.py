"""dlq failures: who works on which failure, and what may be forgotten."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlq.cli.context import Context, say_what_is_not_classified
from dlq.core.errors import UsageError

if TYPE_CHECKING:
    from dlq.reports.failures import Row

_Failure = Annotated[
    str, typer.Argument(metavar="FINGERPRINT", help="The failure's fingerprint, or its beginning.")
]
_As = Annotated[
    str | None, typer.Option("--as", metavar="NAME", help="Your name (default: your user at this host).")
]
_Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why.")]
_EMPTY = "no failures: nothing is captured yet, or nothing of it is classified; dlq pull, then dlq analyze"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    commands = typer.Typer(invoke_without_command=True)
    commands.callback()(_group)
    for command in (ls, show, assign, note, snooze, resolve, reopen):
        commands.command()(command)
    app.add_typer(commands, name="failures")


def _group(ctx: typer.Context) -> None:
    """Assign, note, snooze and resolve failures.

    A failure groups letters that died for the same reason: those of one fingerprint. It is new until you
    change it, then open, snoozed or resolved. It is regressed when a letter of it dies after it was
    resolved. The ledger keeps every change. Without a command: ls.

    Example: dlq failures assign 1f0c2d3e
    """
    if ctx.invoked_subcommand is None:
        ls(ctx)


def ls(
    ctx: typer.Context,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="new, open, snoozed, resolved or regressed; may be repeated."
        ),
    ] = None,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="NAME", help="Only failures of this owner.")
    ] = None,
) -> None:
    """List failures: regressed and new ones first, snoozed ones last.

    Example: dlq failures ls --state new --state regressed
    """
    from dlq.operations.reading.failures import list_failures
    from dlq.reports.failures import COLUMNS

    context: Context = ctx.obj
    found = list_failures(context.workspace, state or (), owner)
    if context.output == "table":
        say_what_is_not_classified(context)
        _draw(context, found)
    else:
        context.emit_rows(COLUMNS, ([row[name] for name in COLUMNS] for row in found))
    if not found:
        context.say(_EMPTY if state is None and owner is None else "no failures")


def show(ctx: typer.Context, fingerprint: _Failure) -> None:
    """Show one failure and its history.

    Example: dlq failures show 1f0c2d3e
    """
    from dlq.operations.reading.failures import show_failure

    context: Context = ctx.obj
    _show(context, show_failure(context.workspace, fingerprint))


def assign(
    ctx: typer.Context,
    fingerprint: _Failure,
    owner: Annotated[str | None, typer.Argument(help="The owner (default: you).")] = None,
    nobody: Annotated[bool, typer.Option("--nobody", help="Remove the owner.")] = False,
    reason: _Reason = "",
    as_: _As = None,
) -> None:
    """Assign a failure to you, or to another person.

    Example: dlq failures assign 1f0c2d3e --reason "I know that gateway"
    """
    from dlq.operations.reading.failures import assign_failure

    context: Context = ctx.obj
    if nobody and owner:
        raise UsageError("give either an owner or --nobody, not both")
    if owner == "":
        raise UsageError("the owner is empty: name one, or use --nobody")
    workspace = context.workspace_of(as_)
    _show(context, assign_failure(workspace, fingerprint, "" if nobody else owner or workspace.actor, reason))


def note(ctx: typer.Context, fingerprint: _Failure, text: str, as_: _As = None) -> None:
    """Add a note to a failure.

    Example: dlq failures note 1f0c2d3e "the gateway's certificate ended; ticket 4711"
    """
    from dlq.operations.reading.failures import note_failure

    context: Context = ctx.obj
    _show(context, note_failure(context.workspace_of(as_), fingerprint, text))


def snooze(
    ctx: typer.Context,
    fingerprint: _Failure,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="A time (ISO 8601), or a duration (3d).")
    ] = None,
    letters: Annotated[
        int | None, typer.Option("--letters", metavar="N", min=1, help="Until it has N letters.")
    ] = None,
    reason: _Reason = "",
    as_: _As = None,
) -> None:
    """Silence a failure until a time, or until it has N letters.

    Example: dlq failures snooze 1f0c2d3e --until 3d --reason "the supplier fixes it on Monday"
    """
    from dlq.operations.reading.failures import snooze_failure

    context: Context = ctx.obj
    _show(context, snooze_failure(context.workspace_of(as_), fingerprint, until, letters, reason))


def resolve(
    ctx: typer.Context,
    fingerprint: _Failure,
    version: Annotated[
        str, typer.Option("--in", metavar="VERSION", help="The version of the application with the fix.")
    ] = "",
    reason: _Reason = "",
    as_: _As = None,
) -> None:
    """Resolve a failure. A letter of it that dies later makes it regressed.

    With --in, letters of older versions do not, because they die while the fix is rolled out. The setting
    version of a source names where its letters hold their version.

    Example: dlq failures resolve 1f0c2d3e --in 2.4.1
    """
    from dlq.operations.reading.failures import resolve_failure

    context: Context = ctx.obj
    _show(context, resolve_failure(context.workspace_of(as_), fingerprint, reason, version))


def reopen(ctx: typer.Context, fingerprint: _Failure, reason: _Reason = "", as_: _As = None) -> None:
    """Reopen a failure that was snoozed or resolved, or has regressed.

    Example: dlq failures reopen 1f0c2d3e --reason "it was another cause"
    """
    from dlq.operations.reading.failures import reopen_failure

    context: Context = ctx.obj
    _show(context, reopen_failure(context.workspace_of(as_), fingerprint, reason))


def _show(context: Context, failure: dict[str, Any]) -> None:
    if context.output == "table":
        say_what_is_not_classified(context)
    context.emit(failure, lambda: _draw_one(context, failure))


def _draw(context: Context, rows: "Sequence[Row]") -> None:
    from dlq.reports.failures import describe, place_of

    shown: list[dict[str, object]] = [
        {
            "failure": row["fingerprint"][:12],
            "state": row["state"],
            "owner": row["owner"],
            "waiting": row["waiting"],
            "letters": row["letters"],
            "what": describe(row),
            "in": place_of(row),
            "last": _minute(row["last"]),
            "first": _minute(row["first"]),
            "oldest": _minute(row["oldest"]),
            "note": row["note"],
        }
        for row in rows
    ]
    if shown:
        context.emit_rows([*shown[0]], [[*one.values()] for one in shown])


def _minute(moment: str | None) -> str:
    return (moment or "")[5:16].replace("T", " ")


def _draw_one(context: Context, document: dict[str, Any]) -> None:
    from dlq.cli.tables import draw
    from dlq.core.text import for_terminal, lines_for_terminal

    tables = ("history", "same_exception")
    facts = {n: said for n, said in document.items() if n not in tables and said not in (None, [])}
    for name, value in facts.items():
        text = ", ".join(value) if isinstance(value, list) else str(value)
        for number, line in enumerate(lines_for_terminal(text)):
            context.console.print(f"{'' if number else name:<18}{line}", soft_wrap=True)
    if document["history"]:
        context.console.print()
        names = list(document["history"][0])
        draw(context.console, names, [[for_terminal(v) for v in one.values()] for one in document["history"]])
    if others := document["same_exception"]:
        context.console.print(f"\nother failures with the same exception ({len(others)}), each for itself:")
        draw(context.console, list(others[0]), [[_cell(value) for value in one.values()] for one in others])
    if step := _next_step(document):
        context.say(f"next: {step.format(document['fingerprint'][:12])}")


def _cell(value: object) -> str:
    from dlq.core.text import for_terminal, list_names

    return for_terminal(list_names(value) if isinstance(value, list) else "" if value is None else str(value))


def _next_step(document: dict[str, Any]) -> str | None:
    """Return what one does with a failure that stands so."""
    if document["state"] in ("resolved", "snoozed"):
        return None
    if document["owner"] is None:
        return "dlq failures assign {}"
    if document["waiting"]:
        return (
            "dlq ls --failure {0}, and after you have deployed the fix: dlq replay plan --failure {0} --fixed"
        )
    return 'dlq failures resolve {} --reason "…"'
