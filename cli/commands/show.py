"""dlq show: one letter, in full."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from dlq.cli.context import Context
from dlq.core.documents import Document
from dlq.core.errors import UsageError
from dlq.core.values.units import human_bytes


def show(
    ctx: typer.Context,
    record_id: Annotated[
        str, typer.Argument(metavar="ID", help="A record id, or 8 or more of its first digits.")
    ],
    mask: Annotated[
        bool, typer.Option("--mask", help="Show structure, and only content that \\[mask] lists.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Show up to 4 MiB of the body.")] = False,
    body: Annotated[
        str | None,
        typer.Option("--body", metavar="FILE", help="Write the whole body, unpacked, to FILE (-: stdout)."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show which rules looked at it, and what each saw.")
    ] = False,
) -> None:
    """Show one letter: its cause, path, content and next step.

    -o json prints every column; the body is body_text when it is UTF-8, else body_base64.

    Example: dlq show 1f0c2d3e4b5a
    """
    from dlq.archive.storage.files import SHARED
    from dlq.archive.storage.folder import PRIVATE
    from dlq.operations.reading.letters import show_letter
    from dlq.reports.letters.letter import with_readable_body

    context: Context = ctx.obj
    masker = None
    if mask:
        from dlq.reports.letters.masking import Masker  # which takes a tenth of the command

        masker = Masker(context.settings.mask)
    letter = show_letter(context.workspace, record_id, masker, explain and body is None)
    if body is not None:
        _write_body(context, letter, body, SHARED if mask else PRIVATE)
        return
    context.emit(with_readable_body(letter), lambda: _draw(context, letter, full))


def _draw(context: Context, letter: Document, full: bool) -> None:
    from dlq.operations.reading.letters import preview_body
    from dlq.reports.letters import explain, letter_text

    letter_text.render(context.console, letter, preview_body(letter, full))
    if "explain" in letter:
        explain.render(context.console, letter, context.settings)


def _write_body(context: Context, letter: Mapping[str, Any], file: str, mode: int) -> None:
    """Write the whole body, piece by piece, however much it unpacks to. Raises UsageError."""
    from dlq.archive.storage.files import replacing
    from dlq.connectors.file import open_binary
    from dlq.operations.reading.letters import unpack_body
    from dlq.reports.letters.unpacking import pieces

    try:
        packed = unpack_body(letter)
        with open_binary(file, "wb") if file == "-" else replacing(file, mode) as sink:
            size = sum(sink.write(piece) for piece in pieces(*packed))
    except ValueError as error:
        raise UsageError(
            f"the body cannot be unpacked: {error}; run dlq export, which writes it packed"
        ) from error
    except BrokenPipeError:
        raise  # who reads has enough
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}; name another file") from error
    if file != "-":
        written = {"record_id": letter["record_id"], "file": file, "bytes": size}
        context.emit(written, lambda: context.console.print(f"{human_bytes(size)} written to {file}"))
