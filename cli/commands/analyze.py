"""dlq analyze: why did they die?"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dlq.cli import completion
from dlq.core.errors import UsageError
from dlq.core.values.suggestions import suggest

if TYPE_CHECKING:
    from dlq.analyzers.analysis import Engine
    from dlq.archive.analyses import Analysis
    from dlq.cli.context import Context

_ENGINES = completion.ENGINES


def analyze(
    ctx: typer.Context,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark master (default: local[*], or \\[spark] master).")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only letters captured since then: 24h, or 2026-11-02T03:00:00Z."),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="ENGINE",
            autocompletion=completion.engines,
            help="plain (this process), spark, or auto: spark from \\[analysis] spark_from letters on.",
        ),
    ] = "auto",
    client_log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="A consumer's log (path or glob, also .gz, .bz2), joined with suppressed duplicates.",
        ),
    ] = None,
) -> int:
    """Classify all letters: cause, exception, duplicates and advice.

    Up to 50,000 letters (\\[analysis] spark_from) are classified in this process. Spark classifies larger
    archives, and runs where you name a cluster. Both engines give the same verdicts.

    It first asks the stores that the configuration names as evidence. If one does not answer, or a letter
    makes a rule fail, it does the rest and exits with 3.

    Example: dlq analyze --since 24h
    """
    from dlq.operations.analysis import AnalysisWanted, analyze_archive
    from dlq.operations.reading.selecting import read_moment

    context: Context = ctx.obj
    if engine not in _ENGINES:
        raise UsageError(f"--engine must be {', '.join(_ENGINES)}, not {engine!r}{suggest(engine, _ENGINES)}")
    moment = None if since is None else read_moment(since)
    wanted = AnalysisWanted(cast("Engine", engine), master, moment, client_log or ())
    done = analyze_archive(context.workspace, wanted)
    context.emit(done.document, lambda: _show(context, done.analysis))
    for problem in done.problems:
        context.complain(problem)
    return done.code


def _show(context: "Context", result: "Analysis") -> None:
    changed: Mapping[str, Any] = result.extra.get("changed") or {}
    differences = changed.get("causes", {})
    named = sorted({*result.causes, *differences}, key=lambda cause: (-result.causes.get(cause, 0), cause))
    rows = [
        (cause, result.causes.get(cause, 0), f"{differences[cause]:+,}" if cause in differences else "")
        for cause in named
    ]
    context.emit_rows(("cause", "letters", "since last" if changed else ""), rows)
    new = changed.get("new_fingerprints", 0)
    if new:
        context.say(
            f"{new} fingerprint{'s' if new != 1 else ''} not seen in the analysis before ({changed['since']})"
        )
    incidents = result.extra.get("incidents", 0)
    if incidents:
        context.say(f"{incidents:,} incident{'s' if incidents != 1 else ''}: dlq incidents")
    joined = result.extra.get("client_log")
    if joined:
        context.say(
            f"client log: {joined['explained']:,} letters explained, "
            f"{joined['letters_without_line']:,} without a line, "
            f"{joined['lines_without_letter']:,} lines without a letter (lost, or taken elsewhere); "
            "list them: dlq query \"SELECT * FROM client_log WHERE state <> 'explained'\""
        )
    for name, said in result.extra.get("evidence", {}).items():
        if "error" not in said:
            context.say(f"evidence.{name}: {said['rows']:,} records, of {said['taken_at']}")
    context.say(f"{result.records:,} letters in {result.seconds:.1f} s; next: dlq report")
