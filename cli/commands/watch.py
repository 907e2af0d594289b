"""`dlq watch`: how full the sources are, what comes and goes, and what a replay does, again and again."""

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count as numbers
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlq.cli import completion
from dlq.cli.at_once import Stop, at_once
from dlq.cli.connecting import connect
from dlq.cli.context import Context, wants_no_escapes
from dlq.cli.exit import ExitCode, code_of
from dlq.core.clock import from_iso, iso, now
from dlq.core.errors import DlqError, Unreachable, UsageError
from dlq.core.text import for_terminal
from dlq.core.units import human_seconds, seconds

if TYPE_CHECKING:
    from dlq.connectors.base import Connector, Gauge
    from dlq.core.settings import Source

_AT_ONCE = 8
_PATIENCE = 10.0
"""Seconds after which a tick goes on without an answer."""
_SPAN = 30.0
"""Seconds over which a rate is taken: brokers count now and then."""
_COUNTED_LATE = 10.0
"""Seconds before a rate is told of acknowledgements, which brokers count up to 5 s late."""
_ALL = "\x1b[H\x1b[J"
"""Go to the first line, and make the screen empty."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(watch)


def watch(
    ctx: typer.Context,
    sources: Annotated[
        list[str] | None,
        typer.Argument(autocompletion=completion.sources, help="Sources to watch (default: all)."),
    ] = None,
    every: Annotated[str, typer.Option(metavar="TIME", help="How often to look.")] = "5s",
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after that many looks (default: Ctrl-C).")
    ] = None,
) -> int:
    """Watch depth, consumers, rates and age of the sources, and the replays that go on meanwhile.

    Nothing is taken from a queue. Rates are of the last 30 seconds; where a broker does not count what its
    consumers acknowledge, they tell only how the depth changes. A replay's letters that died again are seen
    when they are pulled (--ramp does).

    Example: dlq watch orders --every 2s
    """
    context: Context = ctx.obj
    chosen = context.sources(sources or [])
    pause = seconds(every)
    if pause <= 0:
        raise UsageError(f"--every {every}: it must be longer than nothing")
    watched = [_Watched(source) for source in chosen]
    replays = _Replays(context)
    try:
        with _screen(context):
            for number in numbers(1):
                _look(context, watched)
                _show(context, watched, replays.moving())
                if number == count:
                    break
                sleep(pause)
    finally:
        for one in watched:
            if one.connector is not None:
                one.connector.close()
    errors = [one.error for one in watched if one.error is not None]
    if not errors:
        return ExitCode.DONE
    return code_of(errors[0]) if len(errors) == len(watched) else ExitCode.PARTLY


@dataclass
class _Watched:
    """A source, and what was seen of it in the last seconds."""

    source: "Source"
    connector: "Connector | None" = None
    seen: "deque[tuple[float, Gauge]]" = field(default_factory=deque)
    error: DlqError | None = None

    def look(self, context: Context) -> "tuple[Connector, Gauge]":
        """Ask the broker, on the connection of before or a new one; raises BrokerError. Changes nothing here:
        a thread that hangs, and was left behind, may end at any time."""
        connector = self.connector or connect(context, context.settings.brokers[self.source.broker])
        try:
            return connector, connector.gauge(self.source)
        except DlqError:
            connector.close()
            raise

    def learn(self, connector: "Connector", gauge: "Gauge") -> None:
        """Remember it for as long as rates need it."""
        self.connector, self.error = connector, None
        self.seen.append((monotonic(), gauge))
        while self.seen[-1][0] - self.seen[0][0] > _SPAN and len(self.seen) > 2:
            self.seen.popleft()

    def fail(self, error: DlqError) -> None:
        """What was seen is old now, and its connection gone."""
        self.connector, self.error = None, error
        self.seen.clear()


def _look(context: Context, watched: Sequence[_Watched]) -> None:
    """Ask for all at once. Who hangs is left behind, and asked on a new connection the next time."""

    def look(one: _Watched, _stop: Stop) -> "tuple[Connector, Gauge]":
        return one.look(context)

    for one, future in at_once(look, watched, _AT_ONCE, _interrupt, _PATIENCE):
        if future.cancelled() or not future.done():
            one.fail(Unreachable(f"{one.source.broker}: no answer within {_PATIENCE:g} s"))
            continue
        try:
            one.learn(*future.result())
        except DlqError as error:
            one.fail(error)


def _interrupt() -> None:
    """Looking leaves nothing to be put in order."""
    raise KeyboardInterrupt


def rates(seen: "Sequence[tuple[float, Gauge]]") -> tuple[float | None, float | None]:
    """Letters a second that came and that left, from the first to the last of what was seen.

    None where nothing is known: one look is no rate, and a counter may begin anew.
    """
    if len(seen) < 2:
        return None, None
    (began, first), (ended, last) = seen[0], seen[-1]
    if first.depth is None or last.depth is None or ended <= began:
        return None, None
    more = last.depth - first.depth
    if first.acknowledged is None or last.acknowledged is None:
        left = max(0, -more)
    elif last.acknowledged < first.acknowledged or ended - began < _COUNTED_LATE:
        return None, None
    else:
        left = last.acknowledged - first.acknowledged
    return max(0, more + left) / (ended - began), left / (ended - began)


def document_of(one: _Watched) -> dict[str, Any]:
    """What is told of a source in a tick."""
    gauge = one.seen[-1][1] if one.seen else None
    came, left = rates(one.seen)
    return {
        "source": one.source.name,
        "depth": gauge.depth if gauge else None,
        "consumers": gauge.consumers if gauge else None,
        "in_per_second": None if came is None else round(came, 2),
        "out_per_second": None if left is None else round(left, 2),
        "oldest_at": iso(gauge.oldest) if gauge and gauge.oldest else None,
        "note": (gauge.note or None) if gauge else None,
        "error": str(one.error) if one.error else None,
    }


class _Replays:
    """The plans whose letters change their state while one looks."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._letters: dict[str, int] = {}
        self._before: dict[str, Mapping[str, int]] = {}
        self._moving: dict[str, None] = {}
        self._back: dict[str, int] = {}
        self._segments = -1

    def moving(self) -> list[dict[str, Any]]:
        """Those that are being sent, or were since the first look: how far they are, and what came back."""
        from dlq.cli.plans import sent_of_all

        found = dict(sent_of_all(self._context, self._letters))
        for plan, states in found.items():
            if states["sending"] or states != self._before.get(plan, states):
                self._moving[plan] = None
        self._before = found
        return [
            {"plan": plan, "states": found[plan], "came_back": back}
            for plan, back in self._returned().items()
        ]

    def _returned(self) -> Mapping[str, int]:
        """Counted anew when a pull has added to the archive: before that nothing came back."""
        from dlq.replay import came_back

        store, settings = self._context.store, self._context.settings
        segments = len(store.list("manifests/")) if self._moving else 0
        if self._moving.keys() != self._back.keys() or segments != self._segments:
            self._segments = segments
            self._back = {plan: came_back.count(store, settings, plan) for plan in self._moving}
        return self._back


@contextmanager
def _screen(context: Context) -> Iterator[None]:
    """A screen of its own, so that the terminal is afterwards as it was."""
    if not _is_screen(context):
        yield
        return
    with context.console.screen(hide_cursor=True):
        yield


def _is_screen(context: Context) -> bool:
    return context.output == "table" and sys.stdout.isatty() and not wants_no_escapes(context.no_color)


def _show(context: Context, watched: Sequence[_Watched], replays: Sequence[Mapping[str, Any]]) -> None:
    documents = [document_of(one) for one in watched]
    if context.output != "table":
        context.emit({"at": iso(now()), "sources": documents, "replays": replays})
        return
    if _is_screen(context):
        context.console.file.write(_ALL)
    context.console.print(f"{iso(now())[:19]}Z", style="bold")
    context.emit_rows(_COLUMNS, [_row(one) for one in documents])
    for one in documents:
        if said := one["error"] or one["note"]:
            context.console.print(for_terminal(f"{one['source']}: {said}"))
    for replay in replays:
        context.console.print(_replay(replay))


_COLUMNS = ("source", "depth", "consumers", "in/s", "out/s", "oldest")


def _row(one: Mapping[str, Any]) -> list[str]:
    oldest = from_iso(one["oldest_at"]) if one["oldest_at"] else None
    return [
        one["source"],
        *("?" if one[name] is None else f"{one[name]:,}" for name in ("depth", "consumers")),
        *("?" if one[name] is None else f"{one[name]:,.1f}" for name in ("in_per_second", "out_per_second")),
        "?" if oldest is None else human_seconds(max(0, now() - oldest) / 1_000_000),
    ]


def _replay(one: Mapping[str, Any]) -> str:
    states = ", ".join(f"{number:,} {state}" for state, number in one["states"].items() if number)
    return f"\nreplay {one['plan']}: {states}; {one['came_back']:,} came back"
