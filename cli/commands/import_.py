"""`dlq import`: letters from JSONL, or as they were printed, into the archive."""

from typing import TYPE_CHECKING, Annotated

import typer

from dlq.cli import completion
from dlq.cli.commands.pull import NoAnalyze
from dlq.cli.context import Context
from dlq.cli.died import show_died

if TYPE_CHECKING:
    from dlq.operations.interchange import Imported

_PRINTERS = (
    "The console or client that printed the file, if it is no JSONL: rabbitmq-management, rabbitmqadmin, "
    "activemq-console, "
    "artemis-console or rocketmq-print."
)


def import_(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(help="JSONL file, gzip if it ends in .gz, - for standard input.")],
    source: Annotated[
        str,
        typer.Option(autocompletion=completion.sources, help="Under which source the letters are archived."),
    ] = "import",
    broker: Annotated[
        str | None,
        typer.Option(help="The configured broker that the letters go back to, if no source of this name is."),
    ] = None,
    printed_by: Annotated[
        str | None,
        typer.Option("--from", autocompletion=completion.printers, help=_PRINTERS),
    ] = None,
    no_analyze: NoAnalyze = False,
) -> int:
    """Add letters to the archive, from a JSONL file or as a console or a client printed them.

    A line that cannot be read is named with its number and the reason; the others are imported. Importing the
    same file again adds nothing. It ends with an analysis, as dlq pull does.

    The broker that a line names is kept, and chooses nothing: a replay goes to the broker of the source where
    that is configured, else to --broker.

    Example: zcat letters.jsonl.gz | dlq import - --source orders
    """
    from dlq.operations.interchange import import_file

    context: Context = ctx.obj
    done = import_file(context.desk, file, source, printed_by, not no_analyze, broker)
    context.emit(done.document, lambda: _show(context, done))
    if done.twins:
        context.complain(
            f"{done.twins} of these letters lie in the archive under another source, too: every count has "
            "them twice now; import an export into another archive"
        )
    return done.code


def _show(context: Context, done: "Imported") -> None:
    counts = done.document
    unnamed = (
        "; no broker is named for them, so no plan takes them: configure "
        f"[sources.{counts['source']}], or import them with --broker under another --source"
    )
    context.console.print(
        f"{counts['records']} letters ({counts['known']} known before), {counts['refused']} lines refused"
        f"{'' if counts['broker'] else unnamed}",
        soft_wrap=True,
    )
    show_died(context, done.died)
