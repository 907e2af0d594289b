"""`dlq replay`: letters go back, once, by plan."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from dlq.cli import completion, selecting
from dlq.cli.context import Context, say_what_is_not_classified
from dlq.cli.exit import ExitCode, worst
from dlq.cli.rehearsal import narrow, rehearse
from dlq.core.errors import UsageError
from dlq.core.text import for_terminal

if TYPE_CHECKING:
    from dlq.operations.replays.plans import Made
    from dlq.replay.reconcile import Decision

_Plan = Annotated[
    str,
    typer.Argument(
        metavar="PLAN", autocompletion=completion.plans, help="The plan's id, or the beginning of it."
    ),
]


_where_to = partial(typer.Option, rich_help_panel="Where to")
_changes = partial(typer.Option, rich_help_panel="What changes")
_consent = partial(typer.Option, rich_help_panel="Consent")
"""Options of `plan`, by panels of its help."""
_As = Annotated[
    str | None, _consent("--as", metavar="NAME", help="Your name (default: your user at this host).")
]
_Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", hidden=True)]
_To = Annotated[
    str,
    _where_to(
        "--to",
        metavar="PLACE",
        show_default=False,
        help="failed (default), origin, group, resume, KIND:NAME.",
    ),
]
_Rate = Annotated[float | None, _where_to("--rate", metavar="N", help="At most N messages a second.")]
_Limit = Annotated[int | None, selecting.which("--limit", metavar="N", min=1, help="At most N letters.")]
_InOrder = Annotated[
    Literal["consumed", "sent"] | None,
    _where_to("--in-order", metavar="[=sent]", help="One letter after the other, per key."),
]
_Edit = Annotated[
    str | None, _changes("--edit", metavar="FILE", help="Bodies and headers: edited lines of dlq export.")
]
_Unwrap = Annotated[bool, _changes("--unwrap", help="Send the message that an error envelope holds.")]
_Fixed = Annotated[bool, selecting.which("--fixed", help="Include fix_first: the fix is deployed.")]
_Again = Annotated[bool, selecting.which("--again", help="Include letters sent elsewhere.")]
_AnyAdvice = Annotated[bool, selecting.which("--any-advice", help="Include any advice, or no verdict.")]
_CheckSuperseded = Annotated[
    bool, selecting.which("--check-superseded", help="Leave out what a newer one replaced.")
]
_NoCheckSuperseded = Annotated[bool, selecting.which("--no-check-superseded", hidden=True)]
_KeepHeaders = Annotated[bool, _changes("--keep-headers", help="Strip only headers that the broker owns.")]
_Witness = Annotated[bool, _where_to("--witness", help="Also copy each to a witness queue, for reconcile.")]
_Rehearsed = Annotated[
    str | None,
    selecting.which(
        "--rehearsed",
        metavar="PLAN",
        autocompletion=completion.plans,
        help="Only what passed PLAN's rehearsal.",
    ),
]
_ApplyNow = Annotated[bool, _consent("--apply", help="Apply the plan; a terminal asks first.")]
_Yes = Annotated[bool, _consent("--yes", "-y", help="With --apply: do not ask.")]
_Reason = Annotated[str | None, _consent("--reason", metavar="TEXT", help="Why; the plan records it.")]


class _PlanCommand(TyperCommand):
    """`--in-order` may stand without a value, which typer has no word for."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give it the one that it means then."""
        words = [f"{word}=consumed" if word == "--in-order" else word for word in args]
        return super().parse_args(ctx, words)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    commands = typer.Typer(no_args_is_help=True)
    commands.command(cls=_PlanCommand, short_help="Choose letters and write a plan; nothing is sent.")(plan)
    for command in (rehearse, approve, apply, status, check, reconcile, rate, stop):
        commands.command()(command)
    app.add_typer(commands, name="replay", help="Send letters back, each at most once, by a plan.")


def plan(
    ctx: typer.Context,
    ids: _Ids = None,
    where: selecting.Where = None,
    source: selecting.Sources = None,
    since: selecting.Since = None,
    incident: selecting.Incident = None,
    failure: selecting.Failure = None,
    text: selecting.Text = None,
    to: _To = "failed",
    rate: _Rate = None,
    in_order: _InOrder = None,
    limit: _Limit = None,
    rehearsed: _Rehearsed = None,
    edit: _Edit = None,
    unwrap: _Unwrap = False,
    fixed: _Fixed = False,
    any_advice: _AnyAdvice = False,
    again: _Again = False,
    check_superseded: _CheckSuperseded = False,
    no_check_superseded: _NoCheckSuperseded = False,
    keep_headers: _KeepHeaders = False,
    witness: _Witness = False,
    apply_now: _ApplyNow = False,
    yes: _Yes = False,
    reason: _Reason = None,
    as_: _As = None,
) -> int:
    """Choose letters and write a plan; nothing is sent. IDs choose these alone.

    Example: dlq replay plan --where "cause = 'application_error'"
    """
    from dlq.operations.reading.selecting import Selection
    from dlq.operations.replays.plans import PlanWanted, make_plan
    from dlq.replay.plans import edits
    from dlq.replay.plans.wanted import Wanted

    context: Context = ctx.obj
    asks = _asks(context, apply_now, yes)
    changes = edits.read(edit) if edit is not None else edits.NO_EDITS
    how = Wanted(
        None, to, rate, limit, any_advice, fixed, keep_headers, witness, changes, again, unwrap,
        check_superseded or (False if no_check_superseded else None), in_order, reason=reason,
    )  # fmt: skip
    wanted = PlanWanted(ids or (), Selection(where, source, since, incident, failure, text), how)
    made = make_plan(context.workspace_of(as_), narrow(context, rehearsed, wanted))
    if not made.header.letters:
        say_what_is_not_classified(context)
    return _carry_out(context, made, asks) if apply_now else _show(context, made)


def _asks(context: Context, apply_now: bool, yes: bool) -> bool:
    """Return whether somebody is asked before letters are sent. Raises UsageError where nobody can be."""
    asks = apply_now and not yes
    if asks and not context.can_ask:
        raise UsageError("--apply asks before it sends, and no terminal can answer: add --yes")
    return asks


def _show(context: Context, made: "Made") -> int:
    from dlq.cli.replay_output import show_plan

    context.emit(made.document, partial(show_plan, context, made))
    return ExitCode.DONE


def _carry_out(context: Context, made: "Made", asks: bool) -> int:
    """Apply a new plan at once, or when somebody who has seen it says so."""
    from dlq.cli.replay_output import show_plan

    letters = made.header.letters
    if asks:
        show_plan(context, made)
        if not (letters and typer.confirm(f"Send {letters:,} letters now?", err=True)):
            return ExitCode.DONE
    else:
        for line in made.differences:
            context.say(line)
    return _apply(context, made.header.plan, None, (), made.document)


def approve(
    ctx: typer.Context,
    plan: _Plan,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why you approve; the ledger records it.")
    ] = "",
    as_: _As = None,
) -> None:
    """Approve a plan that another person made.

    The setting replay.approval requires it. The approval holds for the plan as it is now, and ends after
    approval_time (24h). The ledger records it.

    Example: dlq replay approve 20261121T0301
    """
    from dlq.operations.replays.plans import approve_plan

    context: Context = ctx.obj
    document = approve_plan(context.workspace_of(as_), plan, reason)
    text = "{plan}, made by {made_by}, is approved by {approved_by}: {letters:,} letters"
    context.emit(document, lambda: context.console.print(for_terminal(text.format_map(document))))


def apply(
    ctx: typer.Context,
    plan: _Plan,
    ramp: Annotated[
        bool, typer.Option("--ramp", help="Send 1, 10, 100, ... letters; stop when they die again or stay.")
    ] = False,
    max_harm: Annotated[
        float,
        typer.Option(
            "--max-harm", metavar="PERCENT", min=0, max=100, help="With --ramp: may die again, of each step."
        ),
    ] = 10.0,
    release: Annotated[
        list[str] | None,
        typer.Option("--release", metavar="KEY", help="Continue this stopped key (plan --in-order)."),
    ] = None,
) -> int:
    """Send the letters of a plan that were never sent.

    A letter that a broker confirmed is never sent again. With --ramp it watches each step until its letters
    are consumed, and pulls the sources, in their configured mode, to see which came back. It stops when
    letters die again, or when nothing shows that they are consumed.

    Example: dlq replay apply 20261121T0301 --ramp
    """
    if not max_harm <= 100:  # nan, which no range keeps out, and nothing is more than that
        raise UsageError("--max-harm nan: write a percentage, 0 to 100")
    return _apply(ctx.obj, plan, max_harm / 100 if ramp else None, release or (), {})


def _apply(
    context: Context, plan: str, max_share: float | None, release: Sequence[str], more: Mapping[str, Any]
) -> int:
    """Apply a plan, in growing steps where it is said how much of one may die again, and show it beside
    `more`."""
    from dlq.cli.replay_output import show_run
    from dlq.operations.replays.applying import apply_plan
    from dlq.operations.replays.plans import is_in_order

    workspace = context.workspace
    if release or is_in_order(workspace, plan):
        from dlq.operations.replays.in_order import apply_in_order

        done = apply_in_order(workspace, plan, max_share, release)
    elif max_share is not None:  # what came back is pulled, and classified
        from dlq.operations.replays.ramping import ramp_plan

        done = ramp_plan(workspace, plan, max_share)
    else:
        done = apply_plan(workspace, plan)
    document = {**more, **done.document}
    context.emit(document, lambda: show_run(context, document))
    return done.code


def status(
    ctx: typer.Context,
    plan: Annotated[
        str | None,
        typer.Argument(
            metavar="PLAN", autocompletion=completion.plans, help="The plan's id, or the beginning of it."
        ),
    ] = None,
) -> int:
    """Show the progress of a plan and its stopped keys. Without PLAN, list all.

    Example: dlq replay status
    """
    from dlq.cli.replay_output import show_plans, show_status
    from dlq.operations.replays.applying import code_of_states
    from dlq.operations.replays.plans import list_plans, read_replay_status

    context: Context = ctx.obj
    if plan is None:
        found = list_plans(context.workspace)
        show_plans(context, found.plans)
        if found.damaged:
            raise found.damaged[0]
        return ExitCode.DONE
    document = read_replay_status(context.workspace, plan)
    context.emit(document, lambda: show_status(context, document))
    stopped = ExitCode.PARTLY if document["stopped_keys"] else ExitCode.DONE
    return worst(code_of_states(document["states"]), stopped)


def check(ctx: typer.Context, plan: _Plan) -> int:
    """Check which messages of a plan their consumers have processed.

    It runs the program of the setting consumers.NAME.verify. It exits with 3 when a message was not
    processed, or no program knows it.

    Example: dlq replay check 20261121T0301
    """
    from dlq.cli.replay_output import show_checked
    from dlq.operations.replays.owners import check_replay

    context: Context = ctx.obj
    checked = check_replay(context.workspace, plan)
    context.emit(checked.document, lambda: show_checked(context, checked.document))
    return checked.code


def reconcile(
    ctx: typer.Context,
    plan: _Plan,
    sent: Annotated[
        list[str] | None,
        typer.Option("--sent", metavar="ID", help="This letter arrived (record id, 8 digits or more)."),
    ] = None,
    not_sent: Annotated[
        list[str] | None,
        typer.Option("--not-sent", metavar="ID", help="This letter did not arrive: apply may send it."),
    ] = None,
    hold: Annotated[
        list[str] | None,
        typer.Option("--hold", metavar="ID", help="Set this letter aside for good: its fate is unknown."),
    ] = None,
    all_sent: Annotated[bool, typer.Option("--all-sent", help="All that stay in doubt arrived.")] = False,
    all_not_sent: Annotated[
        bool, typer.Option("--all-not-sent", help="All that stay in doubt did not arrive.")
    ] = False,
    all_hold: Annotated[bool, typer.Option("--all-hold", help="Set all that stay in doubt aside.")] = False,
) -> int:
    """Find out what became of letters in doubt.

    It asks the broker, looks at what came back, and takes your word for the rest.

    Example: dlq replay reconcile 20261121T0301 --sent 3f2a9c10
    """
    from dlq.cli.replay_output import show_resolved
    from dlq.operations.replays.applying import reconcile_plan

    context: Context = ctx.obj
    decision = _decision(
        sent, not_sent, hold, {"confirmed": all_sent, "planned": all_not_sent, "held": all_hold}
    )
    document = reconcile_plan(context.workspace, plan, decision)
    context.emit(document, lambda: show_resolved(context, document))
    return ExitCode.IN_DOUBT if document["resolved"]["unknown"] else ExitCode.DONE


def stop(ctx: typer.Context, plan: _Plan) -> None:
    """Stop the run that applies a plan.

    The run waits for the answers to letters in flight; the others stay planned.

    Example: dlq replay stop 20261121T0301
    """
    from dlq.operations.replays.applying import stop_plan

    context: Context = ctx.obj
    document = stop_plan(context.workspace, plan)
    text = "stopping" if document["stopping"] else "no run applies it"
    context.emit(document, lambda: context.console.print(f"{document['plan']}: {text}"))


def rate(
    ctx: typer.Context,
    plan: _Plan,
    per_second: Annotated[
        float, typer.Argument(metavar="RATE", help="Letters a second; at most the plan's.")
    ],
) -> None:
    """Send a plan faster, or slower, while it is applied.

    The rate holds for this run; the next run begins at the plan's own rate.

    Example: dlq replay rate 20261121T0301 20
    """
    from dlq.operations.replays.applying import change_rate

    context: Context = ctx.obj
    document = change_rate(context.workspace, plan, per_second)
    text = f"{per_second:g} a second from now on" if document["changed"] else "no run applies it"
    context.emit(document, lambda: context.console.print(f"{document['plan']}: {text}"))


def _decision(
    sent: list[str] | None, not_sent: list[str] | None, hold: list[str] | None, rest: dict[Any, bool]
) -> "Decision":
    from dlq.replay.reconcile import Decision

    chosen = [state for state, wanted in rest.items() if wanted]
    if len(chosen) > 1:
        raise UsageError("give only one of --all-sent, --all-not-sent and --all-hold")
    return Decision(
        tuple(sent or ()), tuple(not_sent or ()), tuple(hold or ()), chosen[0] if chosen else None
    )
