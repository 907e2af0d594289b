"""dlq show: one letter, in full."""

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlq.cli.context import Context

if TYPE_CHECKING:
    from dlq.reports.body import Preview


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
    full: Annotated[bool, typer.Option("--full", help="The whole body, however long.")] = False,
) -> None:
    """Show one letter: why it died, the way it went, its content, and what to do with it.

    -o json gives every column; the body is body_text when it is UTF-8, else body_base64.

    Example: dlq show 1f0c2d3e4b5a
    """
    from dlq.cli.looking import open_views
    from dlq.reports import letter as letters
    from dlq.reports import letter_text
    from dlq.reports.masking import Masker

    context: Context = ctx.obj
    letter = letters.gather(open_views(context), record_id)
    if mask:
        letter = Masker(context.settings.mask).document(letter)
    context.emit(
        letters.with_readable_body(letter),
        lambda: letter_text.render(context.console, letter, _preview(letter, full)),
    )


def _preview(letter: Mapping[str, Any], full: bool) -> "Preview":
    from dlq.connectors.remoting import ProtocolError
    from dlq.connectors.rocket_bodies import COMPRESSED, plain_body
    from dlq.reports.body import opaque, preview

    body = base64.b64decode(letter["body_base64"] or "")
    kind, flags = letter["broker_kind"], letter["flags"] or 0
    no_text = opaque(kind, flags)
    if kind == "rocketmq" and flags & COMPRESSED:
        try:
            body = plain_body(body, flags)
        except ProtocolError as error:
            no_text = str(error)
    return preview(body, letter["content_encoding"], no_text, full)
