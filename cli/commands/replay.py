"""`dlq replay`: letters go back, once, by plan."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlq.cli import completion, selecting
from dlq.cli.connecting import connect, warn_of_ledger
from dlq.cli.context import Context
from dlq.cli.exit import ExitCode
from dlq.core.clock import now
from dlq.core.errors import Busy, UsageError
from dlq.core.text import encodable, for_terminal

if TYPE_CHECKING:
    from dlq.replay.reconcile import Decision

Plan = Annotated[
    str,
    typer.Argument(
        metavar="PLAN", autocompletion=completion.plans, help="The plan's id, or the beginning of it."
    ),
]


As = Annotated[
    str | None, typer.Option("--as", metavar="NAME", help="Who you are (default: your user at this host).")
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
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID]...",
            help="These letters, whatever is advised of them (8 or more digits of each id).",
        ),
    ] = None,
    where: selecting.Where = None,
    source: selecting.Sources = None,
    since: selecting.Since = None,
    incident: selecting.Incident = None,
    failure: selecting.Failure = None,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="failed (its queue, or RocketMQ's group alone), origin, group, resume (half messages), "
            "queue:NAME, topic:NAME or exchange:NAME/KEY.",
        ),
    ] = "failed",
    rate: Annotated[float | None, typer.Option("--rate", help="At most so many messages a second.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many letters.")] = None,
    edit: Annotated[
        str | None,
        typer.Option(
            "--edit",
            metavar="FILE",
            help="These letters, with changed bodies or headers: edited lines of dlq export.",
        ),
    ] = None,
    fixed: Annotated[
        bool, typer.Option("--fixed", help="The cause is mended: take in letters of the advice fix_first.")
    ] = False,
    any_advice: Annotated[
        bool, typer.Option("--any-advice", help="Take in what advice, or a missing verdict, leaves out.")
    ] = False,
    keep_headers: Annotated[
        bool,
        typer.Option("--keep-headers", help="Strip only what the broker owns ([replay] keep names some)."),
    ] = False,
    witness: Annotated[
        bool, typer.Option("--witness", help="Leave proof on the broker, so that reconcile can ask it.")
    ] = False,
    apply_now: Annotated[
        bool, typer.Option("--apply", help="Carry it out at once; a terminal shows it and asks first.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --apply: do not ask.")] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why they go back; stands in the plan.")
    ] = None,
    as_: As = None,
) -> int:
    """Choose letters and write a plan; nothing is sent.

    Left out are letters whose advice is check_first, fix_first, never or hold, those without a verdict, and
    those that the ledger knows. --fixed takes in fix_first; --any-advice, or naming letters, takes in all.
    An edit plans the letters of its file, and --where those that it adds to them.

    Example: dlq replay plan --where "cause = 'application_error' and dead_at > now() - interval 1 day"
    """
    from dlq.cli.applying import carry_out
    from dlq.cli.replay_output import plan_document, show_plan
    from dlq.replay import edits, still_queued
    from dlq.replay.actor import actor
    from dlq.replay.brokers import Brokers
    from dlq.replay.plan import Wanted, make

    context: Context = ctx.obj
    asks = apply_now and not yes
    if asks and not context.can_ask:
        raise UsageError("--apply asks before it sends, and nobody can answer here: add --yes")
    changes = edits.read(edit) if edit else edits.NO_EDITS
    chosen = _chosen(context, ids or [], selecting.Selection(where, source, since, incident, failure))
    kept = keep_headers or context.settings.replay.keep or False
    wanted = Wanted(chosen, to, rate, limit, any_advice, fixed, kept, witness, changes)
    wanted = replace(wanted, actor=encodable(actor(as_)), reason=encodable(reason) if reason else None)
    with Brokers(context.settings, partial(connect, context)) as brokers:
        header = make(context.store, context.settings, wanted, brokers)
    differences = list(edits.differences(context.store, header, changes))
    left_behind = still_queued.of_plan(context.store, context.settings, header)
    document = plan_document(header, len(changes.changed), left_behind)
    show = partial(show_plan, context, header, differences, document)
    if not header.letters:
        from dlq.cli.views import say_what_is_not_judged

        say_what_is_not_judged(context)
    if not apply_now:
        context.emit(document, show)
        return ExitCode.DONE
    if asks:
        show()
        if not (header.letters and typer.confirm(f"Send {header.letters:,} letters now?", err=True)):
            return ExitCode.DONE
    else:
        for line in differences:
            context.say(line)
    return carry_out(context, header.plan, document)


def _chosen(context: Context, ids: list[str], selection: selecting.Selection) -> str | None:
    """The condition of the letters that are named, by ids or by options."""
    from dlq.cli.views import open_views

    if not ids and selection.is_all:
        return None
    with open_views(context) as connection:
        return selecting.chosen(context, connection, ids, selection)


def approve(
    ctx: typer.Context,
    plan: Plan,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why it may be applied.")] = "",
    as_: As = None,
) -> None:
    """Consent to a plan that somebody else made, which replay.approval in the configuration asks for.

    The consent is for the plan as it is now, and counts for approval_time (24h). The ledger keeps it.

    Example: dlq replay approve 20261121T0301
    """
    from dlq.replay import approvals, ledger, planfile
    from dlq.replay.actor import actor

    context: Context = ctx.obj
    header = planfile.checked(context.store, _found(context, plan))
    given = approvals.approval(header, encodable(actor(as_)), encodable(reason), now())
    warn_of_ledger(context)
    with ledger.opened(context.settings.ledger, context.store) as book:
        book.append([given])
    document = {
        "plan": header.plan,
        "digest": header.digest,
        "letters": header.letters,
        "made_by": header.actor,
        "approved_by": given.actor,
    }
    text = for_terminal(f"{header.plan}, made by {header.actor}, is approved by {given.actor}")
    context.emit(document, lambda: context.console.print(f"{text}: {header.letters:,} letters"))


def apply(
    ctx: typer.Context,
    plan: Plan,
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
    from dlq.cli.applying import carry_out
    from dlq.cli.ramping import ramp_up

    context: Context = ctx.obj
    found = _found(context, plan)
    return ramp_up(context, found, max_harm / 100) if ramp else carry_out(context, found, {})


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
    from dlq.cli import died_again, plans
    from dlq.cli.applying import code_of_states
    from dlq.cli.replay_output import show_states
    from dlq.replay import ledger, planfile, still_queued
    from dlq.replay.status import counts

    context: Context = ctx.obj
    if plan is None:
        warn_of_ledger(context)
        plans.show(context)
        return ExitCode.DONE
    header = planfile.load(context.store, _found(context, plan))
    warn_of_ledger(context)
    with ledger.opened_if_any(context.settings.ledger, context.store) as book:
        if book is not None:
            book.expire()
        states = counts(context.store, book, header)
    sent = header.letters - states["planned"] - states["sending"]
    document = {"plan": header.plan, "states": states, "sent": sent, "skipped": 0, "seconds": 0.0}
    document["still_queued"] = still_queued.of_plan(context.store, context.settings, header)
    document["came_back"] = died_again.letters(context, header.plan) if sent else []
    context.emit(document, lambda: show_states(context, document))
    return code_of_states(states)


def reconcile(
    ctx: typer.Context,
    plan: Plan,
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
    from dlq.cli.progress import Line, progress
    from dlq.cli.replay_output import show_resolved
    from dlq.core.units import human_seconds
    from dlq.replay import ledger
    from dlq.replay import reconcile as reconciling
    from dlq.replay.brokers import Brokers

    context: Context = ctx.obj
    warn_of_ledger(context)
    found = _found(context, plan)
    decision = _decision(
        sent, not_sent, hold, {"confirmed": all_sent, "planned": all_not_sent, "held": all_hold}
    )
    line = Line(found, "a broker, which may list its connections late")
    line.news(lambda elapsed: f"asking the brokers what became of it, {human_seconds(elapsed)}")
    with (
        Brokers(context.settings, partial(connect, context)) as brokers,
        ledger.opened(context.settings.ledger, context.store) as book,
        progress(context, [line]),
    ):
        resolved = reconciling.reconcile(context.store, found, brokers, book, decision)
    for note in resolved.notes:
        context.complain(note)
    counts = {"sent": resolved.sent, "not_sent": resolved.not_sent, "unknown": resolved.unknown}
    document = {"plan": found, "resolved": counts, "held": resolved.held}
    context.emit(document, lambda: show_resolved(context, document))
    return ExitCode.IN_DOUBT if resolved.unknown else ExitCode.DONE


def stop(ctx: typer.Context, plan: Plan) -> None:
    """Ask whoever applies a plan to stop; what is in flight is still answered, the rest stays planned.

    Example: dlq replay stop 20261121T0301
    """
    from dlq.replay.pace import request_stop

    context: Context = ctx.obj
    found = _found(context, plan)
    stopping = _is_running(context, found)
    if stopping:
        request_stop(context.store, found)
    text = "stopping" if stopping else "nobody is applying it"
    context.emit({"plan": found, "stopping": stopping}, lambda: context.console.print(f"{found}: {text}"))


def _found(context: Context, plan: str) -> str:
    from dlq.replay import planfile

    return planfile.find(context.store, plan)


def _is_running(context: Context, plan: str) -> bool:
    try:
        with context.store.lock(f"plan-{plan}"):
            return False
    except Busy:
        return True


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
