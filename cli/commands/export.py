"""`dlq export`: letters of the archive as JSONL, or all that is known of them as one file."""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

import typer

from dlq.cli import selecting
from dlq.cli.context import Context
from dlq.core.errors import UsageError

if TYPE_CHECKING:
    import duckdb

    from dlq.core.record import Record
    from dlq.reports.masking import Masker

_BATCH_ROWS = 1000
_BUNDLE = ".zip"
_FILE = (
    "JSONL file to write, gzip if it ends in .gz, - for stdout; one that ends in .zip gets all that is "
    "known of the letters."
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(export)


def export(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(help=_FILE)],
    where: selecting.Where = None,
    source: selecting.Sources = None,
    since: selecting.Since = None,
    incident: selecting.Incident = None,
    failure: selecting.Failure = None,
    mask: Annotated[
        bool, typer.Option("--mask", help="Mask personal data (built-in rules and [\\[mask]]).")
    ] = False,
) -> None:
    """Write letters as JSONL, with everything that import needs to make the same records again.

    A file that ends in .zip is a bundle for the post-mortem: the letters, their verdicts and incidents, the
    plans that hold any, rows of the ledger, who did what, and a manifest of digests.

    Example: dlq export --incident 3f9c12ab --mask incident.zip
    """
    from dlq.cli.views import open_views
    from dlq.reports.masking import Masker, said

    context: Context = ctx.obj
    selection = selecting.Selection(where, source, since, incident, failure)
    is_bundle = file.endswith(_BUNDLE)
    connection = open_views(context, with_plans=is_bundle)
    chosen = selection.condition(context, connection)
    masker = Masker(context.settings.mask) if mask else None
    write = partial(_bundle, context, selection) if is_bundle else _letters
    count = _written(file, write(connection, chosen, masker), mask)
    if masker and masker.withheld:
        context.complain(said(masker.withheld))
    if file == "-":
        context.say(f"{count} letters")
    else:
        context.emit(
            {"records": count, "refused": 0}, lambda: context.console.print(f"{count} letters in {file}")
        )


Content = Callable[[BinaryIO], int]
"""Writes it and says how many letters it was."""


def _letters(connection: "duckdb.DuckDBPyConnection", chosen: str | None, masker: "Masker | None") -> Content:
    lines = _lines(connection, chosen, masker)
    first = next(lines, None)
    return lambda sink: sum(1 for line in _again(first, lines) if sink.write(line))


def _bundle(
    context: Context,
    selection: selecting.Selection,
    connection: "duckdb.DuckDBPyConnection",
    chosen: str | None,
    masker: "Masker | None",
) -> Content:
    from importlib.metadata import version

    from dlq.archive import analyses, views
    from dlq.archive.user_sql import condition
    from dlq.cli.views import events
    from dlq.reports import bundle

    views.narrow(connection, condition(chosen))
    latest = analyses.latest(context.store)
    about = {
        "dlq": version("dlq"),
        "letters": selection.options() or "all",
        "masked": masker is not None,
        "analysis": latest.analysis if latest else None,
    }
    lines = _lines(connection, None, masker, " ORDER BY source, record_id")
    found = bundle.members(context.store, connection, events(context), lines, masker)
    return lambda sink: bundle.write(sink, about, found)["letters.jsonl"]


def _written(file: str, content: Content, mask: bool) -> int:
    from dlq.archive.files import SHARED
    from dlq.archive.folder import PRIVATE

    try:
        with _opened(file, SHARED if mask else PRIVATE) as sink:
            return content(sink)
    except BrokenPipeError:
        raise  # who reads has enough
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error


@contextmanager
def _opened(file: str, mode: int) -> Iterator[BinaryIO]:
    from dlq.archive.files import replacing
    from dlq.connectors.file import open_binary

    with open_binary(file, "wb") if file == "-" else replacing(file, mode) as sink:
        if file.endswith(".gz"):
            with gzip.GzipFile(Path(file).name, "wb", fileobj=sink) as packed:
                yield cast(BinaryIO, packed)
        else:
            yield sink


def _again(first: bytes | None, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first is not None:
        yield first
    yield from rest


def _lines(
    connection: "duckdb.DuckDBPyConnection", where: str | None, masker: "Masker | None", order: str = ""
) -> Iterator[bytes]:
    """A wrong condition shows at the first line, before the file is opened."""
    import pyarrow as pa

    from dlq.archive.schema import SEGMENT, to_records
    from dlq.archive.user_sql import condition, guarded

    columns = ", ".join(f'"{name}"' for name in SEGMENT.names)
    chosen = f"SELECT source, record_id FROM letters WHERE {condition(where)}"
    with guarded(connection):
        found = connection.sql(
            f"SELECT {columns} FROM records SEMI JOIN ({chosen}) USING (source, record_id){order}"
        )
        for batch in found.to_arrow_reader(_BATCH_ROWS):
            for record in to_records(pa.Table.from_batches([batch])):
                yield _line(record, masker)


def _line(record: "Record", masker: "Masker | None") -> bytes:
    """One letter; one whose headers nest as deep as Python goes has them as the texts that they were."""
    from dlq.connectors.interchange.format import line_of, masked_line

    def written(line: dict[str, Any]) -> bytes:
        return json.dumps(masked_line(masker.document(line)) if masker else line).encode() + b"\n"

    try:
        return written(line_of(record))
    except RecursionError:
        return written(line_of(record._replace(headers={})) | {"headers": dict(record.headers)})
