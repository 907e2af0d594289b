"""`dlq replay rehearse`: a sample of a plan goes to a private place first."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlq.cli import completion
from dlq.cli.context import Context
from dlq.core.text import for_terminal, shorten
from dlq.core.values.units import seconds

if TYPE_CHECKING:
    from dlq.operations.replays.plans import PlanWanted

Plan = Annotated[
    str,
    typer.Argument(
        metavar="PLAN", autocompletion=completion.plans, help="The plan's id, or the beginning of it."
    ),
]
_SHORT = 12


def rehearse(
    ctx: typer.Context,
    plan: Plan,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most N copies.")] = 200,
    per_failure: Annotated[
        int, typer.Option("--per-failure", metavar="N", min=1, help="At most N of each failure.")
    ] = 20,
    time: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long the consumer has, like 10m.")
    ] = "10m",
    clean: Annotated[
        bool, typer.Option("--clean", help="Only remove what a killed rehearsal left on the broker.")
    ] = False,
) -> int:
    """Send copies of a sample of a plan to a private place, and show what passes.

    The command prints the place. Point your fixed consumer at it, and let it use test systems: its side
    effects are real. Nothing goes to production, and nothing counts as sent.

    Example: dlq replay rehearse 20261121T0301
    """
    from dlq.operations.replays.rehearsing import Wanted, clean_rehearsal, rehearse_plan

    context: Context = ctx.obj
    wanted = Wanted(limit, per_failure, seconds(time))
    done = (
        clean_rehearsal(context.workspace, plan) if clean else rehearse_plan(context.workspace, plan, wanted)
    )
    context.emit(done.document, partial(_show, context, done.document, plan))
    return done.code


def narrow(context: Context, plan: str | None, wanted: "PlanWanted") -> "PlanWanted":
    """Return what a new plan wants, of the failures that passed the rehearsal of another alone, if one is
    named."""
    if plan is None:
        return wanted
    from dlq.operations.replays.rehearsing import take_passed

    return take_passed(context.workspace, plan, wanted)


def _show(context: Context, document: Mapping[str, Any], plan: str) -> None:
    """Show a line a failure, what its copies died of, and what to do next."""
    out = context.console.print
    failures = document["failures"]
    for one in failures:
        counts = (
            f"{one['passed']:,} of {one['sent']:,} passed, {one['died']:,} died again, {one['hung']:,} hung"
        )
        name = f"{(one['failure'] or 'not classified')[:_SHORT]}  {counts}  {for_terminal(one['what'] or '')}"
        out(shorten(name, max(40, context.console.width)), no_wrap=True, soft_wrap=True)
        for death in one["died_of"]:
            out(for_terminal(f"    {death['copies']:,} {death['cause']}: {death['failure']}"), soft_wrap=True)
    if document.get("untold"):
        out(
            f"{document['untold']:,} copies are held by a consumer, or came back without their marks: which "
            "they are is not known, so they count as hung; stop the consumer before the time is over",
            soft_wrap=True,
        )
    if depth := document.get("target"):
        before, after = ("unknown" if depth[at] is None else f"{depth[at]:,}" for at in ("before", "after"))
        out(
            for_terminal(
                f"{depth['name']}: {before} waited before, {after} afterwards; nothing was sent there"
            )
        )
    if document["removed"]:
        out(for_terminal(f"removed: {document['place']}, {document['dead_place']}"), soft_wrap=True)
    if any(0 < one["sent"] == one["hung"] for one in failures):
        out("\nWhere all hung, start the fixed consumer on the private place while a rehearsal waits.")
    if any(0 < one["sent"] == one["passed"] for one in failures):
        out(f"\nNext: dlq replay plan --rehearsed {plan}")
