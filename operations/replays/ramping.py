"""A plan is applied in growing steps: who is asked what becomes of the letters, and what is said of it."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from dlq.capture.pull import PullOptions, pull
from dlq.connectors.base import Mode
from dlq.core.brokers import plugin_of
from dlq.core.errors import HarmRefused, UsageError
from dlq.core.settings import Source
from dlq.core.text import for_terminal
from dlq.core.values.units import seconds
from dlq.operations.outcome import ExitCode, worst
from dlq.operations.progress import Line
from dlq.operations.replays.applying import Applied, finish, line_of, open_brokers, sending
from dlq.operations.triage import list_came_back
from dlq.operations.workspace import Workspace
from dlq.replay import came_back
from dlq.replay.plans import planfile
from dlq.replay.plans.destinations import Destination
from dlq.replay.runs.apply import Run
from dlq.replay.runs.consumed import Standing, read_standing
from dlq.replay.runs.load import Loader
from dlq.replay.runs.pace import Stop
from dlq.replay.runs.ramp import Ramp, Watch, places_of, ramp

_UNWATCHABLE = (
    "this apply pulls {source} again and again to see what comes back, and a {mode} of it {why} (dlq "
    'doctor {source} says more); set mode = "drain" for it in dlq.toml, or go without --ramp, or --in-order'
)


def ramp_plan(workspace: Workspace, prefix: str, max_share: float) -> Applied:
    """Apply a plan in growing steps, watching who consumes its letters and which come back: a step of which
    more than this share (0 to 1) died again is the last. Raises as `apply_plan`, and UsageError for a source
    that can't be watched."""
    plan = planfile.find(workspace.store, prefix)
    checked = planfile.check(workspace.store, plan)
    header = checked.header
    sources = watched_sources(workspace, header)

    def look() -> Counter[str]:
        look_again(workspace, sources)
        return came_back.count(workspace.store, workspace.settings, plan)

    places = places_of(checked.letters())
    stop, line = Stop(workspace.store, plan), line_of(workspace, plan)
    with open_brokers(workspace) as brokers:
        say_what_it_goes_by(workspace, read_standing(brokers, places), places)
        wait = seconds(workspace.settings.replay.ramp_wait)
        note = partial(keep_steps, workspace, plan)
        watch = Watch(partial(read_standing, brokers), look, wait, max_share, stop, partial(tell, line), note)
        with sending(workspace, plan, brokers, stop, line, tell_what_is_sent) as send:
            done = ramp(send, watch, plan, header.letters, places)
    return finish_ramp(workspace, done, stop, {})


def finish_ramp(workspace: Workspace, done: Ramp, stop: Stop, more: Mapping[str, Any]) -> Applied:
    """Return what became of a plan's letters step by step, and `more`."""
    steps = [asdict(step) for step in done.steps]
    back = list_came_back(workspace, done.run.plan) if done.harm else []
    if done.stopped_by:
        workspace.listener.complain(f"stopped: {done.why}")
    told = {"steps": steps, "harm": done.harm, "stopped_by": done.stopped_by, "came_back": back}
    applied = finish(workspace, done.run, stop, {**told, **more})
    return replace(applied, code=worst(applied.code, ExitCode.PARTLY)) if done.stopped_by else applied


def keep_steps(workspace: Workspace, plan: str, done: Ramp) -> None:
    """Keep the steps for those who follow the plan from elsewhere."""
    planfile.keep_ramp(workspace.store, plan, [asdict(step) for step in done.steps], done.stopped_by)


def tell(line: Line, text: str) -> None:
    """Let the plan's line say something."""
    line.news(lambda _elapsed: text)


def tell_what_is_sent(line: Line, run: Run) -> None:
    """Tell what is sent while a step is being sent; `skipped` are the letters of the steps before."""
    tell(line, f"sending, {run.sent + run.skipped:,} of {run.total:,}")


def say_what_it_goes_by(workspace: Workspace, found: Standing, places: Collection[Destination]) -> None:
    """Say what the ramp goes by where a broker tells less than acknowledgements."""
    for broker, target in sorted(places):
        seen = found.get((broker, target), ())
        settings = workspace.settings.brokers[broker]
        kind = plugin_of(settings.kind)
        hint = "" if target.kind == "topic" else kind.tells_more(settings)
        more = f"; {hint}" if hint else ""
        name = for_terminal(str(target))
        if not seen:
            workspace.listener.say(
                f"{name}: nothing shows whether its letters are consumed; this ramp goes by what comes back "
                f"within {workspace.settings.replay.ramp_wait} of each step{more}"
            )
        elif any(one.acknowledged is None for one in seen):
            workspace.listener.say(
                f"{name}: this ramp goes by letters that consumers took; nothing shows whether they are "
                f"acknowledged, or die where no source looks{more}"
            )
        if kind.ramp_note:
            workspace.listener.say(f"{name}: {kind.ramp_note}")


def watched_sources(workspace: Workspace, header: planfile.Header) -> list[Source]:
    """Return where the plan's letters died; raises UsageError when one of these can't be watched."""
    names = Loader(workspace.store).sources(header.segments)
    missing = [name for name in names if name not in workspace.settings.sources]
    if missing:
        raise UsageError(
            f"this apply watches source {missing[0]!r}, which is not in the configuration any more; add it"
        )
    return [workspace.settings.sources[name] for name in names]


def look_again(workspace: Workspace, sources: Sequence[Source]) -> None:
    """Capture what lies in the sources now, as their configured mode says. Raises HarmRefused for one that
    can't be watched so, and BrokerError."""
    for source in sources:
        mode: Mode = "drain" if source.mode == "drain" else "copy"
        try:
            with open_brokers(workspace) as brokers:
                result = pull(workspace.store, brokers.get(source.broker), source, PullOptions(mode=mode))
        except HarmRefused as refused:
            why = _UNWATCHABLE.format(source=source.name, mode=mode, why="is refused")
            raise HarmRefused(why) from refused
        if result.error is not None:
            raise result.error
        if mode == "copy" and result.left > result.skipped:  # those behind the end of a browse are the newest
            raise HarmRefused(_UNWATCHABLE.format(source=source.name, mode=mode, why="does not show all"))
