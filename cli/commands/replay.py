"""`dlq replay`: letters go back, once, by plan."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlq.cli import completion, selecting
from dlq.cli.context import Context, say_what_is_not_judged
from dlq.cli.exit import ExitCode
from dlq.core.errors import UsageError
from dlq.core.text import for_terminal
from dlq.core.units import MOST

if TYPE_CHECKING:
    from dlq.operations.plans import Made
    from dlq.replay.reconcile import Decision

_Plan = Annotated[
    str,
    typer.Argument(
        metavar="PLAN", autocompletion=completion.plans, help="The plan's id, or the beginning of it."
    ),
]


_As = Annotated[
    str | None, typer.Option("--as", metavar="NAME", help="Your name (default: your user at this host).")
]
_Ids = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ID]...",
        help="These letters, whatever is advised of them (8 or more digits of each id).",
    ),
]
_To = Annotated[
    str,
    typer.Option(
        "--to",
        help="failed (its queue, or RocketMQ's group alone), origin, group, resume (half messages), "
        "queue:NAME, topic:NAME or exchange:NAME/KEY.",
    ),
]
_Rate = Annotated[float | None, typer.Option("--rate", help="At most so many messages a second.")]
_Limit = Annotated[int | None, typer.Option("--limit", min=1, max=MOST, help="At most so many letters.")]
_Edit = Annotated[
    str | None,
    typer.Option(
        "--edit",
        metavar="FILE",
        help="These letters, with changed bodies or headers: edited lines of dlq export.",
    ),
]
_Unwrap = Annotated[
    bool,
    typer.Option(
        "--unwrap",
        help="Send the message that a body holds beside its failure (a JSON envelope, EasyNetQ's error; "
        "Celery's retries start at 0). Others of that kind stay left out as risky.",
    ),
]
_Fixed = Annotated[
    bool,
    typer.Option(
        "--fixed", help="Include letters advised fix_first; use it after you have deployed the fix."
    ),
]
_AnyAdvice = Annotated[
    bool, typer.Option("--any-advice", help="Take in what advice, or a missing verdict, leaves out.")
]
_KeepHeaders = Annotated[
    bool,
    typer.Option("--keep-headers", help="Strip only what the broker owns ([replay] keep names some)."),
]
_Witness = Annotated[
    bool, typer.Option("--witness", help="Leave proof on the broker, so that reconcile can ask it.")
]
_ApplyNow = Annotated[
    bool, typer.Option("--apply", help="Carry it out at once; a terminal shows it and asks first.")
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="With --apply: do not ask.")]
_Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why they go back; stands in the plan.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    commands = typer.Typer(no_args_is_help=True)
    for command in (plan, approve, apply, status, reconcile, stop):
        commands.command()(command)
    app.add_typer(
        commands, name="replay", help="Send letters back, once, by a plan that is made and looked at first."
    )


def plan(
    ctx: typer.Context,
    ids: _Ids = None,
    where: selecting.Where = None,
    source: selecting.Sources = None,
    since: selecting.Since = None,
    incident: selecting.Incident = None,
    failure: selecting.Failure = None,
    to: _To = "failed",
    rate: _Rate = None,
    limit: _Limit = None,
    edit: _Edit = None,
    unwrap: _Unwrap = False,
    fixed: _Fixed = False,
    any_advice: _AnyAdvice = False,
    keep_headers: _KeepHeaders = False,
    witness: _Witness = False,
    apply_now: _ApplyNow = False,
    yes: _Yes = False,
    reason: _Reason = None,
    as_: _As = None,
) -> int:
    """Choose letters and write a plan; nothing is sent.

    Left out are letters whose advice is check_first, fix_first, never or hold, those without a verdict, and
    those that the ledger knows. --fixed takes in fix_first; --any-advice, or naming letters, takes in all.
    An edit plans the letters of its file, and --where those that it adds to them. --unwrap chooses none: it
    changes what of the chosen ones remembers its failure in its body.

    Example: dlq replay plan --where "cause = 'application_error' and dead_at > now() - interval 1 day"
    """
    from dlq.operations.plans import PlanWanted, make_plan
    from dlq.operations.selecting import Selection
    from dlq.replay import edits
    from dlq.replay.plan import Wanted

    context: Context = ctx.obj
    asks = apply_now and not yes
    if asks and not context.can_ask:
        raise UsageError("--apply asks before it sends, and nobody can answer here: add --yes")
    changes = edits.read(edit) if edit is not None else edits.NO_EDITS
    selection = Selection(where, source, since, incident, failure)
    how = Wanted(
        None, to, rate, limit, any_advice, fixed, keep_headers, witness, changes, unwrap, reason=reason
    )
    made = make_plan(context.desk_of(as_), PlanWanted(ids or (), selection, how))
    if not made.header.letters:
        say_what_is_not_judged(context)
    return _carry_out(context, made, asks) if apply_now else _show(context, made)


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
    return _apply(context, made.header.plan, None, made.document)


def approve(
    ctx: typer.Context,
    plan: _Plan,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why it may be applied.")] = "",
    as_: _As = None,
) -> None:
    """Consent to a plan that another person made, which replay.approval in the configuration asks for.

    The consent is for the plan as it is now, and counts for approval_time (24h). The ledger keeps it.

    Example: dlq replay approve 20261121T0301
    """
    from dlq.operations.plans import approve_plan

    context: Context = ctx.obj
    document = approve_plan(context.desk_of(as_), plan, reason)
    text = "{plan}, made by {made_by}, is approved by {approved_by}: {letters:,} letters"
    context.emit(document, lambda: context.console.print(for_terminal(text.format_map(document))))


def apply(
    ctx: typer.Context,
    plan: _Plan,
    ramp: Annotated[
        bool,
        typer.Option(
            "--ramp", help="Send 1, 10, 100, ... letters; stop when they die again or nobody consumes them."
        ),
    ] = False,
    max_harm: Annotated[
        float,
        typer.Option("--max-harm", min=0, max=100, help="With --ramp: the percentage of a step that may."),
    ] = 10.0,
) -> int:
    """Send what of a plan was never sent; nothing that a broker confirmed is sent twice.

    With --ramp each step is watched until its letters are consumed, and the sources are pulled, in their
    configured mode, to see what came back. It stops when letters die again, or nothing shows that they are
    consumed.

    Example: dlq replay apply 20261121T0301 --ramp
    """
    return _apply(ctx.obj, plan, max_harm / 100 if ramp else None, {})


def _apply(context: Context, plan: str, max_share: float | None, more: Mapping[str, Any]) -> int:
    """Apply a plan, in growing steps where it is said how much of one may die again, and show it beside
    `more`."""
    from dlq.cli.replay_output import show_states
    from dlq.operations.applying import apply_plan
    from dlq.operations.ramping import ramp_plan

    desk = context.desk
    done = apply_plan(desk, plan) if max_share is None else ramp_plan(desk, plan, max_share)
    document = {**more, **done.document}
    context.emit(document, lambda: show_states(context, document))
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
    """How far a plan is; without a plan, all plans that hold letters.

    Example: dlq replay status
    """
    from dlq.cli.replay_output import show_plans, show_states
    from dlq.operations.applying import code_of_states
    from dlq.operations.plans import list_plans, read_replay_status

    context: Context = ctx.obj
    if plan is None:
        found = list_plans(context.desk)
        show_plans(context, found.plans)
        if found.damaged:
            raise found.damaged[0]
        return ExitCode.DONE
    document = read_replay_status(context.desk, plan)
    context.emit(document, lambda: show_states(context, document))
    return code_of_states(document["states"])


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
        typer.Option("--hold", metavar="ID", help="Nobody knows: set this letter aside for good."),
    ] = None,
    all_sent: Annotated[bool, typer.Option("--all-sent", help="All that stay in doubt arrived.")] = False,
    all_not_sent: Annotated[
        bool, typer.Option("--all-not-sent", help="All that stay in doubt did not arrive.")
    ] = False,
    all_hold: Annotated[bool, typer.Option("--all-hold", help="Set all that stay in doubt aside.")] = False,
) -> int:
    """Find out what became of letters in doubt: from the broker, from what came back, or by your word.

    Example: dlq replay reconcile 20261121T0301 --sent 3f2a9c10
    """
    from dlq.cli.replay_output import show_resolved
    from dlq.operations.applying import reconcile_plan

    context: Context = ctx.obj
    decision = _decision(
        sent, not_sent, hold, {"confirmed": all_sent, "planned": all_not_sent, "held": all_hold}
    )
    document = reconcile_plan(context.desk, plan, decision)
    context.emit(document, lambda: show_resolved(context, document))
    return ExitCode.IN_DOUBT if document["resolved"]["unknown"] else ExitCode.DONE


def stop(ctx: typer.Context, plan: _Plan) -> None:
    """Ask whoever applies a plan to stop; what is in flight is still answered, the rest stays planned.

    Example: dlq replay stop 20261121T0301
    """
    from dlq.operations.applying import stop_plan

    context: Context = ctx.obj
    document = stop_plan(context.desk, plan)
    text = "stopping" if document["stopping"] else "nobody is applying it"
    context.emit(document, lambda: context.console.print(f"{document['plan']}: {text}"))


def _decision(
    sent: list[str] | None, not_sent: list[str] | None, hold: list[str] | None, rest: dict[Any, bool]
) -> "Decision":
    from dlq.replay.reconcile import Decision

    chosen = [state for state, wanted in rest.items() if wanted]
    if len(chosen) > 1:
        raise UsageError("--all-sent, --all-not-sent and --all-hold exclude each other")
    return Decision(
        tuple(sent or ()), tuple(not_sent or ()), tuple(hold or ()), chosen[0] if chosen else None
    )
