"""dlq show: one letter, in full."""

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlq.cli.context import Context
from dlq.core.brokers import kind_of, resolve
from dlq.core.errors import UsageError
from dlq.core.units import human_bytes

if TYPE_CHECKING:
    import duckdb

    from dlq.reports.body import Preview

_LARGEST = 256 * 2**20
"""Bytes that a body may unpack to: what grows beyond is an attack or damage."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("show")(show)


def show(
    ctx: typer.Context,
    record_id: Annotated[
        str, typer.Argument(metavar="ID", help="A record id, or 8 or more of its first digits.")
    ],
    mask: Annotated[
        bool, typer.Option("--mask", help="Mask personal data, by built-in rules and [\\[mask]].")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Up to 4 MiB of the body.")] = False,
    body: Annotated[
        str | None,
        typer.Option("--body", metavar="FILE", help="Write the whole body, unpacked, to FILE, - for stdout."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say which rules looked at it, what each saw, and what follows.")
    ] = False,
) -> None:
    """Show one letter: why it died, the way it went, its content, and what to do with it.

    -o json gives every column; the body is body_text when it is UTF-8, else body_base64.

    Example: dlq show 1f0c2d3e4b5a
    """
    from dlq.archive.files import SHARED
    from dlq.archive.folder import PRIVATE
    from dlq.cli.views import open_views
    from dlq.reports import letter as letters
    from dlq.reports.masking import Masker, said

    context: Context = ctx.obj
    connection = open_views(context)
    letter = letters.gather(connection, record_id)
    masker = Masker(context.settings.mask) if mask else None
    if masker is not None:
        letter = masker.document(letter)
    if body is not None:
        _write_body(context, letter, body, SHARED if mask else PRIVATE)
        return
    if explain:
        steps = {"explain": _explained(context, connection, letter)}
        letter |= steps if masker is None else masker.document(steps)
    context.emit(letters.with_readable_body(letter), lambda: _draw(context, letter, full))
    if masker is not None and masker.withheld:
        context.complain(said(masker.withheld))


def _explained(
    context: Context, connection: "duckdb.DuckDBPyConnection", letter: Mapping[str, Any]
) -> list[dict[str, Any]]:
    from dlq.analyzers import topology
    from dlq.archive.views import segment_rows
    from dlq.core.record import COLUMNS
    from dlq.replay.letters import Place
    from dlq.replay.load import Loader
    from dlq.reports import explain

    where = f"record_id = '{letter['record_id']}'"
    row = next(segment_rows(connection, where, ["record_id"])).to_pylist()[0]
    place = Place(row["record_id"], row["stem"], row["row"])
    (record,) = Loader(context.store, COLUMNS).records([place])
    return explain.gather(letter, record, topology.facts(context.store, context.settings))


def _draw(context: Context, letter: Mapping[str, Any], full: bool) -> None:
    from dlq.reports import explain, letter_text

    letter_text.render(context.console, letter, _preview(letter, full))
    if "explain" in letter:
        explain.render(context.console, letter, context.settings)


def _preview(letter: Mapping[str, Any], full: bool) -> "Preview":
    from dlq.reports.body import LARGEST, encoded, preview

    kind = kind_of(letter["broker_kind"])
    try:
        body, encoding = _packed(letter, LARGEST)
        told = resolve(kind.readable)(body, letter["properties"] or {}) if kind.readable else None
        if told is not None:
            document, note = told
            return encoded(document, note, full) if document else preview(body, None, note, full)
    except ValueError as error:
        reason = f"{error}, or more than {human_bytes(LARGEST)}; --body FILE writes up to 256 MiB"
        return preview(base64.b64decode(letter["body_base64"]), None, reason, full)
    return preview(body, encoding, kind.why_no_text(letter["flags"] or 0), full)


def _packed(letter: Mapping[str, Any], limit: int) -> tuple[bytes, str | None]:
    """The body, and how it is packed where that can be streamed; what else its broker's clients pack is
    unpacked here, up to `limit` bytes. Raises ValueError."""
    from dlq.reports.unpacking import told

    body, flags = base64.b64decode(letter["body_base64"] or ""), letter["flags"] or 0
    kind = kind_of(letter["broker_kind"])
    if packing := kind.packing(flags):
        return body, packing
    plain = resolve(kind.unpack)(body, flags, limit) if kind.unpack else None
    return (
        (body, told(letter["content_encoding"], letter["headers"] or {})) if plain is None else (plain, None)
    )


def _write_body(context: Context, letter: Mapping[str, Any], file: str, mode: int) -> None:
    """The whole body, piece by piece, however much it unpacks to. Raises UsageError."""
    from dlq.archive.files import replacing
    from dlq.connectors.file import open_binary
    from dlq.reports.unpacking import pieces

    try:
        packed = _packed(letter, _LARGEST)
        with open_binary(file, "wb") if file == "-" else replacing(file, mode) as sink:
            size = sum(sink.write(piece) for piece in pieces(*packed))
    except ValueError as error:
        raise UsageError(f"the body cannot be unpacked: {error}; dlq export has it as it is") from error
    except BrokenPipeError:
        raise  # who reads has enough
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error
    if file != "-":
        written = {"record_id": letter["record_id"], "file": file, "bytes": size}
        context.emit(written, lambda: context.console.print(f"{human_bytes(size)} written to {file}"))
