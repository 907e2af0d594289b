"""What `dlq replay apply` does, whole or in growing steps: brokers, ledger, signals, exit codes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from dlq.capture.pull import PullOptions, pull
from dlq.cli.connecting import connect, warn_of_ledger
from dlq.cli.context import Context
from dlq.cli.exit import ExitCode, worst
from dlq.cli.progress import Line, progress, replayed
from dlq.cli.replay_output import show_states
from dlq.connectors.base import Mode
from dlq.core.errors import UsageError
from dlq.core.settings import Source
from dlq.core.units import seconds
from dlq.replay import ledger, planfile, status
from dlq.replay.apply import Run, Send, applying
from dlq.replay.brokers import Brokers
from dlq.replay.load import Loader
from dlq.replay.pace import Stop, stopping_on_signals
from dlq.replay.ramp import came_back, ramp


def carry_out(context: Context, plan: str, document: Mapping[str, Any]) -> int:
    """Apply a plan; `document` is what the output says besides."""
    stop = Stop(context.store, plan)
    with _sending(context, plan, stop, _line(context, plan)) as send:
        run = send(None)
    return _finish(context, run, stop, document)


def ramp_up(context: Context, plan: str, max_share: float) -> int:
    """Apply a plan in growing steps, watching the dead-letter queues that its letters came from."""
    header = planfile.checked(context.store, plan)
    watched = _sources(context, header)
    stop = Stop(context.store, plan)
    wait = seconds(context.settings.replay.ramp_wait)

    def watch() -> int:
        for source in watched:
            _look_again(context, source)
        return came_back(context.store, context.settings, plan)

    with _sending(context, plan, stop, _line(context, plan)) as send:
        done = ramp(send, watch, plan, header.letters, wait, max_share, stop)
    steps = [asdict(step) for step in done.steps]
    if done.harmful:
        context.complain(
            f"stopped: {done.steps[-1].came_back} of the last {done.steps[-1].sent} letters died again"
        )
    code = _finish(context, done.run, stop, {"steps": steps, "harm": done.harm})
    return worst(ExitCode(code), ExitCode.PARTLY) if done.harmful else code


def _line(context: Context, plan: str) -> Line:
    rate = planfile.load(context.store, plan).rate
    return Line(plan, f"the next turn at --rate {rate:g}" if rate and rate < 1 else "the broker")


@contextmanager
def _sending(context: Context, plan: str, stop: Stop, line: Line) -> Iterator[Send]:
    warn_of_ledger(context)
    with (
        Brokers(context.settings, partial(connect, context)) as brokers,
        ledger.opened(context.settings.ledger, context.store) as book,
        progress(context, [line]),
        stopping_on_signals(stop),
        applying(context.store, context.settings, plan, brokers, book, stop, partial(replayed, line)) as send,
    ):
        for warning in book.warnings():
            context.complain(warning)
        yield send


def _finish(context: Context, run: Run, stop: Stop, more: Mapping[str, Any]) -> int:
    with ledger.opened(context.settings.ledger, context.store) as book:
        states = status.counts(context.store, book, planfile.load(context.store, run.plan))
    for reason in (*run.lost, *run.notes):
        context.complain(reason)
    counts = {"sent": run.sent, "skipped": run.skipped, "seconds": round(run.seconds, 3)}
    document = {**more, "plan": run.plan, "states": states, **counts}
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
    return worst(lost, ExitCode.PARTLY if run.stopped else ExitCode.DONE)


def _sources(context: Context, header: planfile.Header) -> list[Source]:
    """Where the plan's letters died; raises UsageError when one of these can't be watched."""
    names = Loader(context.store).sources(header.segments)
    missing = [name for name in names if name not in context.settings.sources]
    if missing:
        raise UsageError(f"--ramp watches source {missing[0]!r}, which is not in the configuration any more")
    return [context.settings.sources[name] for name in names]


def _look_again(context: Context, source: Source) -> None:
    """Capture what lies in the source now, as its configured mode says."""
    with Brokers(context.settings, partial(connect, context)) as brokers:
        mode: Mode = "drain" if source.mode == "drain" else "copy"
        result = pull(context.store, brokers.get(source.broker), source, PullOptions(mode=mode))
    if result.error is not None:
        raise result.error
