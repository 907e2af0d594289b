"""What `dlq replay apply` does, whole or in growing steps: brokers, ledger, signals, exit codes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from dlq.cli.connecting import connect, warn_of_ledger
from dlq.cli.context import Context
from dlq.cli.exit import ExitCode, worst
from dlq.cli.progress import Line, progress, replayed
from dlq.cli.replay_output import show_states
from dlq.core.clock import now
from dlq.core.failures import said
from dlq.core.text import encodable
from dlq.replay import ledger, planfile, status, still_queued
from dlq.replay.actor import actor
from dlq.replay.apply import Run, Send, applying
from dlq.replay.brokers import Brokers
from dlq.replay.pace import Stop, stopping_on_signals

_NAMED = 5


def carry_out(context: Context, plan: str, document: Mapping[str, Any]) -> int:
    """Apply a plan; `document` is what the output says besides."""
    stop = Stop(context.store, plan)
    line = line_of(context, plan)
    with brokers_of(context) as brokers, sending(context, plan, brokers, stop, line) as send:
        run = send(None)
    return finish(context, run, stop, document)


def brokers_of(context: Context) -> Brokers:
    """The connectors of one command."""
    return Brokers(context.settings, partial(connect, context))


def line_of(context: Context, plan: str) -> Line:
    """The plan's line of progress."""
    rate = planfile.load(context.store, plan).rate
    return Line(plan, f"the next turn at --rate {rate:g}" if rate and rate < 1 else "the broker")


@contextmanager
def sending(
    context: Context,
    plan: str,
    brokers: Brokers,
    stop: Stop,
    line: Line,
    told: Callable[[Line, Run], None] = replayed,
) -> Iterator[Send]:
    """Hold a plan, with its ledger and this process' signals; `told` tells `line` of what is sent."""
    warn_of_ledger(context)
    with (
        ledger.opened(context.settings.ledger, context.store) as book,
        progress(context, [line]),
        stopping_on_signals(stop),
        applying(context.store, context.settings, plan, brokers, book, stop, partial(told, line)) as send,
    ):
        digest = planfile.load(context.store, plan).digest
        book.append([said(now(), encodable(actor()), plan, "apply", digest)])
        for warning in book.warnings():
            context.complain(warning)
        yield send


def finish(context: Context, run: Run, stop: Stop, more: Mapping[str, Any]) -> int:
    """Show what became of the plan's letters; returns the exit code."""
    with ledger.opened(context.settings.ledger, context.store) as book:
        header = planfile.load(context.store, run.plan)
        states = status.counts(context.store, book, header)
    for reason in (*run.lost, *run.notes, *_changed(run)):
        context.complain(reason)
    counts = {"sent": run.sent, "skipped": run.skipped, "seconds": round(run.seconds, 3)}
    left_behind = still_queued.of_plan(context.store, context.settings, header)
    document = {**more, "plan": run.plan, "states": states, **counts, "still_queued": left_behind}
    if "steps" in document:
        document["left"] = states["planned"]
    context.emit(document, lambda: show_states(context, document))
    if stop.signalled:
        return ExitCode.INTERRUPTED
    return worst(code_of_states(states), _code_of_run(run))


def code_of_states(states: Mapping[Any, int]) -> ExitCode:
    """In doubt before partly."""
    doubt = ExitCode.IN_DOUBT if states["in_doubt"] else ExitCode.DONE
    partly = ExitCode.PARTLY if states["returned"] or states["refused"] else ExitCode.DONE
    return worst(doubt, partly)


def _code_of_run(run: Run) -> ExitCode:
    lost = ExitCode.BROKER if run.lost else ExitCode.DONE
    changed = ExitCode.IN_DOUBT if run.changed else ExitCode.DONE
    return worst(lost, changed, ExitCode.PARTLY if run.stopped else ExitCode.DONE)


def _changed(run: Run) -> Sequence[str]:
    """What the archive holds now instead of the planned letters was not sent."""
    if not run.changed:
        return ()
    named = ", ".join(run.changed[:_NAMED]) + (", …" if len(run.changed) > _NAMED else "")
    return [
        f"{len(run.changed):,} letters are not what was planned: somebody changed them in the archive since, "
        f"and nothing of them was sent: {named}; dlq verify shows the damage"
    ]
