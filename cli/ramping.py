"""What `dlq replay apply --ramp` does: who is asked what becomes of the letters, and what is said of it."""

from collections.abc import Collection, Sequence
from dataclasses import asdict
from functools import partial

from dlq.capture.pull import PullOptions, pull
from dlq.cli import died_again
from dlq.cli.applying import brokers_of, finish, line_of, sending
from dlq.cli.context import Context
from dlq.cli.exit import ExitCode, worst
from dlq.cli.progress import Line
from dlq.connectors.base import Mode
from dlq.core.brokers import kind_of
from dlq.core.errors import HarmRefused, UsageError
from dlq.core.settings import Source
from dlq.core.text import for_terminal
from dlq.core.units import seconds
from dlq.replay import came_back, planfile
from dlq.replay.apply import Run
from dlq.replay.consumed import Standing, standing
from dlq.replay.destinations import Destination
from dlq.replay.load import Loader
from dlq.replay.pace import Stop
from dlq.replay.ramp import Watch, places_of, ramp

_UNWATCHABLE = (
    "--ramp pulls {source} again and again to see what comes back, and a {mode} of it is refused (dlq doctor "
    '{source} says why); set mode = "drain" for it in dlq.toml, or apply without --ramp'
)


def ramp_up(context: Context, plan: str, max_share: float) -> int:
    """Apply a plan in growing steps, watching who consumes its letters and which come back."""
    header = planfile.checked(context.store, plan)
    look = partial(_look_again, context, _sources(context, header), plan)
    places = places_of(context.store, plan)
    stop, line = Stop(context.store, plan), line_of(context, plan)
    tell = partial(_tell, line)
    with brokers_of(context) as brokers:
        _say_what_it_goes_by(context, standing(brokers, places), places)
        wait = seconds(context.settings.replay.ramp_wait)
        watch = Watch(partial(standing, brokers), look, wait, max_share, stop, tell)
        with sending(context, plan, brokers, stop, line, _tell_what_is_sent) as send:
            done = ramp(send, watch, plan, header.letters, places)
    steps = [asdict(step) for step in done.steps]
    back = died_again.letters(context, plan) if done.harm else []
    if done.stopped_by:
        context.complain(f"stopped: {done.why}")
    more = {"steps": steps, "harm": done.harm, "stopped_by": done.stopped_by, "came_back": back}
    code = finish(context, done.run, stop, more)
    return worst(ExitCode(code), ExitCode.PARTLY) if done.stopped_by else code


def _tell(line: Line, text: str) -> None:
    line.news(lambda _elapsed: text)


def _tell_what_is_sent(line: Line, run: Run) -> None:
    """While a step is being sent; `skipped` are the letters of the steps before."""
    _tell(line, f"sending, {run.sent + run.skipped:,} of {run.total:,}")


def _say_what_it_goes_by(context: Context, found: Standing, places: Collection[Destination]) -> None:
    """Where a broker tells less than acknowledgements."""
    for broker, target in sorted(places):
        seen = found.get((broker, target), ())
        settings = context.settings.brokers[broker]
        kind = kind_of(settings.kind)
        hint = "" if target.kind == "topic" else kind.tells_more(settings)
        more = f"; {hint}" if hint else ""
        name = for_terminal(str(target))
        if not seen:
            context.say(
                f"{name}: nothing tells whether its letters are consumed; this ramp goes by what comes back "
                f"within {context.settings.replay.ramp_wait} of each step{more}"
            )
        elif any(one.acknowledged is None for one in seen):
            context.say(
                f"{name}: this ramp goes by letters that consumers took; nothing tells whether they are "
                f"acknowledged{more}"
            )
        if kind.ramp_note:
            context.say(f"{name}: {kind.ramp_note}")


def _sources(context: Context, header: planfile.Header) -> list[Source]:
    """Where the plan's letters died; raises UsageError when one of these can't be watched."""
    names = Loader(context.store).sources(header.segments)
    missing = [name for name in names if name not in context.settings.sources]
    if missing:
        raise UsageError(f"--ramp watches source {missing[0]!r}, which is not in the configuration any more")
    return [context.settings.sources[name] for name in names]


def _look_again(context: Context, sources: Sequence[Source], plan: str) -> int:
    """Capture what lies in the sources now, as their configured mode says; how much of the plan came back."""
    for source in sources:
        mode: Mode = "drain" if source.mode == "drain" else "copy"
        try:
            with brokers_of(context) as brokers:
                result = pull(context.store, brokers.get(source.broker), source, PullOptions(mode=mode))
        except HarmRefused as refused:
            raise HarmRefused(_UNWATCHABLE.format(source=source.name, mode=mode)) from refused
        if result.error is not None:
            raise result.error
    return came_back.count(context.store, context.settings, plan)
