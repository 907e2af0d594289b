"""`dlq export`: letters of the archive as JSONL, or all that is known of them as one file."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, cast

import typer

from dlq.cli import selecting
from dlq.cli.context import Context
from dlq.core.errors import UsageError

if TYPE_CHECKING:
    from dlq.operations.jsonl import Content

_BUNDLE = ".zip"
_FILE = "JSONL file to write, gzip if it ends in .gz, - for stdout; .zip: a bundle for the post-mortem."


def export(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(help=_FILE)],
    where: selecting.Where = None,
    source: selecting.Sources = None,
    since: selecting.Since = None,
    incident: selecting.Incident = None,
    failure: selecting.Failure = None,
    text: selecting.Text = None,
    mask: Annotated[
        bool, typer.Option("--mask", help="Show structure, and only content that \\[mask] lists.")
    ] = False,
) -> None:
    """Write letters as JSONL that dlq import reads back.

    A file name that ends in .zip makes a bundle for the post-mortem: the letters, their verdicts, incidents
    and plans, rows of the ledger, the audit trail, and a manifest of digests.

    Example: dlq export --incident 20261102-0310 --mask incident.zip
    """
    from dlq.operations.jsonl import export_bundle, export_letters
    from dlq.operations.reading.selecting import Selection
    from dlq.reports.letters.masking import Masker

    context: Context = ctx.obj
    selection = Selection(where, source, since, incident, failure, text)
    masker = Masker(context.settings.mask) if mask else None
    export_them = export_bundle if file.endswith(_BUNDLE) else export_letters
    count = _write_file(file, export_them(context.workspace, selection, masker), mask)
    if file == "-":
        context.say(f"{count} letters")
    else:
        context.emit(
            {"records": count, "refused": 0}, lambda: context.console.print(f"{count} letters in {file}")
        )


def _write_file(file: str, content: "Content", mask: bool) -> int:
    from dlq.archive.storage.files import SHARED
    from dlq.archive.storage.folder import PRIVATE

    try:
        with _opened(file, SHARED if mask else PRIVATE) as sink:
            return content(sink)
    except BrokenPipeError:
        raise  # who reads has enough
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}; name another file") from error


@contextmanager
def _opened(file: str, mode: int) -> Iterator[BinaryIO]:
    from dlq.archive.storage.files import replacing
    from dlq.connectors.file import open_binary

    with open_binary(file, "wb") if file == "-" else replacing(file, mode) as sink:
        if file.endswith(".gz"):
            with gzip.GzipFile(Path(file).name, "wb", fileobj=sink) as packed:
                yield cast(BinaryIO, packed)
        else:
            yield sink
