"""`dlq watch`: how full the sources are, what comes and goes, and what a replay does, again and again."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count as numbers
from time import sleep
from typing import Annotated, Any

import typer

from dlq.cli import completion
from dlq.cli.context import Context, wants_no_escapes
from dlq.core.clock import from_iso, now
from dlq.core.text import for_terminal
from dlq.core.values.units import human_seconds, seconds_to_last

_ALL = "\x1b[H\x1b[J"
"""Go to the first line, and make the screen empty."""


def watch(
    ctx: typer.Context,
    sources: Annotated[
        list[str] | None,
        typer.Argument(autocompletion=completion.sources, help="Sources to watch (default: all)."),
    ] = None,
    every: Annotated[str, typer.Option(metavar="TIME", help="How often to look.")] = "5s",
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after N looks (default: Ctrl-C).")
    ] = None,
) -> int:
    """Watch depth, consumers, rates and age of sources, and replays.

    It takes nothing from a queue. Rates cover the last 30 seconds; where a broker does not count what its
    consumers acknowledge, they show only how the depth changes. A replayed letter that dies again is seen
    after the next pull (--ramp pulls).

    Example: dlq watch orders --every 2s
    """
    from dlq.operations.brokers.watching import Watching

    context: Context = ctx.obj
    pause = seconds_to_last(every)
    with Watching(context.workspace, sources or ()) as watching, _screen(context):
        for number in numbers(1):
            _show(context, watching.look())
            if number == count:
                break
            sleep(pause)
        return watching.code


@contextmanager
def _screen(context: Context) -> Iterator[None]:
    """Open a screen of its own, so that the terminal is afterwards as it was."""
    if not _is_screen(context):
        yield
        return
    with context.console.screen(hide_cursor=True):
        yield


def _is_screen(context: Context) -> bool:
    return context.output == "table" and sys.stdout.isatty() and not wants_no_escapes(context.no_color)


def _show(context: Context, document: Mapping[str, Any]) -> None:
    if context.output != "table":
        context.emit(document)
        return
    if _is_screen(context):
        context.console.file.write(_ALL)
    context.console.print(f"{document['at'][:19]}Z", style="bold")
    context.emit_rows(_COLUMNS, [_row(one) for one in document["sources"]])
    for one in document["sources"]:
        for said in filter(None, (one["error"], one["note"])):
            context.console.print(for_terminal(f"{one['source']}: {said}"))
    for replay in document["replays"]:
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
