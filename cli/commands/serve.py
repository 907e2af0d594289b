"""dlq serve: the page."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from dlq.cli.context import config_path, to_stderr
from dlq.cli.memory import bound_memory
from dlq.core.extras import import_with_extra

if TYPE_CHECKING:
    from dlq.cli.context import Context


def serve(
    ctx: typer.Context,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="The port; 0: any free one.")
    ] = 8080,
) -> None:
    """Serve the archive as pages for a browser.

    It prints an address with a token that is good until the server ends. Roles in \\[serve] let people act
    there; without \\[serve] the pages are read-only, on this host alone. Ctrl-C ends the server; an apply, a
    pull or an analysis that it began goes on.

    Example: dlq serve --port 8080
    """
    context: Context = ctx.obj
    bound_memory()
    path = config_path(context.config)
    config = None if path is None else os.path.abspath(path)
    # The rooms of commands and of pages do not know each other, but for this door.
    import_with_extra("dlq.web.server", "serve", "the page needs").serve(
        context.settings, config, host, port, lambda address: _tell(context, address), not context.quiet
    )


def _tell(context: "Context", address: str) -> None:
    to_stderr("The pages are at this address, which lets in whoever has it. Ctrl-C ends the server.")
    context.emit({"address": address}, lambda: context.console.print(address, soft_wrap=True))
