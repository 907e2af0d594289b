"""`dlq run`: what cron calls."""

from typing import Annotated

import typer

from dlq.cli import completion
from dlq.cli.context import Context, show_trace, to_stderr
from dlq.cli.exit import ExitCode, code_of
from dlq.core.errors import Busy, DlqError, UsageError, with_next_step
from dlq.core.runtime import logs
from dlq.core.runtime.logs import Log
from dlq.core.text import for_terminal
from dlq.core.values.suggestions import suggest


def run(
    ctx: typer.Context,
    profile: Annotated[
        str,
        typer.Argument(metavar="PROFILE", autocompletion=completion.profiles, help="Its name in dlq.toml."),
    ],
    skip_if_busy: Annotated[
        bool, typer.Option("--skip-if-busy", help="Exit with 0 while another run of the profile is at work.")
    ] = False,
    log_format: Annotated[
        str,
        typer.Option(
            "--log-format",
            metavar="text|json",
            autocompletion=completion.log_formats,
            help="json: one event a step on stderr.",
        ),
    ] = "text",
    metrics_otlp: Annotated[
        str | None, typer.Option("--metrics-otlp", metavar="URL", help="Also send the metrics to this URL.")
    ] = None,
    parallel: Annotated[
        int, typer.Option(metavar="N", help="Pull N sources at once; those of one queue take turns.", min=1)
    ] = 4,
) -> int:
    """Run a profile: pull, analyze, report, check, write metrics.

    A source that fails does not stop the others. The next run repairs what a crash has left.

    Example: dlq run nightly --skip-if-busy
    """
    context: Context = ctx.obj
    if log_format not in logs.FORMATS:
        raise UsageError(
            f"--log-format must be text or json, not {log_format!r}{suggest(log_format, logs.FORMATS)}"
        )
    if log_format == "text":
        log = logs.sentences(lambda text: context.say(for_terminal(text)), context.complain)
        return _run(context, profile, skip_if_busy, metrics_otlp, log, parallel)
    log = logs.json_lines(to_stderr)
    try:
        return _run(context, profile, skip_if_busy, metrics_otlp, log, parallel)
    except DlqError as error:
        log("run_failed", profile=profile, error=with_next_step(error))
        return code_of(error)
    except KeyboardInterrupt:
        log("run_failed", profile=profile, error="interrupted")
        return ExitCode.INTERRUPTED


def _run(context: Context, name: str, skip_if_busy: bool, otlp: str | None, log: Log, parallel: int) -> int:
    from dlq.operations.profile import load
    from dlq.operations.profile_run import run_profile

    task = load(context.settings, name, otlp)
    trace = show_trace if context.verbose else lambda _error: None
    try:
        outcome, code = run_profile(context.workspace, task, log, parallel, trace)
    except Busy as error:
        if not skip_if_busy:
            raise
        log("busy", profile=name, error=f"skipped: {error}")
        return ExitCode.DONE
    context.emit(outcome, lambda: _show(context, outcome))
    return code


def _show(context: Context, outcome: dict[str, object]) -> None:
    columns = ("source", "mode", "captured", "recaptured", "left", "seconds", "error")
    sources = outcome["sources"]
    rows = (
        [[source.get(column) for column in columns] for source in sources]
        if isinstance(sources, list)
        else []
    )
    context.emit_rows(columns, rows)
