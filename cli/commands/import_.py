"""`dlq import`: letters from JSONL, or as they were printed, into the archive."""

from typing import TYPE_CHECKING, Annotated

import typer

from dlq.cli import completion
from dlq.cli.commands.pull import NoAnalyze
from dlq.cli.context import Context
from dlq.cli.triage import show_died

if TYPE_CHECKING:
    from dlq.operations.jsonl import Imported

PRINTERS = (
    "The program that printed the file, if it is no JSONL: rabbitmq-management, rabbitmqadmin, "
    "activemq-console, artemis-console or rocketmq-print."
)


def import_(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(help="JSONL file, gzip if it ends in .gz, - for standard input.")],
    source: Annotated[
        str,
        typer.Option(
            metavar="NAME", autocompletion=completion.sources, help="The source that the letters get."
        ),
    ] = "import",
    broker: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The configured broker for replays, if the source is not configured."
        ),
    ] = None,
    printed_by: Annotated[
        str | None,
        typer.Option("--from", metavar="PROGRAM", autocompletion=completion.printers, help=PRINTERS),
    ] = None,
    no_analyze: NoAnalyze = False,
) -> int:
    """Add letters from a JSONL file, a console or a client.

    It names each line that it cannot read, with its number and the reason, and imports the others. Importing
    the same file again adds nothing. The import ends with an analysis, as dlq pull does.

    A replay goes to the broker that the source is configured for, else to --broker. The broker that a line
    names is only recorded.

    Example: zcat letters.jsonl.gz | dlq import - --source orders
    """
    from dlq.operations.jsonl import import_file

    context: Context = ctx.obj
    done = import_file(context.workspace, file, source, printed_by, not no_analyze, broker)
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
        f"{counts['records']} letters ({counts['known']} already archived), {counts['refused']} lines refused"
        f"{'' if counts['broker'] else unnamed}",
        soft_wrap=True,
    )
    show_died(context, done.died)
