"""`dlq import`: JSONL letters into the archive."""

from typing import Annotated

import typer

from dlq.cli import completion
from dlq.cli.context import Context
from dlq.cli.exit import ExitCode
from dlq.core.errors import UsageError
from dlq.core.settings import Source

_SHOWN = 50


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
) -> int:
    """Add letters from a JSONL file to the archive.

    A line that cannot be read is named with its number and the reason; the others are imported. Importing the
    same file again adds nothing.

    Example: zcat letters.jsonl.gz | dlq import - --source orders
    """
    import re

    from dlq.capture.pull import PullOptions, pull
    from dlq.connectors.file import FileConnector

    context: Context = ctx.obj
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", source):
        raise UsageError(f"--source {source!r}: letters, digits, '.', '_' and '-' only")
    place = context.settings.sources.get(source) or Source(source, broker="import")
    result = pull(context.store, FileConnector(file), place, PullOptions("copy"))
    for problem in result.left_letters[:_SHOWN]:
        context.complain(f"{file}: {problem}")
    if len(result.left_letters) > _SHOWN:
        context.complain(f"{file}: and {len(result.left_letters) - _SHOWN} more lines")
    counts = {
        "records": result.captured + result.recaptured,
        "refused": len(result.left_letters),
        "known": result.recaptured,
    }
    context.emit({"source": source, "pull_id": result.pull_id, **counts}, lambda: _say(context, counts))
    return ExitCode.PARTLY if result.left_letters else ExitCode.DONE


def _say(context: Context, counts: dict[str, int]) -> None:
    context.console.print(
        f"{counts['records']} letters ({counts['known']} known before), {counts['refused']} lines refused"
    )
