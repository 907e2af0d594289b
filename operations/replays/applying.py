"""Plans are applied, stopped and reconciled: brokers, ledger, signals, and what became of the letters."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dlq.core.clock import now
from dlq.core.errors import UsageError
from dlq.core.failures import make_event
from dlq.core.values.units import human_seconds
from dlq.operations.brokers.connecting import connect, warn_of_ledger
from dlq.operations.outcome import ExitCode, worst
from dlq.operations.progress import Line, tell_sent
from dlq.operations.workspace import Workspace
from dlq.replay import ledger, status, still_queued
from dlq.replay.plans import planfile
from dlq.replay.reconcile import Decision, reconcile
from dlq.replay.runs.apply import Run, Send, applying
from dlq.replay.runs.brokers import Brokers
from dlq.replay.runs.pace import LEAST_RATE, Stop, request_rate, request_stop, stopping_on_signals

_NAMED = 5
_UNDECIDED = Decision()
"""Proof alone decides."""


@dataclass(frozen=True)
class Applied:
    """What became of a plan's letters, as `dlq replay apply` prints it, and how the apply ended."""

    document: dict[str, Any]
    code: ExitCode


def apply_plan(workspace: Workspace, prefix: str) -> Applied:
    """Send what of the plan was never sent; in the main thread Ctrl-C and SIGTERM stop it after what is in
    flight. The listener hears of brokers that failed in the middle. Raises UsageError for a plan that must
    not be applied (`why_not_apply`), Busy while another applies it, BrokerError."""
    plan = planfile.find(workspace.store, prefix)
    stop = Stop(workspace.store, plan)
    line = line_of(workspace, plan)
    with open_brokers(workspace) as brokers, sending(workspace, plan, brokers, stop, line) as send:
        run = send(None)
    return finish(workspace, run, stop, {})


def open_brokers(workspace: Workspace) -> Brokers:
    """Return the connectors of one operation."""
    return Brokers(workspace.settings, partial(connect, workspace))


def line_of(workspace: Workspace, plan: str) -> Line:
    """Return the plan's line of progress."""
    rate = planfile.load(workspace.store, plan).rate
    return Line(plan, f"the next turn at --rate {rate:g}" if rate and rate < 1 else "the broker")


@contextmanager
def sending(
    workspace: Workspace,
    plan: str,
    brokers: Brokers,
    stop: Stop,
    line: Line,
    told: Callable[[Line, Run], None] = tell_sent,
) -> Iterator[Send]:
    """Hold a plan, with its ledger and this process' signals; `told` tells `line` of what is sent."""
    warn_of_ledger(workspace)
    with (
        ledger.opened(workspace.settings.ledger, workspace.store) as book,
        workspace.listener.follow([line]),
        stopping_on_signals(stop),
        applying(workspace.store, workspace.settings, plan, brokers, book, stop, partial(told, line)) as send,
    ):
        digest = planfile.load(workspace.store, plan).digest
        book.append([make_event(now(), workspace.actor, plan, "apply", digest)])
        planfile.forget_stop(workspace.store, plan)
        yield send


def finish(workspace: Workspace, run: Run, stop: Stop, more: Mapping[str, Any]) -> Applied:
    """Return what became of the plan's letters, and `more`."""
    with ledger.opened(workspace.settings.ledger, workspace.store) as book:
        header = planfile.load(workspace.store, run.plan)
        states = status.counts(workspace.store, book, header)
    for reason in (*run.lost, *run.notes, *_tell_changed(run), *_tell_elsewhere(run), *run.refused):
        workspace.listener.complain(reason)
    counts = {"sent": run.sent, "skipped": run.skipped, "seconds": round(run.seconds, 3)}
    left_behind = still_queued.of_plan(workspace.store, workspace.settings, header)
    document = {**more, "plan": run.plan, "states": states, **counts, "still_queued": left_behind}
    if left_out := sum(run.elsewhere.values()):
        document["sent_elsewhere"] = left_out
    if "steps" in document:
        document["left"] = states["planned"]
    code = worst(code_of_states(states), _code_of_run(run))
    return Applied(document, ExitCode.INTERRUPTED if stop.signalled else code)


def code_of_states(states: Mapping[Any, int]) -> ExitCode:
    """Return the exit code of states: in doubt before partly."""
    doubt = ExitCode.IN_DOUBT if states["in_doubt"] else ExitCode.DONE
    partly = ExitCode.PARTLY if states["returned"] or states["refused"] else ExitCode.DONE
    return worst(doubt, partly)


def _code_of_run(run: Run) -> ExitCode:
    lost = ExitCode.BROKER if run.lost else ExitCode.DONE
    changed = ExitCode.IN_DOUBT if run.changed else ExitCode.DONE
    is_partly = run.stopped or run.elsewhere or run.refused
    return worst(lost, changed, ExitCode.PARTLY if is_partly else ExitCode.DONE)


def _tell_elsewhere(run: Run) -> Iterator[str]:
    for where, letters in run.elsewhere.items():
        yield (
            f"left out: {letters:,} of its letters, {where} by another plan meanwhile; a plan "
            "made with --again sends to its target, too, what went to another"
        )


def _tell_changed(run: Run) -> Sequence[str]:
    """Return what the archive holds now instead of the planned letters was not sent."""
    if not run.changed:
        return ()
    named = ", ".join(run.changed[:_NAMED]) + (", …" if len(run.changed) > _NAMED else "")
    return [
        f"{len(run.changed):,} letters are not what was planned: someone changed them in the archive since, "
        f"and nothing of them was sent: {named}; dlq verify shows the damage"
    ]


def stop_plan(workspace: Workspace, prefix: str) -> dict[str, Any]:
    """Ask whoever applies the plan, on any host that shares the archive, to stop; what is in flight is still
    answered. `stopping` is false where nobody applies it. Raises UsageError."""
    plan = planfile.find(workspace.store, prefix)
    stopping = workspace.store.holder(f"plan-{plan}") is not None
    if stopping:
        request_stop(workspace.store, plan)
    return {"plan": plan, "stopping": stopping}


def change_rate(workspace: Workspace, prefix: str, rate: float) -> dict[str, Any]:
    """Ask whoever applies the plan to send so many letters a second from now on, at most those that the plan
    says, to which somebody may have consented. `changed` is false where nobody applies it. Raises
    UsageError."""
    plan = planfile.find(workspace.store, prefix)
    most = planfile.load(workspace.store, plan).rate or math.inf
    if not LEAST_RATE <= rate <= most or math.isinf(rate):
        allowed = f"at least {LEAST_RATE:g}" + (
            f", and at most the {most:g} of the plan" if most < math.inf else ""
        )
        raise UsageError(f"{rate:g} a second: give {allowed}, or make a new plan")
    changed = workspace.store.holder(f"plan-{plan}") is not None
    if changed:
        request_rate(workspace.store, plan, rate)
    return {"plan": plan, "rate": rate, "changed": changed}


def reconcile_plan(workspace: Workspace, prefix: str, decision: Decision = _UNDECIDED) -> dict[str, Any]:
    """Find out what became of letters in doubt: from the broker, from what came back, or by decision. How
    many were resolved, and how many are set aside; the listener hears what could not be asked. Raises
    UsageError, Busy while the plan is being applied."""
    warn_of_ledger(workspace)
    plan = planfile.find(workspace.store, prefix)
    line = Line(plan, "a broker, which may list its connections late")
    line.news(lambda elapsed: f"asking the brokers what became of it, {human_seconds(elapsed)}")
    with (
        open_brokers(workspace) as brokers,
        ledger.opened(workspace.settings.ledger, workspace.store) as book,
        workspace.listener.follow([line]),
    ):
        resolved = reconcile(workspace.store, plan, brokers, book, replace(decision, who=workspace.actor))
    for note in resolved.notes:
        workspace.listener.complain(note)
    counts = {"sent": resolved.sent, "not_sent": resolved.not_sent, "unknown": resolved.unknown}
    return {"plan": plan, "resolved": counts, "held": resolved.held}
