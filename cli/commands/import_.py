"""`dlq import`: letters from JSONL, or as they were printed, into the archive."""

from typing import TYPE_CHECKING, Annotated

import typer

from dlq.cli import completion, died
from dlq.cli.commands.pull import NoAnalyze
from dlq.cli.context import Context
from dlq.cli.exit import ExitCode
from dlq.core.errors import UsageError

if TYPE_CHECKING:
    from dlq.archive.store import Store

_SHOWN = 50
_PRINTERS = (
    "What printed the file, if it is no JSONL: rabbitmq-management, rabbitmqadmin, activemq-console, "
    "artemis-console or rocketmq-print."
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import")(import_)


def import_(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(help="JSONL file, gzip if it ends in .gz, - for standard input.")],
    source: Annotated[
        str,
        typer.Option(autocompletion=completion.sources, help="Under which source the letters are archived."),
    ] = "import",
    printed_by: Annotated[
        str | None,
        typer.Option("--from", autocompletion=completion.printers, help=_PRINTERS),
    ] = None,
    no_analyze: NoAnalyze = False,
) -> int:
    """Add letters to the archive, from a JSONL file or as a console or a client printed them.

    A line that cannot be read is named with its number and the reason; the others are imported. Importing the
    same file again adds nothing. It ends with an analysis, as dlq pull does.

    Example: zcat letters.jsonl.gz | dlq import - --source orders
    """
    import re

    from dlq.capture.pull import PullOptions, pull
    from dlq.connectors.file import FileConnector
    from dlq.connectors.interchange.prints import reader_of
    from dlq.core.brokers import resolve
    from dlq.core.settings import Source

    context: Context = ctx.obj
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", source):
        raise UsageError(f"--source {source!r}: letters, digits, '.', '_' and '-' only")
    if file.endswith(".zip"):
        raise UsageError(f"{file} is a bundle: unzip it, and import its letters.jsonl")
    place = context.settings.sources.get(source) or Source(source, broker="import")
    printed = resolve(reader_of(printed_by)) if printed_by else None
    result = pull(context.store, FileConnector(file, printed), place, PullOptions("copy"))
    for problem in result.left_letters[:_SHOWN]:
        context.complain(f"{file}: {problem}")
    if len(result.left_letters) > _SHOWN:
        context.complain(f"{file}: and {len(result.left_letters) - _SHOWN} more lines")
    counts = {
        "records": result.captured + result.recaptured,
        "refused": len(result.left_letters),
        "known": result.recaptured,
    }
    new = died.of(context, [result.pull_id], not no_analyze)
    document = {"source": source, "pull_id": result.pull_id, **counts}
    document["causes"] = new.causes and new.causes[result.pull_id]
    context.emit(document, lambda: _say(context, counts, new))
    if result.captured and (twins := _also_elsewhere(context.store, result.pull_id)):
        context.complain(
            f"{twins} of these letters lie in the archive under another source, too: every count has them "
            "twice now; import an export into another archive"
        )
    return ExitCode.PARTLY if result.left_letters else new.code


def _also_elsewhere(store: "Store", pull_id: str) -> int:
    """How many letters of this import the archive holds under another source, by their ids."""
    from dlq.archive.views import connect

    sql = """
        SELECT count(DISTINCT record_id) FROM records new WHERE pull_id = ? AND EXISTS (
            SELECT 1 FROM records old WHERE old.record_id = new.record_id AND old.source <> new.source
        )"""
    with connect(store) as connection:
        (count,) = connection.execute(sql, [pull_id]).fetchall()[0]
    return int(count)


def _say(context: Context, counts: dict[str, int], new: died.Died) -> None:
    context.console.print(
        f"{counts['records']} letters ({counts['known']} known before), {counts['refused']} lines refused"
    )
    died.show(context, new)
